/* What is used least often leaves the device first, and the host for the disk. */
#include "candidates.h"

static const struct {
    sl_policy policy;
    double moments, grads, params; /* on the host with static, on disk with nvme */
} candidates[] = {
    {SL_POLICY_DEVICE, 0, 0, 0},    {SL_POLICY_STATIC, 0.25, 0, 0}, {SL_POLICY_STATIC, 0.5, 0, 0},
    {SL_POLICY_STATIC, 0.75, 0, 0}, {SL_POLICY_STATIC, 1, 0, 0},    {SL_POLICY_STATIC, 1, 0.5, 0},
    {SL_POLICY_STATIC, 1, 1, 0},    {SL_POLICY_STATIC, 1, 1, 0.5},  {SL_POLICY_HOST, 0, 0, 0},
    {SL_POLICY_NVME, 0.5, 0, 0},    {SL_POLICY_NVME, 1, 0, 0},      {SL_POLICY_NVME, 1, 1, 0},
    {SL_POLICY_NVME, 1, 1, 1},
};

enum { CANDIDATE_COUNT = sizeof candidates / sizeof candidates[0] };

void sl_candidates_set_shares(double fraction[SL_GROUP_COUNT], double moments, double grads,
                              double params)
{
    fraction[SL_GROUP_PARAM] = params;
    fraction[SL_GROUP_GRAD] = grads;
    fraction[SL_GROUP_MASTER] = moments;
    fraction[SL_GROUP_STATE1] = moments;
    fraction[SL_GROUP_STATE2] = moments;
}

uint32_t sl_candidates_count(const sl_search *search)
{
    return search->task.disk_directory_count > 0 ? CANDIDATE_COUNT : SL_CANDIDATES_FIRST_ON_DISK;
}

void sl_candidates_set(uint32_t index, sl_choice *choice)
{
    sl_policy_options placement = {.policy = candidates[index].policy,
                                   .update = choice->placement.update,
                                   .host_updates = choice->placement.host_updates};
    bool is_on_disk = placement.policy == SL_POLICY_NVME;
    sl_candidates_set_shares(is_on_disk ? placement.disk_fraction : placement.host_fraction,
                             candidates[index].moments, candidates[index].grads,
                             candidates[index].params);
    choice->placement = placement;
}

uint32_t sl_candidates_find_next(uint32_t index, sl_tier short_tier)
{
    if (short_tier == SL_TIER_DISK)
        return UINT32_MAX; /* later ones need more of it */
    if (short_tier == SL_TIER_HOST && index + 1 < SL_CANDIDATES_FIRST_ON_DISK)
        return SL_CANDIDATES_FIRST_ON_DISK;
    return index + 1;
}
