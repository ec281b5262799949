/* What could be wrong in what a run tells of itself: a number that reads back as another one, under
 * another name or not at all; a line or record that is not whole; an event file that TensorBoard
 * does not take; rows under the names of other columns; one log that fails and takes the others, or
 * the run, with it. Numbers go through a JSON parser, through strtod and through a decoder of event
 * files that knows their layout alone. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "command/event_decoder.h"
#include "files/event_file.h"
#include "scratch_dir.h"
#include "skip.h"
#include "sluice/log.h"
#include "train/watch/columns.h"
#include "train/watch/log_csv.h"
#include "train/watch/log_events.h"
#include "train/watch/log_json.h"

enum { TEXT_BYTES = 1 << 14, CELL_MAX = 64 };

typedef struct fixture {
    scratch_path directory, path; /* path: of a log that is not there yet */
    sl_sinks sinks;
} fixture;

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    scratch_need(self != NULL, "memory");
    self->directory = scratch_open();
    self->path = scratch_join(self->directory.text, "log");
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    fixture *self = *state;
    sl_sinks_close(&self->sinks);
    scratch_close(&self->directory);
    free(self);
    return 0;
}

/* ---- opening ---- */

#define RUN "00000000000000010000000000000002"
#define OTHER "00000000000000010000000000000003"

typedef sl_status (*opener)(const char *path, sl_sinks *sinks);

static sl_status open_json(const char *path, sl_sinks *sinks)
{
    return sl_log_json_open(&(sl_log_target){path, SL_LOG_FILE_EMPTY, RUN}, sinks);
}

static sl_status open_csv(const char *path, sl_sinks *sinks)
{
    return sl_log_csv_open(&(sl_log_target){path, SL_LOG_FILE_EMPTY, RUN}, sinks);
}

static sl_status open_csv_behind(const char *path, sl_sinks *sinks)
{
    return sl_log_csv_open(&(sl_log_target){path, SL_LOG_FILE_APPEND, RUN}, sinks);
}

static sl_status open_events_from(const char *path, uint64_t first_step, sl_sinks *sinks)
{
    return sl_log_events_open(&(sl_log_target){path, SL_LOG_FILE_EMPTY, RUN}, first_step, sinks);
}

static sl_status open_events(const char *path, sl_sinks *sinks)
{
    return open_events_from(path, 1, sinks);
}

/* ---- reports ---- */

static sl_step_report odd_report(void)
{
    sl_step_report report = {.step = 1, .loss = NAN, .grad_norm = INFINITY, .skipped = true};
    report.moved_bytes[SL_LANE_D2H] = 12345678901234;
    report.stall_ms[SL_LANE_HOST] = 1.5;
    report.learning_rate = 0.25f;
    report.loss_scale = 8;
    report.epoch = NAN;
    return report;
}

static sl_step_report random_report(uint64_t *seed, uint64_t step)
{
    sl_step_report report = {.step = step, .tokens = UINT32_MAX, .tokens_total = 1ull << 52};
    do {
        uint64_t bits = scratch_draw(seed);
        memcpy(&report.loss, &bits, sizeof report.loss);
    } while (!isfinite(report.loss));
    do {
        uint32_t bits = (uint32_t)(scratch_draw(seed) >> 32);
        memcpy(&report.grad_norm, &bits, sizeof report.grad_norm);
    } while (!isfinite(report.grad_norm));
    report.epoch = (double)scratch_below(seed, 1000) / 64;
    return report;
}

/* ---- columns ---- */

static void columns_when_named_are_distinct(void **state)
{
    (void)state;
    char a[SL_COLUMN_NAME_BYTES], b[SL_COLUMN_NAME_BYTES];
    const sl_column *columns = sl_columns_of_step();
    for (int i = 0; columns[i].field.key; i++) {
        sl_columns_name(&columns[i], a);
        assert_non_null(columns[i].meaning);
        for (int j = 0; j < i; j++) {
            sl_columns_name(&columns[j], b);
            assert_string_not_equal(a, b);
            if (columns[i].tag && columns[j].tag)
                assert_string_not_equal(columns[i].tag, columns[j].tag);
        }
    }
}

