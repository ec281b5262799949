/* Two configurations are merged: the checkpoint's, made of its record over the defaults, and the
 * present one. Both are compared as they print, with absolute paths. */
#define _GNU_SOURCE /* open_memstream */
#include "restore.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "config_json.h"
#include "files/files.h"
#include "files/json_file.h"
#include "units.h"

enum { KEY_BYTES = 64 };

#define ROW(field) SL_CONFIG_ROW_##field

/* Taken over as they were resolved. */
static const uint32_t resolved_rows[] = {
    ROW(data),
    ROW(data_order),
    ROW(split),
    ROW(json_key),
    ROW(prompt_key),
    ROW(response_key),
    ROW(messages_key),
    ROW(template_file),
    ROW(loss),
    ROW(pack),
    ROW(epochs),
    ROW(train_tokens),
    ROW(document_per),
    ROW(end_of_text),
    ROW(documents),
    ROW(dropout),
    ROW(lora_dropout),
    ROW(micro_batch),
    ROW(seq),
    ROW(accumulate),
    ROW(global_batch),
    ROW(steps),
    ROW(precision),
    ROW(lr),
    ROW(min_lr),
    ROW(warmup),
    ROW(lr_schedule),
    ROW(beta1),
    ROW(beta2),
    ROW(eps),
    ROW(clip),
    ROW(weight_decay),
    ROW(optimizer),
    ROW(momentum),
    ROW(nesterov),
    ROW(muon_scale),
    ROW(state_type),
    ROW(master_type),
    ROW(frozen_type),
    ROW(rule),
    ROW(lr_of),
    ROW(decay_of),
    ROW(freeze),
    ROW(loss_scale),
    ROW(nonfinite),
    ROW(warmup_type),
    ROW(warmup_lr),
    ROW(lr_decay_steps),
    ROW(lr_skips),
    ROW(loss_scale_start),
    ROW(loss_scale_window),
    ROW(loss_scale_hysteresis),
    ROW(loss_scale_min),
};

/* What a run did before there was such an option, where that is not its default. */
static const struct {
    uint32_t row;
    const char *text;
} earlier_values[] = {{ROW(lr_skips), "count"}};

/* Of one start, or kept elsewhere. */
static const uint32_t unkept_rows[] = {ROW(save),  ROW(resume),   ROW(overwrite),
                                       ROW(quiet), ROW(timeline), ROW(report),
                                       ROW(seed),  ROW(dp),       ROW(self_test_mode)};

/* Paths at which files are made or written: no such path is taken over. */
static const uint32_t written_rows[] = {ROW(cache_dir), ROW(disk_dir), ROW(log_json), ROW(log_csv),
                                        ROW(tensorboard)};

/* Of these, the paths that are always dropped, with a warning; train/logs.h decides about logs. */
static const uint32_t dropped_rows[] = {ROW(cache_dir), ROW(disk_dir)};

/* The first was chosen for the second. */
static const uint32_t dependent_rows[][2] = {
    {ROW(loss_scale), ROW(precision)},
    {ROW(nonfinite), ROW(precision)},
    {ROW(loss_scale_start), ROW(precision)},
    {ROW(loss_scale_window), ROW(precision)},
    {ROW(loss_scale_hysteresis), ROW(precision)},
    {ROW(loss_scale_min), ROW(precision)},
    {ROW(loss_scale_start), ROW(loss_scale)},
    {ROW(loss_scale_window), ROW(loss_scale)},
    {ROW(loss_scale_hysteresis), ROW(loss_scale)},
    {ROW(loss_scale_min), ROW(loss_scale)},
    {ROW(master_type), ROW(precision)},
    {ROW(device_memory), ROW(device)},
    {ROW(host_memory), ROW(device)},
    {ROW(stages), ROW(pp)},
    {ROW(adam), ROW(policy)},
    {ROW(offload_updates), ROW(policy)},
    {ROW(offload_updates), ROW(adam)},
    {ROW(offload_params), ROW(policy)},
    {ROW(offload_grads), ROW(policy)},
    {ROW(offload_optimizer), ROW(policy)},
    {ROW(offload_activations), ROW(policy)},
    {ROW(nvme_params), ROW(policy)},
    {ROW(nvme_grads), ROW(policy)},
    {ROW(nvme_optimizer), ROW(policy)},
    {ROW(nvme_activations), ROW(policy)},
};

