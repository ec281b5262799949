/* NVIDIA GPUs as a device: the table, its streams, issuing work, and messages of failures. Device
 * streams are CUDA streams, host streams are queues. Knows nothing of kernels and plans.
 *
 * Limit on how far the control thread runs ahead: a CUDA stream accepts about a thousand entries
 * that have not run. A call that issues more blocks inside CUDA until an entry has run, and CUDA
 * does not promise that calls of other threads get through meanwhile. Threads of host streams make
 * such calls, to query the GPU, and the CUDA stream may be waiting for their work: a deadlock. So
 * no stream is filled: a mark follows every ENTRIES_A_MARK entries, and before it sets another mark
 * the control thread waits for the last mark but one, with a call that is meant for waiting.
 *
 * Invariant: fewer than 3 * (ENTRIES_A_MARK + n) entries of a stream are issued and have not run,
 * where one call of the caller issues at most n. An entry is a kernel, a copy, a record (of an
 * event, or of a time) or a wait.
 */
#include "cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cuda_internal.h"

enum {
    STREAM_CAPACITY = 1024, /* items of a host stream; a full one blocks the control thread */
    ENTRIES_A_MARK = 128
};

/* While the control thread waits it queries the GPU again after 1 / PAUSE_PART of the time waited
 * so far, so that it notices the end at most that much too late. */
enum { PAUSE_PART = 128 };
static const uint64_t PAUSE_NS_LEAST = 10000, PAUSE_NS_MOST = 2000000;

/* ---- failures ---- */

sl_status sl_cuda_fail(cudaError_t error, const char *call, const char *stream_name)
{
    sl_cuda_forget_error();
    SL_FAIL(SL_ERROR_SYSTEM, "%.*s%s%s%s: %s (%s)", (int)strcspn(call, "("), call,
            stream_name ? " on the " : "", stream_name ? stream_name : "",
            stream_name ? " lane" : "", cudaGetErrorString(error), cudaGetErrorName(error));
}

void sl_cuda_forget_error(void)
{
    (void)cudaGetLastError();
}

bool sl_cuda_is_broken(sl_device *device)
{
    cudaError_t error = cudaStreamQuery(device->stream);
    if (error != cudaSuccess)
        sl_cuda_forget_error();
    return error != cudaSuccess && error != cudaErrorNotReady;
}

/* Writes "compute 12 to 40, h2d 7 to 9": calls and copies that are not known to have ended. */
static void list_suspects(const sl_device *device, char *out_text, size_t text_bytes)
{
    size_t used = 0;
    out_text[0] = '\0';
    for (const sl_device_stream *stream = device->streams; stream; stream = stream->next) {
        if (stream->issued == stream->known || used >= text_bytes)
            continue;
        int length =
            snprintf(out_text + used, text_bytes - used, "%s%s %" PRIu64 " to %" PRIu64,
                     used > 0 ? ", " : "", stream->name, stream->known + 1, stream->issued);
        used += length > 0 ? (size_t)length : 0;
    }
}

static bool launches_block(void)
{
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    return text && strcmp(text, "1") == 0;
}

sl_status sl_cuda_explain_failure(sl_device *device, sl_status status)
{
    char suspects[256], message[SL_STATUS_MESSAGE_BYTES];
    if (launches_block() || !sl_cuda_is_broken(device))
        return status;
    list_suspects(device, suspects, sizeof suspects);
    snprintf(message, sizeof message, "%s", sl_status_message());
    SL_FAIL(
        status,
        "%s; CUDA reports a failure late: it happened in one of the items issued since the last "
        "check (%s, counted from the start), and with CUDA_LAUNCH_BLOCKING=1 in the "
        "environment the op that fails is named",
        message, suspects[0] ? suspects : "none of ours");
}

sl_status sl_cuda_keep_failure(sl_device_stream *stream, sl_status status)
{
    if (stream->failure.status != SL_OK)
        return status;
    status = sl_cuda_explain_failure(stream->device, status);
    sl_first_failure_keep(&stream->failure, status);
    return status;
}

/* ---- device ---- */

