/* See ranks.h. Numbers travel as they lie in memory: the ranks have compared their builds. */
#include "ranks.h"

#include <stdlib.h>

#include "base/bits.h"

void sl_measured_ranks_close(sl_measured_ranks *ranks)
{
    if (!ranks)
        return;
    free(ranks->items);
    free(ranks);
}

double sl_measured_own_ms(const sl_measured *measured)
{
    return measured->step_ms - measured->lanes[SL_LANE_COMPUTE].wait_ms[SL_LANE_COMM];
}

static sl_status open_ranks(const sl_ranks *ranks, sl_measured_ranks **out_ranks)
{
    sl_measured_ranks *all = calloc(1, sizeof *all);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what ranks measured");
    all->layout = ranks->layout;
    all->count = sl_comm_size(ranks->world);
    all->items = calloc(all->count, sizeof *all->items);
    if (!all->items) {
        sl_measured_ranks_close(all);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what %u ranks measured",
                sl_comm_size(ranks->world));
    }
    *out_ranks = all;
    return SL_OK;
}

static void add_tier(const sl_measured_tier *from, sl_measured_sum *to)
{
    to->planned_bytes += from->planned_bytes;
    to->measured_bytes += from->measured_bytes;
    to->most_planned_bytes = sl_bits_max(to->most_planned_bytes, from->planned_bytes);
    to->most_measured_bytes = sl_bits_max(to->most_measured_bytes, from->measured_bytes);
}

/* The rank that waits least for others is the one for which they wait. */
static void add_up(sl_measured_ranks *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const sl_measured *of = &all->items[i];
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            add_tier(&of->tiers[tier], &all->tiers[tier]);
        for (int lane = 0; lane < SL_LANE_COUNT; lane++)
            all->moved_bytes[lane] += of->lanes[lane].moved_bytes;
        for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
            all->sent_bytes[group] += of->sent_bytes[group];
        if (sl_measured_own_ms(of) > sl_measured_own_ms(&all->items[all->slowest]))
            all->slowest = i;
    }
}

sl_status sl_measured_gather(const sl_ranks *ranks, sl_measured *measured)
{
    if (!ranks->world)
        return SL_OK;
    sl_measured_ranks *all = NULL;
    SL_TRY(open_ranks(ranks, &all));
    sl_measured *own = &all->items[sl_comm_rank(ranks->world)];
    *own = *measured;
    own->spans = NULL;
    own->span_count = 0;
    const sl_status status = sl_comm_all_gather(ranks->world, sizeof *own, own, all->items);
    if (status != SL_OK) {
        sl_measured_ranks_close(all);
        return status;
    }
    add_up(all);
    measured->ranks = all;
    return SL_OK;
}
