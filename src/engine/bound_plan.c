/* A bound plan, ready to be issued: when the engine opens, every index becomes a pointer, every
 * wait an event.
 *
 * It trusts sl_plan_verify for the meaning of a plan, and checks for itself that the engine never
 * touches memory that is not its own.
 *
 * A command is bound for repetition 0 of its section. Only places that move have a stride; so a
 * command without such places costs nothing more in a repeated section.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/array.h"

/* ---- sections ---- */

/* Refuses sections that do not cover the plan's body in order; counts repetitions. */
static sl_status check_sections(sl_bound_plan *bound)
{
    const sl_plan *plan = bound->plan;
    uint64_t next = 0, repetitions = 0;
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        if (section->first != next || section->repeat == 0 || section->repeat > SL_TAG_REPETITIONS)
            SL_FAIL(SL_ERROR_INTERNAL,
                    "section %u is run %u times from command %u on, behind command %" PRIu64, s,
                    section->repeat, section->first, next);
        next += section->count;
        repetitions += section->repeat;
    }
    if (next != plan->body_count || repetitions > UINT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL,
                "%u sections of %" PRIu64 " commands, run %" PRIu64 " times, for a body of %u",
                plan->section_count, next, repetitions, plan->body_count);
    bound->repetition_count = (uint32_t)repetitions;
    bound->repetitions_ahead = sl_plan_repetitions_ahead(bound->plan);
    return SL_OK;
}

sl_status sl_bound_plan_add_stride(sl_bound_plan *bound, sl_bound_command *command, uint32_t which,
                                   const sl_place *place)
{
    if (place->slots <= 1 || place->bytes == 0)
        return SL_OK;
    SL_TRY(SL_ARRAY_GROW(bound->strides, bound->stride_count, bound->stride_capacity, "strides"));
    if (command->stride_count == 0)
        command->first_stride = bound->stride_count;
    bound->strides[bound->stride_count++] =
        (sl_bound_stride){.place = which, .slots = place->slots, .stride = place->stride};
    command->stride_count++;
    return SL_OK;
}

/* ---- commands ---- */

sl_status sl_bound_plan_find_address(const sl_engine *engine, sl_bound_command *bound,
                                     const sl_place *place, void **out_address)
{
    *out_address = NULL;
    if (place->bytes == 0)
        return SL_OK;
    SL_TRY(sl_arena_at(engine, place, out_address));
    uint64_t end = place->offset + sl_place_extent(place);
    if (end > bound->touched_end[place->tier])
        bound->touched_end[place->tier] = end;
    return SL_OK;
}

static sl_status bind_command(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if ((unsigned)command->lane >= SL_LANE_COUNT || !engine->lanes[command->lane].stream)
        SL_FAIL(SL_ERROR_INTERNAL, "a command for lane %d, which this engine lacks",
                (int)command->lane);
    bool is_run = command->kind == SL_COMMAND_RUN;
    bool is_disk = command->lane == SL_LANE_READ || command->lane == SL_LANE_WRITE;
    if (is_run ? is_disk : command->lane == SL_LANE_INPUT)
        SL_FAIL(SL_ERROR_INTERNAL, "the %s lane cannot %s of tick %u", sl_lane_name(command->lane),
                is_run ? "run the op" : "make the copy", command->tick);
    return is_run ? sl_op_kernels_bind(engine, plan, bound) : sl_copies_bind(engine, plan, bound);
}

/* ---- waits ---- */

/* Opens the events of the last `age` + 1 issues. */
static sl_status open_events(const sl_engine *engine, sl_bound_command *bound, uint32_t age)
{
    for (uint32_t i = 0; i <= age; i++) {
        if (!bound->events[i])
            SL_TRY(engine->ops->event_open(engine->device, &bound->events[i]));
    }
    return SL_OK;
}

/* A lane works in order, so waits for its own commands are left out. */
static sl_status bind_waits(const sl_engine *engine, sl_bound_plan *bound, uint32_t index)
{
    sl_bound_command *waiter = &bound->body[index];
    const sl_command *command = waiter->command;
    if ((uint64_t)command->first_wait + command->wait_count > bound->plan->wait_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the waits of command %u are not in the plan", index);
    waiter->first_wait = bound->wait_count;
    for (uint32_t i = 0; i < command->wait_count; i++) {
        const sl_wait *wait = &bound->plan->waits[command->first_wait + i];
        if (wait->command >= bound->plan->body_count || wait->age > 1)
            SL_FAIL(SL_ERROR_INTERNAL, "command %u waits for command %u, %u issues back", index,
                    wait->command, wait->age);
        sl_bound_command *target = &bound->body[wait->command];
        if (target->command->lane == command->lane)
            continue;
        SL_TRY(open_events(engine, target, wait->age));
        bound->waits[bound->wait_count++] =
            (sl_bound_wait){.command = wait->command,
                            .age = wait->age,
                            .tag = sl_statistics_tag_wait(target->command->lane, target->tag)};
    }
    waiter->wait_count = bound->wait_count - waiter->first_wait;
    return SL_OK;
}

/* ---- inputs and outputs ---- */

static sl_status open_input_and_output_slots(sl_bound_plan *bound)
{
    for (uint32_t i = 0; i < bound->program->value_count; i++) {
        const sl_value *value = &bound->program->values[i];
        uint32_t *count = value->kind == SL_VALUE_INPUT    ? &bound->input_count
                          : value->kind == SL_VALUE_OUTPUT ? &bound->output_count
                                                           : NULL;
        if (!count)
            continue;
        if (value->index == SL_NONE)
            SL_FAIL(SL_ERROR_INTERNAL, "value %u has no slot", i);
        *count = value->index + 1 > *count ? value->index + 1 : *count;
    }
    bound->inputs = calloc((size_t)bound->input_count + 1, sizeof *bound->inputs);
    bound->outputs = calloc((size_t)bound->output_count + 1, sizeof *bound->outputs);
    bound->is_filled = calloc((size_t)bound->input_count + 1, sizeof *bound->is_filled);
    if (!bound->inputs || !bound->outputs || !bound->is_filled)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the slots of a plan");
    return SL_OK;
}

static void mark_filled_inputs(sl_bound_plan *bound)
{
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        if (bound->plan->body[i].lane == SL_LANE_INPUT)
            bound->is_filled[bound->body[i].input_slot] = true;
    }
}

