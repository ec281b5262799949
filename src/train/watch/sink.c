/* A walk over the sinks for each kind of record. */
#include "sink.h"

#include <assert.h>

#include "base/log.h"

void sl_sinks_add(sl_sinks *sinks, const sl_sink_ops *ops, void *self)
{
    assert(sinks->count < SL_SINK_MAX);
    sinks->sinks[sinks->count++] = (sl_sink){.ops = ops, .self = self};
}

void sl_sinks_close(sl_sinks *sinks)
{
    for (uint32_t i = 0; i < sinks->count; i++)
        if (sinks->sinks[i].ops->close)
            sinks->sinks[i].ops->close(sinks->sinks[i].self);
    sinks->count = 0;
}

sl_status sl_sinks_outlive(sl_sinks *sinks, sl_status status, bool *has_failed)
{
    if (status != SL_ERROR_IO)
        return status;
    if (!*has_failed)
        sl_log_write(SL_LOG_WARNING, "%s: the run goes on, and ends with exit code %d",
                     sl_status_message(), sl_status_exit_code(status));
    *has_failed = true;
    sl_first_failure_keep(&sinks->failure, status);
    return SL_OK;
}

/* Calls an entry of every sink that has it. */
#define TELL_ALL(sinks, entry, ...)                                                                \
    do {                                                                                           \
        for (uint32_t i_ = 0; i_ < (sinks)->count; i_++) {                                         \
            sl_sink *sink_ = &(sinks)->sinks[i_];                                                  \
            if (sink_->ops->entry)                                                                 \
                SL_TRY(sl_sinks_outlive((sinks), sink_->ops->entry(__VA_ARGS__),                   \
                                        &sink_->has_failed));                                      \
        }                                                                                          \
    } while (0)

sl_status sl_sinks_start(sl_sinks *sinks, const sl_start_report *report)
{
    for (uint32_t i = 0; i < sinks->count; i++)
        if (sinks->sinks[i].ops->start)
            SL_TRY(sinks->sinks[i].ops->start(sinks->sinks[i].self, report));
    return SL_OK;
}

sl_status sl_sinks_step(sl_sinks *sinks, const sl_step_report *report)
{
    TELL_ALL(sinks, step, sink_->self, report);
    return SL_OK;
}

void sl_sinks_evaluating(sl_sinks *sinks, const char *set, const sl_eval_progress *progress)
{
    for (uint32_t i = 0; i < sinks->count; i++)
        if (sinks->sinks[i].ops->evaluating)
            sinks->sinks[i].ops->evaluating(sinks->sinks[i].self, set, progress);
}

sl_status sl_sinks_eval(sl_sinks *sinks, const sl_eval_report *report)
{
    sl_eval_report named = *report;
    if (!named.set)
        named.set = "eval";
    TELL_ALL(sinks, eval, sink_->self, &named);
    return SL_OK;
}

sl_status sl_sinks_sample(sl_sinks *sinks, const sl_sample_report *report)
{
    TELL_ALL(sinks, sample, sink_->self, report);
    return SL_OK;
}

sl_status sl_sinks_saving(sl_sinks *sinks)
{
    TELL_ALL(sinks, saving, sink_->self);
    return SL_OK;
}

sl_status sl_sinks_saved(sl_sinks *sinks, uint64_t step, const char *directory)
{
    TELL_ALL(sinks, saved, sink_->self, step, directory);
    return SL_OK;
}

sl_status sl_sinks_end(sl_sinks *sinks, const sl_end_report *report)
{
    TELL_ALL(sinks, end, sink_->self, report);
    return SL_OK;
}
