/* What tiers are called, in messages, files and options. */
#include "sluice/chunk.h"

const char *sl_tier_name(sl_tier tier)
{
    static const char *const names[SL_TIER_COUNT] = {"device", "host", "disk"};
    return names[tier];
}
