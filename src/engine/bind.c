/* Binds a plan: every index becomes a pointer, every wait an event, once, when the engine opens.
 *
 * It trusts sl_plan_verify for what a plan means, and checks for itself whatever would make the
 * engine touch memory that is not its own.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

/* ---- addresses ---- */

static sl_status bind_place(const sl_engine *engine, const sl_place *place, sl_bound_command *bound,
                            void **out_address)
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

/* Hands AdamW the flags of the tier it runs on. */
static sl_status bind_flags(const sl_engine *engine, const sl_op *op, sl_bound_command *bound)
{
    const sl_homes *homes = engine->options.homes;
    sl_tier tier = bound->command->lane == SL_LANE_HOST ? SL_TIER_HOST : SL_TIER_DEVICE;
    sl_place place = {tier, homes->flags_offset[tier], homes->flags_bytes[tier]};
    uint64_t blocks = sl_bits_divide_up(op->attrs.element_count, SL_BLOCK_ELEMENTS);
    uint64_t end;
    if (__builtin_add_overflow(op->attrs.first_block, blocks, &end) || end > place.bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "there are no block flags for the update of tick %u",
                bound->command->tick);
    void *flags;
    SL_TRY(bind_place(engine, &place, bound, &flags));
    bound->call.block_flags = flags;
    return SL_OK;
}

static sl_status bind_operands(const sl_engine *engine, sl_bound_plan *plan_bound,
                               sl_bound_command *bound)
{
    const sl_plan *plan = plan_bound->plan;
    const sl_command *command = bound->command;
    uint64_t end = (uint64_t)command->first_place + command->place_count;
    if (command->place_count == 0 || command->place_count > SL_OPERAND_MAX + 1 ||
        end > plan->place_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the command of tick %u has %u places", command->tick,
                command->place_count);
    const sl_place *places = plan->places + command->first_place;
    uint32_t operand_count = command->place_count - 1;
    for (uint32_t i = 0; i < operand_count; i++) {
        SL_TRY(bind_place(engine, &places[i], bound, &bound->call.operand[i]));
        SL_TRY(sl_sections_add_stride(plan_bound, bound, i, &places[i]));
    }
    SL_TRY(bind_place(engine, &places[operand_count], bound, &bound->call.workspace));
    return sl_sections_add_stride(plan_bound, bound, SL_BOUND_WORKSPACE, &places[operand_count]);
}

/* Who runs an op, and with what beside its operands. */
static sl_status bind_kernel(const sl_engine *engine, const sl_op *op, sl_bound_command *bound)
{
    sl_lane lane = bound->command->lane;
    const sl_kernel_table *kernels = lane == SL_LANE_HOST ? engine->host_kernels : engine->kernels;
    SL_TRY(sl_kernels_find(kernels, op->kind, &bound->kernel));
    bound->call.workers = engine->workers;
    bound->call.stream = engine->ops->stream_native(engine->lanes[lane].stream);
    bound->call.library = lane == SL_LANE_HOST ? NULL : engine->library;
    return SL_OK;
}

static sl_status bind_run(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if (command->tick >= plan->program->op_count)
        SL_FAIL(SL_ERROR_INTERNAL, "tick %u is not in the program", command->tick);
    const sl_op *op = &plan->program->ops[command->tick];
    bound->op_kind = op->kind;
    bound->call.attrs = &op->attrs;
    bound->call.micro_batch = op->micro_batch;
    SL_TRY(bind_operands(engine, plan, bound));
    if (command->lane == SL_LANE_INPUT)
        return sl_inputs_bind(plan, bound);
    SL_TRY(bind_kernel(engine, op, bound));
    return op->kind == SL_OP_ADAMW ? bind_flags(engine, op, bound) : SL_OK;
}

static sl_status bind_copy(const sl_engine *engine, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if (command->from.bytes != command->to.bytes || command->from.bytes == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a copy of %" PRIu64 " bytes to %" PRIu64, command->from.bytes,
                command->to.bytes);
    void *from;
    SL_TRY(bind_place(engine, &command->from, bound, &from));
    SL_TRY(bind_place(engine, &command->to, bound, &bound->ends.to));
    bound->ends.from = from;
    bound->bytes = command->from.bytes;
    return SL_OK;
}

/* The name of an activation, input or output that is copied, for messages. */
static const char *find_value_name(const sl_program *program, const sl_command *command)
{
    bool is_value = command->chunk_index == SL_NONE && command->value < program->value_count;
    return is_value ? program->values[command->value].name : NULL;
}

/* A copy in any lane that can make it. */
static sl_status bind_copy_command(const sl_engine *engine, sl_bound_plan *plan,
                                   sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if (command->lane == SL_LANE_READ || command->lane == SL_LANE_WRITE)
        SL_TRY(sl_disk_bind(engine, bound));
    else
        SL_TRY(bind_copy(engine, bound));
    SL_TRY(sl_sections_add_stride(plan, bound, SL_BOUND_FROM, &command->from));
    return sl_sections_add_stride(plan, bound, SL_BOUND_TO, &command->to);
}

