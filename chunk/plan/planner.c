/* The planner: program, layout, homes and budgets in, plan out. The steps, in their order:
 *
 *   live_ranges.c  which objects move, and when values live in each tier
 *   budgets.c      each tier within its budget: the device, the host, the disk
 *     uses.c         which op uses which object in the tier
 *     planner.c      one tier with one limit:
 *       residency.c    when an object stays away from home; victims.c chooses the one to evict
 *       prefetch.c     how early an object is fetched, how long it stays for its write-back
 *       addresses.c    the address of every item; address_cache.c keeps earlier results
 *   commands.c     the commands in issue order, the places of their operands, the sums
 *   hazards.c      which command waits for which
 *
 * The room for visits in a tier is the limit minus the values. Residency fills this room, and then
 * no room is left for prefetch: a fetch waits for the write-back before it, so the read lane and
 * the write lane run in turn instead of at the same time. So if the host fetches from disk,
 * residency gets less room there: RESERVE_TICKS times the bytes that the most demanding tick uses
 * are left to prefetch.
 */
#include "planner.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "address_cache.h"
#include "base/array.h"
#include "base/bits.h"
#include "hazards.h"
#include "prefetch.h"

enum { RESERVE_TICKS = 2 };

/* ---- questions that every step asks ---- */

bool sl_planner_is_filled(const sl_planner *planner, uint32_t v)
{
    return planner->program->values[v].kind == SL_VALUE_INPUT && planner->last_write[v] != SL_NONE;
}

sl_object sl_planner_object_of(const sl_planner *planner, uint32_t v)
{
    v = sl_program_whole(planner->program, v);
    const sl_value *value = &planner->program->values[v];
    if (!sl_planner_is_state(value)) {
        sl_object activation = sl_planner_object_of_activation(planner, v);
        bool moves = sl_planner_home_of(planner, activation) != SL_TIER_DEVICE;
        return moves ? activation : SL_NO_OBJECT;
    }
    uint32_t chunk = value->kind == SL_VALUE_TENSOR ? planner->layout->chunk_of_tensor[value->index]
                                                    : value->index;
    return sl_planner_object_of_chunk(planner, value->group, chunk);
}

sl_tier sl_planner_tier_of_op(const sl_planner *planner, uint32_t tick)
{
    const sl_op *op = &planner->program->ops[tick];
    if (sl_op_info_of(op->kind)->is_input)
        return SL_TIER_HOST;
    if (!sl_op_info_of(op->kind)->updates_chunk)
        return SL_TIER_DEVICE;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        const sl_value *value = &planner->program->values[op->operand[i]];
        if (value->kind == SL_VALUE_CHUNK)
            return (sl_tier)planner->homes->update_tier[value->index];
    }
    return SL_TIER_DEVICE;
}

sl_lane sl_planner_lane_of_op(const sl_planner *planner, uint32_t tick)
{
    if (sl_op_info_of(planner->program->ops[tick].kind)->is_collective)
        return SL_LANE_COMM;
    if (sl_op_info_of(planner->program->ops[tick].kind)->is_input)
        return SL_LANE_INPUT;
    return sl_planner_tier_of_op(planner, tick) == SL_TIER_HOST ? SL_LANE_HOST : SL_LANE_COMPUTE;
}

sl_status sl_planner_add_item(sl_tier_state *state, const sl_address_item *item,
                              const sl_item_source *source, sl_item *out_item)
{
    uint32_t capacity = state->item_capacity; /* of both */
    SL_TRY(SL_ARRAY_GROW(state->sources, state->item_count, capacity, "the items of a plan"));
    SL_TRY(SL_ARRAY_GROW(state->items, state->item_count, state->item_capacity,
                         "the items of a plan"));
    state->items[state->item_count] = *item;
    state->sources[state->item_count] = *source;
    *out_item = (sl_item){state->item_count++};
    return SL_OK;
}

/* ---- opening and closing ---- */