/* For tensor-parallel ranks alone: left behind with them. */
static const uint32_t split_rows[] = {ROW(sequence_parallel), ROW(partition_activations),
                                      ROW(split_layout)};

/* Follows from the second, unless it was given. */
static const uint32_t derived_rows[][2] = {
    {ROW(min_lr), ROW(lr)},
    {ROW(beta2), ROW(optimizer)},
    {ROW(nonfinite), ROW(loss_scale)},
    {ROW(lr_decay_steps), ROW(steps)},
    {ROW(lr_decay_steps), ROW(epochs)},
    {ROW(lr_decay_steps), ROW(train_tokens)},
};

/* Of these one says how long the run is. */
static const uint32_t length_rows[] = {ROW(steps), ROW(epochs), ROW(train_tokens)};

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static bool is_among(uint32_t row, const uint32_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i] == row)
            return true;
    return false;
}

/* ---- the checkpoint's configuration ---- */

static sl_status parse_record(const char *text, json_t **out_object)
{
    json_error_t error;
    SL_TRY(sl_json_file_load(text, strlen(text), JSON_REJECT_DUPLICATES, &error, out_object));
    if (!json_is_object(*out_object))
        SL_FAIL(SL_ERROR_DATA, "the options of the checkpoint are not a JSON object");
    return SL_OK;
}

static sl_status set_recorded(sl_config *config, uint32_t row, const json_t *value)
{
    sl_status status = sl_config_set_json(config, row, value);
    if (status == SL_OK || status == SL_ERROR_SYSTEM)
        return status;
    return sl_status_prefix(SL_ERROR_DATA, "an option of the checkpoint");
}

static sl_status take_earlier_values(sl_config *before)
{
    for (size_t i = 0; i < COUNT_OF(earlier_values); i++)
        SL_TRY(sl_config_resolve(before, earlier_values[i].row, earlier_values[i].text));
    return SL_OK;
}

static sl_status read_resolved(sl_config *before, const json_t *object)
{
    SL_TRY(take_earlier_values(before));
    for (size_t i = 0; i < COUNT_OF(resolved_rows); i++) {
        char key[KEY_BYTES];
        sl_config_format_key(resolved_rows[i], key, sizeof key);
        const json_t *value = json_object_get(object, key);
        if (value)
            SL_TRY(set_recorded(before, resolved_rows[i], value));
        before->given[resolved_rows[i]] = false;
    }
    return SL_OK;
}

static sl_status read_given(sl_config *before, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        uint32_t row;
        if (sl_config_find(SL_CONFIG_TRAIN, key, &row) != SL_OK)
            sl_log_write(SL_LOG_WARNING, "an option of the checkpoint is passed over: %s",
                         sl_status_message());
        else if (!is_among(row, unkept_rows, COUNT_OF(unkept_rows)))
            SL_TRY(set_recorded(before, row, value));
    }
    return SL_OK;
}

static sl_status read_record(sl_config *before, const sl_config_record *record)
{
    json_t *resolved = NULL, *given = NULL;
    sl_status status = parse_record(record->resolved_json, &resolved);
    if (status == SL_OK)
        status = read_resolved(before, resolved);
    if (status == SL_OK && record->given_json)
        status = parse_record(record->given_json, &given);
    if (status == SL_OK && given)
        status = read_given(before, given);
    json_decref(resolved);
    json_decref(given);
    return status;
}

/* ---- both ---- */

typedef struct merge {
    sl_config *config;                              /* the present one */
    const sl_config *before;                        /* the checkpoint's */
    json_t *now_values, *was_values, *fresh_values; /* the last: of no options at all */
    bool given_now[SL_CONFIG_ROW_COUNT];
    bool knows_given; /* the checkpoint says what was given before */
} merge;

static const json_t *find_value(const json_t *values, uint32_t row)
{
    char key[KEY_BYTES];
    sl_config_format_key(row, key, sizeof key);
    return json_object_get(values, key);
}

