/* Lines come from the end of the file to its start, out of a buffer that is filled from its end to
 * its start too. Each record of such a log is one line. */
#define _GNU_SOURCE /* memrchr */
#include "history_log.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#include "files/json_file.h"

enum { PART_BYTES = 1 << 16, LINE_BYTES_MAX = 4 << 20 };

/* ---- lines, the last one first ---- */

/* buffer[start, end) is file[at, at + end - start). */
typedef struct lines {
    sl_file file;
    uint64_t at;
    char *buffer;
    size_t capacity, start, end;
    size_t searched; /* there is no line end in buffer[searched, end) */
    bool is_cut;     /* the end of the present line was too long, and is left out */
    bool is_over;    /* the first line of the file was taken */
} lines;

static sl_status open_lines(const char *path, lines *out_lines)
{
    *out_lines = (lines){.file = {.fd = -1}};
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &out_lines->file));
    out_lines->at = out_lines->file.bytes;
    out_lines->buffer = malloc(PART_BYTES);
    out_lines->capacity = out_lines->start = out_lines->end = out_lines->searched = PART_BYTES;
    if (!out_lines->buffer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to read %s", sl_files_show(path).text);
    return SL_OK;
}

static void close_lines(lines *self)
{
    free(self->buffer);
    sl_files_close(&self->file);
}

/* Moves what is held to the end of the buffer, which gets twice as large if it is full. */
static sl_status make_room(lines *self)
{
    const size_t held = self->end - self->start;
    const size_t capacity = held == self->capacity ? 2 * self->capacity : self->capacity;
    char *buffer = self->buffer;
    if (capacity > self->capacity && !(buffer = realloc(self->buffer, capacity)))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to read %s", sl_files_show(self->file.path).text);
    memmove(buffer + capacity - held, buffer + self->start, held);
    *self = (lines){.file = self->file,
                    .at = self->at,
                    .buffer = buffer,
                    .capacity = capacity,
                    .start = capacity - held,
                    .end = capacity,
                    .searched = capacity - held,
                    .is_cut = self->is_cut};
    return SL_OK;
}

static sl_status read_part(lines *self)
{
    if (self->end - self->start >= LINE_BYTES_MAX) {
        self->is_cut = true;
        self->end = self->searched = self->start;
    }
    if (self->start == 0)
        SL_TRY(make_room(self));
    size_t bytes = self->start < PART_BYTES ? self->start : PART_BYTES;
    bytes = self->at < bytes ? (size_t)self->at : bytes;
    self->searched = self->start;
    self->start -= bytes;
    self->at -= bytes;
    return sl_files_read_at(&self->file, self->at, bytes, self->buffer + self->start);
}

/* One line without its end; NULL: there are no more. */
typedef struct line {
    const char *text;
    size_t bytes;
    bool is_cut;
} line;

/* Takes the line whose first byte is buffer[first]. */
static line take_line(lines *self, size_t first)
{
    const line found = {self->buffer + first, self->end - first, self->is_cut};
    self->end = self->searched = first;
    self->is_cut = false;
    return found;
}

static sl_status find_line(lines *self, line *out_line)
{
    for (;;) {
        const char *before =
            memrchr(self->buffer + self->start, '\n', self->searched - self->start);
        if (before) {
            const size_t first = (size_t)(before - self->buffer) + 1;
            *out_line = take_line(self, first);
            self->end = self->searched = first - 1; /* without the end of the line before */
            return SL_OK;
        }
        if (self->at > 0) {
            SL_TRY(read_part(self));
            continue;
        }
        *out_line = self->is_over ? (line){0} : take_line(self, self->start);
        self->is_over = true;
        return SL_OK;
    }
}

/* ---- records ---- */

typedef struct reading {
    sl_history *run;
    uint64_t step_end;                  /* steps from here on are read already, or not wanted */
    uint64_t eval_end[SL_HISTORY_SETS]; /* so are evaluations */
    uint64_t line_count;                /* so far, from the end */
    uint64_t damaged_count,
        damaged; /* `damaged`: line_count at the last one, the first in the log */
    uint64_t record_count;
} reading;

static bool take_step_number(const json_t *record, uint64_t *out_step)
{
    const json_t *value = json_object_get(record, "step");
    const json_int_t step = json_integer_value(value);
    *out_step = (uint64_t)step;
    return json_is_integer(value) && step >= 0 && (uint64_t)step <= SL_SERIES_STEP_MAX;
}

