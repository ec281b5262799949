/* Writes the commands of a plan in issue order, with the places of their operands; then the
 * allocations and their sums. Decides nothing: visits and offsets are known.
 *
 * The order around op t: copies of inputs (at tick 0), fetches from disk that start at t, other
 * fetches, the op, write-backs after t, write-backs to disk after t, copies of the inputs that the
 * op filled, copies of the outputs that it wrote last, and of the values that it wrote last and an
 * op on the host reads. With this order an object that moves between device and disk within one
 * tick reaches the host before it leaves it.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/bits.h"
#include "planner.h"

typedef enum event_kind {
    EVENT_INPUT,
    EVENT_DISK_FETCH,
    EVENT_FETCH,
    EVENT_RUN,
    EVENT_WRITE_BACK,
    EVENT_DISK_WRITE_BACK,
    EVENT_FILLED,
    EVENT_OUTPUT
} event_kind;

typedef struct event {
    uint32_t tick;
    event_kind kind;
    sl_tier tier;   /* of a fetch or write-back: the tier that is visited */
    uint32_t index; /* by kind: of a value, visit, op or write-back; with is_family: of a pass */
    bool is_family;
} event;

typedef struct emitter {
    const sl_planner *planner;
    sl_plan *plan;
    event *events;
    uint32_t event_count;
    uint32_t *first_visit[SL_TIER_COUNT]; /* [object_count]: its first visit; SL_NONE: no visit */
    uint32_t *next_visit[SL_TIER_COUNT];  /* [visit_count]: the object's next visit, or SL_NONE */
} emitter;

/* ---- places ---- */

static sl_place place_of_item(const sl_planner *planner, sl_tier tier, sl_item item)
{
    const sl_address_item *found = &planner->tier[tier].items[item.index];
    const sl_item_source *source = &planner->tier[tier].sources[item.index];
    if (source->slots <= 1)
        return (sl_place){.tier = tier,
                          .offset = found->offset,
                          .bytes = source->slot_bytes > 0 ? source->slot_bytes : found->bytes};
    return (sl_place){.tier = tier,
                      .offset = found->offset,
                      .bytes = source->slot_bytes,
                      .stride = source->stride,
                      .slots = source->slots};
}

static sl_place place_of_value(const sl_planner *planner, sl_tier tier, uint32_t v)
{
    return place_of_item(planner, tier, planner->tier[tier].live_ranges[v].item);
}

static sl_place place_of_home(const sl_planner *planner, sl_object object)
{
    sl_tier tier = sl_planner_home_of(planner, object);
    if (!sl_planner_is_chunk(planner, object))
        return place_of_value(planner, tier, sl_planner_value_of(planner, object));
    const uint64_t *offsets = planner->homes->offset[sl_planner_group_of(planner, object)];
    return (sl_place){.tier = tier,
                      .offset = offsets[sl_planner_chunk_index_of(planner, object)],
                      .bytes = planner->object_bytes[object.index]};
}

static sl_place place_of_visit(const sl_planner *planner, sl_tier tier, uint32_t visit)
{
    return place_of_item(planner, tier, sl_planner_item_of_visit(&planner->tier[tier], visit));
}

static bool is_there(const sl_visit *visit, uint32_t tick)
{
    if (visit->first_tick > visit->last_tick)
        return tick >= visit->first_tick || tick <= visit->last_tick;
    return tick >= visit->first_tick && tick <= visit->last_tick;
}

static sl_status place_of_object(const emitter *e, sl_tier tier, uint32_t tick, sl_object object,
                                 sl_place *out_place)
{
    sl_place home = place_of_home(e->planner, object);
    if (home.tier == tier) {
        *out_place = home;
        return SL_OK;
    }
    const sl_residency *residency = &e->planner->tier[tier].residency;
    uint32_t visit = e->first_visit[tier][object.index];
    while (visit != SL_NONE && !is_there(&residency->visits[visit], tick))
        visit = e->next_visit[tier][visit];
    if (visit == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "object %u is not on tier %d at tick %u", object.index,
                (int)tier, tick);
    *out_place = place_of_visit(e->planner, tier, visit);
    return SL_OK;
}

