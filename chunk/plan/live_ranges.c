/* The objects, and the live ranges of values in each tier, from the program and the homes alone.
 *
 * An activation whose home is not the device is an object. On the device it has visits; it has a
 * live range, from first to last use, only in its home tier. The visits decide whether it is ever
 * written back to its home; if it is not, its item there gets 0 bytes.
 *
 * A family is a value with an instance for each repetition of the loops that use it. In its home
 * tier all instances lie one after the other. If that tier is not the device, a loop uses the
 * family through a ring of two slots: while ops use one instance, the one before it is written back
 * and the next one is fetched. The hazards order the uses of each slot. So the plan of a loop is
 * the same for any number of instances.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"
#include "chunk/policy/activation_homes.h"
#include "planner.h"

enum { ADDRESS_ALIGNMENT = 256, RING_SLOTS = 2 };

/* ---- objects ---- */

static bool is_family(const sl_planner *planner, uint32_t v)
{
    const sl_value *value = &planner->program->values[v];
    return value->kind == SL_VALUE_ACTIVATION && value->instances > 1;
}

static sl_tier home_of(const sl_planner *planner, uint32_t v)
{
    return sl_planner_home_of(planner, sl_planner_object_of_activation(planner, v));
}

/* Sets only the tier; set_home sets the other fields. */
static void choose_home(sl_planner *planner, uint32_t v, sl_tier tier)
{
    planner->home_tier[sl_planner_object_of_activation(planner, v).index] = (uint8_t)tier;
}

/* A chunk outlives the body unless its first use in the body writes it whole without reading it. */
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
            uint32_t object = sl_planner_object_of(planner, v).index;
            bool is_whole = program->values[v].kind == SL_VALUE_CHUNK;
            if (first_tick[object] == SL_NONE)
                first_tick[object] = tick;
            if (first_tick[object] == tick && (!is_whole || sl_op_reads(op, i)))
                planner->outlives[object] = true;
        }
    }
}

static void set_home(sl_planner *planner, sl_object object, sl_tier tier, uint64_t bytes)
{
    planner->home_tier[object.index] = (uint8_t)tier;
    planner->object_bytes[object.index] = planner->visit_bytes[object.index] = bytes;
    planner->passes_host[object.index] = tier == SL_TIER_DISK;
    planner->has_disk = planner->has_disk || tier == SL_TIER_DISK;
}

/* Counts the families whose home is the device, in order of first use, and moves the home of the
 * first leaving_count of them to the host. */
static sl_status give_families_homes(sl_planner *planner)
{
    const sl_program *program = planner->program;
    bool *is_counted = calloc((uint64_t)program->value_count + 1, sizeof *is_counted);
    if (!is_counted)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u values", program->value_count);
    planner->family_count = 0;
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            uint32_t v = program->ops[tick].operand[i];
            if (v == SL_NONE || is_counted[v] || !is_family(planner, v) ||
                home_of(planner, v) != SL_TIER_DEVICE)
                continue;
            is_counted[v] = true;
            if (planner->family_count++ < planner->leaving_count)
                choose_home(planner, v, SL_TIER_HOST);
        }
    }
    free(is_counted);
    return SL_OK;
}

/* Where ranks keep shards of a gradient chunk, the home of the whole chunk is the tier that is the
 * home of its shard. */
static void give_gradients_homes(sl_planner *planner)
{
    const sl_program *program = planner->program;
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        const sl_op *op = &program->ops[tick];
        if (op->kind != SL_OP_REDUCE_SCATTER_SHARD)
            continue;
        const uint32_t chunk_index = program->values[op->operand[1]].index;
        choose_home(planner, op->operand[0],
                    (sl_tier)planner->homes->tier[SL_GROUP_GRAD][chunk_index]);
    }
}

/* A value that holds a chunk for a time counts as memory of the chunk's group; all other values
 * count as activations. */
static void find_memory_kinds(sl_planner *planner)
{
    const sl_program *program = planner->program;
    memset(planner->memory_kind, SL_MEMORY_ACTIVATION, program->value_count);
    for (uint32_t v = 0; v < program->value_count; v++)
        if (program->values[v].kind == SL_VALUE_PART)
            planner->memory_kind[program->values[v].whole] = (uint8_t)program->values[v].group;
    for (uint32_t tick = 0; tick < program->op_count; tick++) /* also of a shard, without parts */
        if (program->ops[tick].kind == SL_OP_DEQUANTIZE)
            planner->memory_kind[program->ops[tick].operand[1]] = SL_GROUP_PARAM;
}