static bool is_changed(const merge *self, uint32_t row)
{
    const json_t *was = find_value(self->was_values, row), *now = find_value(self->now_values, row);
    return self->given_now[row] && was && now && !json_equal(was, now);
}

/* As a user would write it. */
static void print_value(FILE *stream, uint32_t row, const json_t *value)
{
    char size[SL_UNITS_TEXT_BYTES];
    size_t index;
    const json_t *item;
    if (json_is_string(value)) {
        fputs(sl_files_show(json_string_value(value)).text, stream);
    } else if (json_is_real(value)) {
        fprintf(stream, "%.9g", json_real_value(value));
    } else if (json_is_integer(value) && sl_config_rows()[row].kind == SL_CONFIG_SIZE) {
        sl_units_format_exact_size((uint64_t)json_integer_value(value), size);
        fputs(size, stream);
    } else if (json_is_integer(value)) {
        fprintf(stream, "%lld", (long long)json_integer_value(value));
    } else if (json_is_boolean(value)) {
        fputs(json_is_true(value) ? "true" : "false", stream);
    } else if (json_array_size(value) == 0) {
        fputs("none", stream);
    }
    json_array_foreach((json_t *)value, index, item)
    {
        const char *text = json_string_value(item); /* NULL: a record that was tampered with */
        const bool is_empty = text != NULL && *text == '\0';
        fprintf(stream, "%s%s", index ? " " : "", is_empty ? "''" : sl_files_show(text).text);
    }
}

static void print_change(FILE *stream, uint32_t row, const json_t *was, const json_t *now)
{
    fprintf(stream, "--%s ", sl_config_rows()[row].name);
    print_value(stream, row, find_value(was, row));
    fputs(" → ", stream);
    print_value(stream, row, find_value(now, row));
}

/* What the run is: a difference is refused, here or by whoever resolves the shape. */
static bool is_identity(uint32_t row)
{
    return row == ROW(init) || row == ROW(adapter) || row == ROW(lora_rank) ||
           row == ROW(lora_alpha) || row == ROW(lora_targets) || sl_config_is_of_shape(row);
}

/* Where it is not known what was given, the numbers are known all the same. */
static bool is_told(const merge *self, uint32_t row)
{
    return is_changed(self, row) && !is_among(row, unkept_rows, COUNT_OF(unkept_rows)) &&
           !is_identity(row) &&
           (self->knows_given || is_among(row, resolved_rows, COUNT_OF(resolved_rows)));
}

/* True if another option says how long the run is now. */
static bool is_other_length(const merge *self, uint32_t row)
{
    bool has_other = false;
    for (size_t i = 0; i < COUNT_OF(length_rows); i++)
        has_other = has_other || (length_rows[i] != row && self->given_now[length_rows[i]]);
    return has_other && is_among(row, length_rows, COUNT_OF(length_rows));
}

/* True if an option was chosen because of another option, which is different now. */
static bool is_obsolete(const merge *self, uint32_t row)
{
    if (is_other_length(self, row))
        return true;
    for (size_t i = 0; i < COUNT_OF(dependent_rows); i++)
        if (dependent_rows[i][0] == row && is_changed(self, dependent_rows[i][1]))
            return true;
    for (size_t i = 0; i < COUNT_OF(derived_rows); i++)
        if (derived_rows[i][0] == row && !self->before->given[row] &&
            is_changed(self, derived_rows[i][1]))
            return true;
    return self->config->tp == 1 && is_changed(self, ROW(tp)) &&
           is_among(row, split_rows, COUNT_OF(split_rows));
}

static bool is_taken_over(const merge *self, uint32_t row)
{
    bool is_kept =
        self->before->given[row] || is_among(row, resolved_rows, COUNT_OF(resolved_rows));
    return is_kept && !self->given_now[row] && !is_obsolete(self, row) &&
           !is_among(row, written_rows, COUNT_OF(written_rows));
}

/* True if nobody gave the option now, and the checkpoint's value overrides the default that a
 * foreign file, which leaves the option out, stands for. The file's table shows that default. */
