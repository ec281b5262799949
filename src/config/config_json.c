/* JSON values become text and take the way of every other setting. */
#define _GNU_SOURCE /* getcwd that allocates */
#include "config_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/fields.h"
#include "files/files.h"
#include "files/json_file.h"
#include "fine_tuning.h"
#include "foreign/words.h"

enum { NUMBER_BYTES = 32, KEY_BYTES = 64, ITEM_BYTES = 256 };

static sl_status set_item_list(sl_config *config, uint32_t row, const json_t *array)
{
    SL_TRY(sl_config_set(config, row, ""));
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)array, index, item)
    {
        if (!json_is_string(item))
            SL_FAIL(SL_ERROR_USAGE, "item %zu is not a string", index + 1);
        SL_TRY(sl_config_append(config, row, json_string_value(item)));
    }
    return SL_OK;
}

/* {"PATTERN": VALUE, ...}, of options whose items are PATTERN=VALUE; in the order of the file. */
static sl_status set_table(sl_config *config, uint32_t row, const json_t *table)
{
    const char *key;
    json_t *value;
    if (!strstr(sl_config_rows()[row].hint ? sl_config_rows()[row].hint : "", "PATTERN="))
        SL_FAIL(SL_ERROR_USAGE, "an object is not a value");
    SL_TRY(sl_config_set(config, row, ""));
    json_object_foreach((json_t *)table, key, value)
    {
        char item[ITEM_BYTES];
        int length = -1;
        if (json_is_string(value))
            length = snprintf(item, sizeof item, "%s=%s", key, json_string_value(value));
        else if (json_is_number(value))
            length = snprintf(item, sizeof item, "%s=%.17g", key, json_number_value(value));
        if (length < 0 || (size_t)length >= sizeof item)
            SL_FAIL(SL_ERROR_USAGE, "\"%.64s\" is neither a word nor a number", key);
        SL_TRY(sl_config_append(config, row, item));
    }
    return SL_OK;
}

sl_status sl_config_set_json(sl_config *config, uint32_t row, const json_t *value)
{
    char number[NUMBER_BYTES];
    switch (json_typeof(value)) {
    case JSON_STRING:
        return sl_config_set(config, row, json_string_value(value));
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        return sl_config_set(config, row, number);
    case JSON_REAL:
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
        return sl_config_set(config, row, number);
    case JSON_TRUE:
        return sl_config_set(config, row, "true");
    case JSON_FALSE:
        return sl_config_set(config, row, "false");
    case JSON_NULL:
        return sl_config_set_default(config, row);
    case JSON_ARRAY:
        return set_item_list(config, row, value);
    case JSON_OBJECT:
        return set_table(config, row, value);
    }
    SL_FAIL(SL_ERROR_INTERNAL, "a value of JSON has no type");
}

/* ---- a file for every command ---- */

/* Commands by name. What holds for train holds for plan and profile: train comes first, they win.
 */
static const struct command_name {
    const char *name;
    sl_config_command command;
    unsigned readers; /* a set of commands */
} command_names[] = {
    {"train", SL_CONFIG_TRAIN, SL_CONFIG_TRAIN | SL_CONFIG_PLAN | SL_CONFIG_PROFILE},
    {"plan", SL_CONFIG_PLAN, SL_CONFIG_PLAN},
    {"profile", SL_CONFIG_PROFILE, SL_CONFIG_PROFILE},
    {"generate", SL_CONFIG_GENERATE, SL_CONFIG_GENERATE},
    {"eval", SL_CONFIG_EVAL, SL_CONFIG_EVAL},
    {"doctor", SL_CONFIG_DOCTOR, SL_CONFIG_DOCTOR},
    {"bench", SL_CONFIG_BENCH, SL_CONFIG_BENCH},
    {"tokenize", SL_CONFIG_TOKENIZE, SL_CONFIG_TOKENIZE},
    {"convert", SL_CONFIG_CONVERT, SL_CONFIG_CONVERT},
    {"report", SL_CONFIG_REPORT, SL_CONFIG_REPORT},
};

enum { COMMAND_COUNT = sizeof command_names / sizeof command_names[0] };

/* Options that mean something else with each command. */
static const uint32_t ambiguous_rows[] = {SL_CONFIG_ROW_output, SL_CONFIG_ROW_format};

/* A file that is read for one command. */
typedef struct reading {
    sl_config *config;
    sl_config_command command;
    sl_config *others; /* takes the options of other commands, which are only checked */
} reading;

static bool is_command(const char *key)
{
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(command_names[i].name, key) == 0)
            return true;
    return false;
}

static sl_status refuse_ambiguous(uint32_t row)
{
    for (size_t i = 0; i < sizeof ambiguous_rows / sizeof ambiguous_rows[0]; i++)
        if (ambiguous_rows[i] == row)
            SL_FAIL(SL_ERROR_USAGE,
                    "commands use this name differently: put it in an object named after the "
                    "command, as \"tokenize\": {\"%s\": ...}",
                    sl_config_rows()[row].name);
    return SL_OK;
}

