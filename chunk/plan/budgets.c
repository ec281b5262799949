/* Plans the tiers within their budgets: the device, then the host, then the disk. Objects that live
 * on disk pass through the host on their way to the device, so the device's moves decide what the
 * host must hold.
 *
 * A tier is planned with a limit (sl_planner_plan_tier). If holes between items of unequal size
 * push the addresses above the budget, the tier is planned again with a lower limit until they fit,
 * and then with limits a little above that one. If nothing fits, the request is refused with the
 * least budget that works.
 *
 * Visits that last into the next iteration leave more holes than others. A tier whose budget they
 * push the addresses above is planned without them too; that plan stands if it moves less than four
 * fifths of the bytes.
 */
#include "planner.h"

enum { ADDRESS_ATTEMPTS = 16, WIDER_ATTEMPTS = 5, BUDGET_ATTEMPTS = 64, SPREAD_ATTEMPTS = 16 };

/* ---- one tier ---- */

/* The tick at which values leave the least room for visits. */
static uint32_t find_tightest_tick(const sl_planner *planner, sl_tier tier)
{
    const uint64_t *room = planner->tier[tier].room_bytes;
    uint32_t tightest = 0;
    for (uint32_t tick = 1; tick < planner->program->op_count; tick++)
        if (room[tick] < room[tightest])
            tightest = tick;
    return tightest;
}

/* Bisects between a limit whose addresses fit and one whose addresses do not, and leaves the plan
 * with the highest fitting limit in place. The search is needed because the bytes lost to holes
 * differ from limit to limit. Without it 33 of the 94 recorded plans (test_corpus) differ, and one
 * of them takes 15 % more time. */
static sl_status widen_room(sl_planner *planner, sl_tier tier, uint64_t budget, uint64_t failing,
                            uint64_t *fitting_limit)
{
    sl_tier_state *state = &planner->tier[tier];
    sl_shortage ignored;
    uint64_t fitting = *fitting_limit, planned = fitting;
    for (int attempt = 0; attempt < WIDER_ATTEMPTS; attempt++) {
        planned = fitting + (failing - fitting) / 2;
        sl_status status = sl_planner_plan_tier(planner, tier, planned, &ignored);
        if (status != SL_OK && status != SL_ERROR_FIT)
            return status;
        if (status == SL_OK && state->peak_bytes <= budget)
            fitting = planned;
        else
            failing = planned;
    }
    *fitting_limit = fitting;
    return planned == fitting ? SL_OK : sl_planner_plan_tier(planner, tier, fitting, &ignored);
}

/* The last limit whose addresses did not fit (0: none was tried), the first limit that fits, and
 * the least limit that was planned. */
typedef struct limits {
    uint64_t failing, fitting, least;
} limits;

/* Lowers the limit until the addresses fit: by the bytes above the budget, or by twice the step
 * before if those bytes are not more than that step. */
static sl_status shrink_room(sl_planner *planner, sl_tier tier, uint64_t budget, limits *out_limits,
                             sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    uint64_t limit = budget, failing = 0, worst = 0, less = 0;
    bool least_tried = false;
    *out_limits = (limits){0, 0, UINT64_MAX};
    for (int attempt = 0; attempt < ADDRESS_ATTEMPTS; attempt++) {
        sl_status status = sl_planner_plan_tier(planner, tier, limit, shortage);
        if (status == SL_ERROR_FIT && worst) { /* too low: try the least limit that works, once */
            if (least_tried)
                break;
            least_tried = true;
            limit += shortage->missing_bytes;
            continue;
        }
        SL_TRY(status);
        if (state->peak_bytes <= budget) {
            *out_limits = (limits){failing, limit, limit};
            return SL_OK;
        }
        failing = limit;
        out_limits->least = limit;
        worst = state->peak_bytes - budget;
        less = worst > less ? worst : 2 * less;
        limit = limit > less ? limit - less : 0;
    }
    shortage->missing_bytes = worst;
    shortage->tick = find_tightest_tick(planner, tier);
    SL_FAIL(SL_ERROR_FIT, "the addresses of the %s end %llu bytes above the budget",
            sl_tier_name(tier), (unsigned long long)worst);
}

/* Looks for a limit that fits between limits that shrink_room tried: its steps double, and the
 * bytes lost to holes do not grow with the limit. Without this search a budget may fail although a
 * smaller one works. Sets fitting, and failing to the limit one step above. */