static double number_of(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static bool read_step(reading *self, const json_t *record)
{
    sl_history_step step = {0};
    const json_t *skipped = json_object_get(record, "skipped");
    const json_int_t tokens = json_integer_value(json_object_get(record, "tokens_total"));
    if (!take_step_number(record, &step.step) || step.step == 0)
        return false;
    if (step.step >= self->step_end) {
        self->run->repeated_count++;
        return true;
    }
    self->step_end = step.step;
    for (int curve = 0; curve < SL_HISTORY_CURVES; curve++)
        step.values[curve] = number_of(record, sl_history_curve_name((sl_history_curve)curve));
    step.tokens_total = tokens > 0 ? (uint64_t)tokens : 0;
    step.is_skipped = json_is_true(skipped) || json_integer_value(skipped) != 0;
    sl_history_add_step(self->run, &step);
    return true;
}

static sl_history_set find_set(const json_t *record)
{
    const char *name = json_string_value(json_object_get(record, "set"));
    for (int set = 0; name && set < SL_HISTORY_SETS; set++)
        if (strcmp(name, sl_history_set_name((sl_history_set)set)) == 0)
            return (sl_history_set)set;
    return SL_HISTORY_EVAL;
}

/* An evaluation after step n stands behind the record of step n. */
static bool read_eval(reading *self, const json_t *record)
{
    uint64_t step;
    const sl_history_set set = find_set(record);
    if (!take_step_number(record, &step))
        return false;
    if (step >= self->step_end || step >= self->eval_end[set]) {
        self->run->repeated_count++;
        return true;
    }
    self->eval_end[set] = step;
    sl_history_add_eval(self->run, set, step, number_of(record, "loss"));
    return true;
}

/* As an evaluation. */
static sl_status read_sample(reading *self, const json_t *record, bool *out_is_right)
{
    uint64_t step;
    const char *prompt = json_string_value(json_object_get(record, "prompt"));
    const char *text = json_string_value(json_object_get(record, "text"));
    *out_is_right = take_step_number(record, &step) && prompt && text;
    if (!*out_is_right)
        return SL_OK;
    if (step < self->step_end)
        return sl_history_add_sample(self->run, step, prompt, text);
    self->run->repeated_count++;
    return SL_OK;
}

static void copy_text(const json_t *object, const char *key, char out_text[SL_HISTORY_TEXT_BYTES])
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text)
        snprintf(out_text, SL_HISTORY_TEXT_BYTES, "%s", text);
}

static bool read_start(reading *self, const json_t *record)
{
    sl_history *run = self->run;
    json_t *config = json_object_get(record, "config");
    const json_t *plan = json_object_get(record, "plan"), *ranks = json_object_get(plan, "ranks");
    const double predicted = number_of(ranks ? ranks : plan, "predicted_step_ms");
    if (!json_is_object(config))
        return false;
    if (run->config)
        return true;
    run->config = json_incref(config);
    run->predicted_step_ms = isfinite(predicted) ? predicted : 0;
    if (!*run->id)
        copy_text(record, "run", run->id);
    return true;
}

static sl_status read_record(reading *self, const json_t *record, bool *out_is_right)
{
    const char *event = json_string_value(json_object_get(record, "event"));
    *out_is_right = event != NULL; /* a later version may write events of other names */
    if (!event)
        return SL_OK;
    if (strcmp(event, "sample") == 0)
        return read_sample(self, record, out_is_right);
    if (strcmp(event, "step") == 0)
        *out_is_right = read_step(self, record);
    else if (strcmp(event, "eval") == 0)
        *out_is_right = read_eval(self, record);
    else if (strcmp(event, "start") == 0)
        *out_is_right = read_start(self, record);
    else if (strcmp(event, "end") == 0 && self->record_count == 0) /* else the run went on */
        copy_text(record, "reason", self->run->reason);
    return SL_OK;
}

static bool is_blank(const line *from)
{
    for (size_t i = 0; i < from->bytes; i++)
        if (!strchr(" \t\r", from->text[i]) || from->text[i] == '\0')
            return false;
    return !from->is_cut;
}

static sl_status read_line(reading *self, const char *path, const line *from)
{
    json_t *record = NULL;
    bool is_right = false;
    self->line_count++;
    if (is_blank(from))
        return SL_OK;
    sl_status status = SL_ERROR_DATA;
    if (!from->is_cut)
        status = sl_json_file_parse(path, from->text, from->bytes, &record);
    if (status == SL_OK)
        status = read_record(self, record, &is_right);
    json_decref(record);
    if (status == SL_ERROR_SYSTEM)
        return status;
    if (is_right) {
        self->record_count++;
    } else {
        self->damaged_count++;
        self->damaged = self->line_count;
    }
    return SL_OK;
}

static sl_status read_all(lines *from, reading *self)
{
    line found;
    if (from->at > 0) { /* the end of the last line begins no line of its own */
        SL_TRY(read_part(from));
        from->searched = from->end -= from->buffer[from->end - 1] == '\n';
    }
    do {
        SL_TRY(find_line(from, &found));
        if (found.text)
            SL_TRY(read_line(self, from->file.path, &found));
    } while (found.text);
    if (self->record_count == 0)
        SL_FAIL(SL_ERROR_DATA,
                "%s: is no log of a run: no line of it is a record as train --log-json writes them",
                sl_files_show(from->file.path).text);
    return SL_OK;
}

sl_status sl_history_log_read(const char *path, uint64_t step_end, sl_history *run)
{
    lines from;
    reading self = {.run = run, .step_end = step_end};
    for (int set = 0; set < SL_HISTORY_SETS; set++)
        self.eval_end[set] = UINT64_MAX;
    sl_status status = open_lines(path, &from);
    if (status == SL_OK)
        status = read_all(&from, &self);
    close_lines(&from);
    if (status == SL_OK && self.damaged_count > 0) {
        run->damaged_count += self.damaged_count;
        run->damaged_line = self.line_count - self.damaged + 1;
    }
    return status;
}