/* The other end of an object's move to or from `tier` at `tick`: its home, or its copy on the host
 * if the move is between the device and a home on disk. */
static sl_status place_of_source(const emitter *e, sl_tier tier, uint32_t tick, sl_object object,
                                 sl_place *out_place)
{
    if (tier == SL_TIER_DEVICE && e->planner->passes_host[object.index])
        return place_of_object(e, SL_TIER_HOST, tick, object, out_place);
    *out_place = place_of_home(e->planner, object);
    return SL_OK;
}

/* The ring through which the loop at `tick` uses family `v`. */
static sl_status place_of_ring(const sl_planner *planner, sl_tier tier, uint32_t tick, uint32_t v,
                               sl_place *out_place)
{
    const sl_family_pass *pass = sl_live_ranges_find_pass(planner, v, tick);
    if (!pass || pass->item[tier].index == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "family %s has no ring on tier %d at tick %u",
                planner->program->values[v].name, (int)tier, tick);
    *out_place = place_of_item(planner, tier, pass->item[tier]);
    return SL_OK;
}

static sl_status place_of_operand(const emitter *e, uint32_t tick, uint32_t i, sl_place *out_place)
{
    const sl_planner *planner = e->planner;
    sl_tier tier = sl_planner_tier_of_op(planner, tick);
    uint32_t v = planner->program->ops[tick].operand[i];
    *out_place = (sl_place){.tier = tier};
    if (v == SL_NONE)
        return SL_OK;
    const sl_value *value = &planner->program->values[v];
    if (value->kind == SL_VALUE_PERSISTENT) {
        out_place->offset = planner->homes->persistent_offset[value->index];
        out_place->bytes = value->bytes;
        return SL_OK;
    }
    const uint32_t whole = sl_program_whole(planner->program, v);
    const sl_object object = sl_planner_object_of(planner, v);
    const bool moves = object.index != SL_NONE;
    if (value->instances > 1 && moves)
        return place_of_ring(planner, tier, tick, v, out_place);
    if (!moves)
        *out_place = place_of_value(planner, tier, whole);
    else
        SL_TRY(place_of_object(e, tier, tick, object, out_place));
    if (value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_PART)
        out_place->offset += planner->layout->first_element[value->index] *
                             sl_type_bytes(planner->layout->group_type[value->group]);
    if (moves || whole != v)
        out_place->bytes = value->bytes;
    return SL_OK;
}

/* ---- commands ---- */

static sl_command copy_command(uint32_t tick, sl_place from, sl_place to)
{
    return (sl_command){.kind = SL_COMMAND_COPY,
                        .lane = sl_lane_between(from.tier, to.tier),
                        .tick = tick,
                        .value = SL_NONE,
                        .chunk_index = SL_NONE,
                        .from = from,
                        .to = to};
}

static sl_command copy_of_object(const emitter *e, sl_object object, uint32_t tick, sl_place from,
                                 sl_place to)
{
    sl_command command = copy_command(tick, from, to);
    if (sl_planner_is_chunk(e->planner, object)) {
        command.group = sl_planner_group_of(e->planner, object);
        command.chunk_index = sl_planner_chunk_index_of(e->planner, object);
    } else {
        command.value = sl_planner_value_of(e->planner, object);
    }
    return command;
}

static sl_command copy_of_value(const emitter *e, uint32_t v, uint32_t tick, sl_tier from,
                                sl_tier to)
{
    const sl_planner *planner = e->planner;
    sl_command command =
        copy_command(tick, place_of_value(planner, from, v), place_of_value(planner, to, v));
    command.value = v;
    return command;
}

