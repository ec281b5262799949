/* The training loop, from the last function upwards.
 *
 *   sl_loop_run    all steps, then the end is told, also on failure
 *   run_steps      while there are steps to do and no signal has come: a step; a checkpoint and an
 *                  evaluation where they are due, in this order, for an evaluation may take long.
 *                  At the end both once more, if they are missing
 */
#include "loop.h"

#include <stdio.h>
#include <string.h>

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
    SL_TRY(sl_engine_drain(trainer->runtime->engine));
    return sl_training_draw(training);
}

sl_status sl_loop_run(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                      sl_end_report *out_end)
{
    sl_training training;
    sl_sinks *sinks = &trainer->sinks;
    sl_training_begin(trainer, stop, &training);
    sl_status status = run_steps(&training);
    sl_status end_status = sl_training_count_end(&training, status != SL_OK);
    status = status == SL_OK ? end_status : status;
    if (status != SL_OK)
        training.end.reason = "error";
    *out_end = training.end;
    if (status == SL_OK)
        status = sl_sinks_end(sinks, &training.end);
    if (status == SL_OK && sinks->failure.status != SL_OK)
        SL_FAIL(sinks->failure.status, "%s; the run itself is complete", sinks->failure.message);
    if (status == SL_OK)
        return SL_OK;
    /* The failure stands; whether a sink takes one more record is second to it. */
    char message[SL_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", sl_status_message());
    (void)sl_sinks_end(sinks, &training.end);
    SL_FAIL(status, "%s", message);
}
