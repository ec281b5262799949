/* See deepspeed_file.h. Keys are looked for in the list, one after the other: a file has a few
 * dozen. */
#include "deepspeed_file.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "files/files.h"
#include "foreign/words.h"

enum { PATH_BYTES = 128, VALUE_BYTES = 24 };

typedef enum value_kind {
    KIND_OBJECT,
    KIND_BOOL,
    KIND_WHOLE,
    KIND_REAL,
    KIND_TEXT,
    KIND_ANY
} value_kind;

typedef enum key_use { USE_INSIDE, USE_TAKEN, USE_NOTHING, USE_REFUSED, USE_ENABLED } key_use;

typedef struct key_row {
    const char *path;
    value_kind kind;
    key_use use;
    const char *text;
} key_row;

static const key_row keys[SL_DEEPSPEED_KEY_COUNT] = {
#define X(name, path, kind, use, text) {path, KIND_##kind, USE_##use, text},
    SL_DEEPSPEED_KEYS(X)
#undef X
};

/* Keys that no other configuration has; "optimizer" is an object there, and a word here. */
static const uint32_t marks[] = {
    SL_DEEPSPEED_TRAIN_BATCH, SL_DEEPSPEED_MICRO_BATCH, SL_DEEPSPEED_ACCUMULATION,
    SL_DEEPSPEED_OPTIMIZER,   SL_DEEPSPEED_SCHEDULER,   SL_DEEPSPEED_FP16,
    SL_DEEPSPEED_BF16,        SL_DEEPSPEED_CLIPPING,    SL_DEEPSPEED_ZERO,
    SL_DEEPSPEED_AIO,         SL_DEEPSPEED_ACTIVATIONS, SL_DEEPSPEED_AMP,
    SL_DEEPSPEED_UNTESTED,    SL_DEEPSPEED_WALL_CLOCK,  SL_DEEPSPEED_STEPS_PER_PRINT};

bool sl_deepspeed_file_is_recognised(const json_t *object)
{
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (json_object_get(object, keys[marks[i]].path) &&
            (marks[i] != SL_DEEPSPEED_OPTIMIZER ||
             !json_is_string(json_object_get(object, keys[marks[i]].path))))
            return true;
    return false;
}

/* ---- the file, taken apart ---- */

static bool is_text(const json_t *value, const char *text)
{
    const char *string = json_string_value(value);
    return string && strcmp(string, text) == 0;
}

/* Also 5e8. */
static bool is_whole(const json_t *value)
{
    double number = json_number_value(value);
    return json_is_integer(value) || (json_is_real(value) && number == floor(number));
}

static bool is_of_kind(const json_t *value, value_kind kind)
{
    if (json_is_null(value) || (is_text(value, "auto") && kind != KIND_OBJECT))
        return true;
    switch (kind) {
    case KIND_OBJECT:
        return json_is_object(value);
    case KIND_BOOL:
        return json_is_boolean(value);
    case KIND_WHOLE:
        return is_whole(value);
    case KIND_REAL:
        return json_is_number(value);
    case KIND_TEXT:
        return json_is_string(value);
    case KIND_ANY:
        break;
    }
    return true;
}

static sl_status check_kind(uint32_t key, const json_t *value)
{
    static const char *const names[] = {
        [KIND_OBJECT] = "an object", [KIND_BOOL] = "true or false", [KIND_WHOLE] = "a whole number",
        [KIND_REAL] = "a number",    [KIND_TEXT] = "a string",      [KIND_ANY] = ""};
    char meaning[SL_WORDS_TEXT_BYTES] = "";
    if (is_of_kind(value, keys[key].kind))
        return SL_OK;
    if (keys[key].kind == KIND_OBJECT) /* files of other programs have "fp16": true */
        (void)sl_words_explain(SL_WORD_KEY, NULL, keys[key].path, meaning);
    SL_FAIL(SL_ERROR_USAGE, "key \"%s\" is not %s%s", keys[key].path, names[keys[key].kind],
            meaning);
}

/* The name behind `prefix`, if a path is that of a key right inside of it; else NULL. */
static const char *find_leaf(const char *path, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(path, prefix, length) != 0)
        return NULL;
    return strchr(path + length, '.') ? NULL : path + length;
}