static bool is_overridden(const merge *self, uint32_t row)
{
    const json_t *was = find_value(self->was_values, row), *now = find_value(self->now_values, row);
    return is_taken_over(self, row) && was && now && !json_equal(was, now) &&
           !json_equal(now, find_value(self->fresh_values, row));
}

static void print_stays(FILE *stream, const merge *self, uint32_t row)
{
    const char *name = sl_config_rows()[row].name;
    fprintf(stream, "--%s ", name);
    print_value(stream, row, find_value(self->was_values, row));
    fputs(" stays: --config leaves it out, which is ", stream);
    print_value(stream, row, find_value(self->now_values, row));
    fprintf(stream, " for a new run alone; give --%s to change it", name);
}

/* Warns at once, and not where changes are reported: a later check may fail because a dropped path
 * is missing. */
static sl_status warn_of_dropped(const merge *self)
{
    for (size_t i = 0; i < COUNT_OF(dropped_rows); i++) {
        char *text = NULL;
        size_t bytes;
        const uint32_t row = dropped_rows[i];
        const char *name = sl_config_rows()[row].name;
        if (!self->before->given[row] || self->given_now[row])
            continue;
        FILE *stream = open_memstream(&text, &bytes);
        if (!stream)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for the options of the checkpoint");
        print_value(stream, row, find_value(self->was_values, row));
        if (fclose(stream) == 0)
            sl_log_write(SL_LOG_WARNING,
                         "the checkpoint names --%s %s, which is not taken over: no file is made "
                         "at a path that only a checkpoint names; give --%s to use it",
                         name, text, name);
        free(text);
    }
    return SL_OK;
}

static sl_status describe_changes(const merge *self, char **out_changes)
{
    size_t bytes;
    FILE *stream = open_memstream(out_changes, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the changes of options");
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (is_overridden(self, row))
            print_stays(stream, self, row);
        else if (is_told(self, row))
            print_change(stream, row, self->was_values, self->now_values);
        else
            continue;
        fputc('\n', stream);
    }
    if (fclose(stream) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the changes of options");
    return SL_OK;
}

/* Copies by way of the printed value, so that paths become absolute. */
static sl_status take_over(const merge *self)
{
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (!is_taken_over(self, row))
            continue;
        SL_TRY(set_recorded(self->config, row, find_value(self->was_values, row)));
        self->config->given[row] = self->before->given[row];
    }
    return SL_OK;
}

sl_status sl_config_recorded_path(const sl_config_record *record, uint32_t row, char **out_path)
{
    json_t *given = NULL;
    char key[KEY_BYTES];
    *out_path = NULL;
    if (!record->given_json)
        return SL_OK;
    SL_TRY(parse_record(record->given_json, &given));
    sl_config_format_key(row, key, sizeof key);
    const char *path = json_string_value(json_object_get(given, key));
    const bool is_named = path && *path;
    if (is_named)
        *out_path = strdup(path);
    json_decref(given);
    if (is_named && !*out_path)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    return SL_OK;
}

sl_status sl_config_recorded_number(const sl_config_record *record, uint32_t row,
                                    uint64_t *out_number)
{
    json_t *resolved = NULL;
    char key[KEY_BYTES];
    SL_TRY(parse_record(record->resolved_json, &resolved));
    sl_config_format_key(row, key, sizeof key);
    const json_t *value = json_object_get(resolved, key);
    const json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    *out_number = number < 0 ? SL_CONFIG_UNSET : (uint64_t)number;
    json_decref(resolved);
    return SL_OK;
}

/* The weights come from the checkpoint, so other ones cannot be meant. */
static sl_status check_init(const merge *self)
{
    if (self->knows_given && is_changed(self, ROW(adapter)))
        SL_FAIL(SL_ERROR_USAGE,
                "--adapter %s: the run under --save goes on from its checkpoint, which has its "
                "adapters: leave --adapter out, or begin anew with --overwrite",
                self->config->adapter);
    if (!self->knows_given || !is_changed(self, ROW(init)))
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE,
            "--init %s: the run under --save began with \"%s\" and goes on from its checkpoint: "
            "leave --init out, or begin anew with --overwrite",
            self->config->init, self->before->init);
}

