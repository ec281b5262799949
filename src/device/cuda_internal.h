/* What the files of the cuda device share. Everything belongs to the control thread except what is
 * marked as shared.
 *
 * Every result of CUDA is checked. A failure of a stream's work is kept by the stream. A failure of
 * the context is returned by every later call of CUDA, so nothing waits for work that will never
 * run.
 */
#ifndef SL_DEVICE_CUDA_INTERNAL_H
#define SL_DEVICE_CUDA_INTERNAL_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cuda.h"

enum {
    SL_CUDA_NAME_BYTES = 16,
    SL_CUDA_RECORDS = 2, /* of an event, for which a host stream may still wait */
    SL_CUDA_MARKS = 2,   /* of a stream, used as a ring */
};

/* The drivers that the statically linked runtime accepts: those of its major version and newer ones
 * (CUDA's release notes, minor version compatibility). */
#if CUDART_VERSION >= 14000
#define SL_CUDA_DRIVER "NVIDIA driver as new as the CUDA toolkit"
#define SL_CUDA_RUNTIME "newer than 13"
#elif CUDART_VERSION >= 13000
#define SL_CUDA_DRIVER "NVIDIA driver R580 or newer"
#define SL_CUDA_RUNTIME "13"
#else
#define SL_CUDA_DRIVER "NVIDIA driver R525 or newer"
#define SL_CUDA_RUNTIME "12"
#endif

typedef __typeof__(cuStreamWaitValue32) *sl_cuda_wait_value;

typedef struct sl_cuda_range sl_cuda_range; /* mapped memory */
typedef struct sl_cuda_words sl_cuda_words; /* locked words of events */
typedef struct sl_cuda_times sl_cuda_times; /* start and end times of a stream's work */

struct sl_device {
    int index;
    sl_device_info info; /* without free_bytes */
    cudaStream_t stream; /* for filling and checking memory */
    sl_cuda_range *ranges;
    bool has_unlocked;         /* CUDA refused to lock some host memory */
    sl_device_stream *streams; /* device streams */
    sl_cuda_words *words;
    bool avoids_words;             /* the control thread waits instead */
    sl_cuda_wait_value wait_value; /* NULL: the call does not exist, the control thread waits */
    sl_device_watcher watcher;     /* `user` NULL: there is none */
    pthread_mutex_t lock;          /* shared: of the records' `waiters` */
    pthread_cond_t is_released;    /* a record has one waiter fewer */
};

struct sl_device_stream {
    sl_device *device;
    char name[SL_CUDA_NAME_BYTES];
    sl_queue *queue;     /* of a host stream; NULL: a device stream */
    cudaStream_t stream; /* of the device */
    sl_device_stream *next;
    uint64_t issued, known; /* calls and copies issued; those known to have succeeded */
    uint64_t entries;       /* issued since the last mark */
    cudaEvent_t marks[SL_CUDA_MARKS];
    uint32_t next_mark;
    sl_cuda_times *times;       /* NULL: no observer */
    sl_queue_observer observer; /* zeros: none */
    sl_first_failure failure;
};

/* ---- cuda.c ---- */

/* Makes the message of a failed call, "cudaMalloc(...)", and forgets it as CUDA's last error;
 * `stream_name` may be NULL. SL_ERROR_SYSTEM. From any thread. */
sl_status sl_cuda_fail(cudaError_t error, const char *call, const char *stream_name);

