/* A row is built in a buffer of fixed size and written at once. */
#define _GNU_SOURCE /* memrchr */
#include "log_csv.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "columns.h"
#include "files/files.h"

enum { LINE_BYTES = 4096, CELL_BYTES = SL_COLUMN_NAME_BYTES, RUN_BYTES = 64 };

typedef struct log_csv {
    sl_log_file file;
    char run[RUN_BYTES];
    char line[LINE_BYTES];
} log_csv;

static void close_log(void *self)
{
    log_csv *log = self;
    sl_log_file_close(&log->file);
    free(log);
}

/* ---- lines ---- */

/* What stands in a row in place of null, true and false. */
static void print_cell(const sl_column *column, const void *report, char out_text[CELL_BYTES])
{
    double number = sl_fields_number(&column->field, report);
    if (isfinite(number) && column->field.kind != SL_FIELD_BOOL)
        sl_fields_print_value(&column->field, report, out_text, CELL_BYTES);
    else if (isnan(number))
        snprintf(out_text, CELL_BYTES, "nan");
    else
        snprintf(out_text, CELL_BYTES, "%g", number);
}

/* A row, or with no report the line of names; both are far shorter than the buffer. `run` is the
 * last cell. */
static size_t print_line(const sl_step_report *report, const char *run, char line[LINE_BYTES])
{
    size_t used = 0;
    char cell[CELL_BYTES];
    for (const sl_column *column = sl_columns_of_step(); column->field.key; column++) {
        if (report)
            print_cell(column, report, cell);
        else
            sl_columns_name(column, cell);
        int written = snprintf(line + used, LINE_BYTES - used, "%s%s", used ? "," : "", cell);
        used += (size_t)written;
    }
    return used + (size_t)snprintf(line + used, LINE_BYTES - used, ",%s\n", run);
}

static size_t print_names(char line[LINE_BYTES])
{
    return print_line(NULL, "run", line);
}

static sl_status write_step(void *self, const sl_step_report *report)
{
    log_csv *log = self;
    size_t bytes = print_line(report, log->run, log->line);
    return sl_log_file_write(&log->file, log->line, bytes);
}

static const sl_sink_ops csv_ops = {.step = write_step, .close = close_log};

/* ---- opening ---- */

/* The first bytes of a regular file; 0 of any other, and where there is none. */
static sl_status read_start(const char *path, char line[LINE_BYTES], size_t *out_bytes)
{
    struct stat info;
    *out_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return SL_OK;
    ssize_t count = 0;
    bool is_bad = fd < 0 || fstat(fd, &info) != 0;
    if (!is_bad && S_ISREG(info.st_mode)) {
        count = pread(fd, line, LINE_BYTES, 0);
        is_bad = count < 0;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (is_bad)
        SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(error));
    *out_bytes = (size_t)count;
    return SL_OK;
}

/* A line of names that was cut short by a crash is none. */
static sl_status find_names(const char *path, bool *out_has_names)
{
    char found[LINE_BYTES], names[LINE_BYTES];
    size_t bytes, name_bytes = print_names(names);
    SL_TRY(read_start(path, found, &bytes));
    *out_has_names = bytes >= name_bytes && memcmp(found, names, name_bytes) == 0;
    if (*out_has_names || (bytes < name_bytes && memcmp(found, names, bytes) == 0))
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE,
            "--log-csv %s: the file has other columns than this version writes: name another file, "
            "or move this one away",
            sl_files_show(path).text);
}

sl_status sl_log_csv_check(const char *path, bool append)
{
    bool has_names;
    if (!append)
        return sl_log_file_check("--log-csv", path, "step,loss");
    return find_names(path, &has_names);
}

static bool begins_with_names(int fd)
{
    char found[LINE_BYTES], names[LINE_BYTES];
    const size_t bytes = print_names(names);
    return pread(fd, found, bytes, 0) == (ssize_t)bytes && memcmp(found, names, bytes) == 0;
}

/* True if `fd` is such a table and its last whole line is a row of `run`. */
static bool ends_in_run(int fd, const char *run)
{
    struct stat info;
    char text[2 * LINE_BYTES], end[RUN_BYTES + 2];
    const size_t length = (size_t)snprintf(end, sizeof end, ",%.63s\n", run);
    if (!begins_with_names(fd) || fstat(fd, &info) != 0)
        return false;
    const off_t start = info.st_size > (off_t)sizeof text ? info.st_size - (off_t)sizeof text : 0;
    const ssize_t bytes = pread(fd, text, sizeof text, start);
    const char *last = bytes > 0 ? memrchr(text, '\n', (size_t)bytes) : NULL;
    return last && (size_t)(last + 1 - text) >= length &&
           memcmp(last + 1 - length, end, length) == 0;
}

bool sl_log_csv_is_own(const char *path, const char *run)
{
    return sl_log_file_is_own(path, run, ends_in_run);
}

static sl_status open_file(const sl_log_target *target, log_csv *log)
{
    bool has_names = target->mode == SL_LOG_FILE_OWN;
    if (target->mode == SL_LOG_FILE_APPEND)
        SL_TRY(find_names(target->path, &has_names));
    SL_TRY(sl_log_file_open(target, ends_in_run, &log->file));
    return has_names ? SL_OK : sl_log_file_write(&log->file, log->line, print_names(log->line));
}

sl_status sl_log_csv_open(const sl_log_target *target, sl_sinks *sinks)
{
    log_csv *log = calloc(1, sizeof *log);
    if (!log)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for --log-csv");
    log->file.fd = -1;
    snprintf(log->run, sizeof log->run, "%s", target->run);
    sl_status status = open_file(target, log);
    if (status != SL_OK) {
        close_log(log);
        return status;
    }
    sl_sinks_add(sinks, &csv_ops, log);
    return SL_OK;
}