static sl_status spread_room(sl_planner *planner, sl_tier tier, uint64_t budget, limits *tried)
{
    const uint64_t step = (budget - tried->least) / SPREAD_ATTEMPTS;
    sl_shortage ignored;
    for (uint64_t n = SPREAD_ATTEMPTS; step > 0 && n-- > 1;) {
        const uint64_t limit = tried->least + n * step;
        SL_TRY(sl_planner_plan_tier(planner, tier, limit, &ignored));
        if (planner->tier[tier].peak_bytes <= budget) {
            tried->failing = limit + step;
            tried->fitting = limit;
            return SL_OK;
        }
    }
    SL_FAIL(SL_ERROR_FIT, "the addresses of the %s fit at no limit", sl_tier_name(tier));
}

/* Plans one tier within `budget`, with visits that trail or without; writes the limit of the plan.
 */
static sl_status find_limit(sl_planner *planner, sl_tier tier, bool may_trail, uint64_t budget,
                            uint64_t *out_limit, sl_shortage *shortage)
{
    limits found;
    planner->may_trail = may_trail;
    sl_status status = shrink_room(planner, tier, budget, &found, shortage);
    if (status == SL_ERROR_FIT && found.least < budget)
        status = spread_room(planner, tier, budget, &found);
    SL_TRY(status);
    *out_limit = found.fitting;
    return found.failing > found.fitting
               ? widen_room(planner, tier, budget, found.failing, out_limit)
               : SL_OK;
}

/* Plans one tier within `budget`. SL_ERROR_FIT fills the shortage except for needed_bytes. */
static sl_status fit_tier(sl_planner *planner, sl_tier tier, uint64_t budget, sl_shortage *shortage)
{
    const sl_residency *residency = &planner->tier[tier].residency;
    uint64_t trailing_limit = budget, limit;
    planner->has_trailed = false;
    const sl_status trailing =
        find_limit(planner, tier, planner->trails, budget, &trailing_limit, shortage);
    const bool fits = trailing == SL_OK;
    if ((!fits && trailing != SL_ERROR_FIT) || !planner->has_trailed ||
        (fits && trailing_limit == budget))
        return trailing;
    const uint64_t moved_bytes = fits ? residency->moved_bytes : UINT64_MAX;
    const sl_status plain = find_limit(planner, tier, false, budget, &limit, shortage);
    if (plain != SL_OK && (plain != SL_ERROR_FIT || !fits))
        return plain;
    if (plain == SL_OK && residency->moved_bytes < moved_bytes / 5 * 4)
        return SL_OK;
    planner->may_trail = true;
    return sl_planner_plan_tier(planner, tier, trailing_limit, shortage);
}