/* Appends what a key of an object is here, as "; "KEY": a word of ...". False: it is unknown. */
static bool add_meaning(const char *key, char *text, size_t capacity)
{
    uint32_t row;
    char meaning[SL_WORDS_TEXT_BYTES];
    const bool is_ours = sl_config_find(SL_CONFIG_ANY, key, &row) == SL_OK;
    if (is_ours)
        snprintf(meaning, sizeof meaning, " is --%s", sl_config_rows()[row].name);
    else if (!sl_words_explain(SL_WORD_KEY, NULL, key, meaning))
        return false;
    const size_t used = strlen(text);
    snprintf(text + used, capacity - used, "; \"%.32s\"%s", key, meaning);
    return true;
}

/* Refuses an object whose name is no command: the name is misspelt, or the object groups options as
 * another program does. Explains up to EXPLAINED_MAX of its keys. */
static sl_status fail_object(const char *name, json_t *object)
{
    enum { EXPLAINED_MAX = 4 };
    const char *key;
    json_t *value;
    char text[2 * SL_WORDS_TEXT_BYTES] = "", hint[SL_WORDS_TEXT_BYTES];
    uint32_t explained_count = 0;
    sl_nearest nearest = sl_nearest_start(name);
    for (int i = 0; i < COMMAND_COUNT; i++)
        sl_nearest_offer(&nearest, command_names[i].name);
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    if (*hint)
        SL_FAIL(SL_ERROR_USAGE, "unknown command \"%s\"%s", name, hint);
    (void)sl_words_explain(SL_WORD_KEY, NULL, name, hint);
    json_object_foreach(object, key, value)
    {
        if (explained_count < EXPLAINED_MAX)
            explained_count += add_meaning(key, text, sizeof text);
    }
    SL_FAIL(SL_ERROR_USAGE,
            "key \"%s\" is an object%s: only an object named after a command, such as train, holds "
            "options; put its keys beside the others%s",
            name, hint, text);
}

static bool is_auto(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strcmp(text, "auto") == 0;
}

/* Beside the options of all commands "tokens" is generate's, as it was before train had one; but
 * the printed configuration of train has it there, too, and is "auto" for most runs. */
static sl_status set_key(const reading *self, const char *key, json_t *value)
{
    uint32_t row;
    sl_status found = sl_config_find(SL_CONFIG_ANY, key, &row);
    if (found != SL_OK)
        return json_is_object(value) ? fail_object(key, value) : found;
    if (row == SL_CONFIG_ROW_train_tokens && !is_auto(value))
        row = SL_CONFIG_ROW_tokens;
    bool is_taken = sl_config_rows()[row].commands & self->command;
    sl_status status = refuse_ambiguous(row);
    if (status == SL_OK)
        status = sl_config_set_json(is_taken ? self->config : self->others, row, value);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "key \"%s\"", key);
}

/* The object under the name of a command. */
static sl_status set_object(const reading *self, const struct command_name *owner, json_t *object)
{
    const char *key;
    json_t *value;
    sl_config *config = owner->readers & self->command ? self->config : self->others;
    json_object_foreach(object, key, value)
    {
        uint32_t row;
        sl_status status = sl_config_find(owner->command, key, &row);
        if (status == SL_OK)
            status = sl_config_set_json(config, row, value);
        else if (json_is_object(value))
            status = fail_object(key, value);
        if (status != SL_OK)
            return sl_status_prefix(status, "key \"%s\" of \"%s\"", key, owner->name);
    }
    return SL_OK;
}

static sl_status set_all(const reading *self, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_object(value) || !is_command(key))
            SL_TRY(set_key(self, key, value));
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        json_t *of_command = json_object_get(object, command_names[i].name);
        if (of_command)
            SL_TRY(set_object(self, &command_names[i], of_command));
    }
    return SL_OK;
}

sl_status sl_config_read(sl_config *config, sl_config *others, sl_config_command command,
                         json_t *object)
{
    return set_all(&(reading){config, command, others}, object);
}

/* ---- printing ---- */

/* True if an option's value is a path: its hint says so, and the value is none of the words there
 * or the default. */
static bool is_path(const sl_config_row *row, const char *text)
{
    size_t length = strlen(text);
    bool is_word = strncmp(row->hint, text, length) == 0 && row->hint[length] == '|';
    return !is_word && strcmp(text, row->initial) != 0 &&
           (strstr(row->hint, "DIR") || strstr(row->hint, "FILE") || strstr(row->hint, "PATH"));
}

static sl_status refuse_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
}