/* docs/watching.md has a row for each, with its tag. */
static void columns_when_documented_are_all_there(void **state)
{
    (void)state;
    char name[SL_COLUMN_NAME_BYTES], row[256];
    size_t bytes;
    char *text = scratch_read(SL_TEST_SOURCE_DIRECTORY "/../docs/watching.md", &bytes);
    for (const sl_column *column = sl_columns_of_step(); column->field.key; column++) {
        sl_columns_name(column, name);
        snprintf(row, sizeof row, "| `%s` | %s%s%s | ", name, column->tag ? "`" : "",
                 column->tag ? column->tag : "", column->tag ? "`" : "");
        if (!strstr(text, row))
            fail_msg("docs/watching.md has no row \"%s\"", row);
    }
    free(text);
}

/* ---- JSON ---- */

static json_t *log_step(fixture *self, const sl_step_report *report)
{
    json_error_t error;
    assert_int_equal(open_json(self->path.text, &self->sinks), SL_OK);
    assert_int_equal(sl_sinks_step(&self->sinks, report), SL_OK);
    sl_sinks_close(&self->sinks);
    json_t *object = json_load_file(self->path.text, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        fail_msg("line is not JSON: %s", error.text);
    return object;
}

static void json_when_read_back_has_the_same_bits(void **state)
{
    uint64_t seed = scratch_seed("json", 1);
    for (uint64_t i = 0; i < 300; i++) {
        sl_step_report report = random_report(&seed, i);
        json_t *object = log_step(*state, &report);
        double read_loss = json_number_value(json_object_get(object, "loss"));
        float read_norm = (float)json_number_value(json_object_get(object, "grad_norm"));
        assert_memory_equal(&read_loss, &report.loss, sizeof read_loss);
        assert_memory_equal(&read_norm, &report.grad_norm, sizeof read_norm);
        assert_int_equal(json_integer_value(json_object_get(object, "tokens")), UINT32_MAX);
        json_decref(object);
    }
}

static void json_when_a_step_is_logged_has_every_key_of_the_contract(void **state)
{
    static const char *const keys[] = {
        "event",        "step",         "loss",       "grad_norm",  "lr",
        "tokens",       "tokens_total", "step_ms",    "flops",      "tokens_per_s",
        "device_bytes", "host_bytes",   "disk_bytes", "h2d_bytes",  "disk_written_bytes",
        "d2h_bytes",    "stall_ms",     "skipped",    "loss_scale", "disk_read_bytes",
        "forward_ms",   "backward_ms",  "update_ms",  "epoch",      "checkpoint_ms",
        "input_wait_ms"};
    static const char *const stalls[] = {"h2d", "d2h", "host", "read", "write", "comm"};
    sl_step_report report = odd_report();
    json_t *object = log_step(*state, &report);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_object_get(object, keys[i]))
            fail_msg("no key %s", keys[i]);
    assert_int_equal(json_object_size(object), sizeof keys / sizeof keys[0]);
    json_t *stall = json_object_get(object, "stall_ms");
    for (size_t i = 0; i < sizeof stalls / sizeof stalls[0]; i++)
        assert_true(json_is_number(json_object_get(stall, stalls[i])));
    assert_int_equal(json_object_size(stall), sizeof stalls / sizeof stalls[0]);
    assert_true(json_is_null(json_object_get(object, "loss")));
    assert_true(json_is_null(json_object_get(object, "grad_norm")));
    assert_true(json_is_null(json_object_get(object, "epoch")));
    assert_true(json_is_true(json_object_get(object, "skipped")));
    assert_int_equal(json_integer_value(json_object_get(object, "d2h_bytes")), 12345678901234);
    assert_true(json_number_value(json_object_get(stall, "host")) == 1.5);
    assert_true(json_number_value(json_object_get(object, "lr")) == 0.25);
    assert_true(json_number_value(json_object_get(object, "loss_scale")) == 8);
    json_decref(object);
}