static sl_status emit_run(emitter *e, uint32_t tick, sl_command *out_command)
{
    const sl_planner *planner = e->planner;
    sl_tier tier = sl_planner_tier_of_op(planner, tick);
    uint32_t operand_count = sl_op_info_of(planner->program->ops[tick].kind)->operand_count;
    *out_command = (sl_command){.kind = SL_COMMAND_RUN,
                                .lane = sl_planner_lane_of_op(planner, tick),
                                .tick = tick,
                                .value = SL_NONE,
                                .chunk_index = SL_NONE,
                                .first_place = e->plan->place_count,
                                .place_count = operand_count + 1};
    for (uint32_t i = 0; i < operand_count; i++)
        SL_TRY(place_of_operand(e, tick, i, &e->plan->places[e->plan->place_count++]));
    sl_item workspace = planner->tier[tier].workspace_item[tick];
    e->plan->places[e->plan->place_count++] = workspace.index == SL_NONE
                                                  ? (sl_place){.tier = tier}
                                                  : place_of_item(planner, tier, workspace);
    return SL_OK;
}

static sl_status emit_visit_copy(emitter *e, const event *what, sl_command *out_command)
{
    const sl_planner *planner = e->planner;
    const sl_residency *residency = &planner->tier[what->tier].residency;
    bool is_fetch = what->kind == EVENT_FETCH || what->kind == EVENT_DISK_FETCH;
    uint32_t visit = is_fetch ? what->index : residency->write_backs[what->index].visit;
    sl_object object = sl_planner_object_of_visit(&residency->visits[visit]);
    sl_place away = place_of_visit(planner, what->tier, visit), source;
    SL_TRY(place_of_source(e, what->tier, what->tick, object, &source));
    *out_command = is_fetch ? copy_of_object(e, object, what->tick, source, away)
                            : copy_of_object(e, object, what->tick + 1, away, source);
    return SL_OK;
}

/* One copy of a family's pass: between the ring in what->tier and either the family's home or, if
 * the home is the disk and the tier the device, the ring on the host. */
static void emit_family_copy(emitter *e, const event *what, sl_command *out_command)
{
    const sl_planner *planner = e->planner;
    const sl_family_pass *pass = &planner->passes[what->index];
    bool is_fetch = what->kind == EVENT_FETCH || what->kind == EVENT_DISK_FETCH;
    sl_object object = sl_planner_object_of_activation(planner, pass->value);
    bool is_staged = what->tier == SL_TIER_DEVICE && pass->item[SL_TIER_HOST].index != SL_NONE;
    sl_place away = place_of_item(planner, what->tier, pass->item[what->tier]);
    sl_place source = is_staged ? place_of_item(planner, SL_TIER_HOST, pass->item[SL_TIER_HOST])
                                : place_of_home(planner, object);
    *out_command = is_fetch ? copy_of_object(e, object, what->tick, source, away)
                            : copy_of_object(e, object, what->tick + 1, away, source);
}

static sl_status emit_event(emitter *e, const event *what)
{
    sl_command *command = &e->plan->body[e->plan->body_count++];
    if (what->kind == EVENT_RUN)
        return emit_run(e, what->index, command);
    if (what->kind == EVENT_INPUT) {
        *command = copy_of_value(e, what->index, 0, SL_TIER_HOST, SL_TIER_DEVICE);
        return SL_OK;
    }
    if (what->kind == EVENT_FILLED) {
        *command = copy_of_value(e, what->index, what->tick + 1, SL_TIER_HOST, SL_TIER_DEVICE);
        return SL_OK;
    }
    if (what->is_family) {
        emit_family_copy(e, what, command);
        return SL_OK;
    }
    if (what->kind == EVENT_OUTPUT) {
        *command = copy_of_value(e, what->index, what->tick + 1, SL_TIER_DEVICE, SL_TIER_HOST);
        return SL_OK;
    }
    return emit_visit_copy(e, what, command);
}

/* ---- events ---- */