/* How many bytes follow the first one of a letter in UTF-8; -1: no letter begins so. */
static int count_following(unsigned char first)
{
    if (first < 0x80)
        return 0;
    if (first >= 0xc2 && first < 0xe0)
        return 1;
    if (first >= 0xe0 && first < 0xf0)
        return 2;
    return first >= 0xf0 && first < 0xf5 ? 3 : -1;
}

/* As JSON wants it: the shortest spelling of each letter, and no halves of pairs (Unicode, table
 * 3-7: the second byte decides). */
static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        unsigned char first = *at++;
        unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        int following = count_following(first);
        if (following < 0)
            return false;
        for (; following > 0; following--, at++, low = 0x80, high = 0xbf)
            if (*at < low || *at > high)
                return false;
    }
    return true;
}

/* How options are printed. */
typedef struct printing {
    const char *directory; /* from which paths are seen */
    bool needs_all;        /* refuses what JSON cannot say */
    bool keeps_auto;       /* "auto" where that was given, whatever was chosen */
} printing;

/* Recorded as something else, a text would not come back when the run goes on. */
static sl_status spell_text(const sl_config_row *row, const printing *how, const char *text,
                            json_t **out_value)
{
    bool is_spelled = is_utf8(text);
    if (!is_spelled && how->needs_all)
        SL_FAIL(SL_ERROR_USAGE,
                "--%s %s: this is not UTF-8, so that a checkpoint could not record it: rename it, "
                "or use a link whose name is",
                row->name, sl_files_show(text).text);
    *out_value = is_spelled ? json_string(text) : json_null();
    return *out_value ? SL_OK : refuse_memory();
}

/* Of an item of --data, its path. */
static const char *skip_weight(const sl_config_row *row, const char *text)
{
    double weight;
    return row == &sl_config_rows()[SL_CONFIG_ROW_data] ? sl_config_weigh(text, &weight) : text;
}

static sl_status format_text(const sl_config_row *row, const printing *how, const char *text,
                             json_t **out_value)
{
    char *path = NULL;
    *out_value = json_null();
    if (!text)
        return SL_OK;
    const char *bare = skip_weight(row, text);
    if (*bare == '/' || !is_path(row, text))
        return spell_text(row, how, text, out_value);
    if (asprintf(&path, "%.*s%s/%s", (int)(bare - text), text, how->directory, bare) < 0)
        return refuse_memory();
    sl_status status = spell_text(row, how, path, out_value);
    free(path);
    return status;
}

static sl_status format_items(const sl_config_row *row, const printing *how,
                              const sl_config_list *list, json_t *array)
{
    for (uint32_t i = 0; i < list->count; i++) {
        json_t *value;
        SL_TRY(format_text(row, how, list->items[i], &value));
        if (json_array_append_new(array, value) != 0)
            return refuse_memory();
    }
    return SL_OK;
}

static sl_status format_list(const sl_config_row *row, const printing *how,
                             const sl_config_list *list, json_t **out_value)
{
    json_t *array = json_array();
    sl_status status = array ? format_items(row, how, list, array) : refuse_memory();
    if (status != SL_OK) {
        json_decref(array);
        return status;
    }
    *out_value = array;
    return SL_OK;
}

/* JSON readers keep no more than 63 bits of a number; as text it is read back in full. */
static sl_field_kind choose_integer(uint64_t value)
{
    return value > INT64_MAX && value != SL_CONFIG_UNSET ? SL_FIELD_U64_TEXT : SL_FIELD_U64;
}

/* Formats a share of --steps, before --steps is known. */
static sl_status format_share(const sl_config_steps *steps, json_t **out_value)
{
    *out_value = json_real(steps->share);
    return *out_value ? SL_OK : refuse_memory();
}

static sl_status format_option(const sl_config *config, const sl_config_row *row,
                               const printing *how, json_t **out_value)
{
    static const sl_field_kind kinds[] = {
        [SL_CONFIG_COUNT] = SL_FIELD_U64,     [SL_CONFIG_ELEMENTS] = SL_FIELD_U64,
        [SL_CONFIG_STEPS] = SL_FIELD_U64,     [SL_CONFIG_SIZE] = SL_FIELD_U64,
        [SL_CONFIG_REAL] = SL_FIELD_F64,      [SL_CONFIG_SWITCH] = SL_FIELD_BOOL,
        [SL_CONFIG_CHOICE] = SL_FIELD_CHOICE,
    };
    const void *field = (const char *)config + row->offset;
    if (how->keeps_auto && config->was_auto[row - sl_config_rows()]) {
        *out_value = json_string("auto");
        return *out_value ? SL_OK : refuse_memory();
    }
    if (row->kind == SL_CONFIG_LIST_OF)
        return format_list(row, how, field, out_value);
    if (row->kind == SL_CONFIG_TEXT)
        return format_text(row, how, *(char *const *)field, out_value);
    if (row->kind == SL_CONFIG_STEPS && ((const sl_config_steps *)field)->share > 0)
        return format_share(field, out_value);
    sl_field_kind kind = kinds[row->kind];
    if (kind == SL_FIELD_U64)
        kind = choose_integer(*(const uint64_t *)field);
    return sl_fields_write_value(
        &(sl_field){
            .kind = kind, .offset = row->offset, .flags = SL_FIELD_AUTO, .names = row->hint},
        config, out_value);
}

