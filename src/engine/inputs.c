/* The input lane: INPUT ops, which ask the caller's source for the inputs of a micro-batch. Knows
 * nothing of what inputs are.
 *
 * The source is called by the lane's thread alone, for one input after the other, and not after any
 * lane has failed.
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

sl_status sl_inputs_bind(sl_bound_plan *bound, sl_bound_command *command)
{
    const sl_plan *plan = bound->plan;
    const sl_program *program = bound->program;
    const sl_op *op = &program->ops[command->command->tick];
    const sl_place *place = &plan->places[command->command->first_place];
    uint32_t value = op->operand[0];
    if (op->kind != SL_OP_INPUT || command->command->place_count < 2 || place->bytes == 0 ||
        place->tier != SL_TIER_HOST || value >= program->value_count ||
        program->values[value].kind != SL_VALUE_INPUT)
        SL_FAIL(SL_ERROR_INTERNAL, "the op of tick %u does not fill an input on the host",
                command->command->tick);
    command->bytes = place->bytes;
    command->input_slot = program->values[value].index;
    return SL_OK;
}

/* ---- in the lane's thread ---- */

typedef struct fill_job {
    sl_engine_source source;
    sl_engine_fill what;
    void *memory;
    _Atomic uint32_t *failed_lane;
} fill_job;

_Static_assert(sizeof(fill_job) <= SL_QUEUE_ARGUMENT_BYTES, "a job fits a queue's item");

static sl_status run_fill(void *arguments)
{
    const fill_job *job = arguments;
    if (atomic_load(job->failed_lane) != SL_NONE)
        return SL_OK; /* the iteration is lost */
    sl_status status = job->source.fill(job->source.user, &job->what, job->memory);
    if (status == SL_OK)
        return SL_OK;
    sl_walk_note_failure(job->failed_lane, SL_LANE_INPUT);
    return sl_status_prefix(status, "input %u of micro-batch %u on the input lane", job->what.slot,
                            job->what.micro_batch);
}

sl_status sl_inputs_issue(sl_engine *engine, uint32_t plan_index, const sl_bound_command *bound,
                          uint64_t tag, const sl_kernel_call *call)
{
    fill_job job = {.source = engine->source,
                    .what = {.plan_index = plan_index,
                             .slot = bound->input_slot,
                             .micro_batch = call->micro_batch,
                             .bytes = bound->bytes},
                    .memory = call->operand[0],
                    .failed_lane = &engine->failed_lane};
    return engine->ops->launch(engine->lanes[SL_LANE_INPUT].stream, tag, run_fill, &job,
                               sizeof job);
}