static int compare_events(const void *left, const void *right)
{
    const event *a = left, *b = right;
    if (a->tick != b->tick)
        return a->tick < b->tick ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->tier != b->tier)
        return a->tier < b->tier ? -1 : 1;
    if (a->is_family != b->is_family)
        return a->is_family ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static void add_event(emitter *e, uint32_t tick, event_kind kind, sl_tier tier, uint32_t index)
{
    e->events[e->event_count++] = (event){tick, kind, tier, index, false};
}

static void list_value_events(emitter *e)
{
    const sl_planner *planner = e->planner;
    for (uint32_t v = 0; v < planner->program->value_count; v++) {
        const sl_value *value = &planner->program->values[v];
        bool on_device = planner->tier[SL_TIER_DEVICE].live_ranges[v].first_tick != SL_NONE;
        bool on_host = planner->tier[SL_TIER_HOST].live_ranges[v].first_tick != SL_NONE;
        if (sl_planner_is_state(value) || !on_device || !on_host ||
            sl_planner_is_filled(planner, v))
            continue;
        if (value->kind == SL_VALUE_INPUT)
            add_event(e, 0, EVENT_INPUT, SL_TIER_DEVICE, v);
        else
            add_event(e, planner->last_write[v], EVENT_OUTPUT, SL_TIER_DEVICE, v);
    }
}

/* One copy to the device after each op that fills an input. */
static void list_filled_inputs(emitter *e)
{
    const sl_planner *planner = e->planner;
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++) {
        const sl_op *op = &planner->program->ops[tick];
        const bool is_input = sl_op_info_of(op->kind)->is_input;
        if (is_input &&
            planner->tier[SL_TIER_DEVICE].live_ranges[op->operand[0]].first_tick != SL_NONE)
            add_event(e, tick, EVENT_FILLED, SL_TIER_DEVICE, op->operand[0]);
    }
}

static void list_moves(emitter *e, sl_tier tier)
{
    const sl_residency *residency = &e->planner->tier[tier].residency;
    const bool *passes_host = e->planner->passes_host;
    for (uint32_t v = 0; v < residency->visit_count; v++) {
        const sl_visit *visit = &residency->visits[v];
        bool is_disk = tier == SL_TIER_HOST && passes_host[visit->object];
        if (visit->is_fetched)
            add_event(e, visit->first_tick, is_disk ? EVENT_DISK_FETCH : EVENT_FETCH, tier, v);
    }
    for (uint32_t b = 0; b < residency->write_back_count; b++) {
        const sl_write_back *write_back = &residency->write_backs[b];
        bool is_disk =
            tier == SL_TIER_HOST && passes_host[residency->visits[write_back->visit].object];
        add_event(e, write_back->after_tick, is_disk ? EVENT_DISK_WRITE_BACK : EVENT_WRITE_BACK,
                  tier, b);
    }
}

static void list_pass(emitter *e, uint32_t p)
{
    const sl_family_pass *pass = &e->planner->passes[p];
    for (int tier = SL_TIER_DEVICE; tier <= SL_TIER_HOST; tier++) {
        bool is_disk = tier == SL_TIER_HOST;
        if (pass->item[tier].index == SL_NONE)
            continue;
        uint32_t before = e->event_count;
        if (pass->is_fetched)
            add_event(e, pass->first_tick, is_disk ? EVENT_DISK_FETCH : EVENT_FETCH, (sl_tier)tier,
                      p);
        if (pass->last_write != SL_NONE)
            add_event(e, pass->last_write, is_disk ? EVENT_DISK_WRITE_BACK : EVENT_WRITE_BACK,
                      (sl_tier)tier, p);
        for (uint32_t n = before; n < e->event_count; n++)
            e->events[n].is_family = true;
    }
}

