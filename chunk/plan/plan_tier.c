/* One tier within a budget: what the values leave of it is room for visits; residency and prefetch
 * fill it; addresses are assigned. Where the addresses end above the budget (holes between unequal
 * sizes), residency is planned again with that much less room, and then with a little more.
 *
 * Residency keeps as much as it may, and that leaves nothing to fetch ahead into: then a fetch
 * waits for the write-back before it, and the lanes of a disk take turns instead of running beside
 * each other. So where the host fetches from disk, it keeps less, by what RESERVE_TICKS of the
 * greediest op need, and fetches ahead into the rest.
 */
#include <stdlib.h>

#include "base/bits.h"
#include "planner.h"
#include "prefetch.h"

enum { ADDRESS_ATTEMPTS = 16, WIDER_ATTEMPTS = 5, BUDGET_ATTEMPTS = 64, RESERVE_TICKS = 2 };

/* Room of visits at each tick: `limit` minus the permanent part and the values alive then. Writes
 * the tick at which the values alone exceed it by most. */
static void measure_room(sl_planner *planner, sl_tier tier, uint64_t limit, sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    uint32_t op_count = planner->program->op_count;
    uint64_t alignment = state->alignment;
    uint64_t fixed = sl_bits_round_up(planner->homes->fixed_bytes[tier], alignment);
    if (limit < UINT64_MAX - alignment) /* the highest item needs no padding behind it */
        limit = sl_bits_round_up(limit, alignment);
    uint64_t live = 0;
    for (uint32_t tick = 0; tick <= op_count; tick++)
        state->room_bytes[tick] = 0; /* first: how the bytes of values change, modulo 2^64 */
    for (uint32_t i = 0; i < state->value_item_count; i++) {
        uint64_t bytes = sl_bits_round_up(state->items[i].bytes, alignment);
        state->room_bytes[state->items[i].first_tick] += bytes;
        state->room_bytes[state->items[i].last_tick + 1] -= bytes;
    }
    for (uint32_t tick = 0; tick < op_count; tick++) {
        live += state->room_bytes[tick];
        uint64_t taken = fixed + live;
        state->room_bytes[tick] = taken <= limit ? limit - taken : 0;
        if (taken > limit && taken - limit > shortage->missing_bytes)
            *shortage = (sl_shortage){tier, tick, taken - limit, 0};
    }
}

static sl_status add_visit_items(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    state->item_count = state->value_item_count;
    state->first_visit_item = state->item_count;
    for (uint32_t v = 0; v < state->residency.visit_count; v++) {
        const sl_visit *visit = &state->residency.visits[v];
        uint32_t object = visit->object;
        sl_address_item item = {.bytes = planner->object_bytes[object],
                                .first_tick = visit->first_tick,
                                .last_tick = visit->last_tick};
        sl_item_source source = {.value = SL_NONE, .object = SL_NONE};
        if (object < planner->first_activation) {
            source.kind = (sl_memory_kind)(object / planner->chunk_count);
            source.object = object;
        } else {
            source.kind = SL_MEMORY_ACTIVATION;
            source.value = object - planner->first_activation;
        }
        uint32_t index;
        SL_TRY(sl_plan_lives_add_item(state, &item, &source, &index));
    }
    return SL_OK;
}

/* ---- visits ---- */

/* Room of what is kept: `room_bytes` less what RESERVE_TICKS of the greediest op need, but enough
 * for the uses of each tick. */
static void measure_keep(const sl_planner *planner, sl_tier_state *state)
{
    uint64_t most = 0;
    uint32_t op_count = planner->program->op_count;
    for (uint32_t tick = 0; tick < op_count; tick++)
        state->keep_bytes[tick] = 0; /* first: what its uses need */
    for (uint32_t u = 0; u < state->use_count; u++)
        if (state->uses[u].is_away)
            state->keep_bytes[state->uses[u].tick] += planner->object_bytes[state->uses[u].object];
    for (uint32_t tick = 0; tick < op_count; tick++)
        most = state->keep_bytes[tick] > most ? state->keep_bytes[tick] : most;
    for (uint32_t tick = 0; tick < op_count; tick++) {
        uint64_t room = state->room_bytes[tick];
        uint64_t less = room > RESERVE_TICKS * most ? room - RESERVE_TICKS * most : 0;
        if (state->keep_bytes[tick] < less)
            state->keep_bytes[tick] = less;
    }
}