static sl_status bind_command(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if ((unsigned)command->lane >= SL_LANE_COUNT || !engine->lanes[command->lane].stream)
        SL_FAIL(SL_ERROR_INTERNAL, "a command for lane %d, which this engine lacks",
                (int)command->lane);
    bound->value_name = find_value_name(plan->program, command);
    bool is_run = command->kind == SL_COMMAND_RUN;
    bool is_disk = command->lane == SL_LANE_READ || command->lane == SL_LANE_WRITE;
    if (is_run ? is_disk : command->lane == SL_LANE_INPUT)
        SL_FAIL(SL_ERROR_INTERNAL, "the %s lane cannot %s of tick %u", sl_lane_name(command->lane),
                is_run ? "run the op" : "make the copy", command->tick);
    return is_run ? bind_run(engine, plan, bound) : bind_copy_command(engine, plan, bound);
}

/* ---- waits ---- */

/* Asks for events that reach `age` issues back. */
static sl_status ask_for_events(const sl_engine *engine, sl_bound_command *bound, uint32_t age)
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
        SL_TRY(ask_for_events(engine, target, wait->age));
        bound->waits[bound->wait_count++] =
            (sl_bound_wait){.command = wait->command,
                            .age = wait->age,
                            .tag = sl_measure_tag_wait(target->command->lane)};
    }
    waiter->wait_count = bound->wait_count - waiter->first_wait;
    return SL_OK;
}

/* ---- inputs and outputs ---- */

static sl_status count_slots(sl_bound_plan *bound)
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

static void note_filled(sl_bound_plan *bound)
{
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        if (bound->plan->body[i].lane == SL_LANE_INPUT)
            bound->is_filled[bound->body[i].input_slot] = true;
    }
}

/* The value of a copy, if it is an output, or an input that the caller hands in; else NULL. */
static const sl_value *find_slot_value(const sl_bound_plan *bound, const sl_command *command)
{
    if (command->kind != SL_COMMAND_COPY || command->chunk_index != SL_NONE ||
        command->value >= bound->program->value_count)
        return NULL;
    const sl_value *value = &bound->program->values[command->value];
    bool is_handed_in = value->kind == SL_VALUE_INPUT && !bound->is_filled[value->index];
    return is_handed_in || value->kind == SL_VALUE_OUTPUT ? value : NULL;
}

/* Notes the host end of a copy of an input or output. */
static sl_status bind_slot(const sl_engine *engine, sl_bound_plan *bound, const sl_command *command)
{
    const sl_value *value = find_slot_value(bound, command);
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

/* A step waits for what it promises: copies of inputs and outputs, and that its inputs were asked
 * for. Whatever else runs on, later commands wait for by their own waits. */
static sl_status bind_awaited(const sl_engine *engine, sl_bound_plan *bound)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        bound->last_awaited[lane] = SL_NONE;
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        const sl_command *command = &bound->plan->body[i];
        if (command->lane == SL_LANE_INPUT || find_slot_value(bound, command))
            bound->last_awaited[command->lane] = i;
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (bound->last_awaited[lane] != SL_NONE)
            SL_TRY(ask_for_events(engine, &bound->body[bound->last_awaited[lane]], 0));
    }
    return SL_OK;
}

/* ---- the whole plan ---- */

static sl_status allocate(sl_bound_plan *bound)
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
        bound->prologue[i].tag = sl_measure_tag(SL_TAG_PROLOGUE);
        SL_TRY(bind_command(engine, bound, &bound->prologue[i]));
    }
    return SL_OK;
}

static sl_status bind_body(const sl_engine *engine, sl_bound_plan *bound)
{
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        const sl_command *command = &bound->plan->body[i];
        bound->body[i].command = command;
        bound->body[i].tag = sl_measure_tag_body((uint32_t)(bound - engine->plans), i);
        SL_TRY(bind_command(engine, bound, &bound->body[i]));
    }
    note_filled(bound);
    for (uint32_t i = 0; i < bound->plan->body_count; i++) {
        SL_TRY(bind_slot(engine, bound, &bound->plan->body[i]));
        SL_TRY(bind_waits(engine, bound, i));
    }
    return bind_awaited(engine, bound);
}

sl_status sl_bind_open(sl_engine *engine, const sl_engine_plan *source, sl_bound_plan *out_bound)
{
    out_bound->program = source->program;
    out_bound->plan = source->plan;
    if (source->plan->body_count > SL_TAG_COMMANDS)
        SL_FAIL(SL_ERROR_INTERNAL, "a body of %u commands", source->plan->body_count);
    SL_TRY(sl_sections_check(out_bound));
    SL_TRY(allocate(out_bound));
    SL_TRY(count_slots(out_bound));
    SL_TRY(bind_prologue(engine, out_bound));
    return bind_body(engine, out_bound);
}

void sl_bind_close(sl_engine *engine, sl_bound_plan *bound)
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
