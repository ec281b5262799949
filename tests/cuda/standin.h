/* A CUDA runtime for tests, on the processor: the calls of include/cuda_runtime_api.h over a pool
 * of "device" memory, streams that are threads, and events. It knows nothing of sluice.
 *
 * It is stricter than a GPU where that shows mistakes. Queued work runs later, and later by chance:
 * before each item a stream's thread may sleep (standin_machine.delay_us), so that an order that
 * nobody asked for soon goes wrong. Device memory is zeroed by nobody, each allocation lies between
 * pages that fault, and copies and sets must stay inside of it. What no correct program does is
 * counted as a fault (standin_faults) whether or not it also returns an error.
 *
 * A stream takes so many items (standin_machine.stream_depth); a call that adds one more blocks
 * until one has run, and no other call gets through meanwhile. So do two more calls that a driver
 * may let wait for what was issued: a library's first launch of a product (standin_load_code) for
 * every stream, a copy of host memory that is not locked for its own. A driver may be kinder. Where
 * that waits for something that cannot happen meanwhile, a fault is counted and the call goes on.
 *
 * Who touches which bytes is known, and whether any two that do are ordered (stream_order.h).
 *
 * As on a GPU a pointer into device memory is not for the host to follow; here it could, which is
 * the one mistake that is not seen. Kernels (tests/cuda/shim) run in a stream's thread.
 *
 * Errors of a running kernel are sticky: once standin_break was called, every call returns that
 * error and queued work is dropped, until standin_reset.
 */
#ifndef SL_STANDIN_H
#define SL_STANDIN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What machine the calls tell of. */
typedef struct standin_machine {
    int device_count;
    int driver_version, runtime_version; /* 13000: 13.0 */
    int major, minor;                    /* compute capability */
    int multiprocessor_count;
    uint64_t device_bytes;   /* of each device's memory */
    uint64_t context_bytes;  /* of it, what an open context takes */
    int has_wait_value;      /* cuStreamWaitValue32 can be had */
    uint64_t lockable_bytes; /* cudaHostRegister and cudaHostAlloc refuse more */
    uint32_t stream_depth;   /* items that a stream takes before they ran; 0: any number */
    uint64_t code_bytes;     /* of device memory, what a library's first launch takes */
    uint32_t stuck_ms;       /* a call that waits alone for so long is stuck */
    uint64_t seed;           /* of the delays */
    uint32_t delay_us;       /* the longest one; 0: none. An item in four is delayed */
    int has_one_kind;        /* all devices have one name, as ranks ask of them */
    int spoils;       /* each so-many-th copy into device memory changes a bit; 0: none does */
    int image;        /* the architecture of loaded code, as 80; 0: the device's own */
    int late_answers; /* who asks whether something is done hears no until he waits for it, be
                         it by asking again and again */
} standin_machine;

/* One device of compute capability 9.0 with 1 GiB, everything lockable, streams of 1024 items,
 * delays up to 200 us. Where they are set, the environment's STANDIN_DEVICE_BYTES, STANDIN_SEED and
 * STANDIN_DELAY_US govern. */
standin_machine standin_default(void);

/* Forgets all faults, injected errors and counts, and starts over with `machine`. Nothing may be
 * live; what is, is a fault of the new start. Without a call the machine is the default. */
void standin_reset(const standin_machine *machine);

/* ---- queued work ---- */

/* Queues function(argument) in a stand-in stream, in order with copies and events; a NULL stream
 * runs it at once. `name` is borrowed. Returns a cudaError_t as int: then it does not run. */
int standin_queue(void *stream, const char *name, void (*function)(void *argument), void *argument);

/* As standin_queue, but `argument`, from malloc, is freed after it ran, and also where it is
 * dropped because the context broke. Not freed where this returns an error. */
int standin_queue_owned(void *stream, const char *name, void (*function)(void *argument),
                        void *argument);

/* What a library does when it launches a kernel: the first time loads its `code`, a number of its
 * own. A cudaError_t as int; cudaErrorMemoryAllocation: there was no room. */
int standin_load_code(uint64_t code);

/* Loads since the last reset that found work in any stream. */
uint64_t standin_late_loads(void);

/* The most items that a stream was given and had not run, since the last reset. */
uint64_t standin_deepest_stream(void);

/* 1 if [pointer, pointer + bytes) lies inside one live allocation of device memory. */
int standin_is_device(const void *pointer, uint64_t bytes);

/* 1 if all of it lies in live registrations or allocations of locked host memory. */
int standin_is_locked(const void *pointer, uint64_t bytes);

/* ---- memory that is watched ---- */

/* What somebody who watches device memory is told: of ranges, of bytes that a copy or a set wrote,
 * and of copies from device to device, when they have run. Called in the thread that does it. */
typedef struct standin_memory_watch {
    void *watcher;
    void (*opened)(void *watcher, const void *start, uint64_t bytes);
    void (*closed)(void *watcher, const void *start);
    void (*written)(void *watcher, const void *start, uint64_t bytes);
    void (*copied)(void *watcher, const void *to, const void *from, uint64_t bytes);
} standin_memory_watch;

/* To be called while no device memory is live. Copied; all zero: nobody watches. */
void standin_watch_memory(const standin_memory_watch *watch);

/* Device memory that something else wrote: a library's stand-in. */
void standin_note_written(const void *start, uint64_t bytes);

/* ---- a profiler ---- */

/* Whether one is attached from now on; what it has seen is forgotten. Nothing may be open. */
void standin_attach_profiler(bool is_attached);

/* Ranges that began, of a name or (NULL) all, and those that have not ended. */
uint64_t standin_range_count(const char *name);
uint32_t standin_range_depth(void);

/* ---- errors ---- */

/* Counts a use of CUDA that no correct program makes. The text is made as by printf. */
void standin_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Faults since the last reset, those included that only a count of what is live now shows (memory
 * that was unmapped while registered). *out_first: text of the first, valid until the next reset;
 * may be NULL. */
uint64_t standin_faults(const char **out_first);

/* Breaks the context as a failing kernel does: every call from now on returns `error`, a
 * cudaError_t. To be called from anywhere, queued work included. */
void standin_break(int error);

/* Lets the call number `nth` from now (1: the next one) of the function `name` return `error`
 * instead of doing its work; name NULL: of any function that can fail. Functions that release do
 * their work even so. */
void standin_fail_call(const char *name, uint64_t nth, int error);

/* The same, and so does every later call of any function, while what is queued runs on. */
void standin_refuse_calls(const char *name, uint64_t nth, int error);

/* The same, and the context is broken from that call on, as by standin_break. */
void standin_break_call(const char *name, uint64_t nth, int error);

/* Calls since the last reset, of one function or (NULL) of all that standin_fail_call counts. */
uint64_t standin_calls(const char *name);

/* The function that an injected error hit last; "" if none was. */
const char *standin_failed_call(void);

/* ---- what is live ---- */

typedef struct standin_counts {
    uint64_t allocations, device_bytes; /* cudaMalloc */
    uint64_t streams, events;
    uint64_t registrations, locked_bytes; /* cudaHostRegister, cudaHostAlloc */
} standin_counts;

standin_counts standin_live(void);

#ifdef __cplusplus
}
#endif
#endif
