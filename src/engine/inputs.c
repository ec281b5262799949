/* The input lane: INPUT ops, which call the caller's source for the inputs of a micro-batch. Knows
 * nothing of the contents of inputs.
 *
 * Only the lane's thread calls the source, for one input after the other, and never after a lane
 * has failed.
 */
#include "engine_internal.h"

static bool has_input_ops(const sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->body_count; i++) {
        if (plan->body[i].lane == SL_LANE_INPUT)
            return true;
    }
    return false;
}

sl_status sl_inputs_open(sl_engine *engine, const sl_engine_options *options, bool *out_has_inputs)
{
    *out_has_inputs = false;
    for (uint32_t i = 0; i < options->plan_count; i++)
        *out_has_inputs = *out_has_inputs || has_input_ops(options->plans[i].plan);
    if (options->source)
        engine->source = *options->source;
    if (*out_has_inputs && !engine->source.fill)
        SL_FAIL(SL_ERROR_USAGE, "a plan asks for inputs, and the engine has no source of them");
    return SL_OK;
}

sl_status sl_inputs_bind(sl_bound_plan *plan, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    const sl_program *program = plan->program;
    const sl_op *op = &program->ops[command->tick];
    const sl_place *place = &plan->plan->places[command->first_place];
    uint32_t value = op->operand[0];
    if (op->kind != SL_OP_INPUT || command->place_count < 2 || place->bytes == 0 ||
        place->tier != SL_TIER_HOST || value >= program->value_count ||
        program->values[value].kind != SL_VALUE_INPUT)
        SL_FAIL(SL_ERROR_INTERNAL, "the op of tick %u does not fill an input on the host",
                command->tick);
    bound->bytes = place->bytes;
    bound->input_slot = program->values[value].index;
    return SL_OK;
}

/* ---- issuing ---- */

typedef struct fill_args {
    sl_engine_source source;
    sl_engine_fill what;
    void *memory;
    _Atomic uint32_t *failed_lane;
} fill_args;

_Static_assert(sizeof(fill_args) <= SL_QUEUE_ARGUMENT_BYTES, "a request fits a queue's item");

static sl_status fill_input(void *arguments);

sl_status sl_inputs_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                          uint64_t tag, const sl_kernel_call *call)
{
    sl_engine *engine = repetition->engine;
    fill_args args = {.source = engine->source,
                      .what = {.plan_index = (uint32_t)(repetition->plan - engine->plans),
                               .slot = bound->input_slot,
                               .micro_batch = call->micro_batch,
                               .bytes = bound->bytes},
                      .memory = call->operand[0],
                      .failed_lane = &engine->failed_lane};
    return engine->ops->launch(engine->lanes[SL_LANE_INPUT].stream, tag, fill_input, &args,
                               sizeof args);
}

/* ---- in the lane's thread ---- */

static sl_status fill_input(void *arguments)
{
    const fill_args *args = arguments;
    if (atomic_load(args->failed_lane) != SL_NONE)
        return SL_OK; /* the iteration is lost */
    sl_status status = args->source.fill(args->source.user, &args->what, args->memory);
    if (status == SL_OK)
        return SL_OK;
    sl_step_mark_failed_lane(args->failed_lane, SL_LANE_INPUT);
    SL_FAIL(status, "%s (input %u of micro-batch %u)", sl_status_message(), args->what.slot,
            args->what.micro_batch);
}
