/* What the files of the cuda device share. All of it belongs to the control thread but for what is
 * said to be shared.
 *
 * Results of CUDA are looked at everywhere. A failure of work that a stream was given is kept by
 * the stream; a failure that CUDA itself keeps (the context is broken) comes from every call
 * afterwards, so nothing waits for work that will never run.
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
    SL_CUDA_RECORDS = 2, /* of an event, that a host stream may still wait for */
    SL_CUDA_MARKS = 2,   /* of a stream, in turn */
};

/* The drivers that the statically linked runtime takes: all of its major version's, and newer ones
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
typedef struct sl_cuda_times sl_cuda_times; /* when a stream did what */

struct sl_device {
    int index;
    sl_device_info info; /* all but free_bytes */
    cudaStream_t stream; /* the device's own: content of memory, checks */
    sl_cuda_range *ranges;
    bool has_unlocked;         /* host memory that CUDA would not lock */
    sl_device_stream *streams; /* of the device, not of the host */
    sl_cuda_words *words;
    bool avoids_words;             /* the control thread waits itself */
    sl_cuda_wait_value wait_value; /* NULL: so it does, for there is no such call */
    sl_device_watcher watcher;     /* `user` NULL: there is none */
    pthread_mutex_t lock;          /* shared: of the records' `waiters` */
    pthread_cond_t is_released;    /* a record has one waiter less */
};

struct sl_device_stream {
    sl_device *device;
    char name[SL_CUDA_NAME_BYTES];
    sl_queue *queue;     /* of the host; NULL: of the device */
    cudaStream_t stream; /* of the device */
    sl_device_stream *next;
    uint64_t issued, known; /* calls and copies; how many of them are known to have ended well */
    uint64_t entries;       /* that it was given since the last mark */
    cudaEvent_t marks[SL_CUDA_MARKS];
    uint32_t next_mark;
    sl_cuda_times *times;       /* NULL: nobody observes */
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

/* Forgets an error that was expected, so that no launch takes it for its own. */
void sl_cuda_forget_error(void);

/* True if all of CUDA fails from now on in this process. */
bool sl_cuda_is_broken(sl_device *device);

/* Says with the message that stands, where CUDA is broken, what had been issued since it was last
 * known to work. Returns `status`. */
sl_status sl_cuda_explain_failure(sl_device *device, sl_status status);

/* Keeps a failure, explained, as the stream's, unless it has one. Returns `status`. */
sl_status sl_cuda_keep_failure(sl_device_stream *stream, sl_status status);

/* Before a call, copy, record or wait is issued into a stream of the device; blocks while too much
 * of what it was given has not run. Counts one entry; whoever makes more adds them. */
sl_status sl_cuda_wait_for_room(sl_device_stream *stream);

/* Waits until the GPU has passed `event`, or, NULL, until the stream is idle. Asks the observer. */
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

/* How many of the `bytes` > 0 can be moved by one copy: the host memory of a copy has to lie in one
 * registration, or outside of all. At least 1. */
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

/* Around a call or copy that is issued. */
sl_status sl_cuda_times_before_call(sl_cuda_times *times, uint64_t tag);
sl_status sl_cuda_times_after_call(sl_cuda_times *times, uint64_t tag, bool is_copy);

/* A point in a stream of the device, as its times count. */
typedef struct sl_cuda_moment {
    const sl_device_stream *stream; /* not followed once it is closed; NULL: none */
    uint64_t border;
} sl_cuda_moment;

/* Before a record: what was issued so far ends there. */
sl_status sl_cuda_times_before_record(sl_cuda_times *times);

/* That point, just after it. */
sl_cuda_moment sl_cuda_times_moment(const sl_device_stream *stream);

/* Around a wait that is issued; `after`: the record waited for, {0} where a host stream makes it.
 */
sl_status sl_cuda_times_before_wait(sl_cuda_times *times);
sl_status sl_cuda_times_after_wait(sl_cuda_times *times, uint64_t tag, sl_cuda_moment after);

/* Tells the observers of all streams what has ended. To be called when the control thread has
 * waited for anything. */
void sl_cuda_times_report(sl_device *device);

/* Does so for one stream that is idle, and takes its time anew. */
sl_status sl_cuda_times_settle(sl_cuda_times *times);

/* What a stream that is not idle does now; of a run writes the tag. */
sl_queue_state sl_cuda_times_look(sl_cuda_times *times, uint64_t *out_tag);

#endif
