/* The first choice that fits. */
#include "candidates.h"

static bool has_same_shares(const sl_policy_options *a, const sl_policy_options *b)
{
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        if (a->host_fraction[group] != b->host_fraction[group] ||
            a->disk_fraction[group] != b->disk_fraction[group])
            return false;
    return true;
}

/* All else is the same throughout a search. */
static bool is_same_choice(const sl_choice *a, const sl_choice *b)
{
    return a->recompute == b->recompute && a->accumulation == b->accumulation &&
           a->placement.policy == b->placement.policy &&
           a->placement.update == b->placement.update &&
           a->placement.host_updates == b->placement.host_updates &&
           has_same_shares(&a->placement, &b->placement) &&
           a->chunk_elements == b->chunk_elements && a->prefetch == b->prefetch &&
           a->host_activations == b->host_activations && a->disk_activations == b->disk_activations;
}

sl_status sl_search_build(const sl_search *search, const sl_task *task, const sl_choice *choice,
                          sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    sl_search_refused *refused = task->is_probe ? search->refused : NULL;
    for (uint32_t i = 0; refused && i < refused->count; i++)
        if (is_same_choice(choice, &refused->items[i].choice)) {
            *out_failure = refused->items[i].failure;
            SL_FAIL(SL_ERROR_FIT, "it does not fit, as before");
        }
    if (task->work_left && *task->work_left == 0) {
        *out_failure = (sl_fit_failure){.choice = *choice};
        out_failure->shortage.needed_bytes = UINT64_MAX;
        SL_FAIL(SL_ERROR_FIT, "no plan was found within the work that is allowed");
    }
    const sl_status status = sl_blueprint_build(task, choice, out_blueprint, out_failure);
    if (status == SL_ERROR_FIT && refused && refused->count < SL_SEARCH_REFUSED) {
        refused->items[refused->count].choice = *choice;
        refused->items[refused->count++].failure = *out_failure;
    }
    return status;
}

/* Layer by layer saves moves of parameters and gradients, and costs memory for activations. */
static sl_accumulation prefer_accumulation(const sl_policy_options *placement)
{
    bool is_moving =
        placement->policy == SL_POLICY_HOST || placement->policy == SL_POLICY_NVME ||
        (placement->policy == SL_POLICY_STATIC && (placement->host_fraction[SL_GROUP_PARAM] > 0 ||
                                                   placement->host_fraction[SL_GROUP_GRAD] > 0));
    return is_moving ? SL_ACCUMULATE_LAYER : SL_ACCUMULATE_MICRO;
}

static sl_status fit_accumulations(const sl_search *search, sl_choice *choice,
                                   sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_accumulation || choice->accumulate == 1)
        return sl_search_build(search, &search->task, choice, out_blueprint, out_failure);
    choice->accumulation = prefer_accumulation(&choice->placement);
    sl_status status = sl_search_build(search, &search->task, choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT || choice->accumulation == SL_ACCUMULATE_MICRO)
        return status;
    choice->accumulation = SL_ACCUMULATE_MICRO;
    return sl_search_build(search, &search->task, choice, out_blueprint, out_failure);
}

static sl_status fit_candidate(const sl_search *search, uint32_t index, sl_choice *choice,
                               sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    sl_candidates_set(index, choice);
    return fit_accumulations(search, choice, out_blueprint, out_failure);
}

/* Everything on the device if that fits; else a candidate can only fit if the one that takes least
 * of the device does, or would with more of the host. */
static sl_status fit_candidates(const sl_search *search, sl_choice *choice,
                                sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_policy)
        return fit_accumulations(search, choice, out_blueprint, out_failure);
    sl_status status = fit_candidate(search, 0, choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT)
        return status;
    sl_blueprint *frugal = NULL;
    status = fit_candidate(search, SL_CANDIDATES_LEAST_ON_DEVICE, choice, &frugal, out_failure);
    sl_blueprint_close(frugal);
    bool is_hopeless = status == SL_ERROR_FIT && out_failure->shortage.tier == SL_TIER_DEVICE;
    if (is_hopeless || (status != SL_OK && status != SL_ERROR_FIT))
        return status;
    for (uint32_t index = 1; index < sl_candidates_count(search);) {
        status = fit_candidate(search, index, choice, out_blueprint, out_failure);
        if (status != SL_ERROR_FIT)
            return status;
        index = sl_candidates_find_next(index, out_failure->shortage.tier);
    }
    return SL_ERROR_FIT;
}

static sl_status fit_recomputes(const sl_search *search, sl_choice *choice,
                                sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_recompute || search->task.work != SL_WORK_TRAIN)
        return fit_candidates(search, choice, out_blueprint, out_failure);
    for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
        choice->recompute = (sl_recompute)recompute;
        sl_status status = fit_candidates(search, choice, out_blueprint, out_failure);
        if (status != SL_ERROR_FIT)
            return status;
    }
    return SL_ERROR_FIT;
}

/* As little of the device as there is: activations leave it too, for the host or else the disk.
 * If that does not fit either, the failure of the choice without it is reported. */
static sl_status fit_activations(const sl_search *search, sl_choice *choice,
                                 sl_blueprint **out_blueprint)
{
    const bool has_disk = search->task.disk_directory_count > 0;
    sl_choice away = *choice;
    sl_fit_failure failure;
    if (!search->auto_activations)
        return SL_ERROR_FIT;
    for (int on_disk = 0; on_disk <= has_disk; on_disk++) {
        away.host_activations = on_disk ? 0 : 1;
        away.disk_activations = on_disk ? 1 : 0;
        for (uint32_t index = SL_CANDIDATES_LEAST_ON_DEVICE; index < sl_candidates_count(search);
             index++) {
            sl_status status = fit_candidate(search, index, &away, out_blueprint, &failure);
            if (status == SL_OK)
                *choice = away;
            if (status != SL_ERROR_FIT)
                return status;
            if (failure.shortage.tier != SL_TIER_HOST)
                break;
        }
    }
    return SL_ERROR_FIT;
}

/* Leaves the last choice that was tried in `*choice`. */
static sl_status fit_choice(const sl_search *search, sl_choice *choice,
                            sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    sl_search probing = *search;
    probing.task.is_probe = true;
    sl_status status = fit_recomputes(&probing, choice, out_blueprint, out_failure);
    return status == SL_ERROR_FIT ? fit_activations(&probing, choice, out_blueprint) : status;
}

sl_status sl_search_try(const sl_search *search, sl_blueprint **out_blueprint,
                        sl_fit_failure *out_failure)
{
    sl_choice choice = search->fixed;
    return fit_choice(search, &choice, out_blueprint, out_failure);
}

sl_status sl_search_run(const sl_search *search, sl_blueprint **out_blueprint,
                        sl_fit_failure *out_failure)
{
    sl_choice choice = search->fixed;
    sl_status status = fit_choice(search, &choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT)
        return status;
    /* Once more, for the exact bytes of the last attempt. */
    return sl_blueprint_build(&search->task, &choice, out_blueprint, out_failure);
}