static void list_events(emitter *e)
{
    const sl_planner *planner = e->planner;
    list_value_events(e);
    list_filled_inputs(e);
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++)
        add_event(e, tick, EVENT_RUN, SL_TIER_DEVICE, tick);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        list_moves(e, (sl_tier)tier);
    for (uint32_t p = 0; p < planner->pass_count; p++)
        list_pass(e, p);
    qsort(e->events, e->event_count, sizeof *e->events, compare_events);
}

/* ---- all commands ---- */

static void link_visits(emitter *e, sl_tier tier)
{
    const sl_residency *residency = &e->planner->tier[tier].residency;
    for (uint32_t o = 0; o < e->planner->object_count; o++)
        e->first_visit[tier][o] = SL_NONE;
    for (uint32_t v = residency->visit_count; v-- > 0;) {
        uint32_t object = residency->visits[v].object;
        e->next_visit[tier][v] = e->first_visit[tier][object];
        e->first_visit[tier][object] = v;
    }
}

static void close_emitter(emitter *e)
{
    free(e->events);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        free(e->first_visit[tier]);
        free(e->next_visit[tier]);
    }
}

static sl_status open_emitter(const sl_planner *planner, sl_plan *plan, emitter *e)
{
    const sl_program *program = planner->program;
    uint64_t copies = 0, carried = 0;
    *e = (emitter){.planner = planner, .plan = plan};
    bool is_refused = false;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        const sl_residency *residency = &planner->tier[tier].residency;
        copies += (uint64_t)residency->visit_count + residency->write_back_count;
        carried += 2 * (uint64_t)residency->visit_count; /* two copies at most for each */
        e->first_visit[tier] = calloc((uint64_t)planner->object_count + 1, sizeof(uint32_t));
        e->next_visit[tier] = calloc((uint64_t)residency->visit_count + 1, sizeof(uint32_t));
        is_refused |= !e->first_visit[tier] || !e->next_visit[tier];
    }
    copies += 4 * (uint64_t)planner->pass_count;
    uint64_t command_count = copies + 2 * (uint64_t)program->op_count + program->value_count;
    e->events = calloc(command_count + 1, sizeof *e->events);
    plan->body = calloc(command_count + 1, sizeof *plan->body);
    plan->prologue = calloc(carried + 1, sizeof *plan->prologue);
    plan->section_count = sl_program_section_count(program);
    plan->sections = calloc(plan->section_count, sizeof *plan->sections);
    plan->places =
        calloc((uint64_t)program->op_count * (SL_OPERAND_MAX + 1) + 1, sizeof *plan->places);
    if (is_refused || !e->events || !plan->body || !plan->prologue || !plan->places ||
        !plan->sections) {
        close_emitter(e);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan of %llu commands",
                (unsigned long long)command_count);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        link_visits(e, (sl_tier)tier);
    return SL_OK;
}

/* Loads a carried visit from its home; from disk to the device in two copies, through the hop. */
static void emit_carried(emitter *e, sl_tier tier, uint32_t visit)
{
    const sl_planner *planner = e->planner;
    sl_object object = sl_planner_object_of_visit(&planner->tier[tier].residency.visits[visit]);
    sl_place from = place_of_home(planner, object), to = place_of_visit(planner, tier, visit);
    sl_command *commands = e->plan->prologue;
    if (tier == SL_TIER_DEVICE && from.tier == SL_TIER_DISK) {
        sl_place hop = place_of_item(planner, SL_TIER_HOST, planner->hop_item);
        hop.bytes = from.bytes; /* the hop is as large as the largest object that needs it */
        commands[e->plan->prologue_count++] = copy_of_object(e, object, 0, from, hop);
        from = hop;
    }
    commands[e->plan->prologue_count++] = copy_of_object(e, object, 0, from, to);
}

static void emit_prologue(emitter *e)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        const sl_residency *residency = &e->planner->tier[tier].residency;
        for (uint32_t v = 0; v < residency->visit_count; v++)
            if (residency->visits[v].is_carried)
                emit_carried(e, (sl_tier)tier, v);
    }
}

