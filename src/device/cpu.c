/* The cpu as a device: a stream is a queue, an event is a mark, copies are done in the stream's
 * thread. Knows nothing of kernels and plans. */
#include "cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"

enum { STREAM_CAPACITY = 1024 }; /* items; a full stream blocks the control thread */

struct sl_device {
    bool has_warned_of_locking;
};

/* ---- device and memory ---- */

static sl_status open_device(int index, const sl_cuda_options *options, sl_device **out_device)
{
    (void)options;
    if (index != 0)
        SL_FAIL(SL_ERROR_USAGE, "there is no cpu device %d, only 0", index);
    sl_device *device = calloc(1, sizeof *device);
    if (!device)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a device");
    *out_device = device;
    return SL_OK;
}

static void close_device(sl_device *device)
{
    free(device);
}

static sl_status describe_device(sl_device *device, sl_device_info *out_info)
{
    (void)device;
    sl_device_info info = {.numa_node = -1};
    SL_TRY(sl_device_host_free_bytes(&info.free_bytes));
    info.total_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *out_info = info;
    return SL_OK;
}

static sl_status map_memory(sl_device *device, uint64_t bytes, int flags, void **out_memory)
{
    (void)device;
    return sl_cpu_memory_take(bytes, flags, out_memory);
}

static void unmap_memory(sl_device *device, void *memory, uint64_t bytes, int flags)
{
    (void)device;
    sl_cpu_memory_unmap(memory, bytes, flags);
}

static sl_status map_host_memory(sl_device *device, uint64_t bytes, int flags, void **out_memory)
{
    void *memory;
    SL_TRY(sl_cpu_memory_take(bytes, flags, &memory));
    if (mlock(memory, bytes) != 0 && !device->has_warned_of_locking) {
        device->has_warned_of_locking = true;
        sl_log_write(SL_LOG_WARNING,
                     "cannot lock %" PRIu64 " bytes of host memory (%s); it may be swapped out: "
                     "raise the memlock limit (ulimit -l)",
                     bytes, strerror(errno));
    }
    *out_memory = memory;
    return SL_OK;
}

/* ---- streams ---- */

static sl_queue *queue_of(sl_device_stream *stream)
{
    return (sl_queue *)(void *)stream;
}

static sl_status open_stream(sl_device *device, sl_stream_kind kind, const char *name,
                             const sl_queue_observer *observer, sl_device_stream **out_stream)
{
    (void)device;
    (void)kind; /* both kinds are queues here */
    sl_queue *queue;
    SL_TRY(sl_queue_open(name, STREAM_CAPACITY, observer, &queue));
    *out_stream = (sl_device_stream *)(void *)queue;
    return SL_OK;
}

static sl_status finish_stream(sl_device_stream *stream)
{
    return sl_queue_finish(queue_of(stream));
}

static void close_stream(sl_device_stream *stream)
{
    sl_queue_close(queue_of(stream));
}

static sl_queue_state look_at_stream(sl_device_stream *stream, uint64_t *out_tag)
{
    return sl_queue_look(queue_of(stream), out_tag);
}

static void abandon_stream(sl_device_stream *stream)
{
    sl_queue_abandon(queue_of(stream));
}

static void *native_stream(sl_device_stream *stream)
{
    (void)stream;
    return NULL;
}

/* ---- events ---- */

static sl_mark *mark_of(sl_device_event *event)
{
    return (sl_mark *)(void *)event;
}

static sl_status open_event(sl_device *device, sl_device_event **out_event)
{
    (void)device;
    sl_mark *mark;
    SL_TRY(sl_mark_open(&mark));
    *out_event = (sl_device_event *)(void *)mark;
    return SL_OK;
}

static void close_event(sl_device_event *event)
{
    sl_mark_close(mark_of(event));
}

static sl_status record_event(sl_device_event *event, sl_device_stream *stream)
{
    return sl_queue_record(queue_of(stream), mark_of(event));
}

static sl_status wait_for_event(sl_device_event *event, sl_device_stream *stream, uint64_t tag)
{
    return sl_queue_wait(queue_of(stream), tag, mark_of(event));
}

static sl_status finish_event(sl_device_event *event)
{
    return sl_mark_finish(mark_of(event));
}

/* ---- work ---- */

typedef struct copy_args {
    void *to;
    const void *from;
    uint64_t bytes;
} copy_args;

static sl_status run_copy(void *arguments)
{
    const copy_args *args = arguments;
    sl_cpu_memory_copy(args->to, args->from, args->bytes);
    return SL_OK;
}

static sl_status queue_call(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                            const void *arguments, uint32_t argument_bytes)
{
    if (argument_bytes > SL_QUEUE_ARGUMENT_BYTES)
        SL_FAIL(SL_ERROR_INTERNAL, "an argument block of %u bytes exceeds %d", argument_bytes,
                SL_QUEUE_ARGUMENT_BYTES);
    return sl_queue_call(queue_of(stream), tag, function, arguments, argument_bytes);
}

static sl_status queue_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                            uint64_t bytes)
{
    copy_args args = {to, from, bytes};
    return sl_queue_call(queue_of(stream), tag, run_copy, &args, sizeof args);
}

static const sl_device_watcher *find_watcher(const sl_device *device)
{
    (void)device;
    return NULL;
}

const sl_device_ops *sl_cpu_ops(void)
{
    static const sl_device_ops ops = {
        .kind = SL_DEVICE_CPU,
        .name = "cpu",
        .needs = "",
        .doubt = "",
        .open = open_device,
        .close = close_device,
        .describe = describe_device,
        .map = map_memory,
        .unmap = unmap_memory,
        .map_host = map_host_memory,
        .unmap_host = unmap_memory,
        .stream_open = open_stream,
        .stream_finish = finish_stream,
        .stream_close = close_stream,
        .stream_look = look_at_stream,
        .stream_abandon = abandon_stream,
        .stream_native = native_stream,
        .event_open = open_event,
        .event_close = close_event,
        .event_record = record_event,
        .event_wait = wait_for_event,
        .event_finish = finish_event,
        .launch = queue_call,
        .watcher = find_watcher,
        .copy = queue_copy,
    };
    return &ops;
}
