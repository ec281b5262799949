/* A session: options, a trainer, and the training that its caller drives step by step. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "files/json_file.h"
#include "options.h"
#include "search/plan_json.h"
#include "settings.h"
#include "train/loop.h"
#include "train/opening.h"

/* ---- opening ---- */

static sl_status take_options(const sl_options *options, sl_session *session)
{
    session->event = options->event;
    session->event_user = options->event_user;
    return sl_options_copy(options, &session->config, &session->trainer.inputs);
}

static sl_status open_parts(sl_session *session, const volatile sig_atomic_t *stop)
{
    sl_trainer *trainer = &session->trainer;
    SL_TRY(sl_trainer_meet_ranks(trainer, &session->config, stop));
    const sl_engine_progress within = sl_session_progress(session);
    SL_TRY(sl_opening_run(&session->config, trainer, session->event ? &within : NULL));
    sl_training_begin(trainer, &session->stop, &session->training);
    SL_TRY(sl_full_tensors_open(trainer->runtime->tensors, trainer->runtime->tensor_count,
                                &session->tensors));
    SL_TRY(sl_ranks_begin(&trainer->ranks));
    if (session->event)
        sl_session_add_sink(session);
    SL_TRY(sl_opening_tell(trainer));
    session->has_begun = true;
    return SL_OK;
}

static bool free_session(sl_session *session)
{
    sl_full_tensors_close(session->tensors);
    session->tensors = NULL;
    if (!sl_trainer_close(&session->trainer))
        return false;
    sl_config_clear(&session->config);
    free(session->account);
    free(session);
    return true;
}

sl_status sl_session_open(const sl_options *options, sl_session **out_session)
{
    SL_TRY(sl_options_check(options));
    sl_session *session = calloc(1, sizeof *session);
    if (!session)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a session");
    session->log = options->log;
    SL_LOG_ENTER(&session->log);
    sl_status status = take_options(options, session);
    if (status == SL_OK)
        status = open_parts(session, &options->stop);
    if (status == SL_OK) {
        sl_ranks_unhear(&session->trainer.ranks);
        *out_session = session;
        return SL_OK;
    }
    sl_first_failure failure = {0};
    sl_first_failure_keep(&failure, status);
    sl_trainer_leave_ranks(&session->trainer, status);
    (void)free_session(session);
    return sl_first_failure_return(&failure);
}

sl_status sl_session_note(sl_session *session, sl_status status, sl_first_failure *also)
{
    if (status == SL_OK)
        return status;
    sl_first_failure_keep(&session->failure, status);
    if (also)
        sl_first_failure_keep(also, status);
    sl_trainer_leave_ranks(&session->trainer, status);
    return status;
}

/* ---- closing ---- */

/* The logs end as those of the command do. */
static sl_status end_training(sl_session *session)
{
    if (!session->has_begun)
        return SL_OK;
    if (!session->training.end.reason)
        session->training.end.reason = sl_stop_is_set(&session->stop) ? "signal" : "done";
    return sl_training_end(&session->training, session->failure.status != SL_OK);
}

sl_status sl_session_close(sl_session *session)
{
    sl_first_failure failure = {0};
    if (!session)
        return SL_OK;
    SL_LOG_ENTER(&session->log);
    if (session->has_begun && session->failure.status == SL_OK)
        (void)sl_session_note(session, sl_engine_drain(session->trainer.runtime->engine), &failure);
    sl_first_failure_keep(&failure, end_training(session));
    sl_trainer_leave_ranks(&session->trainer, sl_first_failure_return(&failure));
    if (!free_session(session))
        SL_FAIL(SL_ERROR_SYSTEM, "a thread of the engine did not end");
    return sl_first_failure_return(&failure);
}

void sl_session_stop(sl_session *session)
{
    if (session)
        sl_stop_set(&session->stop);
}

sl_status sl_session_check(const sl_session *session)
{
    if (!session)
        SL_FAIL(SL_ERROR_USAGE, "the session is NULL");
    if (session->failure.status == SL_OK)
        return SL_OK;
    SL_FAIL(session->failure.status, "the session has failed before: %s", session->failure.message);
}

sl_status sl_session_check_running(const sl_session *session)
{
    SL_TRY(sl_session_check(session));
    if (sl_training_must_stop(&session->training))
        SL_FAIL(SL_ERROR_STOPPED, "the session was stopped");
    return SL_OK;
}

/* ---- what a session does ---- */

