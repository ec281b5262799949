/* What the files of the stand-in share. One lock guards everything; `changed` is told of every item
 * that ended, so whoever waits for anything waits for that. */
#ifndef SL_STANDIN_RUNTIME_H
#define SL_STANDIN_RUNTIME_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "standin.h"
#include "stream_order_clock.h"

enum { STANDIN_DEVICES_MAX = 8 };

typedef struct standin_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    standin_machine machine;
    bool is_set; /* `machine` was chosen */
    bool has_context[STANDIN_DEVICES_MAX];
    cudaError_t broken; /* sticky */
    bool is_refusing;   /* every call fails, but what is queued runs */
    uint32_t running;   /* items that run without the lock */
    bool is_full;       /* a call waits for a stream: no other begins */
    uint64_t late_loads, deepest_stream;
    standin_counts live;
    uint64_t used_bytes[STANDIN_DEVICES_MAX]; /* allocations, contexts */
    uint64_t stream_count;                    /* ever opened: seeds of their delays */
} standin_world;

extern standin_world standin;

/* ---- runtime.c: errors ---- */

/* Begins a call with the lock held: counts it, and returns the error that it shall fail with: an
 * injected one, the sticky one, or what the machine lacks. Calls that release do their work even
 * so. */
cudaError_t standin_enter(const char *name);

/* Whether the calling thread has made a call that is no question (cudaEventQuery, cudaStreamQuery)
 * since this was asked last. */
bool standin_has_called(void);

/* Ends it: unlocks, and notes an error as the thread's last one. Returns `error`. */
cudaError_t standin_leave(cudaError_t error);

/* As standin_fault, with the lock held. */
void standin_fault_locked(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The calling thread's device; its context is made if it was not. The lock is held. */
int standin_device(void);

/* ---- runtime_memory.c ---- */

/* Where a range lies. */
typedef enum standin_place {
    STANDIN_HOST,
    STANDIN_DEVICE,
    STANDIN_WRONG, /* device memory that is not allocated, or not in one piece */
} standin_place;

standin_place standin_place_of(const void *pointer, uint64_t bytes);

/* Counts a fault for each registration that is no longer mapped. The lock is held. */
void standin_check_registrations(void);

/* Takes device memory that nobody gives back; false: there is no room. The lock is held. */
bool standin_take_bytes(int device, uint64_t bytes);

/* ---- runtime_streams.c ---- */

typedef struct standin_work {
    const char *name;
    void (*function)(void *argument); /* in the stream's thread, without the lock */
    void *argument;
    bool is_owned;               /* `argument` is freed after it */
    const standin_range *ranges; /* that it touches, read when it is appended; NULL: what the
                                    calling thread declared */
    uint32_t range_count;
} standin_work;

/* Appends work; the lock is held. NULL: the device's default stream. */
cudaError_t standin_append(cudaStream_t stream, const standin_work *work);

/* Where the context broke, blocks until nothing runs any more: what is released now may still be in
 * use, and no call can wait for that. The lock is held and let go meanwhile. */
void standin_settle(void);

/* Blocks until a stream is idle or the context broke, and what it did comes before what the calling
 * thread does next; the lock is held and let go meanwhile. */
cudaError_t standin_drain(cudaStream_t stream);

/* Blocks likewise, and makes no order; no other call begins meanwhile. Gives up with a fault where
 * that goes on for ever. */
cudaError_t standin_drain_alone(cudaStream_t stream, const char *why);

/* No code is loaded any more. */
void standin_forget_code(void);

#endif
