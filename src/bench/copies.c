/* A ring of slots on either side, together larger than a cache. */
#include "copies.h"

enum { SLOTS = 8, STAGGER = 68 * 1024, SMALL_BYTES = 4096 };

/* As large as a chunk, or as what shows the rate as well. */
static uint64_t find_slot_bytes(const sl_timed_device *device, bool is_quick)
{
    const uint64_t mib = UINT64_C(1) << 20;
    if (is_quick)
        return 8 * mib;
    return (device->ops->kind == SL_DEVICE_CPU ? 32 : 64) * mib;
}

static void init_cases(sl_copies *copies)
{
    static const char *const names[SL_COPIES_COUNT] = {
        [SL_COPIES_H2D] = "host to device",
        [SL_COPIES_D2H] = "device to host",
        [SL_COPIES_H2D_BOTH] = "host to device, both ways at once",
        [SL_COPIES_D2H_BOTH] = "device to host, both ways at once",
        [SL_COPIES_WITHIN] = "within the device, read and written",
        [SL_COPIES_H2D_SMALL] = "host to device, 4 KiB",
        [SL_COPIES_D2H_SMALL] = "device to host, 4 KiB",
    };
    for (int kind = 0; kind < SL_COPIES_COUNT; kind++) {
        bool is_small = kind == SL_COPIES_H2D_SMALL || kind == SL_COPIES_D2H_SMALL;
        copies->cases[kind].name = names[kind];
        copies->cases[kind].bytes = is_small ? SMALL_BYTES : copies->slot_bytes;
    }
}

/* Random numbers on both sides: some links and drives are faster on zeros. */
static sl_status fill_slots(sl_copies *copies)
{
    double seconds;
    const sl_timed_copy copy = {copies->device_slots, copies->host_slots, copies->mapped_bytes};
    sl_memory_fill(copies->host_slots, copies->mapped_bytes);
    return sl_timed_device_copy(copies->device, &copy, 1, &seconds);
}

sl_status sl_copies_open(sl_timed_device *device, bool is_quick, sl_copies *out_copies)
{
    sl_copies copies = {.device = device, .slot_bytes = find_slot_bytes(device, is_quick)};
    copies.mapped_bytes = SLOTS * (copies.slot_bytes + STAGGER);
    init_cases(&copies);
    sl_status status = device->ops->map_host(device->handle, copies.mapped_bytes, SL_MAP_PLAIN,
                                             (void **)&copies.host_slots);
    if (status == SL_OK)
        status = device->ops->map(device->handle, copies.mapped_bytes, SL_MAP_PLAIN,
                                  (void **)&copies.device_slots);
    if (status == SL_OK)
        status = fill_slots(&copies);
    if (status != SL_OK) {
        sl_copies_close(&copies);
        return status;
    }
    *out_copies = copies;
    return SL_OK;
}

void sl_copies_close(sl_copies *copies)
{
    const sl_timed_device *device = copies->device;
    if (copies->device_slots)
        device->ops->unmap(device->handle, copies->device_slots, copies->mapped_bytes,
                           SL_MAP_PLAIN);
    if (copies->host_slots)
        device->ops->unmap_host(device->handle, copies->host_slots, copies->mapped_bytes,
                                SL_MAP_PLAIN);
    *copies = (sl_copies){0};
}

static uint64_t take_slot(sl_copies *copies)
{
    return copies->next_slot++ % SLOTS * (copies->slot_bytes + STAGGER);
}

static sl_timed_copy take_copy(sl_copies *copies, sl_copies_kind kind)
{
    uint64_t first = take_slot(copies), second = take_slot(copies);
    uint64_t bytes = copies->cases[kind].bytes;
    switch (kind) {
    case SL_COPIES_WITHIN:
        return (sl_timed_copy){copies->device_slots + first, copies->device_slots + second, bytes};
    case SL_COPIES_D2H:
    case SL_COPIES_D2H_BOTH:
    case SL_COPIES_D2H_SMALL:
        return (sl_timed_copy){copies->host_slots + first, copies->device_slots + second, bytes};
    default:
        return (sl_timed_copy){copies->device_slots + first, copies->host_slots + second, bytes};
    }
}

sl_status sl_copies_sample(sl_copies *copies)
{
    for (int kind = 0; kind < SL_COPIES_COUNT; kind++) {
        sl_timed_copy both[SL_TIMED_DEVICE_STREAMS] = {take_copy(copies, (sl_copies_kind)kind)};
        double seconds[SL_TIMED_DEVICE_STREAMS] = {0};
        uint32_t count = 1;
        if (kind == SL_COPIES_H2D_BOTH)
            both[count++] = take_copy(copies, SL_COPIES_D2H_BOTH);
        SL_TRY(sl_timed_device_copy(copies->device, both, count, seconds));
        sl_samples_add(&copies->cases[kind].seconds, seconds[0]);
        if (kind == SL_COPIES_H2D_BOTH)
            sl_samples_add(&copies->cases[++kind].seconds, seconds[1]);
    }
    return SL_OK;
}

void sl_copies_set_machine(const sl_copies *copies, double least_seconds, sl_machine *machine)
{
    static const sl_copies_kind large[] = {
        [SL_LANE_H2D] = SL_COPIES_H2D, [SL_LANE_D2H] = SL_COPIES_D2H};
    static const sl_copies_kind small[] = {
        [SL_LANE_H2D] = SL_COPIES_H2D_SMALL, [SL_LANE_D2H] = SL_COPIES_D2H_SMALL};
    for (int lane = SL_LANE_H2D; lane <= SL_LANE_D2H; lane++) {
        const sl_copies_case *big = &copies->cases[large[lane]];
        const sl_copies_case *tiny = &copies->cases[small[lane]];
        double rate = (double)big->bytes / sl_samples_median(&big->seconds);
        double each = sl_samples_median(&tiny->seconds) - (double)tiny->bytes / rate;
        machine->copy_rate[lane] = rate;
        machine->copy_seconds[lane] = each > least_seconds ? each : least_seconds;
    }
}