static void close_device(sl_device *device)
{
    if (!device)
        return;
    if (device->stream && cudaStreamDestroy(device->stream) != cudaSuccess)
        sl_cuda_forget_error();
    sl_cuda_events_close(device); /* queued work may still read its words */
    sl_cuda_watcher_close(&device->watcher);
    pthread_cond_destroy(&device->is_released);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static sl_status open_device_parts(sl_device *device)
{
    sl_cuda_watcher_open(&device->watcher);
    SL_TRY(sl_cuda_context_open(device->index, &device->info));
    SL_CUDA_TRY(NULL, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    return sl_cuda_events_open(device);
}

static sl_status open_device(int index, const sl_cuda_options *options, sl_device **out_device)
{
    sl_device *device = calloc(1, sizeof *device);
    if (!device)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a device");
    device->index = index;
    device->avoids_words = options != NULL && options->no_wait_value;
    pthread_mutex_init(&device->lock, NULL); /* with default attributes neither can fail */
    sl_queue_init_condition(&device->is_released);
    sl_status status = open_device_parts(device);
    if (status != SL_OK) {
        close_device(device);
        return status;
    }
    *out_device = device;
    return SL_OK;
}

static sl_status describe_device(sl_device *device, sl_device_info *out_info)
{
    size_t free_bytes = 0, total_bytes = 0;
    SL_CUDA_TRY(NULL, cudaMemGetInfo(&free_bytes, &total_bytes));
    *out_info = device->info;
    out_info->free_bytes = free_bytes;
    out_info->total_bytes = total_bytes;
    return SL_OK;
}

static const sl_device_watcher *find_watcher(const sl_device *device)
{
    return device->watcher.user ? &device->watcher : NULL;
}

/* ---- waiting ---- */

static cudaError_t ask_whether_passed(const sl_device_stream *stream, cudaEvent_t event)
{
    cudaError_t error = event ? cudaEventQuery(event) : cudaStreamQuery(stream->stream);
    if (error == cudaErrorNotReady)
        sl_cuda_forget_error();
    return error;
}

static void pause_after(uint64_t waited_ns)
{
    uint64_t pause_ns = waited_ns / PAUSE_PART;
    pause_ns = pause_ns < PAUSE_NS_LEAST ? PAUSE_NS_LEAST : pause_ns;
    pause_ns = pause_ns < PAUSE_NS_MOST ? pause_ns : PAUSE_NS_MOST;
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
}

/* Reports finished work to the observer before `blocked` is called. */
static sl_status wait_by_asking(sl_device_stream *stream, cudaEvent_t event)
{
    const uint64_t start_ns = sl_clock_now_ns();
    uint64_t asked_ns = start_ns;
    cudaError_t error = ask_whether_passed(stream, event);
    while (error == cudaErrorNotReady) {
        const uint64_t now_ns = sl_clock_now_ns();
        if (now_ns - asked_ns > SL_QUEUE_ASK_MS * UINT64_C(1000000)) {
            asked_ns = now_ns;
            sl_cuda_times_report(stream->device);
            SL_TRY(stream->observer.blocked(stream->observer.user));
        }
        pause_after(now_ns - start_ns);
        error = ask_whether_passed(stream, event);
    }
    return error == cudaSuccess ? SL_OK : sl_cuda_fail(error, "waiting for the GPU", stream->name);
}

sl_status sl_cuda_wait(sl_device_stream *stream, cudaEvent_t event)
{
    if (stream->observer.blocked)
        return wait_by_asking(stream, event);
    const cudaError_t error =
        event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream->stream);
    return error == cudaSuccess ? SL_OK : sl_cuda_fail(error, "waiting for the GPU", stream->name);
}

/* ---- how far the control thread is ahead ---- */

static _Thread_local uint32_t launch_count; /* kernels launched by the current call */

void sl_cuda_note_launches(uint32_t count)
{
    launch_count += count;
}

/* A mark that was never set counts as passed for CUDA. */
static sl_status wait_for_mark(sl_device_stream *stream, cudaEvent_t mark)
{
    cudaError_t error = cudaEventQuery(mark);
    if (error != cudaErrorNotReady)
        return error == cudaSuccess ? SL_OK
                                    : sl_cuda_fail(error, "waiting for the GPU", stream->name);
    sl_cuda_forget_error();
    sl_status status = sl_cuda_wait(stream, mark);
    sl_cuda_times_report(stream->device);
    return status;
}

sl_status sl_cuda_wait_for_room(sl_device_stream *stream)
{
    if (stream->entries++ < ENTRIES_A_MARK)
        return SL_OK;
    cudaEvent_t mark = stream->marks[stream->next_mark];
    SL_TRY(wait_for_mark(stream, mark));
    SL_CUDA_TRY(stream->name, cudaEventRecord(mark, stream->stream));
    stream->next_mark = (stream->next_mark + 1) % SL_CUDA_MARKS;
    stream->entries = 1;
    return SL_OK;
}

static sl_status open_marks(sl_device_stream *stream)
{
    for (int i = 0; i < SL_CUDA_MARKS; i++)
        SL_CUDA_TRY(stream->name,
                    cudaEventCreateWithFlags(&stream->marks[i],
                                             cudaEventDisableTiming | cudaEventBlockingSync));
    return SL_OK;
}

static void close_marks(sl_device_stream *stream)
{
    for (int i = 0; i < SL_CUDA_MARKS; i++) {
        if (stream->marks[i] && cudaEventDestroy(stream->marks[i]) != cudaSuccess)
            sl_cuda_forget_error();
    }
}

/* ---- streams ---- */

static void unlink_stream(sl_device_stream *stream)
{
    sl_device_stream **link = &stream->device->streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
}

static void close_stream(sl_device_stream *stream)
{
    if (!stream)
        return;
    unlink_stream(stream);
    sl_queue_close(stream->queue);
    if (stream->stream && cudaStreamDestroy(stream->stream) != cudaSuccess)
        sl_cuda_forget_error();
    sl_cuda_times_close(stream->times);
    close_marks(stream);
    free(stream);
}

static sl_status open_stream_parts(sl_device_stream *stream, sl_stream_kind kind,
                                   const sl_queue_observer *observer)
{
    if (kind == SL_STREAM_HOST)
        return sl_queue_open(stream->name, STREAM_CAPACITY, observer, &stream->queue);
    SL_CUDA_TRY(stream->name, cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking));
    SL_TRY(open_marks(stream));
    SL_TRY(sl_cuda_times_open(stream, observer, &stream->times));
    stream->next = stream->device->streams;
    stream->device->streams = stream;
    return SL_OK;
}

