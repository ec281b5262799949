/* Whoever hears of a run: logs, event files, a person. One interface, and the set of those of a
 * run.
 *
 * A sink only tells of the run. One that cannot be written (SL_ERROR_IO) does not end it: that is
 * said once, it is told of later records all the same, and the run fails when it is complete and
 * saved. Only a start that cannot be written ends a run, before its first step.
 */
#ifndef SL_TRAIN_SINK_H
#define SL_TRAIN_SINK_H

#include "base/status.h"
#include "report.h"

/* Called by the thread of the loop; none allocates but `start` and `sample`. Entries may be NULL.
 */
typedef struct sl_sink_ops {
    sl_status (*start)(void *self, const sl_start_report *report);
    sl_status (*step)(void *self, const sl_step_report *report);
    /* An evaluation of that set is under way: before its first micro-batch, and after each. */
    void (*evaluating)(void *self, const char *set, const sl_eval_progress *progress);
    sl_status (*eval)(void *self, const sl_eval_report *report);
    sl_status (*sample)(void *self, const sl_sample_report *report);
    sl_status (*saving)(void *self); /* a save begins; `saved` follows, or the run fails */
    sl_status (*saved)(void *self, uint64_t step, const char *directory);
    sl_status (*end)(void *self, const sl_end_report *report); /* also of a run that failed */
    void (*close)(void *self);
} sl_sink_ops;

typedef struct sl_sink {
    const sl_sink_ops *ops;
    void *self; /* owned if there is a `close` */
    bool has_failed;
} sl_sink;

enum { SL_SINK_MAX = 8 };

/* Of one run; zeros: nobody hears of it. */
typedef struct sl_sinks {
    sl_sink sinks[SL_SINK_MAX];
    uint32_t count;
    sl_first_failure failure; /* that the run outlived */
} sl_sinks;

/* Adds one, of SL_SINK_MAX at most, and takes `self` over. */
void sl_sinks_add(sl_sinks *sinks, const sl_sink_ops *ops, void *self);
void sl_sinks_close(sl_sinks *sinks);

/* Each tells all sinks. A failure that comes back is none of writing, but for `start`. */
sl_status sl_sinks_start(sl_sinks *sinks, const sl_start_report *report);
sl_status sl_sinks_step(sl_sinks *sinks, const sl_step_report *report);
void sl_sinks_evaluating(sl_sinks *sinks, const char *set, const sl_eval_progress *progress);
sl_status sl_sinks_eval(sl_sinks *sinks, const sl_eval_report *report);
sl_status sl_sinks_sample(sl_sinks *sinks, const sl_sample_report *report);
sl_status sl_sinks_saving(sl_sinks *sinks);
sl_status sl_sinks_saved(sl_sinks *sinks, uint64_t step, const char *directory);
sl_status sl_sinks_end(sl_sinks *sinks, const sl_end_report *report);

/* The rule above, for what tells of the run and is no sink: keeps a failure of writing and returns
 * SL_OK; says so unless *has_failed, which it sets. */
sl_status sl_sinks_outlive(sl_sinks *sinks, sl_status status, bool *has_failed);

#endif
