/* The training loop, from the last function upwards.
 *
 *   sl_loop_run    all steps, then the end is told, also on failure
 *   run_steps      while there are steps to do and no signal has come: a step; a checkpoint and an
 *                  evaluation where they are due, in this order, for an evaluation may take long.
 *                  At the end both once more, if they are missing
 */
#include "loop.h"

#include "base/status.h"

static bool is_due(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

static sl_status run_steps(sl_training *training)
{
    sl_trainer *trainer = training->trainer;
    const sl_config *config = trainer->config;
    sl_step_report step;
    sl_eval_report evaluation;
    while (trainer->state.step < config->steps && !sl_training_must_stop(training)) {
        SL_TRY(sl_training_step(training, &step));
        SL_TRY(sl_training_compare(training)); /* before it is saved */
        if (config->save && is_due(trainer->state.step, config->save_every))
            SL_TRY(sl_training_save(training));
        if (is_due(trainer->state.step, config->eval_every))
            SL_TRY(sl_training_validate(training, &evaluation));
    }
    bool was_stopped = trainer->state.step < config->steps;
    bool has_news = training->end.run_steps > 0 || !was_stopped; /* else, first values alone */
    training->end.reason = was_stopped ? "signal" : "done";
    if (config->save && has_news && trainer->saved_step != trainer->state.step)
        SL_TRY(sl_training_save(training));
    if (!was_stopped && training->evaluated_step != trainer->state.step)
        SL_TRY(sl_training_validate(training, &evaluation));
    if (!was_stopped)
        SL_TRY(sl_training_test(training));
    sl_trainer_look_at_data(trainer);
    return sl_engine_drain(trainer->runtime->engine);
}

sl_status sl_loop_run(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                      sl_end_report *out_end)
{
    sl_training training;
    sl_first_failure failure = {0};
    sl_training_begin(trainer, stop, &training);
    const sl_status status = run_steps(&training);
    sl_first_failure_keep(&failure, status);
    sl_first_failure_keep(&failure, sl_training_end(&training, status != SL_OK));
    *out_end = training.end;
    return sl_first_failure_return(&failure);
}