static void close_planner(sl_planner *planner)
{
    free(planner->object_bytes);
    free(planner->visit_bytes);
    free(planner->home_tier);
    free(planner->outlives);
    free(planner->passes_host);
    free(planner->tick_seconds);
    free(planner->device_seconds);
    free(planner->memory_kind);
    free(planner->last_write);
    free(planner->first_pass);
    free(planner->passes);
    free((void *)planner->loops);
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        sl_tier_state *state = &planner->tier[t];
        free(state->items);
        free(state->sources);
        free(state->live_ranges);
        free(state->workspace_item);
        free(state->uses);
        free(state->room_bytes);
        free(state->keep_bytes);
        sl_residency_clear(&state->residency);
    }
}

static bool is_update(const sl_planner *planner, uint32_t tick)
{
    return sl_op_info_of(planner->program->ops[tick].kind)->updates_chunk;
}

/* True if the device updates some chunks while the host updates others, on cores of its own. */
static bool shares_updates(const sl_planner *planner)
{
    bool is_on[SL_TIER_COUNT] = {false};
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++)
        if (is_update(planner, tick))
            is_on[sl_planner_tier_of_op(planner, tick)] = true;
    return is_on[SL_TIER_DEVICE] && is_on[SL_TIER_HOST] && !planner->request->machine->shares_cores;
}

/* True if the device updates a chunk of which something lives elsewhere. */
static bool updates_visitors(const sl_planner *planner)
{
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t v = planner->program->ops[tick].operand[i];
            if (v == SL_NONE || !is_update(planner, tick) ||
                sl_planner_tier_of_op(planner, tick) != SL_TIER_DEVICE)
                continue;
            const sl_object object = sl_planner_object_of(planner, v);
            if (object.index != SL_NONE && sl_planner_home_of(planner, object) != SL_TIER_DEVICE)
                return true;
        }
    return false;
}

/* If updates are shared, those of the host do not delay what the device writes back. */
static void estimate_seconds(sl_planner *planner)
{
    const bool is_shared = shares_updates(planner);
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++) {
        const sl_op *op = &planner->program->ops[tick];
        const bool is_host = sl_planner_tier_of_op(planner, tick) == SL_TIER_HOST;
        const double seconds =
            sl_machine_op_seconds(planner->request->machine, op->kind, &op->attrs, is_host);
        planner->tick_seconds[tick] = seconds;
        planner->device_seconds[tick] =
            is_shared && is_host && is_update(planner, tick) ? 0 : seconds;
    }
}