static sl_status refuse_unknown(const char *prefix, const char *name)
{
    uint32_t row;
    char hint[SL_WORDS_TEXT_BYTES];
    sl_nearest nearest = sl_nearest_start(name);
    if (!*prefix && sl_config_find(SL_CONFIG_ANY, name, &row) == SL_OK)
        SL_FAIL(SL_ERROR_USAGE,
                "key \"%s\" is an option of sluice, and this file is DeepSpeed's: give it on the "
                "command line, or in a file of its own by another --config",
                sl_files_show(name).text);
    for (uint32_t key = 0; key < SL_DEEPSPEED_KEY_COUNT; key++)
        if (find_leaf(keys[key].path, prefix))
            sl_nearest_offer(&nearest, find_leaf(keys[key].path, prefix));
    sl_words_suggest(SL_WORD_KEY, &nearest, "", hint);
    SL_FAIL(SL_ERROR_USAGE, "unknown key \"%s%s\" of DeepSpeed's configuration%s", prefix,
            sl_files_show(name).text, hint);
}

static sl_status find_key(const char *prefix, const char *name, uint32_t *out_key)
{
    for (uint32_t key = 0; key < SL_DEEPSPEED_KEY_COUNT; key++) {
        const char *leaf = find_leaf(keys[key].path, prefix);
        if (leaf && strcmp(leaf, name) == 0) {
            *out_key = key;
            return SL_OK;
        }
    }
    return refuse_unknown(prefix, name);
}

/* Calls itself as deep as paths of the list have parts. */
static sl_status find_values(sl_deepspeed_file *self, const char *prefix, const json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        uint32_t key = 0;
        char inner[PATH_BYTES];
        SL_TRY(find_key(prefix, name, &key));
        SL_TRY(check_kind(key, value));
        if (json_is_null(value))
            continue;
        self->values[key] = value;
        snprintf(inner, sizeof inner, "%s.", keys[key].path);
        if (keys[key].use == USE_INSIDE)
            SL_TRY(find_values(self, inner, value));
    }
    return SL_OK;
}

sl_status sl_deepspeed_file_read(const json_t *object, sl_deepspeed_file *out_foreign)
{
    memset(out_foreign, 0, sizeof *out_foreign);
    return find_values(out_foreign, "", object);
}

/* ---- values ---- */

const char *sl_deepspeed_file_path(uint32_t key)
{
    return keys[key].path;
}

bool sl_deepspeed_file_is_auto(const sl_deepspeed_file *self, uint32_t key)
{
    return is_text(self->values[key], "auto");
}

/* Neither there nor said: DeepSpeed's default holds, or with "auto" what is decided here. */
bool sl_deepspeed_file_is_open(const sl_deepspeed_file *self, uint32_t key)
{
    return !self->values[key] || sl_deepspeed_file_is_auto(self, key);
}

bool sl_deepspeed_file_is_on(const sl_deepspeed_file *self, uint32_t key)
{
    return json_is_true(self->values[key]);
}

bool sl_deepspeed_file_is_off(const sl_deepspeed_file *self, uint32_t key)
{
    return json_is_false(self->values[key]);
}

double sl_deepspeed_file_number(const sl_deepspeed_file *self, uint32_t key, double fallback)
{
    return sl_deepspeed_file_is_open(self, key) ? fallback : json_number_value(self->values[key]);
}

const char *sl_deepspeed_file_text(const sl_deepspeed_file *self, uint32_t key,
                                   const char *fallback)
{
    return sl_deepspeed_file_is_open(self, key) ? fallback : json_string_value(self->values[key]);
}

/* With as few digits as read back to the same value. */
const char *sl_deepspeed_file_format_number(double number, char out_text[SL_DEEPSPEED_NUMBER_BYTES])
{
    snprintf(out_text, SL_DEEPSPEED_NUMBER_BYTES, "%.15g", number);
    if (strtod(out_text, NULL) != number)
        snprintf(out_text, SL_DEEPSPEED_NUMBER_BYTES, "%.17g", number);
    return out_text;
}

