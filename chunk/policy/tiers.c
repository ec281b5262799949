/* The tiers and the lanes between them: their names in messages, files and options, and which lane
 * copies between which tiers. The whole tree uses this table, except the verifier, which has its
 * own, so that a mistake here is found there.
 */
#include "chunk/chunk.h"

/* For a lane that runs ops, `from` and `to` are both the tier of its ops. */
typedef struct lane_info {
    const char *name;
    sl_tier from, to;
} lane_info;

static const lane_info lanes[SL_LANE_COUNT] = {
    [SL_LANE_COMPUTE] = {"compute", SL_TIER_DEVICE, SL_TIER_DEVICE},
    [SL_LANE_H2D] = {"h2d", SL_TIER_HOST, SL_TIER_DEVICE},
    [SL_LANE_D2H] = {"d2h", SL_TIER_DEVICE, SL_TIER_HOST},
    [SL_LANE_HOST] = {"host", SL_TIER_HOST, SL_TIER_HOST},
    [SL_LANE_READ] = {"read", SL_TIER_DISK, SL_TIER_HOST},
    [SL_LANE_WRITE] = {"write", SL_TIER_HOST, SL_TIER_DISK},
    [SL_LANE_COMM] = {"comm", SL_TIER_DEVICE, SL_TIER_DEVICE},
    [SL_LANE_INPUT] = {"input", SL_TIER_HOST, SL_TIER_HOST},
};

const char *sl_tier_name(sl_tier tier)
{
    static const char *const names[SL_TIER_COUNT] = {"device", "host", "disk"};
    return names[tier];
}

const char *sl_lane_name(sl_lane lane)
{
    return lanes[lane].name;
}

bool sl_lane_copies(sl_lane lane)
{
    return lanes[lane].from != lanes[lane].to;
}

sl_lane sl_lane_between(sl_tier from, sl_tier to)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (sl_lane_copies((sl_lane)lane) && lanes[lane].from == from && lanes[lane].to == to)
            return (sl_lane)lane;
    return SL_LANE_COUNT;
}