static bool fetches_from_disk(const sl_planner *planner, sl_tier tier)
{
    const sl_residency *residency = &planner->tier[tier].residency;
    for (uint32_t v = 0; tier == SL_TIER_HOST && v < residency->visit_count; v++)
        if (residency->visits[v].is_fetched && planner->passes_host[residency->visits[v].object])
            return true;
    return false;
}

static sl_status plan_residency(sl_planner *planner, sl_tier tier, sl_residency_request *request,
                                sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    sl_residency_clear(&state->residency);
    SL_TRY(
        sl_residency_plan(request, &state->residency, &shortage->tick, &shortage->missing_bytes));
    if (!fetches_from_disk(planner, tier))
        return SL_OK;
    measure_keep(planner, state);
    sl_residency_clear(&state->residency);
    request->room_bytes = state->keep_bytes;
    sl_status status =
        sl_residency_plan(request, &state->residency, &shortage->tick, &shortage->missing_bytes);
    request->room_bytes = state->room_bytes;
    return status;
}

/* Where visits of `tier` are copied from and to: everything passes through the host. */
static sl_tier find_other_end(sl_tier tier, bool is_disk)
{
    if (tier != SL_TIER_HOST)
        return SL_TIER_HOST;
    return is_disk ? SL_TIER_DISK : SL_TIER_DEVICE;
}

static sl_status plan_visits(sl_planner *planner, sl_tier tier, sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    const double *rate = planner->request->machine->copy_rate;
    sl_residency_request residency = {.tick_count = planner->program->op_count,
                                      .uses = state->uses,
                                      .use_count = state->use_count,
                                      .object_count = planner->object_count,
                                      .object_bytes = planner->object_bytes,
                                      .room_bytes = state->room_bytes,
                                      .outlives = planner->outlives,
                                      .loops = planner->loops,
                                      .loop_count = planner->loop_count};
    *shortage = (sl_shortage){.tier = tier};
    SL_TRY(plan_residency(planner, tier, &residency, shortage));
    sl_prefetch_request prefetch = {.residency = &residency,
                                    .tick_seconds = planner->tick_seconds,
                                    .is_disk = planner->passes_host,
                                    .most_ahead = planner->request->prefetch};
    for (int is_disk = 0; is_disk <= 1; is_disk++) {
        sl_tier other = find_other_end(tier, is_disk);
        prefetch.fetch_rate[is_disk] = rate[sl_lane_between(other, tier)];
        prefetch.write_back_rate[is_disk] = rate[sl_lane_between(tier, other)];
    }
    prefetch.is_staged = tier == SL_TIER_DEVICE;
    prefetch.staged_ahead = planner->stages_ahead ? 1 : 0;
    SL_TRY(sl_prefetch_plan(&prefetch, &state->residency));
    return add_visit_items(planner, tier);
}

/* What leaves within a loop and comes back lies where it lay. */
static sl_status assign_addresses(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    const sl_residency *residency = &state->residency;
    sl_address_pair *pairs = calloc((uint64_t)residency->pair_count + 1, sizeof *pairs);
    if (!pairs)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to place %u items", state->item_count);
    for (uint32_t p = 0; p < residency->pair_count; p++)
        pairs[p] = (sl_address_pair){state->first_visit_item + residency->pairs[p].at_entry,
                                     state->first_visit_item + residency->pairs[p].at_end};
    const sl_address_request request = {.items = state->items,
                                        .item_count = state->item_count,
                                        .pairs = pairs,
                                        .pair_count = residency->pair_count,
                                        .base = planner->homes->fixed_bytes[tier],
                                        .alignment = state->alignment};
    sl_status status = sl_addresses_assign(&request, &state->peak_bytes);
    free(pairs);
    return status;
}

