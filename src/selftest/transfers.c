#include "transfers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* ---- order ---- */

enum { SLOTS = 4, ELEMENTS = 1 << 16, BYTES = ELEMENTS * sizeof(float), LOAD_BYTES = 4 * BYTES };

/* x and y of all slots, then what only loads the copy engines. */
static const uint64_t sums_bytes = UINT64_C(2) * SLOTS * BYTES;
static const uint64_t room_bytes = UINT64_C(2) * SLOTS * BYTES + LOAD_BYTES;

enum { IN, WORK, OUT, LOAD, HOST, STREAMS };

/* Round r belongs to slot r % SLOTS. A host thread fills x, which comes in; y += x; y goes out, and
 * the host thread judges it. The streams wait for the thread by a word in memory where the device
 * can, and for each other by events; copies of other bytes run all the time. Numbers are small
 * integers, so sums are exact. */
typedef struct order {
    sl_timed_device *device;
    sl_device_stream *streams[STREAMS];
    sl_device_event *filled[SLOTS], *came[SLOTS], *added[SLOTS], *went[SLOTS];
    float *there; /* x and y of each slot */
    float *here;  /* likewise */
    double sums[SLOTS];
    sl_fault *fault; /* of the host thread, until its stream is finished */
} order;

static float *slot_of(float *base, uint32_t slot, bool is_sum)
{
    return base + (2 * (uint64_t)slot + is_sum) * ELEMENTS;
}

static void pass_over(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    (void)user, (void)tag, (void)start_ns, (void)end_ns;
}

static sl_status be_patient(void *user)
{
    return sl_timed_device_be_patient(user);
}

static sl_status open_streams(order *self)
{
    static const char *const names[STREAMS] = {"proof, in", "proof", "proof, out", "proof, load",
                                               "proof, host"};
    const sl_queue_observer observer = {
        .ran = pass_over, .waited = pass_over, .user = self->device, .blocked = be_patient};
    for (int i = 0; i < STREAMS; i++)
        SL_TRY(self->device->ops->stream_open(self->device->handle,
                                              i == HOST ? SL_STREAM_HOST : SL_STREAM_DEVICE,
                                              names[i], &observer, &self->streams[i]));
    return SL_OK;
}

static sl_status open_order(order *self)
{
    const sl_device_ops *ops = self->device->ops;
    void *there = NULL, *here = NULL;
    SL_TRY(open_streams(self));
    for (int i = 0; i < SLOTS; i++) {
        SL_TRY(ops->event_open(self->device->handle, &self->filled[i]));
        SL_TRY(ops->event_open(self->device->handle, &self->came[i]));
        SL_TRY(ops->event_open(self->device->handle, &self->added[i]));
        SL_TRY(ops->event_open(self->device->handle, &self->went[i]));
    }
    SL_TRY(ops->map(self->device->handle, room_bytes, SL_MAP_PLAIN, &there));
    self->there = there;
    SL_TRY(ops->map_host(self->device->handle, room_bytes, SL_MAP_PLAIN, &here));
    self->here = here;
    return SL_OK;
}

static void close_event(const order *self, sl_device_event *event)
{
    if (event)
        self->device->ops->event_close(event);
}

static void close_order(order *self)
{
    const sl_device_ops *ops = self->device->ops;
    for (int i = 0; i < STREAMS; i++)
        if (self->streams[i] && self->device->is_stuck)
            ops->stream_abandon(self->streams[i]);
        else if (self->streams[i])
            ops->stream_close(self->streams[i]);
    if (self->device->is_stuck)
        return;
    for (int i = 0; i < SLOTS; i++) {
        close_event(self, self->filled[i]);
        close_event(self, self->came[i]);
        close_event(self, self->added[i]);
        close_event(self, self->went[i]);
    }
    if (self->there)
        ops->unmap(self->device->handle, self->there, room_bytes, SL_MAP_PLAIN);
    if (self->here)
        ops->unmap_host(self->device->handle, self->here, room_bytes, SL_MAP_PLAIN);
}

typedef struct addition {
    sl_kernel run;
    sl_kernel_call call;
    sl_op_attrs attrs;
} addition;

/* The attributes are read while the work is queued. */
static sl_status add(void *arguments)
{
    addition *it = *(addition **)arguments;
    return it->run(&it->call);
}

static float addend(uint32_t round)
{
    return (float)(1 + round % 13);
}

typedef struct turn {
    order *self;
    uint32_t round;
    bool fills; /* this round is one of them, and not behind the last */
} turn;

