/* A ring of slots on either side, together larger than a cache. */
#include "copies.h"

enum { SLOTS = 8, STAGGER = 68 * 1024, SMALL_BYTES = 4096 };

/* A copy of a whole chunk, or of what shows the rate as well. */
static uint64_t find_slot_bytes(const sl_rig *rig, bool is_quick)
{
    const uint64_t mib = UINT64_C(1) << 20;
    if (is_quick)
        return 8 * mib;
    return (rig->ops->kind == SL_DEVICE_CPU ? 32 : 64) * mib;
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
    const sl_rig_copy copy = {copies->device, copies->host, copies->mapped_bytes};
    sl_memory_fill(copies->host, copies->mapped_bytes);
    return sl_rig_copy_each(copies->rig, &copy, 1, &seconds);
}

sl_status sl_copies_open(sl_rig *rig, bool is_quick, sl_copies *out_copies)
{
    sl_copies copies = {.rig = rig, .slot_bytes = find_slot_bytes(rig, is_quick)};
    copies.mapped_bytes = SLOTS * (copies.slot_bytes + STAGGER);
    init_cases(&copies);
    sl_status status =
        rig->ops->map_host(rig->device, copies.mapped_bytes, SL_MAP_PLAIN, (void **)&copies.host);
    if (status == SL_OK)
        status =
            rig->ops->map(rig->device, copies.mapped_bytes, SL_MAP_PLAIN, (void **)&copies.device);
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
    const sl_rig *rig = copies->rig;
    if (copies->device)
        rig->ops->unmap(rig->device, copies->device, copies->mapped_bytes, SL_MAP_PLAIN);
    if (copies->host)
        rig->ops->unmap_host(rig->device, copies->host, copies->mapped_bytes, SL_MAP_PLAIN);
    *copies = (sl_copies){0};
}

static uint64_t take_slot(sl_copies *copies)
{
    return copies->next_slot++ % SLOTS * (copies->slot_bytes + STAGGER);
}

static sl_rig_copy take_copy(sl_copies *copies, sl_copies_kind kind)
{
    uint64_t first = take_slot(copies), second = take_slot(copies);
    uint64_t bytes = copies->cases[kind].bytes;
    switch (kind) {
    case SL_COPIES_WITHIN:
        return (sl_rig_copy){copies->device + first, copies->device + second, bytes};
    case SL_COPIES_D2H:
    case SL_COPIES_D2H_BOTH:
    case SL_COPIES_D2H_SMALL:
        return (sl_rig_copy){copies->host + first, copies->device + second, bytes};
    default:
        return (sl_rig_copy){copies->device + first, copies->host + second, bytes};
    }
}

sl_status sl_copies_sample(sl_copies *copies, uint32_t round)
{
    for (int kind = 0; kind < SL_COPIES_COUNT; kind++) {
        sl_rig_copy both[SL_RIG_LANES] = {take_copy(copies, (sl_copies_kind)kind)};
        double seconds[SL_RIG_LANES] = {0};
        uint32_t count = 1;
        if (kind == SL_COPIES_H2D_BOTH)
            both[count++] = take_copy(copies, SL_COPIES_D2H_BOTH);
        SL_TRY(sl_rig_copy_each(copies->rig, both, count, seconds));
        copies->cases[kind].samples[round] = seconds[0];
        if (kind == SL_COPIES_H2D_BOTH)
            copies->cases[++kind].samples[round] = seconds[1];
    }
    return SL_OK;
}

void sl_copies_finish(sl_copies *copies, uint32_t round_count)
{
    for (int kind = 0; kind < SL_COPIES_COUNT; kind++)
        copies->cases[kind].seconds = sl_spread_of(copies->cases[kind].samples, round_count);
}

void sl_copies_set_machine(const sl_copies *copies, double least_seconds, sl_machine *machine)
{
    static const sl_copies_kind large[] = {
        [SL_LANE_H2D] = SL_COPIES_H2D, [SL_LANE_D2H] = SL_COPIES_D2H};
    static const sl_copies_kind small[] = {
        [SL_LANE_H2D] = SL_COPIES_H2D_SMALL, [SL_LANE_D2H] = SL_COPIES_D2H_SMALL};
    for (int lane = SL_LANE_H2D; lane <= SL_LANE_D2H; lane++) {
        const sl_copies_case *one = &copies->cases[large[lane]],
                             *little = &copies->cases[small[lane]];
        double rate = (double)one->bytes / one->seconds.median;
        double each = little->seconds.median - (double)little->bytes / rate;
        machine->copy_rate[lane] = rate;
        machine->copy_seconds[lane] = each > least_seconds ? each : least_seconds;
    }
}
