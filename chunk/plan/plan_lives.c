/* What moves, and when values live, tier by tier. Decides nothing: lives follow from the program,
 * and an op's tier from the homes.
 *
 * An activation whose home is not the device is an object: on the device it has visits, and only
 * in its home tier a life of its own, from first to last use. Whether it ever gets there is known
 * when its visits are planned; one that does not has an item of 0 bytes.
 */
#include <stdlib.h>

#include "chunk/policy/activation_homes.h"
#include "planner.h"

enum { ADDRESS_ALIGNMENT = 256 };

/* ---- where an op runs ---- */

bool sl_planner_is_filled(const sl_planner *planner, uint32_t v)
{
    return planner->program->values[v].kind == SL_VALUE_INPUT && planner->last_write[v] != SL_NONE;
}

uint32_t sl_planner_object_of(const sl_planner *planner, uint32_t v)
{
    const sl_value *value = &planner->program->values[v];
    uint32_t activation = planner->first_activation + v;
    if (!sl_planner_is_state(value))
        return planner->home_tier[activation] == SL_TIER_DEVICE ? SL_NONE : activation;
    uint32_t chunk = value->kind == SL_VALUE_TENSOR ? planner->layout->chunk_of_tensor[value->index]
                                                    : value->index;
    return (uint32_t)value->group * planner->chunk_count + chunk;
}

sl_tier sl_planner_tier_of_op(const sl_planner *planner, uint32_t tick)
{
    const sl_op *op = &planner->program->ops[tick];
    if (sl_op_info_of(op->kind)->is_input)
        return SL_TIER_HOST;
    if (!sl_op_info_of(op->kind)->runs_on_host)
        return SL_TIER_DEVICE;
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        const sl_value *value = &planner->program->values[op->operand[i]];
        if (value->kind == SL_VALUE_CHUNK)
            return (sl_tier)planner->homes->adam_tier[value->index];
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

/* ---- items ---- */

sl_status sl_plan_lives_add_item(sl_tier_state *state, const sl_address_item *item,
                                 const sl_item_source *source, uint32_t *out_item)
{
    if (state->item_count == state->item_capacity) {
        uint32_t capacity = state->item_capacity ? 2 * state->item_capacity : 1024;
        sl_address_item *items = realloc(state->items, (uint64_t)capacity * sizeof *items);
        if (!items)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u items", capacity);
        state->items = items;
        sl_item_source *sources = realloc(state->sources, (uint64_t)capacity * sizeof *sources);
        if (!sources)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u items", capacity);
        state->sources = sources;
        state->item_capacity = capacity;
    }
    state->items[state->item_count] = *item;
    state->sources[state->item_count] = *source;
    *out_item = state->item_count++;
    return SL_OK;
}

/* ---- lives ---- */

static void extend_life(sl_life *life, uint32_t tick)
{
    if (life->first_tick == SL_NONE)
        life->first_tick = tick;
    life->last_tick = tick;
}

static void visit_operand(sl_planner *planner, uint32_t tick, uint32_t operand_index)
{
    const sl_op *op = &planner->program->ops[tick];
    uint32_t v = op->operand[operand_index];
    if (v == SL_NONE || sl_planner_is_state(&planner->program->values[v]))
        return;
    extend_life(&planner->tier[sl_planner_tier_of_op(planner, tick)].lives[v], tick);
    if (sl_op_writes(op, operand_index))
        planner->last_write[v] = tick;
}

/* The loop that holds a tick; NULL if none does. */
static const sl_residency_loop *find_loop(const sl_planner *planner, uint32_t tick)
{
    uint32_t low = 0, high = planner->loop_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (planner->loops[middle].end_tick <= tick)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_found = low < planner->loop_count && planner->loops[low].first_tick <= tick;
    return is_found ? &planner->loops[low] : NULL;
}

/* A life that crosses the edge of a loop holds all of it: what it holds at one seam of the loop it
 * holds at the others. All instances of a family live as long as any. */
static void hold_loops(const sl_planner *planner, sl_life *life, bool is_family)
{
    if (life->first_tick == SL_NONE)
        return;
    const sl_residency_loop *first = find_loop(planner, life->first_tick);
    const sl_residency_loop *last = find_loop(planner, life->last_tick);
    if (first == last && !is_family)
        return;
    if (first)
        life->first_tick = first->first_tick;
    if (last)
        life->last_tick = last->end_tick - 1;
}

/* Inputs are copied in before the first op, or after the op that fills them, outputs out after
 * their last writer; a value that a host-lane op reads is mirrored on the host from its last write
 * on. */
static void complete_life(sl_planner *planner, uint32_t v)
{
    const sl_value *value = &planner->program->values[v];
    sl_life *device = &planner->tier[SL_TIER_DEVICE].lives[v];
    sl_life *host = &planner->tier[SL_TIER_HOST].lives[v];
    uint32_t last_op = planner->program->op_count - 1;
    bool is_filled = sl_planner_is_filled(planner, v);
    bool is_input = value->kind == SL_VALUE_INPUT && !is_filled && device->first_tick != SL_NONE;
    bool is_output = value->kind == SL_VALUE_OUTPUT && device->first_tick != SL_NONE;
    uint8_t home = planner->home_tier[planner->first_activation + v];
    if (value->instances > 1)
        hold_loops(planner, device, true);
    if (home != SL_TIER_DEVICE) {
        planner->tier[home].lives[v] = *device;
        device->first_tick = SL_NONE;
        return;
    }
    if (is_input)
        device->first_tick = 0;
    if (is_filled && device->first_tick != SL_NONE)
        device->first_tick = planner->last_write[v] + 1;
    else if (is_input || is_output) {
        host->first_tick = 0; /* its slot belongs to the caller between iterations */
        host->last_tick = last_op;
    } else if (host->first_tick != SL_NONE && planner->last_write[v] != SL_NONE) {
        host->first_tick = planner->last_write[v];
    }
}

static sl_status add_value_items(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    for (uint32_t v = 0; v < planner->program->value_count; v++) {
        const sl_value *value = &planner->program->values[v];
        sl_life *life = &state->lives[v];
        life->item = SL_NONE;
        if (life->first_tick == SL_NONE || value->kind == SL_VALUE_PERSISTENT)
            continue;
        bool is_slot = tier == SL_TIER_HOST && value->kind != SL_VALUE_ACTIVATION;
        sl_address_item item = {.first_tick = life->first_tick, .last_tick = life->last_tick};
        sl_item_source source = {.kind = is_slot ? SL_MEMORY_STAGING : SL_MEMORY_ACTIVATION,
                                 .value = v,
                                 .object = SL_NONE};
        SL_TRY(sl_plan_families_make_item(planner, tier, v, value->instances, &item, &source));
        SL_TRY(sl_plan_lives_add_item(state, &item, &source, &life->item));
    }
    return SL_OK;
}

static sl_status add_workspace_items(sl_planner *planner)
{
    const sl_plan_request *request = planner->request;
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++) {
        const sl_op *op = &planner->program->ops[tick];
        sl_tier tier = sl_planner_tier_of_op(planner, tick);
        for (int t = 0; t < SL_TIER_COUNT; t++)
            planner->tier[t].workspace_item[tick] = SL_NONE;
        uint64_t bytes = request->workspace(request->workspace_context, op->kind, &op->attrs, tier);
        if (!bytes)
            continue;
        sl_address_item item = {.bytes = bytes, .first_tick = tick, .last_tick = tick};
        sl_item_source source = {.kind = SL_MEMORY_WORKSPACE, .value = SL_NONE, .object = SL_NONE};
        SL_TRY(sl_plan_lives_add_item(&planner->tier[tier], &item, &source,
                                      &planner->tier[tier].workspace_item[tick]));
    }
    return SL_OK;
}

