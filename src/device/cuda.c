/* NVIDIA GPUs as a device: the table, its streams and what is issued into them. Streams of the
 * device are CUDA's, those of the host are queues. Knows nothing of kernels and plans. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

enum { STREAM_CAPACITY = 1024 }; /* items of a host stream; a full one blocks the control thread */

/* ---- device ---- */

static void close_device(sl_device *device)
{
    if (!device)
        return;
    sl_cuda_events_end(device);
    if (device->stream && cudaStreamDestroy(device->stream) != cudaSuccess)
        sl_cuda_forget();
    pthread_cond_destroy(&device->is_let_go);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static sl_status fill_device(sl_device *device)
{
    SL_TRY(sl_cuda_open_context(device->index, &device->info));
    SL_CUDA_TRY(NULL, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking));
    return sl_cuda_events_prepare(device);
}

static sl_status open_device(int index, sl_device **out_device)
{
    sl_device *device = calloc(1, sizeof *device);
    if (!device)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a device");
    device->index = index;
    pthread_mutex_init(&device->lock, NULL); /* with default attributes neither can fail */
    pthread_cond_init(&device->is_let_go, NULL);
    sl_status status = fill_device(device);
    if (status != SL_OK) {
        close_device(device);
        return status;
    }
    *out_device = device;
    return SL_OK;
}

static sl_status describe(sl_device *device, sl_device_info *out_info)
{
    size_t free_bytes = 0, total_bytes = 0;
    SL_CUDA_TRY(NULL, cudaMemGetInfo(&free_bytes, &total_bytes));
    *out_info = device->info;
    out_info->free_bytes = free_bytes;
    out_info->total_bytes = total_bytes;
    return SL_OK;
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
        sl_cuda_forget();
    sl_cuda_times_close(stream->times);
    sl_cuda_pace_close(stream);
    free(stream);
}

static sl_status fill_stream(sl_device_stream *stream, sl_stream_kind kind,
                             const sl_queue_observer *observer)
{
    if (kind == SL_STREAM_HOST)
        return sl_queue_open(stream->name, STREAM_CAPACITY, observer, &stream->queue);
    SL_CUDA_TRY(stream->name, cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking));
    SL_TRY(sl_cuda_pace_open(stream));
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
    snprintf(stream->name, sizeof stream->name, "%s", name);
    sl_status status = fill_stream(stream, kind, observer);
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
    SL_CUDA_TRY(stream->name, cudaStreamSynchronize(stream->stream));
    stream->known = stream->issued;
    return sl_cuda_times_settle(stream->times);
}

/* The stream's failure, with its message. */
static sl_status tell_failure(const sl_device_stream *stream)
{
    if (stream->status != SL_OK)
        SL_FAIL(stream->status, "%s", stream->message);
    return SL_OK;
}

static sl_status finish_stream(sl_device_stream *stream)
{
    if (stream->queue)
        return sl_queue_finish(stream->queue);
    sl_status status = settle_stream(stream);
    if (status != SL_OK)
        (void)sl_cuda_keep(stream, status);
    return tell_failure(stream);
}

static void *native_stream(sl_device_stream *stream)
{
    return stream->stream;
}

/* ---- work ---- */

/* As a queue would do it: the function gets a copy of its own. */
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
    SL_TRY(sl_cuda_pace_keep(stream));
    SL_TRY(sl_cuda_times_before_call(stream->times));
    stream->issued++;
    SL_TRY(call_at_once(function, arguments, argument_bytes));
    return sl_cuda_times_after_call(stream->times, tag, false);
}

static sl_status launch(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                        const void *arguments, uint32_t argument_bytes)
{
    if (argument_bytes > SL_QUEUE_ARGUMENT_BYTES)
        SL_FAIL(SL_ERROR_INTERNAL, "an argument block of %u bytes exceeds %d", argument_bytes,
                SL_QUEUE_ARGUMENT_BYTES);
    if (stream->queue) {
        sl_queue_call(stream->queue, tag, function, arguments, argument_bytes);
        return SL_OK;
    }
    SL_TRY(tell_failure(stream));
    sl_status status = issue_call(stream, tag, function, arguments, argument_bytes);
    return status == SL_OK ? SL_OK : sl_cuda_keep(stream, status);
}

static sl_status issue_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                            uint64_t bytes)
{
    SL_TRY(sl_cuda_pace_keep(stream));
    SL_TRY(sl_cuda_times_before_call(stream->times));
    stream->issued++;
    SL_CUDA_TRY(stream->name, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->stream));
    return sl_cuda_times_after_call(stream->times, tag, true);
}

static sl_status copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                      uint64_t bytes)
{
    if (stream->queue)
        SL_FAIL(SL_ERROR_INTERNAL, "the %s lane is the host's and cannot reach device memory",
                stream->name);
    SL_TRY(tell_failure(stream));
    sl_status status = issue_copy(stream, tag, to, from, bytes);
    return status == SL_OK ? SL_OK : sl_cuda_keep(stream, status);
}

const sl_device_ops *sl_cuda_ops(void)
{
    static const sl_device_ops ops = {
        .kind = SL_DEVICE_CUDA,
        .name = "cuda",
        .open = open_device,
        .close = close_device,
        .describe = describe,
        .map = sl_cuda_map,
        .unmap = sl_cuda_unmap,
        .map_host = sl_cuda_map_host,
        .unmap_host = sl_cuda_unmap_host,
        .stream_open = open_stream,
        .stream_finish = finish_stream,
        .stream_close = close_stream,
        .stream_native = native_stream,
        .event_open = sl_cuda_event_open,
        .event_close = sl_cuda_event_close,
        .event_record = sl_cuda_event_record,
        .event_wait = sl_cuda_event_wait,
        .event_finish = sl_cuda_event_finish,
        .launch = launch,
        .copy = copy,
    };
    return &ops;
}