static void json_when_a_run_goes_on_goes_on_too(void **state)
{
    fixture *self = *state;
    const sl_step_report report = {.step = 3};
    for (int i = 0; i < 2; i++) {
        const sl_log_target target = {self->path.text,
                                      i > 0 ? SL_LOG_FILE_APPEND : SL_LOG_FILE_EMPTY, RUN};
        assert_int_equal(sl_log_json_open(&target, &self->sinks), SL_OK);
        assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
        sl_sinks_close(&self->sinks);
    }
    size_t bytes;
    char *text = scratch_read(self->path.text, &bytes);
    assert_memory_equal(text, text + bytes / 2, bytes / 2);
    assert_int_equal(text[bytes / 2 - 1], '\n');
    free(text);
}

static void json_when_an_evaluation_is_logged_names_its_set(void **state)
{
    fixture *self = *state;
    static const char *const sets[] = {NULL, "validation", "test"};
    assert_int_equal(open_json(self->path.text, &self->sinks), SL_OK);
    for (int i = 0; i < 3; i++) {
        const sl_eval_report report = {.set = sets[i], .step = 4, .loss = 2, .perplexity = 7};
        assert_int_equal(sl_sinks_eval(&self->sinks, &report), SL_OK);
    }
    size_t bytes;
    char *text = scratch_read(self->path.text, &bytes);
    assert_string_equal(
        text, "{\"event\":\"eval\",\"step\":4,\"set\":\"eval\",\"loss\":2,\"perplexity\":7,"
              "\"tokens\":0,\"data_tokens\":0}\n"
              "{\"event\":\"eval\",\"step\":4,\"set\":\"validation\",\"loss\":2,\"perplexity\":7,"
              "\"tokens\":0,\"data_tokens\":0}\n"
              "{\"event\":\"eval\",\"step\":4,\"set\":\"test\",\"loss\":2,\"perplexity\":7,"
              "\"tokens\":0,\"data_tokens\":0}\n");
    free(text);
}

/* ---- CSV ---- */

/* Splits a line at its commas; returns the rest of the text. */
static char *split_line(char *text, char *cells[CELL_MAX], int *out_count)
{
    char *end = strchr(text, '\n');
    assert_non_null(end);
    *end = '\0';
    *out_count = 0;
    for (char *cell = text; cell; cell = strchr(cell, ',')) {
        if (*out_count > 0)
            *cell++ = '\0';
        assert_true(*out_count < CELL_MAX);
        cells[(*out_count)++] = cell;
    }
    return end + 1;
}

static const char *find_cell(char *const names[], char *const cells[], int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return cells[i];
    fail_msg("no column %s", name);
    return NULL;
}

static void csv_when_read_back_has_the_same_bits(void **state)
{
    fixture *self = *state;
    uint64_t seed = scratch_seed("csv", 2), again = seed;
    char *names[CELL_MAX], *cells[CELL_MAX];
    int name_count, count;
    size_t bytes;
    assert_int_equal(open_csv(self->path.text, &self->sinks), SL_OK);
    for (uint64_t i = 1; i <= 300; i++) {
        sl_step_report report = random_report(&seed, i);
        assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    }
    char *text = scratch_read(self->path.text, &bytes);
    char *at = split_line(text, names, &name_count);
    for (uint64_t i = 1; i <= 300; i++) {
        sl_step_report report = random_report(&again, i);
        at = split_line(at, cells, &count);
        assert_int_equal(count, name_count);
        double loss = strtod(find_cell(names, cells, count, "loss"), NULL);
        float norm = strtof(find_cell(names, cells, count, "grad_norm"), NULL);
        assert_memory_equal(&loss, &report.loss, sizeof loss);
        assert_memory_equal(&norm, &report.grad_norm, sizeof norm);
        assert_int_equal(strtoull(find_cell(names, cells, count, "step"), NULL, 10), i);
        assert_true(strtod(find_cell(names, cells, count, "epoch"), NULL) == report.epoch);
    }
    assert_int_equal(*at, '\0');
    free(text);
}

static void csv_when_values_are_odd_has_a_cell_for_each(void **state)
{
    fixture *self = *state;
    char *names[CELL_MAX], *cells[CELL_MAX];
    int count;
    size_t bytes;
    sl_step_report report = odd_report();
    assert_int_equal(open_csv(self->path.text, &self->sinks), SL_OK);
    assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    char *text = scratch_read(self->path.text, &bytes);
    split_line(split_line(text, names, &count), cells, &count);
    assert_string_equal(find_cell(names, cells, count, "loss"), "nan");
    assert_string_equal(find_cell(names, cells, count, "grad_norm"), "inf");
    assert_string_equal(find_cell(names, cells, count, "skipped"), "1");
    assert_string_equal(find_cell(names, cells, count, "epoch"), "nan");
    assert_string_equal(find_cell(names, cells, count, "stall_ms_host"), "1.5");
    assert_string_equal(find_cell(names, cells, count, "d2h_bytes"), "12345678901234");
    free(text);
}

