/* The planner: program, layout, homes and budgets in, plan out.
 *
 * Lives and uses follow from the program. For each tier, what the values leave of the budget is
 * room for visits; residency and prefetch fill it; addresses are assigned. Where the addresses end
 * above the budget (holes between unequal sizes), residency is planned again with that much less
 * room.
 */
#include "planner.h"

#include <stdlib.h>

#include "base/bits.h"
#include "hazards.h"
#include "prefetch.h"

enum { ADDRESS_ATTEMPTS = 16, BUDGET_ATTEMPTS = 64 };

/* ---- opening and closing ---- */

static void close_planner(sl_planner *planner)
{
    free(planner->object_bytes);
    free(planner->tick_seconds);
    free(planner->last_write);
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        sl_tier_state *state = &planner->tier[t];
        free(state->items);
        free(state->sources);
        free(state->lives);
        free(state->workspace_item);
        free(state->uses);
        free(state->room_bytes);
        sl_residency_clear(&state->residency);
    }
}

static double seconds_of_op(const sl_planner *planner, uint32_t tick)
{
    const sl_op *op = &planner->program->ops[tick];
    const sl_machine *machine = planner->request->machine;
    bool is_host = sl_planner_tier_of_op(planner, tick) == SL_TIER_HOST;
    return sl_machine_op_seconds(machine, op->kind, &op->attrs, is_host);
}

