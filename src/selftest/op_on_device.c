#include "op_on_device.h"

#include <string.h>

#include "base/bits.h"

enum { ALIGNMENT = 256, GUARD = 256, POISON = 0xff /* NaN in every type */ };

static uint64_t all_bytes(const sl_op_room *room)
{
    return room->has_copies ? 2 * room->bytes : room->bytes;
}

sl_status sl_op_room_open(sl_timed_device *device, uint64_t bytes, bool has_copies,
                          sl_op_room *out_room)
{
    void *there = NULL, *sent = NULL, *came = NULL;
    *out_room = (sl_op_room){
        .device = device, .bytes = sl_bits_round_up(bytes, ALIGNMENT), .has_copies = has_copies};
    const uint64_t all = all_bytes(out_room);
    SL_TRY(device->ops->map(device->handle, all, SL_MAP_PLAIN, &there));
    out_room->there = there;
    SL_TRY(device->ops->map_host(device->handle, all, SL_MAP_PLAIN, &sent));
    out_room->sent = sent;
    SL_TRY(device->ops->map_host(device->handle, all, SL_MAP_PLAIN, &came));
    out_room->came = came;
    return SL_OK;
}

void sl_op_room_close(sl_op_room *room)
{
    const sl_timed_device *device = room->device;
    if (device->is_stuck)
        return;
    if (room->came)
        device->ops->unmap_host(device->handle, room->came, all_bytes(room), SL_MAP_PLAIN);
    if (room->sent)
        device->ops->unmap_host(device->handle, room->sent, all_bytes(room), SL_MAP_PLAIN);
    if (room->there)
        device->ops->unmap(device->handle, room->there, all_bytes(room), SL_MAP_PLAIN);
    *room = (sl_op_room){0};
}

static uint64_t find_end(const sl_op_stretch stretches[SL_OP_STRETCHES])
{
    uint64_t end = 0;
    for (int i = 0; i < SL_OP_STRETCHES; i++)
        end = sl_bits_max(end, stretches[i].offset + stretches[i].bytes);
    return end + GUARD;
}

sl_status sl_op_room_lay_out(sl_op_room *room, sl_op_stretch stretches[SL_OP_STRETCHES])
{
    uint64_t end = GUARD;
    for (int i = 0; i < SL_OP_STRETCHES; i++) {
        stretches[i].offset = stretches[i].bytes > 0 ? end : 0;
        if (stretches[i].bytes > 0)
            end = sl_bits_round_up(end + stretches[i].bytes + GUARD, ALIGNMENT);
    }
    if (end + GUARD > room->bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "a self-test needs %llu bytes of room, and has %llu",
                (unsigned long long)(end + GUARD), (unsigned long long)room->bytes);
    memset(room->sent, POISON, end);
    return SL_OK;
}

typedef struct launch {
    sl_kernel run;
    const sl_kernel_call *call;
} launch;

static sl_status run_kernel(void *argument)
{
    const launch *self = argument;
    return self->run(self->call);
}

sl_status sl_op_room_run(sl_op_room *room, sl_op_kind kind, const sl_kernel_call *call,
                         const sl_op_stretch stretches[SL_OP_STRETCHES])
{
    sl_timed_device *device = room->device;
    const uint64_t bytes = find_end(stretches);
    const sl_timed_copy there = {room->there, room->sent, bytes},
                        back = {room->came, room->there, bytes};
    const sl_kernel_call shapes = {.attrs = call->attrs};
    sl_kernel_call own = *call;
    double seconds;
    sl_kernel run;
    SL_TRY(sl_kernels_find(device->kernels, kind, &run));
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        own.operand[i] = stretches[i].bytes > 0 ? room->there + stretches[i].offset : NULL;
    if (stretches[SL_OP_FLAGS].bytes > 0) {
        own.block_flags = room->there + stretches[SL_OP_FLAGS].offset;
        if (call->block_keys)
            own.block_keys = (const uint64_t *)(const void *)(own.block_flags +
                                                              ((const uint8_t *)call->block_keys -
                                                               call->block_flags));
    }
    own.workspace = room->there + stretches[SL_OP_WORKSPACE].offset;
    own.workers = device->workers;
    own.library = device->library;
    own.stream = device->ops->stream_native(device->streams[0].stream);
    if (device->kernels->prepare)
        SL_TRY(device->kernels->prepare(device->library, kind, &shapes));
    const launch what = {run, &own};
    SL_TRY(sl_timed_device_copy(device, &there, 1, &seconds));
    SL_TRY(sl_timed_device_run(device, run_kernel, (void *)&what, &seconds));
    return sl_timed_device_copy(device, &back, 1, &seconds);
}

enum { COPIES = 3 };

sl_status sl_op_room_run_beside_copies(sl_op_room *room, sl_op_kind kind,
                                       const sl_kernel_call *call,
                                       const sl_op_stretch stretches[SL_OP_STRETCHES])
{
    const sl_device_ops *ops = room->device->ops;
    sl_device_stream *beside = room->device->streams[1].stream;
    sl_status status = SL_OK;
    for (int i = 0; i < COPIES && status == SL_OK; i++) {
        status =
            ops->copy(beside, 0, room->there + room->bytes, room->sent + room->bytes, room->bytes);
        if (status == SL_OK)
            status = ops->copy(beside, 0, room->came + room->bytes, room->there + room->bytes,
                               room->bytes);
    }
    if (status == SL_OK)
        status = sl_op_room_run(room, kind, call, stretches);
    const sl_status finished = ops->stream_finish(beside);
    return status == SL_OK ? finished : status;
}

static bool is_beside(const sl_op_stretch stretches[SL_OP_STRETCHES], uint64_t at)
{
    for (int i = 0; i < SL_OP_STRETCHES; i++)
        if (at >= stretches[i].offset && at - stretches[i].offset < stretches[i].bytes)
            return false;
    return true;
}

uint64_t sl_op_room_find_overrun(const sl_op_room *room,
                                 const sl_op_stretch stretches[SL_OP_STRETCHES])
{
    const uint64_t end = find_end(stretches);
    for (uint64_t at = 0; at < end; at++)
        if (room->came[at] != room->sent[at] && is_beside(stretches, at))
            return at;
    return UINT64_MAX;
}
