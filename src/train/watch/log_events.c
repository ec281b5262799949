/* What a value means is told with the first step, and with every evaluation: those are few. */
#include "log_events.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "columns.h"
#include "files/event_file.h"

enum { TAG_BYTES = 96 };

typedef struct log_events {
    sl_event_file file;
    bool has_step;
} log_events;

static void close_log(void *self)
{
    log_events *log = self;
    sl_event_file_close(&log->file);
    free(log);
}

/* Adds the columns that have a tag, behind `prefix`. */
static void add_values(log_events *log, const sl_column *columns, const void *report,
                       const char *prefix, bool has_meaning)
{
    char tag[TAG_BYTES];
    for (const sl_column *column = columns; column->field.key; column++) {
        if (!column->tag)
            continue;
        double value = sl_fields_number(&column->field, report);
        if ((column->field.flags & SL_FIELD_OPTIONAL) && !isfinite(value))
            continue;
        snprintf(tag, sizeof tag, "%s%s%s", prefix, *prefix ? "/" : "", column->tag);
        sl_event_file_add(&log->file, tag, (float)value, has_meaning ? column->meaning : NULL);
    }
}

/* The learning rates of tensors that have their own. */
static void add_rates(log_events *log, const sl_step_report *report)
{
    char tag[TAG_BYTES];
    for (uint32_t i = 0; i < report->rate_count; i++) {
        snprintf(tag, sizeof tag, "train/lr_of/%.*s", TAG_BYTES - 16, report->rates[i].pattern);
        sl_event_file_add(&log->file, tag, report->learning_rate * report->rates[i].factor,
                          log->has_step ? NULL : "learning rate of these tensors in this step");
    }
}

static sl_status write_step(void *self, const sl_step_report *report)
{
    log_events *log = self;
    sl_event_file_begin(&log->file, report->step);
    add_values(log, sl_columns_of_step(), report, "", !log->has_step);
    add_rates(log, report);
    if (report->rank_count > 0)
        add_values(log, sl_columns_of_ranks(), report, "", !log->has_step);
    SL_TRY(sl_event_file_end(&log->file));
    log->has_step = true;
    return SL_OK;
}

static sl_status write_eval(void *self, const sl_eval_report *report)
{
    log_events *log = self;
    sl_event_file_begin(&log->file, report->step);
    add_values(log, sl_columns_of_eval(), report, report->set, true);
    return sl_event_file_end(&log->file);
}

static const sl_sink_ops events_ops = {.step = write_step, .eval = write_eval, .close = close_log};

bool sl_log_events_is_own(const char *directory, const char *run)
{
    return sl_event_file_is_own(directory, run);
}

sl_status sl_log_events_open(const sl_log_target *target, uint64_t first_step, sl_sinks *sinks)
{
    log_events *log = calloc(1, sizeof *log);
    if (!log)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for --tensorboard");
    sl_status status = sl_event_file_open(target, first_step, &log->file);
    if (status != SL_OK) {
        free(log);
        return sl_status_prefix(status, "--tensorboard");
    }
    sl_sinks_add(sinks, &events_ops, log);
    return SL_OK;
}