static sl_status plan_within(sl_planner *planner, sl_tier tier, uint64_t limit,
                             sl_shortage *shortage)
{
    *shortage = (sl_shortage){.tier = tier};
    measure_room(planner, tier, limit, shortage);
    if (shortage->missing_bytes)
        SL_FAIL(SL_ERROR_FIT, "the values alive at tick %u lack %llu bytes", shortage->tick,
                (unsigned long long)shortage->missing_bytes);
    SL_TRY(plan_visits(planner, tier, shortage));
    return assign_addresses(planner, tier);
}

/* The tick at which values leave the least room: where more budget would help first. */
static uint32_t find_tightest_tick(const sl_planner *planner, sl_tier tier)
{
    const uint64_t *room = planner->tier[tier].room_bytes;
    uint32_t tightest = 0;
    for (uint32_t tick = 1; tick < planner->program->op_count; tick++)
        if (room[tick] < room[tightest])
            tightest = tick;
    return tightest;
}

/* Looks for a plan with more room between a limit whose addresses fit and one whose do not, and
 * leaves the one with most in place: what holes cost with much room says little of what they cost
 * with less. */
static sl_status widen(sl_planner *planner, sl_tier tier, uint64_t budget, uint64_t fitting,
                       uint64_t failing)
{
    sl_tier_state *state = &planner->tier[tier];
    sl_shortage ignored;
    uint64_t planned = fitting;
    for (int attempt = 0; attempt < WIDER_ATTEMPTS; attempt++) {
        planned = fitting + (failing - fitting) / 2;
        sl_status status = plan_within(planner, tier, planned, &ignored);
        if (status != SL_OK && status != SL_ERROR_FIT)
            return status;
        if (status == SL_OK && state->peak_bytes <= budget)
            fitting = planned;
        else
            failing = planned;
    }
    return planned == fitting ? SL_OK : plan_within(planner, tier, fitting, &ignored);
}

/* The last limit whose addresses did not fit, 0 if none was tried, and the first that fits. */
typedef struct limits {
    uint64_t failing, fitting;
} limits;

/* The room shrinks by what holes cost, and by ever more where that does not help, until the
 * addresses fit. */
static sl_status shrink(sl_planner *planner, sl_tier tier, uint64_t budget, limits *out_limits,
                        sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    uint64_t limit = budget, failing = 0, worst = 0, less = 0;
    bool least_tried = false;
    for (int attempt = 0; attempt < ADDRESS_ATTEMPTS; attempt++) {
        sl_status status = plan_within(planner, tier, limit, shortage);
        if (status == SL_ERROR_FIT && worst) { /* too little: the least room, if not yet tried */
            if (least_tried)
                break;
            least_tried = true;
            limit += shortage->missing_bytes;
            continue;
        }
        SL_TRY(status);
        if (state->peak_bytes <= budget) {
            *out_limits = (limits){failing, limit};
            return SL_OK;
        }
        failing = limit;
        worst = state->peak_bytes - budget;
        less = worst > less ? worst : 2 * less;
        limit = limit > less ? limit - less : 0;
    }
    shortage->missing_bytes = worst;
    shortage->tick = find_tightest_tick(planner, tier);
    SL_FAIL(SL_ERROR_FIT, "the addresses of tier %d end %llu bytes above the budget", (int)tier,
            (unsigned long long)worst);
}

sl_status sl_plan_tier_fit(sl_planner *planner, sl_tier tier, uint64_t budget,
                           sl_shortage *shortage)
{
    limits found;
    SL_TRY(shrink(planner, tier, budget, &found, shortage));
    return found.failing > found.fitting
               ? widen(planner, tier, budget, found.fitting, found.failing)
               : SL_OK;
}

sl_status sl_plan_tier_find_least(sl_planner *planner, sl_tier tier, uint64_t *out_budget)
{
    sl_shortage shortage = {.tier = tier};
    limits ignored;
    uint64_t budget = 0;
    *out_budget = UINT64_MAX;
    for (int attempt = 0; attempt < BUDGET_ATTEMPTS; attempt++) {
        sl_status status = shrink(planner, tier, budget, &ignored, &shortage);
        if (status == SL_OK)
            *out_budget = budget;
        if (status != SL_ERROR_FIT)
            return status;
        if (__builtin_add_overflow(budget, shortage.missing_bytes, &budget))
            break;
    }
    return SL_OK;
}
