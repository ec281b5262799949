/* Events of a session, for its callback: what the trainer tells its sinks. */
#include "session.h"

static void tell(const sl_session *session, sl_event event)
{
    event.size = sizeof event;
    event.step = session->trainer.state.step;
    session->event(session->event_user, &event);
}

static sl_status tell_step(void *self, const sl_step_report *report)
{
    tell(self, (sl_event){.kind = SL_EVENT_STEP, .value = report->loss});
    return SL_OK;
}

static void tell_evaluating(void *self, const char *set, const sl_eval_progress *progress)
{
    (void)set;
    tell(self, (sl_event){.kind = SL_EVENT_IN_EVALUATION,
                          .done = progress->done,
                          .total = progress->total,
                          .value = progress->value});
}

static sl_status tell_evaluation(void *self, const sl_eval_report *report)
{
    tell(self, (sl_event){.kind = SL_EVENT_EVALUATION, .value = report->loss});
    return SL_OK;
}

static sl_status tell_sample(void *self, const sl_sample_report *report)
{
    tell(self, (sl_event){.kind = SL_EVENT_SAMPLE, .text = report->text});
    return SL_OK;
}

static sl_status tell_saving(void *self)
{
    tell(self, (sl_event){.kind = SL_EVENT_SAVING});
    return SL_OK;
}

static sl_status tell_saved(void *self, uint64_t step, const char *directory)
{
    (void)step;
    (void)directory;
    tell(self, (sl_event){.kind = SL_EVENT_SAVED});
    return SL_OK;
}

void sl_session_add_sink(sl_session *session)
{
    static const sl_sink_ops ops = {.step = tell_step,
                                    .evaluating = tell_evaluating,
                                    .eval = tell_evaluation,
                                    .sample = tell_sample,
                                    .saving = tell_saving,
                                    .saved = tell_saved};
    sl_sinks_add(&session->trainer.sinks, &ops, session);
}

static void tell_in_step(void *user, uint32_t plan_index, uint32_t done, uint32_t count)
{
    if (plan_index == 0)
        tell(user, (sl_event){.kind = SL_EVENT_IN_STEP, .done = done, .total = count});
}

sl_engine_progress sl_session_progress(sl_session *session)
{
    return (sl_engine_progress){tell_in_step, session};
}