static sl_status open_tier(const sl_program *program, sl_tier_state *state)
{
    uint64_t op_count = program->op_count;
    state->live_ranges = calloc((uint64_t)program->value_count + 1, sizeof *state->live_ranges);
    state->workspace_item = calloc(op_count + 1, sizeof *state->workspace_item);
    state->room_bytes = calloc(op_count + 1, sizeof *state->room_bytes);
    state->keep_bytes = calloc(op_count + 1, sizeof *state->keep_bytes);
    if (!state->live_ranges || !state->workspace_item || !state->room_bytes || !state->keep_bytes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %llu ops", (unsigned long long)op_count);
    return SL_OK;
}

static sl_status open_arrays(const sl_program *program, sl_planner *planner)
{
    uint64_t object_count = (uint64_t)planner->object_count + 1;
    planner->object_bytes = calloc(object_count, sizeof *planner->object_bytes);
    planner->visit_bytes = calloc(object_count, sizeof *planner->visit_bytes);
    planner->home_tier = calloc(object_count, sizeof *planner->home_tier);
    planner->outlives = calloc(object_count, sizeof *planner->outlives);
    planner->passes_host = calloc(object_count, sizeof *planner->passes_host);
    planner->tick_seconds = calloc((uint64_t)program->op_count + 1, sizeof(double));
    planner->device_seconds = calloc((uint64_t)program->op_count + 1, sizeof(double));
    planner->memory_kind = malloc((uint64_t)program->value_count + 1);
    planner->last_write = calloc((uint64_t)program->value_count + 1, sizeof(uint32_t));
    planner->first_pass = calloc((uint64_t)program->value_count + 1, sizeof(uint32_t));
    if (!planner->object_bytes || !planner->visit_bytes || !planner->home_tier ||
        !planner->outlives || !planner->passes_host || !planner->tick_seconds ||
        !planner->device_seconds || !planner->last_write || !planner->first_pass ||
        !planner->memory_kind)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ops", program->op_count);
    for (int t = 0; t < SL_TIER_COUNT; t++)
        SL_TRY(open_tier(program, &planner->tier[t]));
    return SL_OK;
}

static sl_status find_loops(sl_planner *planner)
{
    const sl_program *program = planner->program;
    uint32_t count = sl_program_section_count(program);
    sl_residency_loop *loops = calloc(count, sizeof *loops);
    planner->loops = loops;
    if (!loops)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u sections", count);
    for (uint32_t s = 0; s < count; s++) {
        sl_section section = sl_program_section(program, s);
        if (section.repeat > 1)
            loops[planner->loop_count++] =
                (sl_residency_loop){section.first, section.first + section.count};
    }
    return SL_OK;
}

static sl_status open_planner(const sl_plan_request *request, sl_planner *planner)
{
    const sl_program *program = request->program;
    uint32_t first_activation = request->layout->chunk_count * SL_GROUP_COUNT;
    *planner = (sl_planner){.request = request,
                            .program = program,
                            .layout = request->layout,
                            .homes = request->homes,
                            .chunk_count = request->layout->chunk_count,
                            .first_activation = first_activation,
                            .object_count = first_activation + program->value_count};
    memcpy(planner->budget_bytes, request->budget_bytes, sizeof planner->budget_bytes);
    if (program->op_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "a program without ops cannot be planned");
    SL_TRY(open_arrays(program, planner));
    SL_TRY(find_loops(planner));
    SL_TRY(sl_live_ranges_find(planner));
    planner->trails = updates_visitors(planner);
    estimate_seconds(planner);
    return SL_OK;
}

/* ---- one tier ---- */

/* Room for visits at each tick: `limit` minus the permanent part and the values alive at the tick.
 * If these alone exceed the limit, writes the tick and the bytes of the largest excess. */
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
        state->room_bytes[tick] = 0; /* first: changes of the values' bytes, modulo 2^64 */
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

/* Room for residency: `room_bytes` minus RESERVE_TICKS times the bytes that the most demanding tick
 * uses, but at least the bytes that the tick itself uses. */
static void measure_keep(const sl_planner *planner, sl_tier_state *state)
{
    uint64_t most = 0;
    uint32_t op_count = planner->program->op_count;
    for (uint32_t tick = 0; tick < op_count; tick++)
        state->keep_bytes[tick] = 0; /* first: the bytes that the tick uses */
    for (uint32_t u = 0; u < state->use_count; u++)
        if (state->uses[u].is_away)
            state->keep_bytes[state->uses[u].tick] += planner->visit_bytes[state->uses[u].object];
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

static sl_residency_request ask_residency(const sl_planner *planner, sl_tier tier)
{
    const sl_tier_state *state = &planner->tier[tier];
    return (sl_residency_request){.tick_count = planner->program->op_count,
                                  .uses = state->uses,
                                  .use_count = state->use_count,
                                  .object_count = planner->object_count,
                                  .object_bytes = planner->visit_bytes,
                                  .copy_bytes = planner->object_bytes,
                                  .room_bytes = state->room_bytes,
                                  .outlives = planner->outlives,
                                  .loops = planner->loops,
                                  .loop_count = planner->loop_count};
}

static sl_status plan_residency(sl_planner *planner, sl_tier tier, sl_shortage *shortage)
{
    sl_tier_state *state = &planner->tier[tier];
    sl_residency_request request = ask_residency(planner, tier);
    sl_residency_clear(&state->residency);
    SL_TRY(
        sl_residency_plan(&request, &state->residency, &shortage->tick, &shortage->missing_bytes));
    if (!fetches_from_disk(planner, tier))
        return SL_OK;
    measure_keep(planner, state);
    sl_residency_clear(&state->residency);
    request.room_bytes = state->keep_bytes;
    return sl_residency_plan(&request, &state->residency, &shortage->tick,
                             &shortage->missing_bytes);
}

/* The tier at the other end of the copies of a visit to `tier`: the device exchanges bytes only
 * with the host. */
static sl_tier find_other_end(sl_tier tier, bool is_disk)
{
    if (tier != SL_TIER_HOST)
        return SL_TIER_HOST;
    return is_disk ? SL_TIER_DISK : SL_TIER_DEVICE;
}

static sl_status plan_prefetch(sl_planner *planner, sl_tier tier)
{
    const double *rate = planner->request->machine->copy_rate;
    const sl_residency_request residency = ask_residency(planner, tier);
    sl_prefetch_request prefetch = {.residency = &residency,
                                    .tick_seconds = tier == SL_TIER_DEVICE ? planner->device_seconds
                                                                           : planner->tick_seconds,
                                    .is_disk = planner->passes_host,
                                    .most_ahead = planner->request->prefetch,
                                    .is_staged = tier == SL_TIER_DEVICE,
                                    .staged_ahead = planner->stages_ahead ? 1 : 0,
                                    .may_trail = planner->may_trail};
    for (int is_disk = 0; is_disk <= 1; is_disk++) {
        sl_tier other = find_other_end(tier, is_disk);
        prefetch.fetch_rate[is_disk] = rate[sl_lane_between(other, tier)];
        prefetch.write_back_rate[is_disk] = rate[sl_lane_between(tier, other)];
    }
    return sl_prefetch_plan(&prefetch, &planner->tier[tier].residency);
}

static bool has_trailing_visit(const sl_residency *residency)
{
    for (uint32_t v = 0; v < residency->visit_count; v++) {
        const sl_visit *visit = &residency->visits[v];
        if (visit->first_tick > visit->last_tick && !visit->is_carried)
            return true;
    }
    return false;
}

static sl_status add_visit_items(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    state->item_count = state->value_item_count;
    state->first_visit_item = state->item_count;
    for (uint32_t v = 0; v < state->residency.visit_count; v++) {
        const sl_visit *visit = &state->residency.visits[v];
        sl_object object = sl_planner_object_of_visit(visit);
        sl_address_item item = {.bytes = planner->visit_bytes[object.index],
                                .first_tick = visit->first_tick,
                                .last_tick = visit->last_tick};
        sl_item_source source = {.slot_bytes = planner->object_bytes[object.index],
                                 .value = SL_NONE,
                                 .chunk = SL_NO_OBJECT};
        if (sl_planner_is_chunk(planner, object)) {
            source.kind = (sl_memory_kind)sl_planner_group_of(planner, object);
            source.chunk = object;
        } else {
            source.value = sl_planner_value_of(planner, object);
            source.kind = (sl_memory_kind)planner->memory_kind[source.value];
        }
        sl_item added;
        SL_TRY(sl_planner_add_item(state, &item, &source, &added));
    }
    return SL_OK;
}

/* Where the bytes in use of an item end; a visit may use less than its slot has. */
static uint64_t end_of_item(const sl_tier_state *state, uint32_t i)
{
    const sl_item_source *source = &state->sources[i];
    const bool is_part = source->slots <= 1 && source->slot_bytes > 0;
    return state->items[i].offset + (is_part ? source->slot_bytes : state->items[i].bytes);
}

/* Nothing uses the last slot beyond the bytes of its visits. */
static void lower_peak(sl_tier_state *state)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < state->item_count; i++)
        if (state->items[i].bytes > 0)
            end = sl_bits_max(end, end_of_item(state, i));
    if (end > 0)
        state->peak_bytes = end;
}