static void judge(const order *self, uint32_t round)
{
    const float *y = slot_of(self->here, round % SLOTS, true);
    const double sum = self->sums[round % SLOTS];
    for (uint32_t i = 0; i < ELEMENTS && !*self->fault->text; i++)
        if ((double)y[i] != sum)
            snprintf(self->fault->text, sizeof self->fault->text,
                     "in round %u element %u is %.9g and should be %.9g: a copy, "
                     "a kernel or a host thread overtook what it waits for",
                     round, i, (double)y[i], sum);
}

/* In the host's thread: judges what the slot's last round left, and fills the next x. */
static sl_status turn_slot(void *arguments)
{
    const turn *it = arguments;
    order *self = it->self;
    float *x = slot_of(self->here, it->round % SLOTS, false);
    if (it->round >= SLOTS)
        judge(self, it->round - SLOTS);
    if (it->fills)
        self->sums[it->round % SLOTS] += (double)addend(it->round);
    for (uint32_t i = 0; it->fills && i < ELEMENTS; i++)
        x[i] = addend(it->round);
    return SL_OK;
}

static sl_status issue_turn(order *self, uint32_t round, bool fills)
{
    const turn it = {self, round, fills};
    const sl_device_ops *ops = self->device->ops;
    if (round >= SLOTS)
        SL_TRY(ops->event_wait(self->went[round % SLOTS], self->streams[HOST], 0));
    SL_TRY(ops->launch(self->streams[HOST], 0, turn_slot, &it, sizeof it));
    return ops->event_record(self->filled[round % SLOTS], self->streams[HOST]);
}

/* Both ways; nobody reads these bytes. */
static sl_status issue_load(const order *self)
{
    char *there = (char *)self->there + sums_bytes, *here = (char *)self->here + sums_bytes;
    const sl_device_ops *ops = self->device->ops;
    SL_TRY(ops->copy(self->streams[LOAD], 0, there, here, LOAD_BYTES));
    return ops->copy(self->streams[LOAD], 0, here, there, LOAD_BYTES);
}

static sl_status issue_round(order *self, uint32_t round, addition *additions)
{
    const uint32_t slot = round % SLOTS;
    const sl_device_ops *ops = self->device->ops;
    const addition *one = &additions[slot];
    SL_TRY(issue_turn(self, round, true));
    SL_TRY(issue_load(self));
    SL_TRY(ops->event_wait(self->filled[slot], self->streams[IN], 0));
    SL_TRY(ops->copy(self->streams[IN], 0, slot_of(self->there, slot, false),
                     slot_of(self->here, slot, false), BYTES));
    SL_TRY(ops->event_record(self->came[slot], self->streams[IN]));
    SL_TRY(ops->event_wait(self->came[slot], self->streams[WORK], 0));
    SL_TRY(ops->launch(self->streams[WORK], 0, add, &one, sizeof one));
    SL_TRY(ops->event_record(self->added[slot], self->streams[WORK]));
    SL_TRY(ops->event_wait(self->added[slot], self->streams[OUT], 0));
    SL_TRY(ops->copy(self->streams[OUT], 0, slot_of(self->here, slot, true),
                     slot_of(self->there, slot, true), BYTES));
    return ops->event_record(self->went[slot], self->streams[OUT]);
}

static sl_status make_additions(const order *self, addition additions[SLOTS])
{
    sl_kernel run;
    SL_TRY(sl_kernels_find(self->device->kernels, SL_OP_ADD, &run));
    for (uint32_t i = 0; i < SLOTS; i++) {
        addition *it = &additions[i];
        it->run = run;
        it->attrs = (sl_op_attrs){.element_count = ELEMENTS, .type = SL_TYPE_FP32};
        it->call = (sl_kernel_call){
            .attrs = &it->attrs,
            .operand = {slot_of(self->there, i, false), slot_of(self->there, i, true)},
            .workers = self->device->workers,
            .library = self->device->library,
            .stream = self->device->ops->stream_native(self->streams[WORK])};
        const sl_kernel_call shapes = {.attrs = &it->attrs};
        if (self->device->kernels->prepare)
            SL_TRY(self->device->kernels->prepare(self->device->library, SL_OP_ADD, &shapes));
    }
    return SL_OK;
}

static sl_status issue_rounds(order *self, uint32_t rounds, addition *additions, uint64_t end_ns,
                              uint32_t *out_rounds)
{
    uint32_t r = 0;
    for (; r < rounds && (end_ns == 0 || sl_clock_now_ns() < end_ns); r++)
        SL_TRY(issue_round(self, r, additions));
    *out_rounds = r;
    for (uint32_t last = r; last < r + SLOTS; last++)
        SL_TRY(issue_turn(self, last, false));
    return SL_OK;
}