static void give_chunks_homes(sl_planner *planner)
{
    const sl_homes *homes = planner->homes;
    for (int g = 0; g < SL_GROUP_COUNT; g++)
        for (uint32_t chunk = 0; homes->tier[g] && chunk < planner->chunk_count; chunk++) {
            sl_object object = sl_planner_object_of_chunk(planner, (sl_group)g, chunk);
            set_home(planner, object, (sl_tier)homes->tier[g][chunk],
                     sl_layout_chunk_bytes(planner->layout, (sl_group)g, chunk));
            planner->visit_bytes[object.index] =
                sl_layout_slot_bytes(planner->layout, (sl_group)g, chunk);
        }
}

static sl_status find_objects(sl_planner *planner)
{
    const sl_plan_request *request = planner->request;
    uint8_t *activation_tiers = planner->home_tier + planner->first_activation;
    give_chunks_homes(planner);
    SL_TRY(sl_activation_homes_choose(planner->program, request->disk_activations,
                                      request->host_activations, activation_tiers));
    SL_TRY(give_families_homes(planner));
    give_gradients_homes(planner);
    find_memory_kinds(planner);
    for (uint32_t v = 0; v < planner->program->value_count; v++)
        set_home(planner, sl_planner_object_of_activation(planner, v), home_of(planner, v),
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

/* ---- items ---- */

/* Fills the sizes of an item with `slots` slots for instances of one value. */
static sl_status make_item(const sl_planner *planner, sl_tier tier, uint32_t value, uint32_t slots,
                           sl_address_item *item, sl_item_source *source)
{
    const sl_value *made = &planner->program->values[value];
    uint64_t alignment = planner->tier[tier].alignment, before;
    uint64_t stride = sl_bits_round_up(made->bytes, alignment);
    source->slots = slots;
    source->slot_bytes = made->bytes;
    source->stride = slots > 1 ? stride : 0;
    item->bytes = made->bytes;
    if (slots <= 1)
        return SL_OK;
    SL_TRY(sl_bits_multiply(stride, slots - 1, made->name, &before));
    return sl_bits_add(before, made->bytes, made->name, &item->bytes);
}

/* ---- live ranges of values ---- */

static void extend_range(sl_live_range *range, uint32_t tick)
{
    if (range->first_tick == SL_NONE)
        range->first_tick = tick;
    range->last_tick = tick;
}

static void record_operand(sl_planner *planner, uint32_t tick, uint32_t operand_index)
{
    const sl_op *op = &planner->program->ops[tick];
    uint32_t v = op->operand[operand_index];
    if (v == SL_NONE || sl_planner_is_state(&planner->program->values[v]))
        return;
    v = sl_program_whole(planner->program, v);
    extend_range(&planner->tier[sl_planner_tier_of_op(planner, tick)].live_ranges[v], tick);
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

/* Extends a live range that crosses an edge of a loop over the whole loop, because all seams of a
 * loop must have the same values alive. A family's live range always spans whole loops: all
 * instances are alive while any of them is. */
static void hold_loops(const sl_planner *planner, sl_live_range *range, bool is_family)
{
    if (range->first_tick == SL_NONE)
        return;
    const sl_residency_loop *first = find_loop(planner, range->first_tick);
    const sl_residency_loop *last = find_loop(planner, range->last_tick);
    if (first == last && !is_family)
        return;
    if (first)
        range->first_tick = first->first_tick;
    if (last)
        range->last_tick = last->end_tick - 1;
}

static void hold_body(sl_live_range *range, uint32_t op_count)
{
    if (range->first_tick == SL_NONE)
        return;
    range->first_tick = 0;
    range->last_tick = op_count - 1;
}

/* Extends live ranges by the copies between device and host: inputs are copied to the device before
 * the first op, or after the op that fills them; outputs to the host after their last writer; a
 * value that an op on the host reads has a copy there from its last write on. An input that an op
 * fills is alive in the whole body: the next step's inputs are filled during this step's updates,
 * and if they shared bytes with other values, the next forward pass would wait for the last update.
 */
static void complete_ranges(sl_planner *planner, uint32_t v)
{
    const sl_value *value = &planner->program->values[v];
    sl_live_range *device = &planner->tier[SL_TIER_DEVICE].live_ranges[v];
    sl_live_range *host = &planner->tier[SL_TIER_HOST].live_ranges[v];
    uint32_t last_op = planner->program->op_count - 1;
    bool is_filled = sl_planner_is_filled(planner, v);
    bool is_input = value->kind == SL_VALUE_INPUT && !is_filled && device->first_tick != SL_NONE;
    bool is_output = value->kind == SL_VALUE_OUTPUT && device->first_tick != SL_NONE;
    sl_tier home = home_of(planner, v);
    if (value->instances > 1)
        hold_loops(planner, device, true);
    if (home != SL_TIER_DEVICE) {
        planner->tier[home].live_ranges[v] = *device;
        device->first_tick = SL_NONE;
        return;
    }
    if (is_input)
        device->first_tick = 0;
    if (is_filled) {
        hold_body(device, last_op + 1);
        hold_body(host, last_op + 1);
    } else if (is_input || is_output) {
        host->first_tick = 0; /* the buffer belongs to the caller between iterations */
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
        sl_live_range *range = &state->live_ranges[v];
        range->item = SL_NO_ITEM;
        if (range->first_tick == SL_NONE || value->kind == SL_VALUE_PERSISTENT)
            continue;
        bool is_buffer = tier == SL_TIER_HOST && value->kind != SL_VALUE_ACTIVATION;
        sl_address_item item = {.first_tick = range->first_tick, .last_tick = range->last_tick};
        sl_item_source source = {.kind = is_buffer ? SL_MEMORY_STAGING
                                                   : (sl_memory_kind)planner->memory_kind[v],
                                 .value = v,
                                 .chunk = SL_NO_OBJECT};
        SL_TRY(make_item(planner, tier, v, value->instances, &item, &source));
        SL_TRY(sl_planner_add_item(state, &item, &source, &range->item));
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
            planner->tier[t].workspace_item[tick] = SL_NO_ITEM;
        uint64_t bytes = request->workspace(request->workspace_context, op->kind, &op->attrs, tier);
        if (!bytes)
            continue;
        sl_address_item item = {.bytes = bytes, .first_tick = tick, .last_tick = tick};
        sl_item_source source = {
            .kind = SL_MEMORY_WORKSPACE, .value = SL_NONE, .chunk = SL_NO_OBJECT};
        SL_TRY(sl_planner_add_item(&planner->tier[tier], &item, &source,
                                   &planner->tier[tier].workspace_item[tick]));
    }
    return SL_OK;
}

/* ---- families that pass through a loop ---- */

static sl_status add_ring(sl_planner *planner, sl_tier tier, sl_family_pass *pass)
{
    sl_address_item item = {.first_tick = pass->first_tick, .last_tick = pass->last_tick};
    sl_item_source source = {
        .kind = SL_MEMORY_ACTIVATION, .value = pass->value, .chunk = SL_NO_OBJECT};
    SL_TRY(make_item(planner, tier, pass->value, RING_SLOTS, &item, &source));
    return sl_planner_add_item(&planner->tier[tier], &item, &source, &pass->item[tier]);
}

static sl_status add_pass(sl_planner *planner, const sl_family_pass *pass)
{
    SL_TRY(SL_ARRAY_GROW(planner->passes, planner->pass_count, planner->pass_capacity,
                         "the families of a plan"));
    planner->first_pass[pass->value] = planner->pass_count;
    planner->passes[planner->pass_count++] = *pass;
    return SL_OK;
}

static sl_status record_family_use(sl_planner *planner, const sl_residency_loop *loop,
                                   uint32_t tick, uint32_t operand_index)
{
    const sl_op *op = &planner->program->ops[tick];
    uint32_t v = op->operand[operand_index];
    if (v == SL_NONE || !is_family(planner, v) || home_of(planner, v) == SL_TIER_DEVICE)
        return SL_OK;
    uint32_t latest = planner->first_pass[v];
    bool is_new = latest == SL_NONE || planner->passes[latest].first_tick != loop->first_tick;
    const sl_family_pass pass = {.value = v,
                                 .first_tick = loop->first_tick,
                                 .last_tick = loop->end_tick - 1,
                                 .is_fetched = sl_op_reads(op, operand_index),
                                 .last_write = SL_NONE,
                                 .item = {SL_NO_ITEM, SL_NO_ITEM, SL_NO_ITEM},
                                 .next = latest};
    if (is_new)
        SL_TRY(add_pass(planner, &pass));
    if (sl_op_writes(op, operand_index))
        planner->passes[planner->first_pass[v]].last_write = tick;
    return SL_OK;
}

/* Finds the passes of families whose home is not the device, and adds their rings as items. */
static sl_status find_passes(sl_planner *planner)
{
    planner->pass_count = 0;
    memset(planner->first_pass, 0xFF, planner->program->value_count * sizeof(uint32_t));
    for (uint32_t l = 0; l < planner->loop_count; l++) {
        const sl_residency_loop *loop = &planner->loops[l];
        for (uint32_t tick = loop->first_tick; tick < loop->end_tick; tick++)
            for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
                SL_TRY(record_family_use(planner, loop, tick, i));
    }
    for (uint32_t p = 0; p < planner->pass_count; p++) {
        sl_family_pass *pass = &planner->passes[p];
        SL_TRY(add_ring(planner, SL_TIER_DEVICE, pass));
        if (home_of(planner, pass->value) == SL_TIER_DISK)
            SL_TRY(add_ring(planner, SL_TIER_HOST, pass));
    }
    return SL_OK;
}

const sl_family_pass *sl_live_ranges_find_pass(const sl_planner *planner, uint32_t value,
                                               uint32_t tick)
{
    for (uint32_t p = planner->first_pass[value]; p != SL_NONE; p = planner->passes[p].next) {
        const sl_family_pass *pass = &planner->passes[p];
        if (pass->first_tick <= tick && tick <= pass->last_tick)
            return pass;
    }
    return NULL;
}

/* ---- all of them ---- */

/* With a disk, direct I/O needs whole pages, and any item on the host may be read or written by it.
 * On disk no two items share a unit of the checksums. */
static void set_alignments(sl_planner *planner)
{
    planner->tier[SL_TIER_DEVICE].alignment = ADDRESS_ALIGNMENT;
    planner->tier[SL_TIER_HOST].alignment =
        planner->has_disk ? SL_DIRECT_ALIGNMENT : ADDRESS_ALIGNMENT;
    planner->tier[SL_TIER_DISK].alignment = SL_DISK_ALIGNMENT;
}

sl_status sl_live_ranges_find(sl_planner *planner)
{
    const sl_program *program = planner->program;
    SL_TRY(check_homes(planner));
    SL_TRY(find_objects(planner));
    set_alignments(planner);
    for (uint32_t v = 0; v < program->value_count; v++) {
        planner->last_write[v] = SL_NONE;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            planner->tier[tier].live_ranges[v] = (sl_live_range){SL_NONE, SL_NONE, SL_NO_ITEM};
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        planner->tier[tier].item_count = 0;
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            record_operand(planner, tick, i);
    for (uint32_t v = 0; v < program->value_count; v++) {
        complete_ranges(planner, v);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            hold_loops(planner, &planner->tier[tier].live_ranges[v], false);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY(add_value_items(planner, (sl_tier)tier));
    SL_TRY(add_workspace_items(planner));
    SL_TRY(find_passes(planner));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        planner->tier[tier].value_item_count = planner->tier[tier].item_count;
    planner->host_value_item_count = planner->tier[SL_TIER_HOST].item_count;
    planner->hop_item = SL_NO_ITEM;
    return SL_OK;
}

void sl_live_ranges_settle_homes(sl_planner *planner, sl_tier home)
{
    sl_tier_state *state = &planner->tier[home];
    const sl_residency *from =
        &planner->tier[home == SL_TIER_DISK ? SL_TIER_HOST : SL_TIER_DEVICE].residency;
    for (uint32_t v = 0; v < planner->program->value_count; v++)
        if (home_of(planner, v) == home && state->live_ranges[v].item.index != SL_NONE &&
            planner->program->values[v].instances == 1)
            state->items[state->live_ranges[v].item.index].bytes = 0;
    for (uint32_t b = 0; b < from->write_back_count; b++) {
        const sl_visit *visit = &from->visits[from->write_backs[b].visit];
        sl_object object = sl_planner_object_of_visit(visit);
        if (sl_planner_is_chunk(planner, object) || sl_planner_home_of(planner, object) != home)
            continue;
        sl_item item = state->live_ranges[sl_planner_value_of(planner, object)].item;
        state->items[item.index].bytes = planner->object_bytes[object.index];
    }
}

sl_status sl_live_ranges_add_hop(sl_planner *planner)
{
    const sl_residency *device = &planner->tier[SL_TIER_DEVICE].residency;
    sl_tier_state *host = &planner->tier[SL_TIER_HOST];
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < device->visit_count; v++) {
        uint32_t object = sl_planner_object_of_visit(&device->visits[v]).index;
        bool hops = device->visits[v].is_carried && planner->passes_host[object];
        if (hops && planner->object_bytes[object] > bytes)
            bytes = planner->object_bytes[object];
    }
    host->item_count = planner->host_value_item_count;
    planner->hop_item = SL_NO_ITEM;
    if (bytes) {
        sl_address_item item = {.bytes = bytes, .first_tick = 0, .last_tick = 0};
        sl_item_source source = {
            .kind = SL_MEMORY_STAGING, .value = SL_NONE, .chunk = SL_NO_OBJECT};
        SL_TRY(sl_planner_add_item(host, &item, &source, &planner->hop_item));
    }
    host->value_item_count = host->item_count;
    return SL_OK;
}