/* The least limit that can be planned, whatever its addresses; 0 if no work is left. */
static sl_status find_least_limit(sl_planner *planner, sl_tier tier, uint64_t *out_limit)
{
    sl_shortage shortage = {0};
    uint64_t limit = 0;
    sl_status status = sl_planner_plan_tier(planner, tier, limit, &shortage);
    for (int n = 0; status == SL_ERROR_FIT && shortage.missing_bytes && n < ADDRESS_ATTEMPTS; n++) {
        limit += shortage.missing_bytes;
        status = sl_planner_plan_tier(planner, tier, limit, &shortage);
    }
    *out_limit = status == SL_OK ? limit : 0;
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* Lowers a budget that `fitting` fits to the lowest peak of a few limits below it, and leaves that
 * plan in place: at the least limit holes may be larger than at one above it. */
static sl_status lower_budget(sl_planner *planner, sl_tier tier, uint64_t fitting, uint64_t *budget)
{
    uint64_t least, planned = 0;
    SL_TRY(find_least_limit(planner, tier, &least));
    const uint64_t step = least < *budget ? (*budget - least) / SPREAD_ATTEMPTS : 0;
    sl_status status = SL_OK;
    sl_shortage ignored;
    for (uint64_t n = 0; least > 0 && n < SPREAD_ATTEMPTS && least + n * step < *budget; n++) {
        planned = least + n * step;
        status = sl_planner_plan_tier(planner, tier, planned, &ignored);
        if (status != SL_OK)
            break;
        if (planner->tier[tier].peak_bytes < *budget) {
            *budget = planner->tier[tier].peak_bytes;
            fitting = planned;
        }
    }
    if (status == SL_OK && planned != fitting)
        status = sl_planner_plan_tier(planner, tier, fitting, &ignored);
    if (status == SL_ERROR_FIT)
        *budget = UINT64_MAX; /* no work is left */
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* Finds a budget that works: starts at 0 and adds the missing bytes until a plan is found. The
 * result does not depend on the budget of the request, so a larger budget never fails if a smaller
 * one works. Leaves that plan in place. Above `most` the search stops: then out_budget is above
 * `most` and may still be too small. out_budget UINT64_MAX: none was found. A shortage is no error
 * of this call; any other error is passed on. */
static sl_status find_least_budget(sl_planner *planner, sl_tier tier, uint64_t most,
                                   uint64_t *out_budget)
{
    sl_shortage shortage = {.tier = tier};
    limits found;
    uint64_t budget = 0;
    planner->may_trail = false;
    *out_budget = UINT64_MAX;
    for (int attempt = 0; attempt < BUDGET_ATTEMPTS; attempt++) {
        sl_status status = SL_ERROR_FIT;
        if (budget <= most)
            status = shrink_room(planner, tier, budget, &found, &shortage);
        if (status == SL_OK || budget > most)
            *out_budget = budget;
        if (status == SL_OK)
            return lower_budget(planner, tier, found.fitting, out_budget);
        if (status != SL_ERROR_FIT)
            return status;
        if (budget > most || __builtin_add_overflow(budget, shortage.missing_bytes, &budget))
            break;
    }
    return SL_OK;
}

/* ---- one tier after the other ---- */

static sl_status plan_host(sl_planner *planner, sl_shortage *shortage)
{
    SL_TRY(sl_uses_find(planner, SL_TIER_HOST));
    sl_live_ranges_settle_homes(planner, SL_TIER_HOST);
    SL_TRY(sl_live_ranges_add_hop(planner));
    return fit_tier(planner, SL_TIER_HOST, planner->budget_bytes[SL_TIER_HOST], shortage);
}

/* True if a least budget was found and is at most `budget`. UINT64_MAX as `least` means that none
 * was found; as `budget` it means no limit. */
static bool is_within(uint64_t least, uint64_t budget)
{
    return least != UINT64_MAX && least <= budget;
}

/* A least budget up to this one is found exactly; for a larger one a lower bound is enough. */
static uint64_t find_exact_most(const sl_planner *planner, sl_tier tier)
{
    uint64_t budget = planner->budget_bytes[tier];
    uint64_t rough_above = planner->request->rough_above_bytes[tier];
    if (rough_above == 0)
        return UINT64_MAX;
    return rough_above > budget ? rough_above : budget;
}

/* Plans a tier within its budget, or fails and reports the least budget that works. */
static sl_status plan_or_refuse(sl_planner *planner, sl_tier tier, sl_shortage *out_shortage)
{
    uint64_t budget = planner->budget_bytes[tier];
    sl_shortage found = {.tier = tier};
    sl_status status = fit_tier(planner, tier, budget, &found);
    if (status != SL_ERROR_FIT)
        return status;
    SL_TRY(find_least_budget(planner, tier, find_exact_most(planner, tier), &found.needed_bytes));
    if (is_within(found.needed_bytes, budget))
        return SL_OK; /* that plan fits: with less room its addresses left smaller holes */
    *out_shortage = found;
    SL_FAIL(SL_ERROR_FIT, "%s memory: op %u (%s) needs %llu bytes more than the budget of %llu",
            sl_tier_name(tier), found.tick,
            sl_op_info_of(planner->program->ops[found.tick].kind)->name,
            (unsigned long long)found.missing_bytes, (unsigned long long)budget);
}

/* Plans the device again so that it needs less host memory: objects that live on disk are not
 * fetched ahead. With `is_least` it is planned within its least budget, so the plan is the same for
 * every larger budget. */
static sl_status plan_modest_device(sl_planner *planner, bool is_least, sl_shortage *shortage)
{
    uint64_t budget = planner->budget_bytes[SL_TIER_DEVICE], least = UINT64_MAX;
    planner->stages_ahead = false;
    if (is_least)
        SL_TRY(find_least_budget(planner, SL_TIER_DEVICE, budget, &least));
    if (is_least && is_within(least, budget))
        return SL_OK;
    sl_status status = fit_tier(planner, SL_TIER_DEVICE, budget, shortage);
    if (status != SL_ERROR_FIT)
        return status;
    planner->stages_ahead = true; /* only the plan with prefetch fits: it has smaller holes */
    return plan_or_refuse(planner, SL_TIER_DEVICE, shortage);
}

/* Plans the device with the host as the home of the first `leaving` families. */
static sl_status plan_device_without(sl_planner *planner, uint32_t leaving,
                                     sl_shortage *out_shortage)
{
    planner->leaving_count = leaving;
    SL_TRY(sl_live_ranges_find(planner));
    SL_TRY(sl_uses_find(planner, SL_TIER_DEVICE));
    *out_shortage = (sl_shortage){.tier = SL_TIER_DEVICE};
    return fit_tier(planner, SL_TIER_DEVICE, planner->budget_bytes[SL_TIER_DEVICE], out_shortage);
}

/* If the device cannot hold all families, as few as possible leave it. Those used first leave
 * first, because they stay away longest. */
static sl_status plan_device(sl_planner *planner, sl_shortage *out_shortage)
{
    sl_shortage ignored;
    uint32_t too_few = 0, enough = planner->family_count;
    SL_TRY(sl_uses_find(planner, SL_TIER_DEVICE));
    if (planner->family_count == 0)
        return plan_or_refuse(planner, SL_TIER_DEVICE, out_shortage);
    sl_status status = plan_device_without(planner, 0, &ignored);
    if (status != SL_ERROR_FIT)
        return status;
    status = plan_device_without(planner, enough, &ignored);
    if (status == SL_ERROR_FIT)
        return plan_or_refuse(planner, SL_TIER_DEVICE, out_shortage);
    while (status == SL_OK && enough - too_few > 1) {
        uint32_t middle = too_few + (enough - too_few) / 2;
        status = plan_device_without(planner, middle, &ignored);
        if (status == SL_ERROR_FIT)
            too_few = middle;
        else
            enough = middle;
        status = status == SL_ERROR_FIT ? SL_OK : status;
    }
    SL_TRY(status);
    return planner->leaving_count == enough ? SL_OK
                                            : plan_device_without(planner, enough, &ignored);
}

/* The device's moves decide which disk objects the host must hold. If the host has no room for
 * them, the device is planned again, twice at most, each time so that it needs less host memory.
 * The shortage that is reported for the host is that of the last such plan. */
static sl_status plan_device_and_host(sl_planner *planner, sl_shortage *out_shortage)
{
    sl_shortage ignored;
    planner->stages_ahead = true;
    SL_TRY(plan_device(planner, out_shortage));
    sl_status status = plan_host(planner, &ignored);
    for (int is_least = 0; status == SL_ERROR_FIT && planner->has_disk && is_least <= 1;
         is_least++) {
        SL_TRY(plan_modest_device(planner, is_least, out_shortage));
        status = plan_host(planner, &ignored);
    }
    return status == SL_ERROR_FIT ? plan_or_refuse(planner, SL_TIER_HOST, out_shortage) : status;
}

static sl_status plan_within_budgets(sl_planner *planner, sl_shortage *out_shortage)
{
    SL_TRY(plan_device_and_host(planner, out_shortage));
    sl_live_ranges_settle_homes(planner, SL_TIER_DISK);
    return plan_or_refuse(planner, SL_TIER_DISK, out_shortage);
}

/* The host's room decides which activations are ever written to disk, and with more room others may
 * be. So if the disk is too small, all tiers are planned once more, with the least host budget that
 * works. A disk that is large enough for a small host budget is then large enough for a larger one
 * too. */
sl_status sl_budgets_plan_tiers(sl_planner *planner, sl_shortage *out_shortage)
{
    uint64_t *host = &planner->budget_bytes[SL_TIER_HOST], given = *host;
    sl_status status = plan_within_budgets(planner, out_shortage);
    if (status != SL_ERROR_FIT || out_shortage->tier != SL_TIER_DISK)
        return status;
    sl_shortage least = {0};
    *host = 0;
    status = plan_device_and_host(planner, &least);
    if (status != SL_OK && status != SL_ERROR_FIT)
        return status;
    if (status == SL_ERROR_FIT)
        *host =
            least.tier == SL_TIER_HOST && least.needed_bytes < given ? least.needed_bytes : given;
    return plan_within_budgets(planner, out_shortage);
}