static sl_status run_order(order *self, const sl_order_args *args, uint32_t *out_rounds)
{
    addition additions[SLOTS];
    SL_TRY(make_additions(self, additions));
    sl_status status = issue_rounds(self, args->rounds, additions, args->end_ns, out_rounds);
    for (int i = 0; i < STREAMS; i++) { /* the additions are this function's */
        const sl_status finished = self->device->ops->stream_finish(self->streams[i]);
        status = status == SL_OK ? finished : status;
    }
    return status;
}

sl_status sl_transfers_prove_order(const sl_order_args *args, sl_fault *out_fault,
                                   uint32_t *out_rounds)
{
    order self = {.device = args->device, .fault = out_fault};
    *out_fault = (sl_fault){0};
    *out_rounds = 0;
    sl_status status = open_order(&self);
    if (status == SL_OK)
        status = run_order(&self, args, out_rounds);
    close_order(&self);
    return status;
}

/* ---- borders ---- */

static const uint64_t guard_bytes = 4096, span_bytes = 64 << 10;

typedef struct border {
    sl_timed_device *device;
    unsigned char *there, *host; /* [span_bytes + 2 * guard_bytes], [host_bytes] */
    uint64_t host_bytes;
} border;

static unsigned char byte_at(uint64_t index)
{
    return (unsigned char)(index * 0x9e3779b97f4a7c15u >> 56);
}

static bool is_guard(uint64_t index, uint64_t bytes)
{
    return index < guard_bytes || index >= guard_bytes + bytes;
}

/* A copy to the device and one back, into a host room whose bytes beside it must stay: they are
 * others than those that were beside it on the way there. */
static sl_status cross(const border *self, uint64_t at, uint64_t before, uint64_t bytes,
                       sl_fault *fault)
{
    unsigned char *room = self->host + at - before - guard_bytes;
    const sl_timed_copy there = {self->there + guard_bytes, room + guard_bytes, bytes};
    const sl_timed_copy back = {room + guard_bytes, self->there + guard_bytes, bytes};
    double seconds;
    for (uint64_t i = 0; i < bytes + 2 * guard_bytes; i++)
        room[i] = byte_at(i);
    SL_TRY(sl_timed_device_copy(self->device, &there, 1, &seconds));
    for (uint64_t i = 0; i < bytes + 2 * guard_bytes; i++)
        room[i] = (unsigned char)~byte_at(i);
    SL_TRY(sl_timed_device_copy(self->device, &back, 1, &seconds));
    for (uint64_t i = 0; i < bytes + 2 * guard_bytes && !*fault->text; i++)
        if (room[i] != (unsigned char)(is_guard(i, bytes) ? ~byte_at(i) : byte_at(i)))
            snprintf(fault->text, sizeof fault->text,
                     "of %" PRIu64 " bytes that begin %" PRIu64 " before byte %" PRIu64
                     " of locked host memory, byte %" PRId64 " came back as another one",
                     bytes, before, at, (int64_t)(i - guard_bytes));
    return SL_OK;
}

static sl_status cross_all(const border *self, uint64_t border_bytes, sl_fault *fault)
{
    static const struct {
        uint64_t before, bytes;
    } shapes[] = {{1, 2}, {3, 7}, {4096, 8192}, {4095, 8193}, {(32 << 10) + 1, 64 << 10}};
    for (uint64_t at = border_bytes; at + span_bytes + guard_bytes < self->host_bytes;
         at += border_bytes)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes && !*fault->text; s++)
            if (at >= shapes[s].before + guard_bytes)
                SL_TRY(cross(self, at, shapes[s].before, shapes[s].bytes, fault));
    return SL_OK;
}

sl_status sl_transfers_prove_borders(sl_timed_device *device, uint64_t host_bytes,
                                     uint64_t border_bytes, sl_fault *out_fault)
{
    const sl_device_ops *ops = device->ops;
    void *there = NULL, *host = NULL;
    *out_fault = (sl_fault){0};
    SL_TRY(ops->map(device->handle, span_bytes + 2 * guard_bytes, SL_MAP_PLAIN, &there));
    sl_status status = ops->map_host(device->handle, host_bytes, SL_MAP_PLAIN, &host);
    const border self = {device, there, host, host_bytes};
    if (status == SL_OK)
        status = cross_all(&self, border_bytes, out_fault);
    if (device->is_stuck)
        return status;
    if (host)
        ops->unmap_host(device->handle, host, host_bytes, SL_MAP_PLAIN);
    ops->unmap(device->handle, there, span_bytes + 2 * guard_bytes, SL_MAP_PLAIN);
    return status;
}