/* The value of a copy if it is an output, or an input that the caller writes; else NULL. */
static const sl_value *find_handed_value(const sl_bound_plan *bound, const sl_command *command)
{
    if (command->kind != SL_COMMAND_COPY || command->chunk_index != SL_NONE ||
        command->value >= bound->program->value_count)
        return NULL;
    const sl_value *value = &bound->program->values[command->value];
    bool is_handed_in = value->kind == SL_VALUE_INPUT && !bound->is_filled[value->index];
    return is_handed_in || value->kind == SL_VALUE_OUTPUT ? value : NULL;
}

/* Finds the memory where the caller writes an input or reads an output: the host end of its
 * copy. */
static sl_status bind_host_slot(const sl_engine *engine, sl_bound_plan *bound,
                                const sl_command *command)
{
    const sl_value *value = find_handed_value(bound, command);
    if (!value)
        return SL_OK;
    bool is_input = value->kind == SL_VALUE_INPUT;
    const sl_place *place = is_input ? &command->from : &command->to;
    void **slot = is_input ? &bound->inputs[value->index] : &bound->outputs[value->index];
    void *address = NULL;
    SL_TRY(sl_arena_at(engine, place, &address));
    if (place->tier != SL_TIER_HOST || place->slots > 1 || (*slot && *slot != address))
        SL_FAIL(SL_ERROR_INTERNAL, "%s slot %u has no one place on the host",
                is_input ? "input" : "output", value->index);
    *slot = address;
    return SL_OK;
}

/* Finds the commands that a step waits for: copies of inputs and outputs, and INPUT ops. For the
 * others later commands wait by their own waits. */
static sl_status find_awaited(const sl_engine *engine, sl_bound_plan *bound)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        bound->last_awaited[lane] = SL_NONE;
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        const sl_command *command = &bound->plan->body[i];
        if (command->lane == SL_LANE_INPUT || find_handed_value(bound, command))
            bound->last_awaited[command->lane] = i;
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (bound->last_awaited[lane] != SL_NONE)
            SL_TRY(open_events(engine, &bound->body[bound->last_awaited[lane]], 0));
    }
    return SL_OK;
}

/* ---- the whole plan ---- */

static sl_status allocate_commands(sl_bound_plan *bound)
{
    const sl_plan *plan = bound->plan;
    bound->prologue = calloc((size_t)plan->prologue_count + 1, sizeof *bound->prologue);
    bound->body = calloc((size_t)plan->body_count + 1, sizeof *bound->body);
    bound->waits = calloc((size_t)plan->wait_count + 1, sizeof *bound->waits);
    if (!bound->prologue || !bound->body || !bound->waits)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan of %u commands", plan->body_count);
    return SL_OK;
}

static sl_status bind_prologue(const sl_engine *engine, sl_bound_plan *bound)
{
    for (uint32_t i = 0; i < bound->plan->prologue_count; i++) {
        const sl_command *command = &bound->plan->prologue[i];
        if (command->kind != SL_COMMAND_COPY)
            SL_FAIL(SL_ERROR_INTERNAL, "command %u of the prologue is not a copy", i);
        bound->prologue[i].command = command;
        bound->prologue[i].tag = sl_statistics_tag(SL_TAG_PROLOGUE);
        SL_TRY(bind_command(engine, bound, &bound->prologue[i]));
    }
    return SL_OK;
}

static sl_status bind_body(const sl_engine *engine, sl_bound_plan *bound)
{
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        const sl_command *command = &bound->plan->body[i];
        bound->body[i].command = command;
        SL_TRY(bind_command(engine, bound, &bound->body[i]));
        bound->body[i].tag = sl_statistics_tag_body((uint32_t)(bound - engine->plans), bound, i);
    }
    mark_filled_inputs(bound);
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        SL_TRY(bind_host_slot(engine, bound, &bound->plan->body[i]));
        SL_TRY(bind_waits(engine, bound, i));
    }
    return find_awaited(engine, bound);
}

sl_status sl_bound_plan_open(sl_engine *engine, const sl_engine_plan *source,
                             sl_bound_plan *out_bound)
{
    out_bound->program = source->program;
    out_bound->plan = source->plan;
    if (source->plan->body_count > SL_TAG_COMMANDS)
        SL_FAIL(SL_ERROR_INTERNAL, "a body of %u commands", source->plan->body_count);
    SL_TRY(check_sections(out_bound));
    SL_TRY(allocate_commands(out_bound));
    SL_TRY(open_input_and_output_slots(out_bound));
    SL_TRY(bind_prologue(engine, out_bound));
    return bind_body(engine, out_bound);
}

void sl_bound_plan_close(sl_engine *engine, sl_bound_plan *bound)
{
    for (uint32_t i = 0; bound->body && i < bound->plan->body_count; i++) {
        for (int age = 0; age < 2; age++) {
            if (bound->body[i].events[age])
                engine->ops->event_close(bound->body[i].events[age]);
        }
    }
    free(bound->prologue);
    free(bound->body);
    free(bound->waits);
    free(bound->strides);
    free(bound->is_filled);
    free(bound->inputs);
    free(bound->outputs);
}