static sl_status format_all(merge *self)
{
    sl_config fresh;
    SL_TRY(sl_config_init(&fresh));
    sl_status status = sl_config_format(&fresh, SL_CONFIG_TRAIN, &self->fresh_values);
    if (status == SL_OK)
        status = sl_config_format(self->config, SL_CONFIG_TRAIN, &self->now_values);
    if (status == SL_OK)
        status = sl_config_format(self->before, SL_CONFIG_TRAIN, &self->was_values);
    sl_config_clear(&fresh);
    return status;
}

static sl_status merge_both(sl_config *config, const sl_config *before,
                            const sl_config_record *record, char **out_changes)
{
    merge self = {.config = config, .before = before, .knows_given = record->given_json != NULL};
    memcpy(self.given_now, config->given, sizeof self.given_now);
    sl_status status = sl_config_use_one_spelling(config); /* as the record has them */
    if (status == SL_OK)
        status = format_all(&self);
    if (status == SL_OK)
        status = check_init(&self);
    if (status == SL_OK)
        status = take_over(&self);
    if (status == SL_OK)
        status = warn_of_dropped(&self);
    if (status == SL_OK)
        status = describe_changes(&self, out_changes);
    json_decref(self.fresh_values);
    json_decref(self.now_values);
    json_decref(self.was_values);
    return status;
}

sl_status sl_config_restore(sl_config *config, const sl_config_record *record, char **out_changes)
{
    sl_config before;
    SL_TRY(sl_config_init(&before));
    sl_status status = read_record(&before, record);
    if (status == SL_OK)
        status = merge_both(config, &before, record, out_changes);
    config->is_restored = status == SL_OK;
    sl_config_clear(&before);
    return status;
}

/* ---- what followed ---- */

/* The option whose change a number of this row followed; NULL: none. */
static const char *find_cause(uint32_t row, const json_t *was, const json_t *now)
{
    const struct {
        const uint32_t (*rows)[2];
        size_t count;
    } lists[] = {{derived_rows, COUNT_OF(derived_rows)},
                 {dependent_rows, COUNT_OF(dependent_rows)}};
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        for (size_t j = 0; j < lists[i].count; j++) {
            uint32_t cause = lists[i].rows[j][1];
            if (lists[i].rows[j][0] == row &&
                !json_equal(find_value(was, cause), find_value(now, cause)))
                return sl_config_rows()[cause].name;
        }
    return NULL;
}

static sl_status print_followers(const sl_config *config, const sl_config *before, FILE *stream)
{
    json_t *was = NULL, *now = NULL;
    sl_status status = sl_config_format(before, SL_CONFIG_TRAIN, &was);
    if (status == SL_OK)
        status = sl_config_format(config, SL_CONFIG_TRAIN, &now);
    for (size_t i = 0; status == SL_OK && i < COUNT_OF(resolved_rows); i++) {
        uint32_t row = resolved_rows[i];
        const char *cause = find_cause(row, was, now);
        if (config->given[row] || !cause || json_equal(find_value(was, row), find_value(now, row)))
            continue;
        print_change(stream, row, was, now);
        fprintf(stream, ", which follows from --%s\n", cause);
    }
    json_decref(was);
    json_decref(now);
    return status;
}

static sl_status append_followers(const sl_config *config, const sl_config *before, char **changes)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the changes of options");
    fputs(*changes ? *changes : "", stream);
    sl_status status = print_followers(config, before, stream);
    if (fclose(stream) != 0 && status == SL_OK)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the changes of options");
    if (status != SL_OK) {
        free(text);
        return status;
    }
    free(*changes);
    *changes = text;
    return SL_OK;
}

sl_status sl_config_tell_followers(const sl_config *config, const sl_config_record *record,
                                   char **changes)
{
    sl_config before;
    SL_TRY(sl_config_init(&before));
    sl_status status = read_record(&before, record);
    if (status == SL_OK)
        status = append_followers(config, &before, changes);
    sl_config_clear(&before);
    return status;
}