static sl_status open_stream(sl_device *device, sl_stream_kind kind, const char *name,
                             const sl_queue_observer *observer, sl_device_stream **out_stream)
{
    sl_device_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for stream %s", name);
    stream->device = device;
    if (observer)
        stream->observer = *observer;
    snprintf(stream->name, sizeof stream->name, "%s", name);
    sl_status status = open_stream_parts(stream, kind, observer);
    if (status != SL_OK) {
        close_stream(stream);
        return status;
    }
    *out_stream = stream;
    return SL_OK;
}

static sl_status settle_stream(sl_device_stream *stream)
{
    SL_TRY(sl_cuda_times_before_record(stream->times));
    SL_TRY(sl_cuda_wait(stream, NULL));
    stream->known = stream->issued;
    return sl_cuda_times_settle(stream->times);
}

static sl_status finish_stream(sl_device_stream *stream)
{
    if (stream->queue)
        return sl_queue_finish(stream->queue);
    sl_status status = settle_stream(stream);
    if (status != SL_OK)
        (void)sl_cuda_keep_failure(stream, status);
    return sl_first_failure_return(&stream->failure);
}

static sl_queue_state look_at_stream(sl_device_stream *stream, uint64_t *out_tag)
{
    if (stream->queue)
        return sl_queue_look(stream->queue, out_tag);
    return ask_whether_passed(stream, NULL) == cudaErrorNotReady
               ? sl_cuda_times_look(stream->times, out_tag)
               : SL_QUEUE_IDLE;
}

static void abandon_stream(sl_device_stream *stream)
{
    if (stream->queue)
        sl_queue_abandon(stream->queue);
}

static void *native_stream(sl_device_stream *stream)
{
    return stream->stream;
}

