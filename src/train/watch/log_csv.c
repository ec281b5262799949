/* A row is built in a buffer of fixed size and written at once. */
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
#include "files/log_file.h"

enum { LINE_BYTES = 4096, CELL_BYTES = SL_COLUMN_NAME_BYTES };

typedef struct log_csv {
    sl_log_file file;
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

/* A row, or with no report the line of names; both are far shorter than the buffer. */
static size_t print_line(const sl_step_report *report, char line[LINE_BYTES])
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
    line[used++] = '\n';
    return used;
}

static sl_status write_step(void *self, const sl_step_report *report)
{
    log_csv *log = self;
    size_t bytes = print_line(report, log->line);
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
    size_t bytes, name_bytes = print_line(NULL, names);
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

static sl_status open_file(const char *path, bool append, log_csv *log)
{
    bool has_names = false;
    if (append)
        SL_TRY(find_names(path, &has_names));
    SL_TRY(sl_log_file_open(path, append ? SL_LOG_FILE_APPEND : SL_LOG_FILE_EMPTY, &log->file));
    return has_names ? SL_OK
                     : sl_log_file_write(&log->file, log->line, print_line(NULL, log->line));
}

sl_status sl_log_csv_open(const char *path, bool append, sl_sinks *sinks)
{
    log_csv *log = calloc(1, sizeof *log);
    if (!log)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for --log-csv");
    log->file.fd = -1;
    sl_status status = open_file(path, append, log);
    if (status != SL_OK) {
        close_log(log);
        return status;
    }
    sl_sinks_add(sinks, &csv_ops, log);
    return SL_OK;
}