/* ---- objects ---- */

/* A chunk whose first use in the body writes it whole holds nothing from one body to the next. */
static void find_outliving(sl_planner *planner, uint32_t *first_tick)
{
    const sl_program *program = planner->program;
    for (uint32_t o = 0; o < planner->object_count; o++)
        first_tick[o] = SL_NONE;
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        const sl_op *op = &program->ops[tick];
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            uint32_t v = op->operand[i];
            if (v == SL_NONE || !sl_planner_is_state(&program->values[v]))
                continue;
            uint32_t object = sl_planner_object_of(planner, v);
            bool is_whole = program->values[v].kind == SL_VALUE_CHUNK;
            if (first_tick[object] == SL_NONE)
                first_tick[object] = tick;
            if (first_tick[object] == tick && (!is_whole || sl_op_reads(op, i)))
                planner->outlives[object] = true;
        }
    }
}

static void set_home(sl_planner *planner, uint32_t object, uint8_t tier, uint64_t bytes)
{
    planner->home_tier[object] = tier;
    planner->object_bytes[object] = bytes;
    planner->passes_host[object] = tier == SL_TIER_DISK;
    planner->has_disk = planner->has_disk || tier == SL_TIER_DISK;
}

static sl_status find_objects(sl_planner *planner)
{
    const sl_plan_request *request = planner->request;
    const sl_homes *homes = planner->homes;
    uint32_t first = planner->first_activation;
    for (uint32_t o = 0; o < first; o++) {
        uint32_t group = o / planner->chunk_count, chunk = o % planner->chunk_count;
        if (homes->tier[group])
            set_home(planner, o, homes->tier[group][chunk],
                     sl_layout_chunk_bytes(planner->layout, (sl_group)group));
    }
    SL_TRY(sl_activation_homes_choose(planner->program, request->disk_activations,
                                      request->host_activations, planner->home_tier + first));
    SL_TRY(sl_plan_families_leave(planner));
    for (uint32_t v = 0; v < planner->program->value_count; v++)
        set_home(planner, first + v, planner->home_tier[first + v],
                 planner->program->values[v].bytes);
    uint32_t *first_tick = calloc((uint64_t)planner->object_count + 1, sizeof *first_tick);
    if (!first_tick)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u objects", planner->object_count);
    find_outliving(planner, first_tick);
    free(first_tick);
    return SL_OK;
}