void sl_config_format_key(uint32_t row, char *out_key, size_t capacity)
{
    snprintf(out_key, capacity, "%s", sl_config_rows()[row].name);
    for (char *letter = out_key; *letter; letter++)
        if (*letter == '-')
            *letter = '_';
}

static sl_status add_rows(const sl_config *config, const bool *wanted, const printing *how,
                          json_t *object)
{
    for (uint32_t i = 0; i < SL_CONFIG_ROW_COUNT; i++) {
        char key[KEY_BYTES];
        json_t *value;
        if (!wanted[i])
            continue;
        sl_config_format_key(i, key, sizeof key);
        SL_TRY(format_option(config, &sl_config_rows()[i], how, &value));
        if (json_object_set_new(object, key, value) != 0)
            return refuse_memory();
    }
    return SL_OK;
}

/* `how` without its directory. */
static sl_status format_rows(const sl_config *config, const bool *wanted, printing how,
                             json_t **out_object)
{
    char *directory = getcwd(NULL, 0);
    if (!directory)
        SL_FAIL(SL_ERROR_IO, "the present directory has no name: %s", strerror(errno));
    how.directory = directory;
    json_t *object = json_object();
    sl_status status = object ? add_rows(config, wanted, &how, object) : refuse_memory();
    free(directory);
    if (status != SL_OK) {
        json_decref(object);
        return status;
    }
    *out_object = object;
    return SL_OK;
}

/* What a command takes; of that only what was given. */
static void choose_rows(const sl_config *config, sl_config_command command, bool only_given,
                        bool *out_wanted)
{
    for (uint32_t i = 0; i < SL_CONFIG_ROW_COUNT; i++)
        out_wanted[i] =
            (sl_config_rows()[i].commands & command) && (!only_given || config->given[i]);
}

sl_status sl_config_format(const sl_config *config, sl_config_command command, json_t **out_object)
{
    bool wanted[SL_CONFIG_ROW_COUNT];
    choose_rows(config, command, false, wanted);
    return format_rows(config, wanted, (printing){0}, out_object);
}

/* --tokens has no place beside the options of all commands (set_key). */
static sl_status move_tokens(uint64_t tokens, json_t *object)
{
    json_t *of_train = json_pack("{s:I}", "tokens", (json_int_t)tokens);
    json_object_del(object, "tokens");
    return of_train && json_object_set_new(object, "train", of_train) == 0 ? SL_OK
                                                                           : refuse_memory();
}

/* Takes the object over. */
static sl_status give_one_length(const sl_config *config, json_t *object, json_t **out_object)
{
    sl_status status = SL_OK;
    if (sl_run_length_is_open(config))
        json_object_del(object, "steps");
    if (config->train_tokens != SL_CONFIG_UNSET)
        status = move_tokens(config->train_tokens, object);
    if (status != SL_OK) {
        json_decref(object);
        return status;
    }
    *out_object = object;
    return SL_OK;
}

sl_status sl_config_print(const sl_config *config, sl_config_command command, json_t **out_object)
{
    json_t *object = NULL;
    SL_TRY(sl_config_format(config, command, &object));
    return give_one_length(config, object, out_object);
}

sl_status sl_config_print_given(const sl_config *config, sl_config_command command,
                                json_t **out_object)
{
    bool wanted[SL_CONFIG_ROW_COUNT];
    json_t *object = NULL;
    choose_rows(config, command, true, wanted);
    SL_TRY(format_rows(config, wanted, (printing){.needs_all = true}, &object));
    return give_one_length(config, object, out_object);
}

sl_status sl_config_format_given(const sl_config *config, sl_config_command command,
                                 json_t **out_object)
{
    bool wanted[SL_CONFIG_ROW_COUNT];
    choose_rows(config, command, true, wanted);
    return format_rows(config, wanted, (printing){.keeps_auto = true}, out_object);
}

sl_status sl_config_check_recorded(const sl_config *config, sl_config_command command)
{
    json_t *object = NULL;
    bool wanted[SL_CONFIG_ROW_COUNT];
    choose_rows(config, command, false, wanted);
    sl_status status = format_rows(config, wanted, (printing){.needs_all = true}, &object);
    json_decref(object);
    return status;
}

sl_status sl_config_dump(json_t *object, char **out_text)
{
    *out_text = sl_json_file_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    return *out_text ? SL_OK : refuse_memory();
}
