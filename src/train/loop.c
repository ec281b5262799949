/* The training loop, from the last function upwards.
 *
 *   sl_loop_run    all steps, then the end is told, also on failure
 *   sl_loop_steps  while there are steps to do, --patience has not run out and no signal has come:
 *                  a step, and what is due behind it. At the end both a checkpoint and an
 *                  evaluation, if they are missing
 *   follow_step    a text, a checkpoint and an evaluation where they are due, in this order: the
 *                  run that goes on from the checkpoint has the text; an evaluation may take long
 */
#include "loop.h"

#include "base/status.h"
#include "best.h"

static bool is_due(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

static sl_status evaluate(sl_training *training)
{
    sl_eval_report evaluation;
    return sl_training_validate(training, &evaluation);
}

/* The last run may have been killed between a save and the evaluation behind it. */
static sl_status make_up_for_evaluation(sl_training *training)
{
    const sl_trainer *trainer = training->trainer;
    const sl_checkpoint_state *state = &trainer->state;
    const bool is_made = state->eval_count > 0 && state->evaluated_step == state->step;
    if (state->step == 0 || is_made || !sl_best_decides(trainer->config) ||
        !is_due(state->step, trainer->config->eval_every))
        return SL_OK;
    return evaluate(training);
}

static sl_status follow_step(sl_training *training)
{
    const sl_config *config = training->trainer->config;
    const uint64_t step = training->trainer->state.step;
    SL_TRY(sl_training_compare(training)); /* before it is saved */
    if (is_due(step, config->sample_every))
        SL_TRY(sl_training_sample(training));
    if (config->save && (is_due(step, config->save_every) || sl_training_must_save(training)))
        SL_TRY(sl_training_save(training));
    return is_due(step, config->eval_every) ? evaluate(training) : SL_OK;
}

static sl_status save_last(sl_training *training)
{
    const sl_trainer *trainer = training->trainer;
    if (!trainer->config->save || trainer->saved_step == trainer->state.step)
        return SL_OK;
    return sl_training_save(training);
}

/* Where the run decides by its evaluations, the last checkpoint knows of the last one. */
static sl_status end_steps(sl_training *training, bool was_stopped)
{
    const sl_trainer *trainer = training->trainer;
    const bool evaluates = !was_stopped && training->evaluated_step != trainer->state.step;
    const bool evaluates_first = evaluates && sl_best_decides(trainer->config);
    if (evaluates_first)
        SL_TRY(evaluate(training));
    if (training->end.run_steps > 0 || !was_stopped) /* else, first values alone */
        SL_TRY(save_last(training));
    if (evaluates && !evaluates_first)
        SL_TRY(evaluate(training));
    return was_stopped ? SL_OK : sl_training_test(training);
}

sl_status sl_loop_steps(sl_training *training)
{
    sl_trainer *trainer = training->trainer;
    const sl_config *config = trainer->config;
    sl_step_report step;
    SL_TRY(make_up_for_evaluation(training));
    while (trainer->state.step < config->steps && !sl_best_is_stale(config, &trainer->state) &&
           !sl_training_must_stop(training)) {
        SL_TRY(sl_training_step(training, &step));
        SL_TRY(follow_step(training));
    }
    const bool is_stale = sl_best_is_stale(config, &trainer->state);
    const bool is_short = trainer->state.step < config->steps;
    training->end.reason = !is_short ? "done" : is_stale ? "patience" : "signal";
    SL_TRY(end_steps(training, is_short && !is_stale));
    sl_trainer_look_at_data(trainer);
    return sl_engine_drain(trainer->runtime->engine);
}

sl_status sl_loop_run(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                      sl_end_report *out_end)
{
    sl_training training;
    sl_first_failure failure = {0};
    sl_training_begin(trainer, stop, &training);
    const sl_status status = sl_loop_steps(&training);
    sl_first_failure_keep(&failure, status);
    sl_first_failure_keep(&failure, sl_training_end(&training, status != SL_OK));
    *out_end = training.end;
    return sl_first_failure_return(&failure);
}
