/* One chunk of one group at a time: how often it comes, and how often it goes. */
#include "bytes.h"

/* How often a chunk is fetched to where it is used, and written back, in a step. */
typedef struct trips {
    uint64_t to, from;
} trips;

static uint64_t count_sweeps(const sl_choice *choice)
{
    return choice->accumulation == SL_ACCUMULATE_LAYER ? 1 : choice->accumulate;
}

/* Between the device, where passes run, and a home elsewhere. */
static trips count_passes(const sl_blueprint *blueprint, sl_group group)
{
    uint64_t sweeps = count_sweeps(&blueprint->choice);
    if (group == SL_GROUP_PARAM)
        return (trips){2 * sweeps, 0};
    if (group == SL_GROUP_GRAD)
        return (trips){sweeps - 1, sweeps};
    return (trips){0, 0};
}

/* Between the place of the update and a home elsewhere. */
static trips count_update(sl_group group)
{
    if (group == SL_GROUP_PARAM)
        return (trips){0, 1};
    return group == SL_GROUP_GRAD ? (trips){1, 0} : (trips){1, 1};
}

/* To `used` from `home`; what lies between disk and device passes the host. */
static void add_trips(sl_tier home, sl_tier used, trips count, uint64_t bytes, uint64_t *out_bytes)
{
    bool is_between_memories = home != used && (home == SL_TIER_DEVICE || used == SL_TIER_DEVICE);
    bool is_down = home == SL_TIER_DEVICE;
    if (is_between_memories) {
        out_bytes[SL_LANE_H2D] += bytes * (is_down ? count.from : count.to);
        out_bytes[SL_LANE_D2H] += bytes * (is_down ? count.to : count.from);
    }
    if (home == SL_TIER_DISK) {
        out_bytes[SL_LANE_READ] += bytes * count.to;
        out_bytes[SL_LANE_WRITE] += bytes * count.from;
    }
}

void sl_bytes_by_formula(const sl_blueprint *blueprint, uint64_t out_bytes[SL_LANE_COUNT])
{
    const sl_homes *homes = blueprint->homes;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        out_bytes[lane] = 0;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; homes->tier[group] && i < homes->chunk_count; i++) {
            uint64_t bytes = sl_layout_chunk_bytes(blueprint->layout, (sl_group)group, i);
            sl_tier home = (sl_tier)homes->tier[group][i], used = (sl_tier)homes->update_tier[i];
            trips passes = count_passes(blueprint, (sl_group)group);
            add_trips(home, SL_TIER_DEVICE, passes, bytes, out_bytes);
            add_trips(home, used, count_update((sl_group)group), bytes, out_bytes);
        }
    }
}