/* A value for the table, cut to its column. */
static void show_value(const json_t *value, char out_text[VALUE_BYTES])
{
    char number[SL_DEEPSPEED_NUMBER_BYTES];
    const char *text = json_string_value(value);
    if (json_is_number(value))
        text = sl_deepspeed_file_format_number(json_number_value(value), number);
    else if (!text)
        text = json_is_object(value)  ? "{...}"
               : json_is_array(value) ? "[...]"
               : json_is_true(value)  ? "true"
                                      : "false";
    int length = snprintf(out_text, VALUE_BYTES, "%s", sl_files_show(text).text);
    if (length >= VALUE_BYTES)
        memcpy(out_text + VALUE_BYTES - 4, "...", 4);
}

sl_status __attribute__((format(printf, 3, 4)))
sl_deepspeed_file_refuse(const sl_deepspeed_file *self, uint32_t key, const char *format, ...)
{
    char why[SL_DEEPSPEED_MEANING_BYTES], value[VALUE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    show_value(self->values[key], value);
    SL_FAIL(SL_ERROR_USAGE, "key \"%s\" is %s: %s", keys[key].path,
            self->values[key] ? value : "not there", why);
}

/* Of what would change the numbers. */
sl_status sl_deepspeed_file_refuse_unequal(const sl_deepspeed_file *self, uint32_t key,
                                           const char *why)
{
    return sl_deepspeed_file_refuse(self, key,
                                    "%s: this would change the numbers and has no equal here", why);
}

void __attribute__((format(printf, 3, 4)))
sl_deepspeed_file_note(sl_deepspeed_file *self, uint32_t key, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(self->meanings[key], SL_DEEPSPEED_MEANING_BYTES, format, list);
    va_end(list);
}

void sl_deepspeed_file_note_nothing(sl_deepspeed_file *self, uint32_t key, const char *why)
{
    if (self->values[key])
        sl_deepspeed_file_note(self, key, "no meaning: %s", why);
}

/* ---- the other keys ---- */

/* What is false, 0 or empty asks for nothing. */
static bool asks_for_something(const json_t *value)
{
    if (json_is_object(value))
        return json_object_size(value) > 0;
    if (json_is_number(value))
        return json_number_value(value) != 0;
    return !json_is_false(value);
}

static sl_status take_plain(sl_deepspeed_file *self, uint32_t key)
{
    const json_t *value = self->values[key];
    const json_t *enabled = json_object_get(value, "enabled");
    if (keys[key].use == USE_REFUSED && asks_for_something(value))
        return sl_deepspeed_file_refuse_unequal(self, key, keys[key].text);
    if (keys[key].use == USE_ENABLED && enabled && !json_is_false(enabled))
        return sl_deepspeed_file_refuse_unequal(self, key, keys[key].text);
    sl_deepspeed_file_note_nothing(self, key,
                                   keys[key].use == USE_NOTHING ? keys[key].text : "it is off");
    return SL_OK;
}

sl_status sl_deepspeed_file_pass_over(sl_deepspeed_file *self)
{
    for (uint32_t key = 0; key < SL_DEEPSPEED_KEY_COUNT; key++)
        if (self->values[key] && keys[key].use != USE_TAKEN && keys[key].use != USE_INSIDE)
            SL_TRY(take_plain(self, key));
    return SL_OK;
}

/* ---- the table ---- */

static void print_row(FILE *stream, const sl_deepspeed_file *self, uint32_t key, int width)
{
    char value[VALUE_BYTES] = "(default)";
    const bool is_section = keys[key].use == USE_INSIDE;
    if (self->values[key] && !is_section)
        show_value(self->values[key], value);
    fprintf(stream, "  %-*s  %-*s  %s\n", width, keys[key].path, VALUE_BYTES - 1,
            is_section ? "" : value, self->meanings[key] + strspn(self->meanings[key], " "));
}

void sl_deepspeed_file_print(const sl_deepspeed_file *self, const char *path, FILE *stream)
{
    int width = 0;
    for (uint32_t key = 0; key < SL_DEEPSPEED_KEY_COUNT; key++)
        if (self->meanings[key][0] && (int)strlen(keys[key].path) > width)
            width = (int)strlen(keys[key].path);
    fprintf(stream, "%s, a configuration of DeepSpeed, means here:\n", sl_files_show(path).text);
    for (uint32_t key = 0; key < SL_DEEPSPEED_KEY_COUNT; key++)
        if (self->meanings[key][0])
            print_row(stream, self, key, width);
}