static sl_status check_homes(const sl_planner *planner)
{
    const sl_program *program = planner->program;
    for (uint32_t v = 0; v < program->value_count; v++) {
        const sl_value *value = &program->values[v];
        if (!sl_planner_is_state(value))
            continue;
        bool has_home = planner->homes->tier[value->group] != NULL;
        uint32_t count =
            value->kind == SL_VALUE_TENSOR ? planner->layout->tensor_count : planner->chunk_count;
        if (!has_home || value->index >= count)
            SL_FAIL(SL_ERROR_INTERNAL, "value %u (%s) has no home in group %d", v, value->name,
                    (int)value->group);
    }
    return SL_OK;
}

/* What direct I/O reads or writes, and so whatever may lie there, is made of whole pages. */
static void set_alignments(sl_planner *planner)
{
    planner->tier[SL_TIER_DEVICE].alignment = ADDRESS_ALIGNMENT;
    planner->tier[SL_TIER_HOST].alignment =
        planner->has_disk ? SL_DIRECT_ALIGNMENT : ADDRESS_ALIGNMENT;
    planner->tier[SL_TIER_DISK].alignment = SL_DIRECT_ALIGNMENT;
}

sl_status sl_plan_lives_find(sl_planner *planner)
{
    const sl_program *program = planner->program;
    SL_TRY(check_homes(planner));
    SL_TRY(find_objects(planner));
    set_alignments(planner);
    for (uint32_t v = 0; v < program->value_count; v++) {
        planner->last_write[v] = SL_NONE;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            planner->tier[tier].lives[v] = (sl_life){SL_NONE, SL_NONE, SL_NONE};
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        planner->tier[tier].item_count = 0;
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            visit_operand(planner, tick, i);
    for (uint32_t v = 0; v < program->value_count; v++) {
        complete_life(planner, v);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            hold_loops(planner, &planner->tier[tier].lives[v], false);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY(add_value_items(planner, (sl_tier)tier));
    SL_TRY(add_workspace_items(planner));
    SL_TRY(sl_plan_families_find_passes(planner));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        planner->tier[tier].value_item_count = planner->tier[tier].item_count;
    planner->host_value_item_count = planner->tier[SL_TIER_HOST].item_count;
    planner->hop_item = SL_NONE;
    return SL_OK;
}

void sl_plan_lives_settle(sl_planner *planner, sl_tier home)
{
    sl_tier_state *state = &planner->tier[home];
    uint32_t first = planner->first_activation;
    const sl_residency *from =
        &planner->tier[home == SL_TIER_DISK ? SL_TIER_HOST : SL_TIER_DEVICE].residency;
    for (uint32_t v = 0; v < planner->program->value_count; v++)
        if (planner->home_tier[first + v] == (uint8_t)home && state->lives[v].item != SL_NONE &&
            planner->program->values[v].instances == 1)
            state->items[state->lives[v].item].bytes = 0;
    for (uint32_t b = 0; b < from->write_back_count; b++) {
        uint32_t object = from->visits[from->write_backs[b].visit].object;
        if (object >= first && planner->home_tier[object] == (uint8_t)home)
            state->items[state->lives[object - first].item].bytes = planner->object_bytes[object];
    }
}

sl_status sl_plan_lives_add_hop(sl_planner *planner)
{
    const sl_residency *device = &planner->tier[SL_TIER_DEVICE].residency;
    sl_tier_state *host = &planner->tier[SL_TIER_HOST];
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < device->visit_count; v++) {
        uint32_t object = device->visits[v].object;
        bool hops = device->visits[v].is_carried && planner->passes_host[object];
        if (hops && planner->object_bytes[object] > bytes)
            bytes = planner->object_bytes[object];
    }
    host->item_count = planner->host_value_item_count;
    planner->hop_item = SL_NONE;
    if (bytes) {
        sl_address_item item = {.bytes = bytes, .first_tick = 0, .last_tick = 0};
        sl_item_source source = {.kind = SL_MEMORY_STAGING, .value = SL_NONE, .object = SL_NONE};
        SL_TRY(sl_plan_lives_add_item(host, &item, &source, &planner->hop_item));
    }
    host->value_item_count = host->item_count;
    return SL_OK;
}