/* ---- work ---- */

/* Calls the function with a copy of its arguments, as a queue would. */
static sl_status call_at_once(sl_queue_function function, const void *arguments,
                              uint32_t argument_bytes)
{
    _Alignas(16) unsigned char block[SL_QUEUE_ARGUMENT_BYTES];
    if (argument_bytes > 0)
        memcpy(block, arguments, argument_bytes);
    return function(block);
}

static sl_status issue_call(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                            const void *arguments, uint32_t argument_bytes)
{
    SL_TRY(sl_cuda_wait_for_room(stream));
    SL_TRY(sl_cuda_times_before_call(stream->times, tag));
    stream->issued++;
    launch_count = 0;
    sl_status status = call_at_once(function, arguments, argument_bytes);
    stream->entries += launch_count;
    SL_TRY(status);
    return sl_cuda_times_after_call(stream->times, tag, false);
}

static sl_status launch_call(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                             const void *arguments, uint32_t argument_bytes)
{
    if (argument_bytes > SL_QUEUE_ARGUMENT_BYTES)
        SL_FAIL(SL_ERROR_INTERNAL, "an argument block of %u bytes exceeds %d", argument_bytes,
                SL_QUEUE_ARGUMENT_BYTES);
    if (stream->queue)
        return sl_queue_call(stream->queue, tag, function, arguments, argument_bytes);
    SL_TRY(sl_first_failure_return(&stream->failure));
    sl_status status = issue_call(stream, tag, function, arguments, argument_bytes);
    return status == SL_OK ? SL_OK : sl_cuda_keep_failure(stream, status);
}

/* One copy, or several if the host memory lies in several registrations. */
static sl_status copy_in_parts(sl_device_stream *stream, void *to, const void *from, uint64_t bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    while (bytes > 0) {
        const uint64_t part = sl_cuda_copy_part(stream->device, target, source, bytes);
        SL_TRY(sl_cuda_wait_for_room(stream));
        SL_CUDA_TRY(stream->name,
                    cudaMemcpyAsync(target, source, part, cudaMemcpyDefault, stream->stream));
        target += part;
        source += part;
        bytes -= part;
    }
    return SL_OK;
}

static sl_status issue_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                            uint64_t bytes)
{
    SL_TRY(sl_cuda_times_before_call(stream->times, tag));
    stream->issued++;
    SL_TRY(copy_in_parts(stream, to, from, bytes));
    return sl_cuda_times_after_call(stream->times, tag, true);
}

static sl_status queue_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                            uint64_t bytes)
{
    if (stream->queue)
        SL_FAIL(SL_ERROR_INTERNAL, "the %s lane is the host's and cannot reach device memory",
                stream->name);
    SL_TRY(sl_first_failure_return(&stream->failure));
    sl_status status = issue_copy(stream, tag, to, from, bytes);
    return status == SL_OK ? SL_OK : sl_cuda_keep_failure(stream, status);
}

const sl_device_ops *sl_cuda_ops(void)
{
    static const sl_device_ops ops = {
        .kind = SL_DEVICE_CUDA,
        .name = "cuda",
        .needs = SL_CUDA_DRIVER ", for this build's CUDA runtime is " SL_CUDA_RUNTIME,
        .doubt = "the CUDA backend has not been proven on this GPU yet",
        .open = open_device,
        .close = close_device,
        .describe = describe_device,
        .map = sl_cuda_map,
        .unmap = sl_cuda_unmap,
        .map_host = sl_cuda_map_host,
        .unmap_host = sl_cuda_unmap_host,
        .stream_open = open_stream,
        .stream_finish = finish_stream,
        .stream_close = close_stream,
        .stream_look = look_at_stream,
        .stream_abandon = abandon_stream,
        .stream_native = native_stream,
        .event_open = sl_cuda_event_open,
        .event_close = sl_cuda_event_close,
        .event_record = sl_cuda_event_record,
        .event_wait = sl_cuda_event_wait,
        .event_finish = sl_cuda_event_finish,
        .watcher = find_watcher,
        .launch = launch_call,
        .copy = queue_copy,
    };
    return &ops;
}