/* Copies as much of a result as the caller's struct holds. */
static void give_step(const sl_step_report *report, const sl_end_report *so_far,
                      sl_step_result *out_step)
{
    sl_step_result step = {.step = report->step,
                           .tokens = report->tokens,
                           .tokens_total = report->tokens_total,
                           .loss = report->loss,
                           .grad_norm = (double)report->grad_norm,
                           .learning_rate = (double)report->learning_rate,
                           .loss_scale = (double)report->loss_scale,
                           .seconds = 1e-3 * report->step_ms,
                           .is_skipped = report->skipped};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        step.peak_bytes[tier] = so_far->measured_peak_bytes[tier];
    step.moved_bytes[0] = report->moved_bytes[SL_LANE_H2D];
    step.moved_bytes[1] = report->moved_bytes[SL_LANE_D2H];
    step.moved_bytes[2] = report->moved_bytes[SL_LANE_READ];
    step.moved_bytes[3] = report->moved_bytes[SL_LANE_WRITE];
    sl_sized_fill(&step, sizeof step, out_step);
}

static sl_status run_step(sl_session *session, sl_step_report *report)
{
    SL_TRY(sl_training_step(&session->training, report));
    return sl_training_compare(&session->training);
}

sl_status sl_session_step(sl_session *session, sl_step_result *out_step)
{
    sl_step_report report;
    SL_SESSION_ENTER(session);
    SL_TRY(sl_session_check_running(session));
    if (out_step)
        SL_TRY(sl_sized_check("sl_step_result", out_step));
    const sl_status status = sl_session_note(session, run_step(session, &report), NULL);
    if (status == SL_OK && out_step)
        give_step(&report, &session->training.end, out_step);
    return status;
}

sl_status sl_session_train(sl_session *session, const char **out_reason)
{
    SL_SESSION_ENTER(session);
    SL_TRY(sl_session_check(session));
    SL_TRY(sl_session_note(session, sl_loop_steps(&session->training), NULL));
    if (out_reason)
        *out_reason = session->training.end.reason;
    return SL_OK;
}

sl_status sl_session_evaluate(sl_session *session, double *out_loss)
{
    sl_eval_report report;
    SL_SESSION_ENTER(session);
    SL_TRY(sl_session_check_running(session));
    if (!session->trainer.eval_loader.row)
        SL_FAIL(SL_ERROR_USAGE, "there are no data to evaluate on: set eval-data or split, or give "
                                "rows by sl_options_set_eval_rows");
    SL_TRY(sl_session_note(session, sl_training_validate(&session->training, &report), NULL));
    if (report.is_partial)
        SL_FAIL(SL_ERROR_STOPPED, "the session was stopped in an evaluation");
    *out_loss = report.loss;
    return SL_OK;
}

sl_status sl_session_save(sl_session *session)
{
    SL_SESSION_ENTER(session);
    SL_TRY(sl_session_check(session));
    if (!session->config.save)
        SL_FAIL(SL_ERROR_USAGE, "there is nowhere to save to: set the option save");
    const sl_status status = sl_training_save(&session->training);
    if (session->training.has_others) /* one rank alone would wait for the others */
        (void)sl_session_note(session, status, NULL);
    return status;
}

/* ---- what a session says of itself ---- */

sl_status sl_session_account(sl_session *session, const char **out_text)
{
    json_t *plan = NULL;
    SL_TRY(sl_session_check(session));
    if (!session->account) {
        SL_TRY(sl_plan_json_format(session->trainer.runtime->blueprint, &plan));
        SL_TRY(sl_api_format(plan, &session->account));
    }
    *out_text = session->account;
    return SL_OK;
}

sl_status sl_session_bytes(const sl_session *session, sl_planned_bytes *out_bytes)
{
    SL_TRY(sl_session_check(session));
    SL_TRY(sl_sized_check("sl_planned_bytes", out_bytes));
    sl_api_fill_bytes(session->trainer.runtime->blueprint, out_bytes);
    return SL_OK;
}

uint64_t sl_session_step_count(const sl_session *session)
{
    return session ? session->trainer.state.step : 0;
}

uint32_t sl_session_rank(const sl_session *session)
{
    const sl_comm *world = session ? session->trainer.ranks.world : NULL;
    return world ? sl_comm_rank(world) : 0;
}

uint32_t sl_session_rank_count(const sl_session *session)
{
    const sl_comm *world = session ? session->trainer.ranks.world : NULL;
    return world ? sl_comm_size(world) : 1;
}

const char *sl_session_options(const sl_session *session)
{
    return session ? session->trainer.config_json : NULL;
}