/* An object that leaves within a loop and comes back gets its old address again. */
static sl_status assign_addresses(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    const sl_residency *residency = &state->residency;
    sl_address_pair *pairs = calloc((uint64_t)residency->pair_count + 1, sizeof *pairs);
    if (!pairs)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to place %u items", state->item_count);
    for (uint32_t p = 0; p < residency->pair_count; p++)
        pairs[p] =
            (sl_address_pair){sl_planner_item_of_visit(state, residency->pairs[p].at_entry).index,
                              sl_planner_item_of_visit(state, residency->pairs[p].at_end).index};
    const sl_address_request request = {.items = state->items,
                                        .item_count = state->item_count,
                                        .pairs = pairs,
                                        .pair_count = residency->pair_count,
                                        .base = planner->homes->fixed_bytes[tier],
                                        .alignment = state->alignment};
    sl_address_cache *cache = planner->request->addresses;
    sl_status status = sl_address_cache_assign(cache, &request, &state->peak_bytes);
    free(pairs);
    if (status == SL_OK)
        lower_peak(state);
    return status;
}

#ifndef NDEBUG
/* Every item is aligned, and lies between the permanent part and the peak. */
static bool are_items_inside(const sl_planner *planner, sl_tier tier)
{
    const sl_tier_state *state = &planner->tier[tier];
    for (uint32_t i = 0; i < state->item_count; i++) {
        const sl_address_item *item = &state->items[i];
        if (item->bytes > 0 && (item->offset % state->alignment != 0 ||
                                item->offset < planner->homes->fixed_bytes[tier] ||
                                end_of_item(state, i) > state->peak_bytes))
            return false;
    }
    return true;
}
#endif