/* A command belongs to the section that contains its event's tick. */
static void divide_into_sections(emitter *e)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < e->plan->section_count; s++) {
        sl_section section = sl_program_section(e->planner->program, s);
        uint32_t end_tick = section.first + section.count;
        section.first = next;
        while (next < e->event_count && e->events[next].tick < end_tick)
            next++;
        section.count = next - section.first;
        e->plan->sections[s] = section;
    }
    assert(next == e->event_count); /* each event belongs to one section */
}

sl_status sl_commands_emit(const sl_planner *planner, sl_plan *plan)
{
    emitter e;
    SL_TRY(open_emitter(planner, plan, &e));
    emit_prologue(&e);
    list_events(&e);
    divide_into_sections(&e);
    sl_status status = SL_OK;
    for (uint32_t n = 0; status == SL_OK && n < e.event_count; n++)
        status = emit_event(&e, &e.events[n]);
    close_emitter(&e);
    return status;
}

/* ---- allocations and sums ---- */

typedef struct totals {
    const sl_planner *planner;
    sl_plan *plan;
} totals;

static sl_allocation *append_allocation(totals *t)
{
    return &t->plan->allocations[t->plan->allocation_count++];
}

static void append_permanent(totals *t, sl_memory_kind kind, sl_tier tier, uint64_t offset,
                             uint64_t bytes)
{
    if (!bytes)
        return;
    *append_allocation(t) = (sl_allocation){.kind = kind,
                                            .place = {tier, offset, bytes},
                                            .first_tick = 0,
                                            .last_tick = t->planner->program->op_count,
                                            .is_permanent = true,
                                            .value = SL_NONE,
                                            .chunk_index = SL_NONE};
}

static void append_homes(totals *t)
{
    const sl_homes *homes = t->planner->homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t c = 0; homes->tier[group] && c < homes->chunk_count; c++) {
            const uint64_t bytes = sl_layout_chunk_bytes(t->planner->layout, (sl_group)group, c);
            if (bytes == 0)
                continue;
            append_permanent(t, (sl_memory_kind)group, (sl_tier)homes->tier[group][c],
                             homes->offset[group][c], bytes);
            sl_allocation *last = &t->plan->allocations[t->plan->allocation_count - 1];
            last->group = (sl_group)group;
            last->chunk_index = c;
        }
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        append_permanent(t, SL_MEMORY_STAGING, (sl_tier)tier, homes->flags_offset[tier],
                         homes->flags_bytes[tier]);
    append_permanent(t, SL_MEMORY_STAGING, SL_TIER_DEVICE, homes->counted_offset,
                     homes->counted_bytes);
    append_permanent(t, SL_MEMORY_STAGING, SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes);
    for (uint32_t slot = 0; slot < homes->persistent_count; slot++)
        append_permanent(t, SL_MEMORY_ACTIVATION, SL_TIER_DEVICE, homes->persistent_offset[slot],
                         homes->persistent_bytes[slot]);
}

static void append_items(totals *t, sl_tier tier)
{
    const sl_planner *planner = t->planner;
    const sl_tier_state *state = &planner->tier[tier];
    for (uint32_t i = 0; i < state->item_count; i++) {
        const sl_address_item *item = &state->items[i];
        const sl_item_source *source = &state->sources[i];
        if (item->bytes == 0) /* the home of an activation that is never written back */
            continue;
        sl_allocation *allocation = append_allocation(t);
        *allocation = (sl_allocation){.kind = source->kind,
                                      .place = place_of_item(planner, tier, (sl_item){i}),
                                      .first_tick = item->first_tick,
                                      .last_tick = item->last_tick,
                                      .value = source->value,
                                      .chunk_index = SL_NONE};
        bool is_buffer = source->kind == SL_MEMORY_STAGING && source->value != SL_NONE &&
                         !sl_planner_is_filled(planner, source->value);
        if (is_buffer) { /* buffers belong to the caller between iterations */
            allocation->is_permanent = true;
            allocation->last_tick = planner->program->op_count;
        }
        if (source->chunk.index == SL_NONE)
            continue;
        allocation->group = sl_planner_group_of(planner, source->chunk);
        allocation->chunk_index = sl_planner_chunk_index_of(planner, source->chunk);
    }
}

