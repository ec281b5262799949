/* A line is built in a buffer of fixed size and written at once. */
#define _GNU_SOURCE /* memmem */
#include "log_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/interruptions.h"
#include "columns.h"
#include "files/json_file.h"

enum { LINE_BYTES = 16384, RUN_BYTES = 64, NEEDLE_BYTES = 128, PART_BYTES = 1 << 14 };

#define MOVED(key, lane) SL_FIELD(key, sl_end_report, moved_bytes[lane])

static const sl_field tier_fields[] = {
    SL_FIELD("planned_peak_bytes", sl_end_report, planned_peak_bytes[0]),
    SL_FIELD("measured_peak_bytes", sl_end_report, measured_peak_bytes[0]),
    {0},
};

static const sl_field tier = {.kind = SL_FIELD_OBJECT, .fields = tier_fields};

static const sl_field end_fields[] = {
    SL_FIELD("reason", sl_end_report, reason),
    SL_FIELD("step", sl_end_report, step),
    SL_FIELD("tokens_total", sl_end_report, tokens_total),
    SL_FIELD("skipped_steps", sl_end_report, skipped_steps),
    SL_FIELD("run_steps", sl_end_report, run_steps),
    SL_FIELD("seconds", sl_end_report, seconds),
    SL_FIELD("checkpoint_ms", sl_end_report, checkpoint_ms, .digits = 6),
    SL_FIELD("loss", sl_end_report, last_loss),
    MOVED("h2d_bytes", SL_LANE_H2D),
    MOVED("d2h_bytes", SL_LANE_D2H),
    MOVED("disk_read_bytes", SL_LANE_READ),
    MOVED("disk_written_bytes", SL_LANE_WRITE),
    {.key = "tiers", /* element i of two arrays of the report */
     .kind = SL_FIELD_MAP,
     .names = "device|host|disk",
     .stride = sizeof(uint64_t),
     .fields = &tier},
    {0},
};

typedef struct log_json {
    sl_log_file file;
    char run[RUN_BYTES];
    char line[LINE_BYTES];
} log_json;

static void close_log(void *self)
{
    log_json *log = self;
    sl_log_file_close(&log->file);
    free(log);
}

/* Frees the object; NULL: there was no memory for it. */
static sl_status write_object(const log_json *log, json_t *object)
{
    char *text = object ? sl_json_file_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the log");
    size_t length = strlen(text);
    text[length] = '\n'; /* in the place of the end of the string */
    sl_status status = sl_log_file_write(&log->file, text, length + 1);
    free(text);
    return status;
}

static sl_status write_start(void *self, const sl_start_report *report)
{
    const log_json *log = self;
    return write_object(log, json_pack("{s:s, s:s, s:O, s:O}", "event", "start", "run", log->run,
                                       "config", report->config, "plan", report->plan));
}

/* Room for the end of a line is kept free. */
static size_t begin_line(log_json *log, const char *event)
{
    return (size_t)snprintf(log->line, LINE_BYTES, "{\"event\":\"%s\",", event);
}

static sl_status end_line(log_json *log, size_t used)
{
    memcpy(log->line + used, "}\n", 2);
    return sl_log_file_write(&log->file, log->line, used + 2);
}

static sl_status write_record(log_json *log, const char *event, const sl_column *columns,
                              const void *report)
{
    size_t used = begin_line(log, event);
    used += sl_columns_print(columns, report, log->line + used, LINE_BYTES - used - 2);
    return end_line(log, used);
}

static sl_status write_step(void *self, const sl_step_report *report)
{
    log_json *log = self;
    size_t used = begin_line(log, "step");
    used += sl_columns_print(sl_columns_of_step(), report, log->line + used, LINE_BYTES - used - 3);
    if (report->rate_count > 0) {
        log->line[used++] = ',';
        used += sl_columns_print_rates(report, log->line + used, LINE_BYTES - used - 3);
    }
    if (report->rank_count > 0) {
        log->line[used++] = ',';
        used += sl_columns_print(sl_columns_of_ranks(), report, log->line + used,
                                 LINE_BYTES - used - 2);
    }
    return end_line(log, used);
}

static sl_status write_eval(void *self, const sl_eval_report *report)
{
    return write_record(self, "eval", sl_columns_of_eval(), report);
}

/* A text has any length. */
static sl_status write_sample(void *self, const sl_sample_report *report)
{
    const log_json *log = self;
    return write_object(log, json_pack("{s:s, s:I, s:s, s:s, s:I}", "event", "sample", "step",
                                       (json_int_t)report->step, "prompt", report->prompt, "text",
                                       report->text, "tokens", (json_int_t)report->tokens));
}

static sl_status write_end(void *self, const sl_end_report *report)
{
    log_json *log = self;
    size_t used = begin_line(log, "end");
    used += sl_fields_print(end_fields, report, log->line + used, LINE_BYTES - used - 2);
    return end_line(log, used);
}

static const sl_sink_ops json_ops = {.start = write_start,
                                     .step = write_step,
                                     .eval = write_eval,
                                     .sample = write_sample,
                                     .end = write_end,
                                     .close = close_log};

sl_status sl_log_json_check(const char *path)
{
    return sl_log_file_check("--log-json", path, "{\"event\":\"");
}

/* Looks for a line that begins as write_start begins one. The end of each part is kept in front of
 * the next one, as such a beginning may lie across the border of two parts. */
static bool holds_start(int fd, const char *run)
{
    char needle[NEEDLE_BYTES], part[PART_BYTES];
    const size_t length =
        (size_t)snprintf(needle, sizeof needle, "\n{\"event\":\"start\",\"run\":\"%.64s\"", run);
    size_t kept = 1;
    uint32_t interruptions = 0;
    part[0] = '\n'; /* before the first line */
    for (off_t at = 0;;) {
        const ssize_t count = pread(fd, part + kept, sizeof part - kept, at);
        if (count < 0 && sl_interruptions_allow(&interruptions))
            continue;
        if (count <= 0)
            return false;
        const size_t held = kept + (size_t)count;
        if (memmem(part, held, needle, length))
            return true;
        kept = held < length ? held : length - 1;
        memmove(part, part + held - kept, kept);
        at += count;
    }
}

bool sl_log_json_is_own(const char *path, const char *run)
{
    return sl_log_file_is_own(path, run, holds_start);
}

sl_status sl_log_json_open(const sl_log_target *target, sl_sinks *sinks)
{
    log_json *log = calloc(1, sizeof *log);
    if (!log)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the log");
    log->file.fd = -1;
    snprintf(log->run, sizeof log->run, "%s", target->run);
    sl_status status = sl_log_file_open(target, holds_start, &log->file);
    if (status != SL_OK) {
        free(log);
        return status;
    }
    sl_sinks_add(sinks, &json_ops, log);
    return SL_OK;
}