static int count_lines(const char *path)
{
    size_t bytes;
    int count = 0;
    char *text = scratch_read(path, &bytes);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        count++;
    free(text);
    return count;
}

/* Opens behind what is there and writes a row. */
static sl_status append_row(fixture *self)
{
    const sl_step_report report = {.step = 7};
    sl_status status = open_csv_behind(self->path.text, &self->sinks);
    if (status == SL_OK)
        status = sl_sinks_step(&self->sinks, &report);
    sl_sinks_close(&self->sinks);
    return status;
}

static void csv_when_a_run_goes_on_has_its_names_once(void **state)
{
    fixture *self = *state;
    assert_int_equal(sl_log_csv_check(self->path.text, true), SL_OK); /* there is none */
    assert_int_equal(append_row(self), SL_OK);
    assert_int_equal(append_row(self), SL_OK);
    assert_int_equal(count_lines(self->path.text), 3);
    /* A row that was cut short goes. */
    size_t bytes;
    char *text = scratch_read(self->path.text, &bytes);
    assert_int_equal(truncate(self->path.text, (off_t)bytes - 3), 0);
    assert_int_equal(append_row(self), SL_OK);
    char *again = scratch_read(self->path.text, &bytes);
    assert_string_equal(again, text);
    free(again);
    /* So do names that were. */
    assert_int_equal(truncate(self->path.text, 10), 0);
    assert_int_equal(sl_log_csv_check(self->path.text, true), SL_OK);
    assert_int_equal(append_row(self), SL_OK);
    assert_int_equal(count_lines(self->path.text), 2);
    free(text);
}

static void csv_when_its_columns_are_others_is_refused_and_kept(void **state)
{
    fixture *self = *state;
    static const char *const others[] = {"step,loss\n1,2\n", "step,loss", "\n", "{\"event\":1}\n"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        size_t bytes;
        scratch_write(self->path.text, others[i], strlen(others[i]));
        bool is_start = strcmp(others[i], "step,loss") == 0; /* of the names: cut off by a crash */
        assert_int_equal(sl_log_csv_check(self->path.text, true),
                         is_start ? SL_OK : SL_ERROR_USAGE);
        if (is_start)
            continue;
        assert_non_null(strstr(sl_status_message(), self->path.text));
        assert_int_equal(append_row(self), SL_ERROR_USAGE);
        char *text = scratch_read(self->path.text, &bytes);
        assert_string_equal(text, others[i]);
        free(text);
    }
    assert_int_equal(open_csv_behind(self->directory.text, &self->sinks), SL_ERROR_IO);
}

/* ---- event files ---- */

static void checksum_when_of_the_known_text_is_the_known_one(void **state)
{
    (void)state;
    assert_int_equal(decode_crc((const unsigned char *)"123456789", 9), 0xE3069283u);
}

static void events_when_decoded_are_what_was_told(void **state)
{
    fixture *self = *state;
    const uint64_t first = 5000000000; /* a step of more than 32 bits */
    uint64_t seed = scratch_seed("events", 3), again = seed;
    assert_int_equal(open_events_from(self->path.text, first, &self->sinks), SL_OK);
    for (uint64_t i = 0; i < 40; i++) {
        sl_step_report report = random_report(&seed, first + i);
        assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    }
    decoded_file file = decode_directory(self->path.text, 0, 1);
    assert_int_equal(file.count, 42);
    assert_string_equal(file.events[0].version, "brain.Event:2");
    assert_true(file.events[1].is_start);
    assert_int_equal(file.events[1].step, first);
    for (uint32_t i = 0; i < 40; i++) {
        const decoded_event *event = &file.events[2 + i];
        sl_step_report report = random_report(&again, first + i);
        float loss = decode_tag(event, "train/loss"), wanted = (float)report.loss;
        float norm = decode_tag(event, "train/grad_norm");
        assert_int_equal(event->step, first + i);
        assert_true(event->wall_time > 1.5e9 && event->wall_time >= file.events[1 + i].wall_time);
        assert_memory_equal(&loss, &wanted, sizeof loss);
        assert_memory_equal(&norm, &report.grad_norm, sizeof norm);
        assert_true(decode_tag(event, "train/epoch") == (float)report.epoch);
        assert_true(decode_tag(event, "train/tokens_total") == 0x1p52f);
    }
    decode_close(&file);
}

