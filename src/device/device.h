/* The device table: memory, streams, events, copies. One table for each kind of device.
 *
 * Contract of every entry: the caller passes valid offsets and pointers; a device keeps no state
 * beyond what is named here; one control thread makes all calls; entries are never NULL. Streams
 * run concurrently; work of one stream runs in order. After a failure of queued work its stream
 * runs nothing more, and stream_finish returns the failure; if it is known earlier, as when a
 * native stream refuses work, the call returns it at once too.
 *
 * Whenever the control thread waits for a stream, even for room in the stream, the observer's
 * `blocked` is called every SL_QUEUE_ASK_MS; its error ends the wait and is returned.
 *
 * There are two kinds of streams: device streams run kernels and copies, host streams call
 * functions in a thread of their own. Events order streams of both kinds. All work is issued in an
 * order in which it could also run one piece after the other, so a device that runs less
 * concurrently than it could is slower, but never deadlocks.
 *
 * The table never points at kernels: those are looked up by device kind (kernels/kernels.h).
 */
#ifndef SL_DEVICE_DEVICE_H
#define SL_DEVICE_DEVICE_H

#include "base/queue.h"
#include "base/status.h"
#include "cuda_options.h"
#include "sluice/device.h"

typedef struct sl_device sl_device;               /* an open device */
typedef struct sl_device_stream sl_device_stream; /* work in order */
typedef struct sl_device_event sl_device_event;   /* a point in a stream */

/* How memory is mapped. GUARDS: an inaccessible page before the memory and one after it; the end of
 * the memory touches the page after it (up to 64 bytes of alignment). A device without page
 * protection checks at unmapping and writes to the log. PATTERN: filled with 0xA5. */
typedef enum sl_map_flags { SL_MAP_PLAIN = 0, SL_MAP_GUARDS = 1, SL_MAP_PATTERN = 2 } sl_map_flags;

typedef enum sl_stream_kind { SL_STREAM_DEVICE, SL_STREAM_HOST } sl_stream_kind;

/* A tool, such as a GPU profiler, that shows issued work by name: all work that the control thread
 * issues between `begin` and its `end`. Ranges nest; `name` is copied. */
typedef struct sl_device_watcher {
    void (*begin)(void *user, const char *name);
    void (*end)(void *user);
    void *user;
} sl_device_watcher;

typedef struct sl_device_ops {
    sl_device_kind kind;
    const char *name;  /* "cpu", "cuda" */
    const char *needs; /* of the machine, for people: "NVIDIA driver R580 or newer, ..."; "" */
    /* Why results of this device cannot be trusted before its self-test has passed
     * (machine/proof_record.h), of which each run warns once. "": they can be trusted. */
    const char *doubt;

    /* Opens device number `index`; `options` NULL: the defaults. */
    sl_status (*open)(int index, const sl_cuda_options *options, sl_device **out_device);
    void (*close)(sl_device *device);

    sl_status (*describe)(sl_device *device, sl_device_info *out_info);

    /* Maps `bytes` of device memory, aligned to 4 KiB (guarded: 64 bytes), zero unless PATTERN. Its
     * pages exist when this returns. SL_ERROR_FIT: there is not enough. */
    sl_status (*map)(sl_device *device, uint64_t bytes, int flags, void **out_memory);
    void (*unmap)(sl_device *device, void *memory, uint64_t bytes, int flags);

    /* Maps host memory for direct copies: locked, huge pages if allowed; else unlocked, with one
     * warning. Alignment and content as above. */
    sl_status (*map_host)(sl_device *device, uint64_t bytes, int flags, void **out_memory);
    void (*unmap_host)(sl_device *device, void *memory, uint64_t bytes, int flags);

    /* `observer` (may be NULL; copied) is called for each call, copy and blocked wait of the
     * stream. For a host stream it is called in the stream's thread, as each ends; for a device
     * stream in the control thread, at the latest in stream_finish or in an event_finish after this
     * work. A wait is reported after all work before the record waited for, unless a host stream
     * waits for a device stream. */
    sl_status (*stream_open)(sl_device *device, sl_stream_kind kind, const char *name,
                             const sl_queue_observer *observer, sl_device_stream **out_stream);
    sl_status (*stream_finish)(sl_device_stream *stream);
    void (*stream_close)(sl_device_stream *stream);

    /* What the stream does now; for a call or copy writes its tag. A native stream writes the tag
     * of the last of several calls between the same two waits. */
    sl_queue_state (*stream_look)(sl_device_stream *stream, uint64_t *out_tag);

    /* Abandons a stream that does not end: a host stream begins nothing more. The stream, its
     * events, memory and device must not be closed or unmapped afterwards. */
    void (*stream_abandon)(sl_device_stream *stream);

    /* The stream for kernel launches (a cudaStream_t); NULL if kernels are called in the stream's
     * thread.
     */
    void *(*stream_native)(sl_device_stream *stream);

    sl_status (*event_open)(sl_device *device, sl_device_event **out_event);
    void (*event_close)(sl_device_event *event);
    /* As with sl_mark, a wait is for the latest record issued before it. */
    sl_status (*event_record)(sl_device_event *event, sl_device_stream *stream);
    sl_status (*event_wait)(sl_device_event *event, sl_device_stream *stream, uint64_t tag);
    sl_status (*event_finish)(sl_device_event *event);

    /* Queues `function` with a copy of its argument block (at most SL_QUEUE_ARGUMENT_BYTES). On a
     * native stream the function is called at once, in the control thread, and its launches are
     * queued; after a failure nothing is called. */
    sl_status (*launch)(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                        const void *arguments, uint32_t argument_bytes);

    /* The tool that watches this process, valid as long as the device; NULL: none. */
    const sl_device_watcher *(*watcher)(const sl_device *device);

    /* Queues a copy between device and host memory, in either direction, on a device stream. */
    sl_status (*copy)(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                      uint64_t bytes);
} sl_device_ops;

/* The table of a device kind; NULL if this build has none. */
const sl_device_ops *sl_device_ops_of(sl_device_kind kind);

/* ---- memory of the host (host.c) ---- */

/* Bytes that this process may still take: the least of the machine's available memory and of the
 * free bytes of each cgroup above it. */
sl_status sl_device_host_free_bytes(uint64_t *out_bytes);

/* The part of `free_bytes` that arenas must leave: for heap, stacks and page tables. */
uint64_t sl_device_host_reserve_bytes(uint64_t free_bytes);

/* A lock of this machine and user by its name. */
typedef struct sl_host_lock {
    int file; /* -1: it is not held */
} sl_host_lock;

/* Waits while another process holds the lock, for `wait_s` seconds at most, and then goes on
 * without it, as where files cannot be locked. `note` is written to the log behind a second. */
sl_host_lock sl_host_lock_open(const char *name, uint32_t wait_s, const char *note);
void sl_host_lock_close(sl_host_lock *lock);

/* Host memory that a run is about to take, by tier. */
typedef struct sl_host_need {
    uint64_t device_bytes; /* of the cpu device; 0 if the device has its own memory */
    uint64_t host_bytes;
    uint64_t disk_bytes; /* in directories on tmpfs or ramfs */
} sl_host_need;

typedef struct sl_host_claim {
    sl_host_lock lock;
} sl_host_claim;

/* Compares a need with the free bytes; SL_ERROR_FIT names both. Until the claim is closed, other
 * processes that take memory wait here, half a minute at most: so of two that start together the
 * second sees what the first has taken. */
sl_status sl_host_claim_open(const sl_host_need *need, sl_host_claim *out_claim);
void sl_host_claim_close(sl_host_claim *claim);

#endif