/* As SL_TRY, for a call of CUDA. */
#define SL_CUDA_TRY(stream_name, call)                                                             \
    do {                                                                                           \
        cudaError_t sl_cuda_error_ = (call);                                                       \
        if (sl_cuda_error_ != cudaSuccess)                                                         \
            return sl_cuda_fail(sl_cuda_error_, #call, (stream_name));                             \
    } while (0)

/* Clears an expected error, so that no launch reports it. */
void sl_cuda_forget_error(void);

/* True if every call of CUDA fails from now on in this process. */
bool sl_cuda_is_broken(sl_device *device);

/* If CUDA is broken, adds to this thread's message what was issued since CUDA was last known to
 * work. Returns `status`. */
sl_status sl_cuda_explain_failure(sl_device *device, sl_status status);

/* Keeps a failure, with its explanation, for the stream, unless the stream has one. Returns
 * `status`. */
sl_status sl_cuda_keep_failure(sl_device_stream *stream, sl_status status);

/* Called before a call, copy, record or wait is issued into a device stream; blocks while the
 * stream has too many entries that have not run. Counts one entry; a caller that issues more adds
 * the others. */
sl_status sl_cuda_wait_for_room(sl_device_stream *stream);

/* Waits until the GPU has passed `event` or, if NULL, until the stream is idle. Calls the
 * observer's `blocked`. */
sl_status sl_cuda_wait(sl_device_stream *stream, cudaEvent_t event);

/* ---- cuda_context.c ---- */

/* Chooses device `index` in the control thread, makes its context and fills `info`. */
sl_status sl_cuda_context_open(int index, sl_device_info *out_info);

/* ---- cuda_watcher.c ---- */

void sl_cuda_watcher_open(sl_device_watcher *watcher);
void sl_cuda_watcher_close(sl_device_watcher *watcher);

/* ---- cuda_memory.c ---- */

sl_status sl_cuda_map(sl_device *device, uint64_t bytes, int flags, void **out_memory);
void sl_cuda_unmap(sl_device *device, void *memory, uint64_t bytes, int flags);
sl_status sl_cuda_map_host(sl_device *device, uint64_t bytes, int flags, void **out_memory);
void sl_cuda_unmap_host(sl_device *device, void *memory, uint64_t bytes, int flags);

/* How many of the `bytes` > 0 one copy can move: its host memory has to lie in one registration, or
 * outside of all. At least 1. */
uint64_t sl_cuda_copy_part(const sl_device *device, const void *to, const void *from,
                           uint64_t bytes);

/* ---- cuda_events.c ---- */

/* Looks for cuStreamWaitValue32 and tries it. */
sl_status sl_cuda_events_open(sl_device *device);
void sl_cuda_events_close(sl_device *device);

sl_status sl_cuda_event_open(sl_device *device, sl_device_event **out_event);
void sl_cuda_event_close(sl_device_event *event);
sl_status sl_cuda_event_record(sl_device_event *event, sl_device_stream *stream);
sl_status sl_cuda_event_wait(sl_device_event *event, sl_device_stream *stream, uint64_t tag);
sl_status sl_cuda_event_finish(sl_device_event *event);

/* ---- cuda_times.c; NULL is fine everywhere ---- */

sl_status sl_cuda_times_open(sl_device_stream *stream, const sl_queue_observer *observer,
                             sl_cuda_times **out_times);
void sl_cuda_times_close(sl_cuda_times *times);

/* Before and after a call or copy is issued. */
sl_status sl_cuda_times_before_call(sl_cuda_times *times, uint64_t tag);
sl_status sl_cuda_times_after_call(sl_cuda_times *times, uint64_t tag, bool is_copy);

/* A point in a device stream, as a number of its borders. */
typedef struct sl_cuda_moment {
    const sl_device_stream *stream; /* not dereferenced after it is closed; NULL: none */
    uint64_t border;
} sl_cuda_moment;

/* Before a record: ends the span of the work issued so far. */
sl_status sl_cuda_times_before_record(sl_cuda_times *times);

/* The point just after that border. */
sl_cuda_moment sl_cuda_times_moment(const sl_device_stream *stream);

/* Before and after a wait is issued; `after`: the record waited for, {0} if a host stream records
 * it.
 */
sl_status sl_cuda_times_before_wait(sl_cuda_times *times);
sl_status sl_cuda_times_after_wait(sl_cuda_times *times, uint64_t tag, sl_cuda_moment after);

/* Reports finished work to the observers of all streams. Called whenever the control thread has
 * waited for something. */
void sl_cuda_times_report(sl_device *device);

/* Reports all work of an idle stream, and restarts its clock. */
sl_status sl_cuda_times_settle(sl_cuda_times *times);

/* The state of a stream that is not idle; for a run writes the tag. */
sl_queue_state sl_cuda_times_look(sl_cuda_times *times, uint64_t *out_tag);

#endif