static void events_when_of_every_kind_have_their_tags(void **state)
{
    fixture *self = *state;
    sl_step_report report = odd_report();
    static const char *const sets[] = {"eval", "validation", "test"};
    assert_int_equal(open_events(self->path.text, &self->sinks), SL_OK);
    assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    report.step = 2;
    assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    for (int i = 0; i < 3; i++) {
        const sl_eval_report eval = {.set = sets[i], .step = 2, .loss = 1 + i, .perplexity = 9};
        assert_int_equal(sl_sinks_eval(&self->sinks, &eval), SL_OK);
    }
    decoded_file file = decode_directory(self->path.text, 0, 1);
    assert_int_equal(file.count, 7);
    assert_true(isnan(decode_tag(&file.events[2], "train/loss")));
    assert_true(isinf(decode_tag(&file.events[2], "train/grad_norm")));
    assert_true(decode_tag(&file.events[2], "train/skipped") == 1);
    assert_true(decode_tag(&file.events[2], "stall/host_ms") == 1.5f);
    assert_false(decode_has_tag(&file.events[2], "train/epoch")); /* there are none */
    for (const sl_column *column = sl_columns_of_step(); column->field.key; column++)
        if (column->tag && !(column->field.flags & SL_FIELD_OPTIONAL))
            assert_true(decode_has_tag(&file.events[3], column->tag));
    assert_string_not_equal(file.events[2].values[0].meaning, "");
    assert_string_equal(file.events[3].values[0].meaning, ""); /* told once */
    for (int i = 0; i < 3; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "%s/loss", sets[i]);
        assert_true(decode_tag(&file.events[4 + i], tag) == (float)(1 + i));
        snprintf(tag, sizeof tag, "%s/perplexity", sets[i]);
        assert_true(decode_tag(&file.events[4 + i], tag) == 9);
    }
    decode_close(&file);
}

/* Runs that begin within one second, or after the clock was set back, are in the order of names. */
static void event_files_when_several_are_in_the_order_of_runs(void **state)
{
    fixture *self = *state;
    enum { RUNS = 4 };
    scratch_path later = scratch_join(self->path.text, "events.out.tfevents.4000000000.there.9.0");
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(open_events_from(self->path.text, 10 * (uint64_t)i + 1, &self->sinks),
                         SL_OK);
        sl_sinks_close(&self->sinks);
        if (i == 1) {
            decoded_file second = decode_directory(self->path.text, 1, 2);
            decode_close(&second);
            scratch_write(later.text, "", 0);
        }
    }
    /* In between is the file of another time, which is empty. */
    static const int places[RUNS] = {0, 1, 3, 4};
    for (int i = 0; i < RUNS; i++) {
        decoded_file file = decode_directory(self->path.text, places[i], RUNS + 1);
        assert_int_equal(file.count, 2);
        assert_int_equal(file.events[1].step, 10 * i + 1);
        decode_close(&file);
    }
}

