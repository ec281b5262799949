/* What is used least often leaves the device first, and the host for the disk. */
#include "search_ladder.h"

#include <string.h>

static const struct {
    sl_policy policy;
    double moments, grads, params; /* on the host with static, on disk with nvme */
} ladder[] = {
    {SL_POLICY_DEVICE, 0, 0, 0},    {SL_POLICY_STATIC, 0.25, 0, 0}, {SL_POLICY_STATIC, 0.5, 0, 0},
    {SL_POLICY_STATIC, 0.75, 0, 0}, {SL_POLICY_STATIC, 1, 0, 0},    {SL_POLICY_STATIC, 1, 0.5, 0},
    {SL_POLICY_STATIC, 1, 1, 0},    {SL_POLICY_STATIC, 1, 1, 0.5},  {SL_POLICY_HOST, 0, 0, 0},
    {SL_POLICY_NVME, 0.5, 0, 0},    {SL_POLICY_NVME, 1, 0, 0},      {SL_POLICY_NVME, 1, 1, 0},
    {SL_POLICY_NVME, 1, 1, 1},
};

enum { LADDER_COUNT = sizeof ladder / sizeof ladder[0] };

uint32_t sl_search_rung_count(const sl_search *search)
{
    return search->task.disk_directory_count > 0 ? LADDER_COUNT : SL_SEARCH_FIRST_ON_DISK;
}

void sl_search_set_shares(double fraction[SL_GROUP_COUNT], double moments, double grads,
                          double params)
{
    fraction[SL_GROUP_PARAM] = params;
    fraction[SL_GROUP_GRAD] = grads;
    fraction[SL_GROUP_MASTER] = moments;
    fraction[SL_GROUP_MOMENT1] = moments;
    fraction[SL_GROUP_MOMENT2] = moments;
}

void sl_search_take_rung(uint32_t rung, sl_choice *choice)
{
    sl_policy_options placement = {.policy = ladder[rung].policy, .adam = choice->placement.adam};
    bool is_on_disk = placement.policy == SL_POLICY_NVME;
    sl_search_set_shares(is_on_disk ? placement.disk_fraction : placement.host_fraction,
                         ladder[rung].moments, ladder[rung].grads, ladder[rung].params);
    choice->placement = placement;
}

uint32_t sl_search_next_rung(uint32_t rung, sl_tier short_tier)
{
    if (short_tier == SL_TIER_DISK)
        return UINT32_MAX; /* later ones need more of it */
    if (short_tier == SL_TIER_HOST && rung + 1 < SL_SEARCH_FIRST_ON_DISK)
        return SL_SEARCH_FIRST_ON_DISK;
    return rung + 1;
}

uint64_t *sl_search_budget(sl_choice *choice, sl_tier tier)
{
    if (tier == SL_TIER_DISK)
        return &choice->disk_space;
    return tier == SL_TIER_HOST ? &choice->host_memory : &choice->device_memory;
}
