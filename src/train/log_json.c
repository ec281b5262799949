/* A line is built in a buffer of fixed size and written at once, whole or not at all: what a full
 * disk took of it is cut off again. */
#include "log_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "files/fields.h"
#include "files/json_file.h"

enum { LINE_BYTES = 2048, PERMISSIONS = 0666 /* less the umask */ };

static const sl_field milliseconds = {.kind = SL_FIELD_F64, .digits = 6};

#define MOVED(type)                                                                                \
    SL_FIELD("h2d_bytes", type, moved_bytes[SL_LANE_H2D]),                                         \
        SL_FIELD("d2h_bytes", type, moved_bytes[SL_LANE_D2H]),                                     \
        SL_FIELD("disk_read_bytes", type, moved_bytes[SL_LANE_READ]),                              \
        SL_FIELD("disk_written_bytes", type, moved_bytes[SL_LANE_WRITE])

static const sl_field step_fields[] = {
    SL_FIELD("step", sl_step_report, step),
    SL_FIELD("loss", sl_step_report, loss),
    SL_FIELD("grad_norm", sl_step_report, grad_norm),
    SL_FIELD("lr", sl_step_report, learning_rate),
    SL_FIELD("tokens", sl_step_report, tokens),
    SL_FIELD("tokens_total", sl_step_report, tokens_total),
    SL_FIELD("step_ms", sl_step_report, step_ms),
    SL_FIELD("tokens_per_s", sl_step_report, tokens_per_s),
    SL_FIELD("flops", sl_step_report, flops),
    SL_FIELD("device_bytes", sl_step_report, peak_bytes[SL_TIER_DEVICE]),
    SL_FIELD("host_bytes", sl_step_report, peak_bytes[SL_TIER_HOST]),
    SL_FIELD("disk_bytes", sl_step_report, peak_bytes[SL_TIER_DISK]),
    MOVED(sl_step_report),
    SL_FIELD_AS(MAP, "stall_ms", sl_step_report, stall_ms[SL_LANE_H2D], .stride = sizeof(double),
                .names = "h2d|d2h|host|read|write|comm", .fields = &milliseconds),
    SL_FIELD("input_wait_ms", sl_step_report, stall_ms[SL_LANE_INPUT]),
    SL_FIELD("skipped", sl_step_report, skipped),
    SL_FIELD("loss_scale", sl_step_report, loss_scale),
    SL_FIELD("epoch", sl_step_report, epoch),
    {0},
};

static const sl_field eval_fields[] = {
    SL_FIELD("step", sl_eval_report, step),
    SL_FIELD("set", sl_eval_report, set),
    SL_FIELD("loss", sl_eval_report, loss),
    SL_FIELD("perplexity", sl_eval_report, perplexity),
    SL_FIELD("tokens", sl_eval_report, tokens),
    SL_FIELD("data_tokens", sl_eval_report, data_tokens),
    {0},
};

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
    SL_FIELD("loss", sl_end_report, last_loss),
    MOVED(sl_end_report),
    {.key = "tiers", /* element i of two arrays of the report */
     .kind = SL_FIELD_MAP,
     .names = "device|host|disk",
     .stride = sizeof(uint64_t),
     .fields = &tier},
    {0},
};

struct sl_log_json {
    int file; /* -1: nothing is written */
    char *path;
    char line[LINE_BYTES];
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
    log->file = -1;
    if (path && append)
        cut_half_line(path);
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (append ? 0 : O_TRUNC);
    log->path = path ? strdup(path) : NULL;
    if (path && !log->path) {
        sl_log_json_close(log);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the log's name");
    }
    if (path)
        log->file = open(path, flags, PERMISSIONS);
    if (path && log->file < 0) {
        int error = errno;
        sl_log_json_close(log);
        SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(error));
    }
    *out_log = log;
    return SL_OK;
}

void sl_log_json_close(sl_log_json *log)
{
    if (!log)
        return;
    if (log->file >= 0)
        close(log->file);
    free(log->path);
    free(log);
}

/* Cuts off what was written of a line. A pipe cannot take it back. */
static void take_back(int file, size_t written)
{
    struct stat info;
    if (written == 0 || fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    if (ftruncate(file, info.st_size - (off_t)written) != 0)
        sl_log_write(SL_LOG_WARNING, "the log has half a line: %s", strerror(errno));
}

/* Writes a text whose last byte is its line's end. */
static sl_status write_line(sl_log_json *log, const char *line, size_t bytes)
{
    for (size_t done = 0; log->file >= 0 && done < bytes;) {
        ssize_t count = write(log->file, line + done, bytes - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            int error = errno;
            take_back(log->file, done);
            SL_FAIL(SL_ERROR_IO, "%s: %s", log->path, strerror(error));
        }
        done += (size_t)count;
    }
    return SL_OK;
}

sl_status sl_log_json_start(sl_log_json *log, json_t *config, json_t *plan)
{
    json_t *object = json_pack("{s:s, s:O, s:O}", "event", "start", "config", config, "plan", plan);
    char *text = object ? sl_json_file_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the log");
    size_t length = strlen(text);
    text[length] = '\n'; /* in the place of the end of the string */
    sl_status status = write_line(log, text, length + 1);
    free(text);
    return status;
}

static sl_status write_event(sl_log_json *log, const char *event, const sl_field *fields,
                             const void *report)
{
    size_t used = (size_t)snprintf(log->line, LINE_BYTES, "{\"event\":\"%s\",", event);
    used += sl_fields_print(fields, report, log->line + used, LINE_BYTES - used - 2);
    memcpy(log->line + used, "}\n", 2);
    return write_line(log, log->line, used + 2);
}

sl_status sl_log_json_step(sl_log_json *log, const sl_step_report *report)
{
    return write_event(log, "step", step_fields, report);
}

sl_status sl_log_json_eval(sl_log_json *log, const sl_eval_report *report)
{
    return write_event(log, "eval", eval_fields, report);
}

sl_status sl_log_json_end(sl_log_json *log, const sl_end_report *report)
{
    return write_event(log, "end", end_fields, report);
}