static sl_status open_tier(const sl_program *program, sl_tier_state *state)
{
    uint64_t op_count = program->op_count;
    state->lives = calloc((uint64_t)program->value_count + 1, sizeof *state->lives);
    state->workspace_item = calloc(op_count + 1, sizeof *state->workspace_item);
    state->uses = calloc(op_count * SL_OPERAND_MAX + 1, sizeof *state->uses);
    state->room_bytes = calloc(op_count + 1, sizeof *state->room_bytes);
    if (!state->lives || !state->workspace_item || !state->uses || !state->room_bytes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %llu ops", (unsigned long long)op_count);
    return SL_OK;
}

static sl_status open_planner(const sl_plan_request *request, sl_planner *planner)
{
    const sl_program *program = request->program;
    *planner = (sl_planner){.request = request,
                            .program = program,
                            .layout = request->layout,
                            .homes = request->homes,
                            .chunk_count = request->layout->chunk_count,
                            .object_count = request->layout->chunk_count * SL_GROUP_COUNT};
    if (program->op_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "a program without ops cannot be planned");
    planner->object_bytes = calloc((uint64_t)planner->object_count + 1, sizeof(uint64_t));
    planner->tick_seconds = calloc((uint64_t)program->op_count + 1, sizeof(double));
    planner->last_write = calloc((uint64_t)program->value_count + 1, sizeof(uint32_t));
    if (!planner->object_bytes || !planner->tick_seconds || !planner->last_write)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ops", program->op_count);
    for (int t = 0; t < SL_TIER_COUNT; t++)
        SL_TRY(open_tier(program, &planner->tier[t]));
    for (uint32_t o = 0; o < planner->object_count; o++)
        planner->object_bytes[o] =
            sl_layout_chunk_bytes(request->layout, (sl_group)(o / planner->chunk_count));
    SL_TRY(sl_plan_lives_find(planner));
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        planner->tick_seconds[tick] = seconds_of_op(planner, tick);
    return SL_OK;
}

/* ---- one tier ---- */

/* Room of visits at each tick: `limit` minus the permanent part and the values alive then. Writes
 * the tick at which the values alone exceed it by most. */
static void measure_room(sl_planner *planner, sl_tier tier, uint64_t limit, sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    uint32_t op_count = planner->program->op_count;
    uint64_t fixed = sl_bits_round_up(planner->homes->fixed_bytes[tier], SL_ADDRESS_ALIGNMENT);
    if (limit < UINT64_MAX - SL_ADDRESS_ALIGNMENT) /* the highest item needs no padding behind it */
        limit = sl_bits_round_up(limit, SL_ADDRESS_ALIGNMENT);
    uint64_t live = 0;
    for (uint32_t tick = 0; tick <= op_count; tick++)
        state->room_bytes[tick] = 0; /* first: how the bytes of values change, modulo 2^64 */
    for (uint32_t i = 0; i < state->value_item_count; i++) {
        uint64_t bytes = sl_bits_round_up(state->items[i].bytes, SL_ADDRESS_ALIGNMENT);
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
        uint32_t group = visit->object / planner->chunk_count;
        sl_address_item item = {.bytes = planner->object_bytes[visit->object],
                                .first_tick = visit->first_tick,
                                .last_tick = visit->last_tick};
        sl_item_source source = {
            .kind = (sl_memory_kind)group, .value = SL_NONE, .object = visit->object};
        uint32_t index;
        SL_TRY(sl_plan_lives_add_item(state, &item, &source, &index));
    }
    return SL_OK;
}

static sl_status plan_visits(sl_planner *planner, sl_tier tier, sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    const sl_machine *machine = planner->request->machine;
    sl_residency_request residency = {.tick_count = planner->program->op_count,
                                      .uses = state->uses,
                                      .use_count = state->use_count,
                                      .object_count = planner->object_count,
                                      .object_bytes = planner->object_bytes,
                                      .room_bytes = state->room_bytes};
    sl_residency_clear(&state->residency);
    *shortage = (sl_shortage){.tier = tier};
    SL_TRY(sl_residency_plan(&residency, &state->residency, &shortage->tick,
                             &shortage->missing_bytes));
    sl_prefetch_request prefetch = {
        .residency = &residency,
        .tick_seconds = planner->tick_seconds,
        .bytes_per_second =
            machine->copy_rate[tier == SL_TIER_DEVICE ? SL_MACHINE_H2D : SL_MACHINE_D2H],
        .most_ahead = planner->request->prefetch};
    SL_TRY(sl_prefetch_plan(&prefetch, &state->residency));
    return add_visit_items(planner, tier);
}

static sl_status plan_within(sl_planner *planner, sl_tier tier, uint64_t limit,
                             sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    *shortage = (sl_shortage){.tier = tier};
    measure_room(planner, tier, limit, shortage);
    if (shortage->missing_bytes)
        SL_FAIL(SL_ERROR_FIT, "the values alive at tick %u lack %llu bytes", shortage->tick,
                (unsigned long long)shortage->missing_bytes);
    SL_TRY(plan_visits(planner, tier, shortage));
    return sl_addresses_assign(state->items, state->item_count, planner->homes->fixed_bytes[tier],
                               &state->peak_bytes);
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

/* Plans one tier within `budget`; the room shrinks by what holes cost until the addresses fit. */
static sl_status plan_tier(sl_planner *planner, sl_tier tier, uint64_t budget,
                           sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    uint64_t limit = budget, worst = 0;
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
        if (state->peak_bytes <= budget)
            return SL_OK;
        worst = state->peak_bytes - budget;
        limit = limit > worst ? limit - worst : 0;
    }
    shortage->missing_bytes = worst;
    shortage->tick = find_tightest_tick(planner, tier);
    SL_FAIL(SL_ERROR_FIT, "the addresses of tier %d end %llu bytes above the budget", (int)tier,
            (unsigned long long)worst);
}

/* ---- budgets ---- */

/* A budget of a tier that works, found from below: what is missing is added until a plan stands. It
 * does not depend on the budget that was asked for, so a larger budget never fails where a smaller
 * one works. Leaves the plan of the tier in place; UINT64_MAX: none was found. */
static uint64_t find_budget(sl_planner *planner, sl_tier tier)
{
    sl_shortage shortage = {.tier = tier};
    uint64_t budget = 0;
    for (int attempt = 0; attempt < BUDGET_ATTEMPTS; attempt++) {
        if (plan_tier(planner, tier, budget, &shortage) == SL_OK)
            return budget;
        if (__builtin_add_overflow(budget, shortage.missing_bytes, &budget))
            break;
    }
    return UINT64_MAX;
}

static sl_status plan_tiers(sl_planner *planner, sl_shortage *out_shortage)
{
    static const char *const names[] = {"device", "host", "disk"};
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        sl_tier tier = (sl_tier)t;
        uint64_t budget = planner->request->budget_bytes[t];
        sl_shortage shortage = {.tier = tier};
        sl_status status = plan_tier(planner, tier, budget, &shortage);
        if (status != SL_ERROR_FIT) {
            SL_TRY(status);
            continue;
        }
        sl_shortage found = shortage;
        found.needed_bytes = find_budget(planner, tier);
        if (found.needed_bytes <= budget)
            continue; /* holes fell better elsewhere: that plan stands */
        *out_shortage = found;
        SL_FAIL(SL_ERROR_FIT, "%s memory: op %u (%s) needs %llu bytes more than the budget of %llu",
                names[t], found.tick, sl_op_info_of(planner->program->ops[found.tick].kind)->name,
                (unsigned long long)found.missing_bytes, (unsigned long long)budget);
    }
    return SL_OK;
}

/* ---- the whole ---- */

sl_status sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                        sl_shortage *out_shortage)
{
    sl_status status;
    sl_planner planner;
    sl_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan");
    SL_TRY_GOTO(status, open_planner(request, &planner), close_both);
    SL_TRY_GOTO(status, plan_tiers(&planner, out_shortage), close_both);
    SL_TRY_GOTO(status, sl_plan_commands_emit(&planner, plan), close_both);
    SL_TRY_GOTO(status, sl_plan_totals_fill(&planner, plan), close_both);
    SL_TRY_GOTO(status, sl_hazards_resolve(request->program, plan), close_both);
    close_planner(&planner);
    *out_plan = plan;
    return SL_OK;
close_both:
    close_planner(&planner);
    sl_plan_close(plan);
    return status;
}

void sl_plan_close(sl_plan *plan)
{
    if (!plan)
        return;
    free(plan->prologue);
    free(plan->body);
    free(plan->places);
    free(plan->waits);
    free(plan->allocations);
    free(plan);
}