/* Subtracts one attempt from the work that is left. The unit of work is an op or a use, not
 * seconds, so equal requests have equal results. */
static sl_status take_work(const sl_planner *planner, sl_tier tier)
{
    const uint64_t work = (uint64_t)planner->program->op_count + planner->tier[tier].use_count;
    uint64_t *left = planner->request->work_left;
    if (left && *left == 0)
        SL_FAIL(SL_ERROR_FIT, "no plan was found within the work that is allowed");
    if (left)
        *left -= work < *left ? work : *left;
    return SL_OK;
}

sl_status sl_planner_plan_tier(sl_planner *planner, sl_tier tier, uint64_t limit,
                               sl_shortage *out_shortage)
{
    *out_shortage = (sl_shortage){.tier = tier};
    measure_room(planner, tier, limit, out_shortage);
    if (out_shortage->missing_bytes)
        SL_FAIL(SL_ERROR_FIT, "the values alive at tick %u lack %llu bytes", out_shortage->tick,
                (unsigned long long)out_shortage->missing_bytes);
    SL_TRY(take_work(planner, tier));
    SL_TRY(plan_residency(planner, tier, out_shortage));
    SL_TRY(plan_prefetch(planner, tier));
    if (has_trailing_visit(&planner->tier[tier].residency))
        planner->has_trailed = true;
    SL_TRY(add_visit_items(planner, tier));
    SL_TRY(assign_addresses(planner, tier));
    assert(are_items_inside(planner, tier));
    return SL_OK;
}

/* ---- a plan ---- */

sl_status sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                        sl_shortage *out_shortage)
{
    sl_status status;
    sl_planner planner;
    sl_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan");
    SL_TRY_GOTO(status, open_planner(request, &planner), close_both);
    SL_TRY_GOTO(status, sl_budgets_plan_tiers(&planner, out_shortage), close_both);
    SL_TRY_GOTO(status, sl_commands_emit(&planner, plan), close_both);
    SL_TRY_GOTO(status, sl_commands_add_up(&planner, plan), close_both);
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
    free(plan->sections);
    free(plan->places);
    free(plan->waits);
    free(plan->allocations);
    free(plan);
}