static void event_when_it_is_too_large_is_refused_and_others_go_on(void **state)
{
    fixture *self = *state;
    sl_event_file *file = calloc(1, sizeof *file);
    const sl_log_target target = {self->path.text, SL_LOG_FILE_EMPTY, RUN};
    char tag[512];
    memset(tag, 't', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    assert_int_equal(sl_event_file_open(&target, 1, file), SL_OK);
    sl_event_file_begin(file, 1);
    for (int i = 0; i < 40; i++)
        sl_event_file_add(file, tag, 1, tag);
    assert_int_equal(sl_event_file_end(file), SL_ERROR_INTERNAL);
    sl_event_file_begin(file, 128); /* two bytes of a varint */
    sl_event_file_add(file, "a", 2, NULL);
    assert_int_equal(sl_event_file_end(file), SL_OK);
    sl_event_file_close(file);
    free(file);
    decoded_file read = decode_directory(self->path.text, 0, 1);
    assert_int_equal(read.count, 3);
    assert_true(decode_tag(&read.events[2], "a") == 2);
    assert_int_equal(read.events[2].step, 128);
    decode_close(&read);
}

static void event_files_when_there_is_no_place_for_them_are_refused(void **state)
{
    fixture *self = *state;
    scratch_write(self->path.text, "", 0);
    assert_int_not_equal(open_events(self->path.text, &self->sinks), SL_OK);
    assert_non_null(strstr(sl_status_message(), "--tensorboard"));
    assert_int_equal(self->sinks.count, 0);
}

/* ---- whose log it is ---- */

/* As a run writes it that has logged `bytes` bytes before. */
static void write_start_behind(const fixture *self, size_t bytes)
{
    char *before = calloc(1, bytes + 1);
    scratch_need(before != NULL, "memory");
    memset(before, 'x', bytes);
    if (bytes > 0)
        before[bytes - 1] = '\n';
    scratch_write(self->path.text, before, bytes);
    free(before);
    sl_sinks sinks = {.count = 0};
    sl_start_report report = {.config = json_object(), .plan = json_object()};
    assert_int_equal(
        sl_log_json_open(&(sl_log_target){self->path.text, SL_LOG_FILE_APPEND, RUN}, &sinks),
        SL_OK);
    assert_int_equal(sl_sinks_start(&sinks, &report), SL_OK);
    sl_sinks_close(&sinks);
    json_decref(report.config);
    json_decref(report.plan);
}

/* The start is found wherever it lies, parts that are read at once end in the middle of it. */
static void json_when_a_start_of_the_run_is_in_it_is_its_own(void **state)
{
    fixture *self = *state;
    for (size_t bytes = 0; bytes < 40000; bytes += bytes % 16384 < 16200 && bytes > 0 ? 5397 : 1) {
        write_start_behind(self, bytes);
        if (!sl_log_json_is_own(self->path.text, RUN))
            fail_msg("not found behind %zu bytes", bytes);
        assert_false(sl_log_json_is_own(self->path.text, OTHER));
    }
    static const char inside[] =
        "{\"event\":\"x\",\"a\":{\"event\":\"start\",\"run\":\"" RUN "\"}}";
    scratch_write(self->path.text, inside, sizeof inside - 1);
    assert_false(sl_log_json_is_own(self->path.text, RUN));
}

static void table_when_its_last_row_is_of_the_run_is_its_own(void **state)
{
    fixture *self = *state;
    const sl_step_report report = {.step = 7};
    assert_int_equal(open_csv(self->path.text, &self->sinks), SL_OK);
    assert_false(sl_log_csv_is_own(self->path.text, RUN)); /* names alone */
    for (int i = 0; i < 40; i++)
        assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    assert_true(sl_log_csv_is_own(self->path.text, RUN));
    assert_false(sl_log_csv_is_own(self->path.text, OTHER));
    FILE *file = fopen(self->path.text, "a");
    scratch_need(file && fputs("8,2.5", file) > 0 && fclose(file) == 0, "half a row");
    assert_true(sl_log_csv_is_own(self->path.text, RUN));
    scratch_write(self->path.text, "," RUN "\n", sizeof RUN + 1);
    assert_false(sl_log_csv_is_own(self->path.text, RUN)); /* no table */
}

typedef bool (*judge)(const char *path, const char *run);

/* Neither a link to an own log, nor what is no log at all; nothing is made or changed. */
static void log_when_it_is_not_the_run_s_then_not_gone_on_with(void **state)
{
    fixture *self = *state;
    static const judge judges[] = {sl_log_json_is_own, sl_log_csv_is_own, sl_log_events_is_own};
    scratch_path link = scratch_join(self->directory.text, "link");
    const sl_log_target target = {link.text, SL_LOG_FILE_OWN, RUN};
    write_start_behind(self, 0);
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            scratch_need(symlink(self->path.text, link.text) == 0, link.text);
        if (i == 2)
            scratch_need(mkfifo(link.text, 0600) == 0, link.text);
        if (i == 3)
            scratch_write(link.text, "precious\n", 9);
        for (int k = 0; k < 3; k++)
            assert_false(judges[k](link.text, RUN));
        assert_int_equal(sl_log_json_open(&target, &self->sinks), SL_ERROR_IO);
        assert_int_equal(sl_log_csv_open(&target, &self->sinks), SL_ERROR_IO);
        assert_int_equal(sl_log_events_open(&target, 1, &self->sinks), SL_ERROR_IO);
        struct stat info;
        assert_int_equal(lstat(link.text, &info), i == 0 ? -1 : 0);
        assert_true(i != 3 || info.st_size == 9);
        unlink(link.text);
    }
    assert_true(sl_log_json_is_own(self->path.text, RUN));
}

