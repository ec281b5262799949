/* Lines are built in one buffer of fixed size and written whole. */
#include "log_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

enum { LINE_BYTES = 2048, NUMBER_BYTES = 32, FILE_BUFFER_BYTES = 1 << 14 };

struct sl_log_json {
    FILE *file; /* NULL: nothing is written */
    char *path;
    size_t length;
    char line[LINE_BYTES];
    char file_buffer[FILE_BUFFER_BYTES];
};

/* A run that was killed may have left half a line at the end, which the next event would join. */
static void cut_half_line(const char *path)
{
    char byte;
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        off_t end = info.st_size;
        while (end > 0 && pread(fd, &byte, 1, end - 1) == 1 && byte != '\n')
            end--;
        if (end < info.st_size && ftruncate(fd, end) != 0)
            sl_log_write(SL_LOG_WARNING, "%s: its last line is half a line and stays: %s", path,
                         strerror(errno));
    }
    if (fd >= 0)
        close(fd);
}

sl_status sl_log_json_open(const char *path, bool append, sl_log_json **out_log)
{
    sl_log_json *log = calloc(1, sizeof *log);
    if (!log)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the log");
    if (path && append)
        cut_half_line(path);
    if (path) {
        log->path = strdup(path);
        log->file = fopen(path, append ? "ae" : "we");
    }
    if (path && (!log->path || !log->file)) {
        int error = errno;
        sl_log_json_close(log);
        SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(error));
    }
    if (log->file)
        setvbuf(log->file, log->file_buffer, _IOFBF, sizeof log->file_buffer);
    *out_log = log;
    return SL_OK;
}

void sl_log_json_close(sl_log_json *log)
{
    if (!log)
        return;
    if (log->file)
        fclose(log->file);
    free(log->path);
    free(log);
}

static void __attribute__((format(printf, 2, 3))) add(sl_log_json *log, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(log->line + log->length, LINE_BYTES - log->length, format, arguments);
    va_end(arguments);
    log->length += written > 0 ? (size_t)written : 0;
    if (log->length >= LINE_BYTES)
        log->length = LINE_BYTES - 1;
}

/* 17 digits read back to the same double, 9 to the same float; often fewer do. */
static void add_real(sl_log_json *log, const char *key, double value, int digits)
{
    if (!isfinite(value)) {
        add(log, ",\"%s\":null", key);
        return;
    }
    char number[NUMBER_BYTES];
    for (int fewer = digits - 2; fewer <= digits; fewer++) {
        snprintf(number, sizeof number, "%.*g", fewer, value);
        if (strtod(number, NULL) == value)
            break;
    }
    add(log, ",\"%s\":%s", key, number);
}

static void add_double(sl_log_json *log, const char *key, double value)
{
    add_real(log, key, value, 17);
}

static void add_float(sl_log_json *log, const char *key, float value)
{
    add_real(log, key, value, 9);
}

static void add_count(sl_log_json *log, const char *key, uint64_t value)
{
    add(log, ",\"%s\":%" PRIu64, key, value);
}

static void begin(sl_log_json *log, const char *event)
{
    log->length = 0;
    add(log, "{\"event\":\"%s\"", event);
}

static sl_status write_text(sl_log_json *log, const char *text)
{
    if (!log->file)
        return SL_OK;
    if (fputs(text, log->file) < 0 || fputc('\n', log->file) == EOF || fflush(log->file) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: %s", log->path, strerror(errno));
    return SL_OK;
}

static sl_status end(sl_log_json *log)
{
    add(log, "}");
    return write_text(log, log->line);
}

sl_status sl_log_json_start(sl_log_json *log, json_t *config, json_t *plan)
{
    json_t *object = json_pack("{s:s, s:O, s:O}", "event", "start", "config", config, "plan", plan);
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the log");
    sl_status status = write_text(log, text);
    free(text);
    return status;
}

static void add_moves(sl_log_json *log, const uint64_t moved_bytes[SL_LANE_COUNT])
{
    add_count(log, "h2d_bytes", moved_bytes[SL_LANE_H2D]);
    add_count(log, "d2h_bytes", moved_bytes[SL_LANE_D2H]);
    add_count(log, "disk_read_bytes", moved_bytes[SL_LANE_READ]);
    add_count(log, "disk_written_bytes", moved_bytes[SL_LANE_WRITE]);
}

static void add_stalls(sl_log_json *log, const double stall_ms[SL_LANE_COUNT])
{
    add(log, ",\"stall_ms\":{");
    const char *comma = "";
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (lane == SL_LANE_COMPUTE || lane == SL_LANE_INPUT)
            continue; /* it does not stall for itself; waits for input have a key of their own */
        add(log, "%s\"%s\":%.6g", comma, sl_lane_name((sl_lane)lane), stall_ms[lane]);
        comma = ",";
    }
    add(log, "}");
    add_double(log, "input_wait_ms", stall_ms[SL_LANE_INPUT]);
}

sl_status sl_log_json_step(sl_log_json *log, const sl_step_report *report)
{
    begin(log, "step");
    add_count(log, "step", report->step);
    add_double(log, "loss", report->loss);
    add_float(log, "grad_norm", report->grad_norm);
    add_float(log, "lr", report->learning_rate);
    add_count(log, "tokens", report->tokens);
    add_count(log, "tokens_total", report->tokens_total);
    add_double(log, "step_ms", report->step_ms);
    add_double(log, "tokens_per_s", report->tokens_per_s);
    add_double(log, "flops", report->flops);
    add_count(log, "device_bytes", report->peak_bytes[SL_TIER_DEVICE]);
    add_count(log, "host_bytes", report->peak_bytes[SL_TIER_HOST]);
    add_count(log, "disk_bytes", report->peak_bytes[SL_TIER_DISK]);
    add_moves(log, report->moved_bytes);
    add_stalls(log, report->stall_ms);
    add(log, ",\"skipped\":%s", report->skipped ? "true" : "false");
    add_float(log, "loss_scale", report->loss_scale);
    return end(log);
}

sl_status sl_log_json_eval(sl_log_json *log, const sl_eval_report *report)
{
    begin(log, "eval");
    add_count(log, "step", report->step);
    add_double(log, "loss", report->loss);
    add_double(log, "perplexity", report->perplexity);
    add_count(log, "tokens", report->tokens);
    return end(log);
}

sl_status sl_log_json_end(sl_log_json *log, const sl_end_report *report)
{
    begin(log, "end");
    add(log, ",\"reason\":\"%s\"", report->reason);
    add_count(log, "step", report->step);
    add_count(log, "tokens_total", report->tokens_total);
    add_count(log, "skipped_steps", report->skipped_steps);
    add_count(log, "run_steps", report->run_steps);
    add_double(log, "seconds", report->seconds);
    add_double(log, "loss", report->last_loss);
    add_moves(log, report->moved_bytes);
    add(log, ",\"tiers\":{");
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        add(log,
            "%s\"%s\":{\"planned_peak_bytes\":%" PRIu64 ",\"measured_peak_bytes\":%" PRIu64 "}",
            tier ? "," : "", sl_tier_name((sl_tier)tier), report->planned_peak_bytes[tier],
            report->measured_peak_bytes[tier]);
    add(log, "}");
    return end(log);
}