/* Adds the bytes of an allocation over its live range to a difference array of op_count + 1 ticks.
 */
static void add_live_range(int64_t *difference, const sl_allocation *allocation, uint32_t op_count)
{
    int64_t bytes = (int64_t)sl_place_extent(&allocation->place);
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent || first > last)
        difference[0] += bytes;
    if (allocation->is_permanent)
        return;
    if (first > last) {
        difference[last + 1] -= bytes;
        difference[first] += bytes;
        return;
    }
    difference[first] += bytes;
    if (last + 1 <= op_count)
        difference[last + 1] -= bytes;
}

static bool is_alive(const sl_allocation *allocation, uint32_t tick)
{
    uint32_t first = allocation->first_tick, last = allocation->last_tick;
    if (allocation->is_permanent)
        return true;
    return first > last ? tick >= first || tick <= last : tick >= first && tick <= last;
}

static void find_peak(totals *t, sl_tier tier, int64_t *difference)
{
    uint32_t op_count = t->planner->program->op_count;
    const sl_plan *plan = t->plan;
    for (uint32_t tick = 0; tick <= op_count; tick++)
        difference[tick] = 0;
    for (uint32_t a = 0; a < plan->allocation_count; a++)
        if (plan->allocations[a].place.tier == tier)
            add_live_range(difference, &plan->allocations[a], op_count);
    int64_t live = 0, peak = -1;
    uint32_t peak_tick = 0;
    for (uint32_t tick = 0; tick < op_count; tick++) {
        live += difference[tick];
        if (live > peak) {
            peak = live;
            peak_tick = tick;
        }
    }
    t->plan->live_peak_bytes[tier] = (uint64_t)(peak < 0 ? 0 : peak);
    for (uint32_t a = 0; a < plan->allocation_count; a++) {
        const sl_allocation *allocation = &plan->allocations[a];
        if (allocation->place.tier == tier && is_alive(allocation, peak_tick))
            t->plan->kind_bytes[tier][allocation->kind] += sl_place_extent(&allocation->place);
    }
}

/* Adds up the moved bytes; each copy counts once for each repetition of its section. */
static sl_status add_moves(sl_plan *plan)
{
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        for (uint32_t c = section->first; c < section->first + section->count; c++) {
            const sl_command *command = &plan->body[c];
            uint64_t bytes, *moved = &plan->moved_bytes[command->lane];
            if (command->kind != SL_COMMAND_COPY)
                continue;
            SL_TRY(sl_bits_multiply(command->to.bytes, section->repeat, "the moves", &bytes));
            SL_TRY(sl_bits_add(*moved, bytes, "the moves", moved));
        }
    }
    return SL_OK;
}

sl_status sl_commands_add_up(const sl_planner *planner, sl_plan *plan)
{
    const sl_homes *homes = planner->homes;
    uint64_t capacity =
        (uint64_t)SL_GROUP_COUNT * homes->chunk_count + SL_TIER_COUNT + homes->persistent_count + 3;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        capacity += planner->tier[tier].item_count;
    int64_t *difference = calloc((uint64_t)planner->program->op_count + 2, sizeof *difference);
    plan->allocations = calloc(capacity, sizeof *plan->allocations);
    if (!difference || !plan->allocations) {
        free(difference);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to add up a plan");
    }
    totals t = {.planner = planner, .plan = plan};
    append_homes(&t);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        append_items(&t, (sl_tier)tier);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        find_peak(&t, (sl_tier)tier, difference);
        plan->peak_bytes[tier] = planner->tier[tier].peak_bytes;
    }
    free(difference);
    return add_moves(plan);
}