static void events_when_the_directory_holds_the_run_s_are_its_own(void **state)
{
    fixture *self = *state;
    const sl_log_target own = {self->path.text, SL_LOG_FILE_OWN, RUN};
    const sl_log_target new = {self->path.text, SL_LOG_FILE_NEW, RUN};
    assert_int_equal(sl_log_events_open(&own, 1, &self->sinks), SL_ERROR_IO);
    assert_int_equal(sl_log_events_open(&new, 1, &self->sinks), SL_OK);
    assert_int_equal(sl_log_events_open(&new, 1, &self->sinks), SL_ERROR_IO);
    assert_int_equal(sl_log_events_open(&own, 1, &self->sinks), SL_OK);
    assert_true(sl_log_events_is_own(self->path.text, RUN));
    assert_false(sl_log_events_is_own(self->path.text, OTHER));
    decoded_file file = decode_directory(self->path.text, 1, 2);
    assert_int_equal(file.count, 2);
    decode_close(&file);
}

/* ---- what cannot be written ---- */

static void log_when_it_cannot_be_opened_is_refused(void **state)
{
    fixture *self = *state;
    assert_int_equal(open_json("/nonexistent/log", &self->sinks), SL_ERROR_IO);
    assert_int_equal(open_csv("/nonexistent/log", &self->sinks), SL_ERROR_IO);
    assert_int_equal(self->sinks.count, 0);
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(open_csv("/dev/full", &self->sinks), SL_ERROR_IO); /* the names */
}

/* The size of the only file that a log has: itself, or in a directory. */
static off_t find_size(const char *path)
{
    struct stat info;
    struct dirent **names;
    char below[512];
    assert_int_equal(stat(path, &info), 0);
    if (!S_ISDIR(info.st_mode))
        return info.st_size;
    assert_int_equal(scandir(path, &names, decode_is_event_file, alphasort), 1);
    snprintf(below, sizeof below, "%.250s/%.250s", path, names[0]->d_name);
    free(names[0]);
    free(names);
    assert_int_equal(stat(below, &info), 0);
    return info.st_size;
}

/* Of a file that may not grow any more, as on a full disk, half a record is cut off again; when
 * there is room once more, records go on. */
