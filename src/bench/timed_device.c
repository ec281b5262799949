/* Opens in the order of dependence, closes in reverse. */
#include "timed_device.h"

#include <stdlib.h>

#include "base/clock.h"

static void count_busy(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    (void)tag;
    sl_timed_stream *stream = user;
    stream->busy_ns += end_ns - start_ns;
}

static void ignore_wait(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    (void)user, (void)tag, (void)start_ns, (void)end_ns;
}

sl_status sl_timed_device_be_patient(sl_timed_device *device)
{
    if (device->give_up_ns == 0 || sl_clock_now_ns() < device->give_up_ns)
        return SL_OK;
    device->is_stuck = true;
    SL_FAIL(SL_ERROR_SYSTEM, "work of the device does not end");
}

static sl_status be_patient(void *user)
{
    return sl_timed_device_be_patient(((sl_timed_stream *)user)->device);
}

static sl_status open_parts(sl_timed_device *device, sl_device_kind kind, int index,
                            const sl_cuda_options *cuda)
{
    static const char *const names[SL_TIMED_DEVICE_STREAMS] = {"bench", "bench, back"};
    if (!device->ops || !device->kernels)
        SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA: build it where nvcc is found, or use "
                                 "--device cpu");
    SL_TRY(device->ops->open(index, cuda, &device->handle));
    SL_TRY(device->ops->describe(device->handle, &device->info));
    SL_TRY(device->kernels->open(index, cuda, &device->library));
    if (kind == SL_DEVICE_CPU)
        SL_TRY(sl_workers_open(device->worker_count, &device->workers));
    for (int i = 0; i < SL_TIMED_DEVICE_STREAMS; i++) {
        const sl_queue_observer observer = {.ran = count_busy,
                                            .waited = ignore_wait,
                                            .user = &device->streams[i],
                                            .blocked = be_patient};
        device->streams[i].device = device;
        SL_TRY(device->ops->stream_open(device->handle, SL_STREAM_DEVICE, names[i], &observer,
                                        &device->streams[i].stream));
    }
    return SL_OK;
}

sl_status sl_timed_device_open(sl_device_kind kind, int index, const sl_cuda_options *cuda,
                               uint32_t worker_count, sl_timed_device **out_device)
{
    sl_timed_device *device = calloc(1, sizeof *device);
    if (!device)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to measure a device");
    device->ops = sl_device_ops_of(kind);
    device->kernels = sl_kernels_of(kind);
    device->worker_count = worker_count;
    device->times_algorithms = cuda && cuda->times_algorithms;
    sl_status status = open_parts(device, kind, index, cuda);
    if (status != SL_OK) {
        sl_timed_device_close(device);
        return status;
    }
    *out_device = device;
    return SL_OK;
}

void sl_timed_device_close(sl_timed_device *device)
{
    if (!device)
        return;
    for (int i = 0; device->is_stuck && i < SL_TIMED_DEVICE_STREAMS; i++)
        device->ops->stream_abandon(device->streams[i].stream);
    if (device->is_stuck)
        return;
    for (int i = SL_TIMED_DEVICE_STREAMS; i-- > 0;)
        if (device->streams[i].stream)
            device->ops->stream_close(device->streams[i].stream);
    sl_workers_close(device->workers);
    if (device->handle) {
        device->kernels->close(device->library);
        device->ops->close(device->handle);
    }
    free(device);
}

/* ---- work ---- */

typedef struct call_args {
    sl_status (*function)(void *argument);
    void *argument;
} call_args;

static sl_status run_call(void *arguments)
{
    const call_args *args = arguments;
    return args->function(args->argument);
}

static sl_status finish_stream(sl_timed_device *device, uint32_t index, double *out_seconds)
{
    sl_timed_stream *stream = &device->streams[index];
    SL_TRY(device->ops->stream_finish(stream->stream));
    *out_seconds = 1e-9 * (double)(stream->busy_ns ? stream->busy_ns : 1); /* never none: rates */
    stream->busy_ns = 0;
    return SL_OK;
}

/* A call that fails may have queued a part of its work, which uses the caller's memory. So the
 * stream is always waited for. */
sl_status sl_timed_device_run(sl_timed_device *device, sl_status (*function)(void *argument),
                              void *argument, double *out_seconds)
{
    const call_args args = {function, argument};
    const sl_status launched =
        device->ops->launch(device->streams[0].stream, 0, run_call, &args, sizeof args);
    const sl_status finished = finish_stream(device, 0, out_seconds);
    return launched != SL_OK ? launched : finished;
}

sl_status sl_timed_device_copy(sl_timed_device *device, const sl_timed_copy *copies, uint32_t count,
                               double *out_seconds)
{
    sl_status status = SL_OK;
    uint32_t queued = 0;
    for (; queued < count && status == SL_OK; queued++)
        status = device->ops->copy(device->streams[queued].stream, 0, copies[queued].to,
                                   copies[queued].from, copies[queued].bytes);
    for (uint32_t i = 0; i < queued; i++) {
        const sl_status finished = finish_stream(device, i, &out_seconds[i]);
        status = status == SL_OK ? finished : status;
    }
    return status;
}
