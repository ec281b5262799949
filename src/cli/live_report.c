/* A sink that collects the curves of the run, and writes a page of them and of the plan. A page
 * that cannot be written never ends the run: such a failure is one of writing, whatever its cause.
 */
#include "live_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "files/page_file.h"
#include "report/history_log.h"
#include "report/history_page.h"
#include "report/page.h"
#include "train/watch/log_json.h"

typedef struct live_report {
    const sl_trainer *trainer;
    sl_report_draft *draft; /* made with the first page */
    sl_history run;
    sl_report_measured measured; /* of this start's steps */
    double seconds;              /* of these steps */
} live_report;

static void close_report(void *self)
{
    live_report *live = self;
    sl_report_draft_close(live->draft);
    sl_history_close(&live->run);
    free(live);
}

static sl_status write_page(live_report *live)
{
    const sl_trainer *trainer = live->trainer;
    const sl_report_args args = {.blueprint = trainer->runtime->blueprint};
    sl_status status = SL_OK;
    if (live->measured.step_count == 0) /* the page of an earlier start has more to tell */
        return SL_OK;
    live->measured.step_seconds = live->seconds / live->measured.step_count;
    if (!live->draft)
        status = sl_report_draft_open(&args, &live->draft);
    if (status == SL_OK)
        status = sl_report_draft_write(live->draft, trainer->config->report, &live->measured,
                                       &live->run);
    return status == SL_OK ? SL_OK : sl_status_prefix(SL_ERROR_IO, "--report");
}

static sl_status take_start(void *self, const sl_start_report *report)
{
    live_report *live = self;
    json_decref(live->run.config);
    live->run.config = json_incref(report->config);
    return SL_OK;
}

static sl_status take_step(void *self, const sl_step_report *report)
{
    live_report *live = self;
    const sl_history_step step = {
        .step = report->step,
        .tokens_total = report->tokens_total,
        .values = {[SL_HISTORY_LOSS] = report->loss,
                   [SL_HISTORY_LR] = report->learning_rate,
                   [SL_HISTORY_GRAD_NORM] = report->grad_norm,
                   [SL_HISTORY_STEP_MS] = report->step_ms,
                   [SL_HISTORY_TOKENS_PER_S] = report->tokens_per_s,
                   [SL_HISTORY_DEVICE_BYTES] = (double)report->peak_bytes[SL_TIER_DEVICE],
                   [SL_HISTORY_HOST_BYTES] = (double)report->peak_bytes[SL_TIER_HOST],
                   [SL_HISTORY_DISK_BYTES] = (double)report->peak_bytes[SL_TIER_DISK]},
        .is_skipped = report->skipped};
    sl_history_add_step(&live->run, &step);
    live->measured.step_count++;
    live->seconds += 1e-3 * report->step_ms;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (report->peak_bytes[tier] > live->measured.peak_bytes[tier])
            live->measured.peak_bytes[tier] = report->peak_bytes[tier];
    return SL_OK;
}

static sl_status take_eval(void *self, const sl_eval_report *report)
{
    live_report *live = self;
    sl_history_set set = SL_HISTORY_EVAL;
    for (int i = 0; i < SL_HISTORY_SETS; i++)
        if (strcmp(report->set, sl_history_set_name((sl_history_set)i)) == 0)
            set = (sl_history_set)i;
    sl_history_add_eval(&live->run, set, report->step, report->loss);
    return write_page(live);
}

static sl_status take_sample(void *self, const sl_sample_report *report)
{
    live_report *live = self;
    return sl_history_add_sample(&live->run, report->step, report->prompt, report->text);
}

/* Of a run that failed too: its curve may say why. */
static sl_status take_end(void *self, const sl_end_report *report)
{
    live_report *live = self;
    snprintf(live->run.reason, sizeof live->run.reason, "%s", report->reason);
    memcpy(live->measured.peak_bytes, report->measured_peak_bytes,
           sizeof live->measured.peak_bytes);
    return write_page(live);
}

/* What the run did before this start. */
static sl_status read_past(live_report *live)
{
    const sl_trainer *trainer = live->trainer;
    const char *log = trainer->config->log_json, *id = trainer->logs.run;
    const uint64_t step_end = trainer->state.step + 1;
    sl_history *run = &live->run;
    if (step_end == 1)
        return SL_OK;
    if (log && sl_log_json_is_own(log, id))
        SL_TRY(sl_history_log_read(log, step_end, run));
    *run->reason = '\0';
    return sl_history_page_read(trainer->config->report, id,
                                run->step_count > 0 ? run->first_step : step_end, run);
}

static sl_status open_run(live_report *live)
{
    SL_TRY(sl_history_open(SL_SERIES_CELLS, &live->run));
    snprintf(live->run.id, sizeof live->run.id, "%s", live->trainer->logs.run);
    live->run.predicted_step_ms = 1e3 * live->trainer->step_seconds;
    if (read_past(live) == SL_OK)
        return SL_OK;
    sl_log_write(SL_LOG_WARNING, "the curves of --report begin anew: %s", sl_status_message());
    sl_history_close(&live->run);
    SL_TRY(sl_history_open(SL_SERIES_CELLS, &live->run));
    snprintf(live->run.id, sizeof live->run.id, "%s", live->trainer->logs.run);
    return SL_OK;
}

sl_status sl_live_report_open(const sl_trainer *trainer, sl_sinks *sinks)
{
    static const sl_sink_ops ops = {.start = take_start,
                                    .step = take_step,
                                    .eval = take_eval,
                                    .sample = take_sample,
                                    .end = take_end,
                                    .close = close_report};
    if (!trainer->config->report || !sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    SL_TRY(sl_report_check(trainer->config->report, SL_PAGE_PLAN));
    live_report *live = calloc(1, sizeof *live);
    if (!live)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    live->trainer = trainer;
    const sl_status status = open_run(live);
    if (status != SL_OK)
        close_report(live);
    else
        sl_sinks_add(sinks, &ops, live);
    return status;
}