static void check_full_disk(const fixture *self, const char *name, opener open_log)
{
    sl_sinks sinks = {.count = 0};
    sl_step_report report = {.step = 1};
    struct rlimit old;
    scratch_path path = scratch_join(self->directory.text, name);
    assert_int_equal(open_log(path.text, &sinks), SL_OK);
    assert_int_equal(sl_sinks_step(&sinks, &report), SL_OK);
    off_t before = find_size(path.text);
    assert_int_equal(sl_sinks_step(&sinks, &report), SL_OK);
    const off_t record = find_size(path.text) - before; /* the first may be longer */
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit limit = {(rlim_t)(before + 2 * record + record / 2), old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    bool has_failed[4];
    for (int i = 0; i < 4; i++) {
        sinks.failure = (sl_first_failure){0};
        if (i == 3)
            setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(sl_sinks_step(&sinks, &report), SL_OK);
        has_failed[i] = sinks.failure.status == SL_ERROR_IO;
    }
    signal(SIGXFSZ, handler);
    assert_false(has_failed[0]);
    assert_true(has_failed[1]);
    assert_true(has_failed[2]);
    assert_false(has_failed[3]);
    sl_sinks_close(&sinks);
    assert_int_equal(find_size(path.text), before + 3 * record);
}

static void log_when_its_disk_is_full_then_records_stay_whole(void **state)
{
    check_full_disk(*state, "json", open_json);
    check_full_disk(*state, "csv", open_csv);
    check_full_disk(*state, "events", open_events);
    scratch_path events = scratch_join(((fixture *)*state)->directory.text, "events");
    decoded_file file = decode_directory(events.text, 0, 1);
    assert_int_equal(file.count, 2 + 4);
    decode_close(&file);
}

typedef struct fake {
    sl_status status; /* of its steps */
    int steps, evals;
} fake;

static sl_status count_step(void *self, const sl_step_report *report)
{
    fake *f = self;
    (void)report;
    f->steps++;
    return f->status == SL_OK ? SL_OK : sl_status_fail(f->status, "sink %p", self);
}

static sl_status count_eval(void *self, const sl_eval_report *report)
{
    (void)report;
    ((fake *)self)->evals++;
    return SL_OK;
}

static const sl_sink_ops fake_ops = {.step = count_step, .eval = count_eval};

static void count_remark(void *user, sl_log_level level, const char *line)
{
    assert_int_equal(level, SL_LOG_WARNING);
    assert_non_null(strstr(line, "exit code 74"));
    ++*(int *)user;
}

/* One that cannot be written is told of later steps all the same, and so is every other one. */
static void sinks_when_some_fail_are_all_told_and_each_is_named_once(void **state)
{
    fixture *self = *state;
    fake fakes[4] = {
        {.status = SL_OK}, {.status = SL_ERROR_IO}, {.status = SL_OK}, {.status = SL_ERROR_IO}};
    const sl_step_report report = {.step = 1};
    const sl_eval_report eval = {.step = 1};
    int remarks = 0;
    for (int i = 0; i < 4; i++)
        sl_sinks_add(&self->sinks, &fake_ops, &fakes[i]);
    sl_log_set_callback(count_remark, &remarks);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_OK);
    sl_log_set_callback(NULL, NULL);
    assert_int_equal(remarks, 2);
    assert_int_equal(sl_sinks_eval(&self->sinks, &eval), SL_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(fakes[i].steps, 3);
    assert_int_equal(fakes[3].evals, 1);
    assert_int_equal(self->sinks.failure.status, SL_ERROR_IO);
    /* Another failure is none of writing. */
    fakes[0].status = SL_ERROR_SYSTEM;
    assert_int_equal(sl_sinks_step(&self->sinks, &report), SL_ERROR_SYSTEM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(columns_when_named_are_distinct),
        TEST(columns_when_documented_are_all_there),
        TEST(json_when_read_back_has_the_same_bits),
        TEST(json_when_a_step_is_logged_has_every_key_of_the_contract),
        TEST(json_when_a_run_goes_on_goes_on_too),
        TEST(json_when_an_evaluation_is_logged_names_its_set),
        TEST(csv_when_read_back_has_the_same_bits),
        TEST(csv_when_values_are_odd_has_a_cell_for_each),
        TEST(csv_when_a_run_goes_on_has_its_names_once),
        TEST(csv_when_its_columns_are_others_is_refused_and_kept),
        TEST(checksum_when_of_the_known_text_is_the_known_one),
        TEST(events_when_decoded_are_what_was_told),
        TEST(events_when_of_every_kind_have_their_tags),
        TEST(event_files_when_several_are_in_the_order_of_runs),
        TEST(event_when_it_is_too_large_is_refused_and_others_go_on),
        TEST(event_files_when_there_is_no_place_for_them_are_refused),
        TEST(json_when_a_start_of_the_run_is_in_it_is_its_own),
        TEST(table_when_its_last_row_is_of_the_run_is_its_own),
        TEST(log_when_it_is_not_the_run_s_then_not_gone_on_with),
        TEST(events_when_the_directory_holds_the_run_s_are_its_own),
        TEST(log_when_it_cannot_be_opened_is_refused),
        TEST(log_when_its_disk_is_full_then_records_stay_whole),
        TEST(sinks_when_some_fail_are_all_told_and_each_is_named_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
