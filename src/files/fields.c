/* One walk over a table for each direction; see fields.h. The walks call themselves as deep as
 * tables nest, not as deep as a file does. */
#include "fields.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/nearest.h"
#include "files.h"
#include "json_file.h"

enum { NAME_BYTES = 64, NAMES_BYTES = 4096, HINT_BYTES = 96, HEX_DIGITS = 32, NUMBER_BYTES = 32 };

/* ---- names, as "first|second" ---- */

/* False behind the last name. */
static bool copy_name(const char *names, uint32_t index, char out_name[NAME_BYTES])
{
    for (; index > 0 && *names; index--) {
        names += strcspn(names, "|");
        names += *names == '|';
    }
    snprintf(out_name, NAME_BYTES, "%.*s", (int)strcspn(names, "|"), names);
    return *names != '\0';
}

/* False: *out_hint is ": did you mean X?" or "". */
static bool find_name(const char *names, const char *name, uint32_t *out_index,
                      char out_hint[HINT_BYTES])
{
    char copy[NAMES_BYTES], *rest = NULL;
    sl_nearest nearest = sl_nearest_start(name);
    uint32_t index = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *word = strtok_r(copy, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
        if (strcmp(word, name) == 0) {
            *out_index = index;
            return true;
        }
        sl_nearest_offer(&nearest, word);
        index++;
    }
    sl_nearest_format(&nearest, "", out_hint, HINT_BYTES);
    return false;
}

sl_status sl_fields_find_name(const char *names, const char *name, uint32_t *out_index)
{
    char hint[HINT_BYTES];
    if (!find_name(names, name, out_index, hint))
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is none of %s%s", name, names, hint);
    return SL_OK;
}

/* ---- the keys of an OBJECT or a MAP ---- */

typedef struct entry {
    const char *key;
    const sl_field *field; /* what stands under the key */
    size_t offset;         /* of its struct in the one above */
    char name[NAME_BYTES];
} entry;

/* False behind the last key. */
static bool find_entry(const sl_field *of, uint32_t index, entry *out)
{
    if (of->kind == SL_FIELD_MAP) {
        *out = (entry){.key = out->name, .field = of->fields, .offset = index * of->stride};
        return copy_name(of->names, index, out->name);
    }
    *out = (entry){.key = of->fields[index].key, .field = &of->fields[index]};
    return out->key != NULL;
}

/* ---- reading ---- */

/* Where a value stands, for messages: the file, and the keys above, as "files: config.json: ". */
typedef struct place {
    const char *path;
    char above[3 * NAME_BYTES];
} place;

static sl_status __attribute__((format(printf, 3, 4)))
fail_key(const place *at, const char *key, const char *format, ...)
{
    char reason[2 * SL_SHOWN_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    SL_FAIL(SL_ERROR_DATA, "%s: %skey \"%s\" %s", sl_files_show(at->path).text, at->above,
            sl_files_show(key).text, reason);
}

static sl_status read_integer(const place *at, const sl_field *field, const char *key,
                              const json_t *value, void *member)
{
    uint64_t number = (uint64_t)json_integer_value(value), low = (uint64_t)field->low;
    uint64_t high = field->kind == SL_FIELD_U32 ? UINT32_MAX : INT64_MAX; /* -1 is above it */
    if (field->high > 0)
        high = (uint64_t)field->high;
    if (!json_is_integer(value) || number < low || number > high)
        return fail_key(at, key, "is not an integer from %" PRIu64 " to %" PRIu64, low, high);
    if (field->kind == SL_FIELD_U32)
        *(uint32_t *)member = (uint32_t)number;
    else
        *(uint64_t *)member = number;
    return SL_OK;
}

static sl_status read_number(const place *at, const sl_field *field, const char *key,
                             const json_t *value, void *member)
{
    double number = json_number_value(value);
    if (!json_is_number(value))
        return fail_key(at, key, "is not a number");
    if (field->high > 0 && (number < field->low || number > field->high))
        return fail_key(at, key, "is not a number from %g to %g", field->low, field->high);
    if (number < field->low)
        return fail_key(at, key, "is not a number from %g up", field->low);
    if (field->kind == SL_FIELD_F32 && !isfinite((float)number))
        return fail_key(at, key, "is too large a number");
    if (field->kind == SL_FIELD_F32)
        *(float *)member = (float)number;
    else
        *(double *)member = number;
    return SL_OK;
}

static sl_status keep_text(const place *at, char *text, char **member)
{
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the texts of %s", sl_files_show(at->path).text);
    *member = text;
    return SL_OK;
}

static sl_status parse_digits(const place *at, const char *key, const char *text, uint64_t *member)
{
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0' || errno == ERANGE)
        return fail_key(at, key, "is not a number of 64 bits");
    *member = value;
    return SL_OK;
}

static sl_status parse_hex(const place *at, const char *key, const char *text,
                           sl_hash_value *member)
{
    char high[HEX_DIGITS / 2 + 1] = {0};
    if (strlen(text) != HEX_DIGITS || strspn(text, "0123456789abcdef") != HEX_DIGITS)
        return fail_key(at, key, "is not %d hexadecimal digits", HEX_DIGITS);
    memcpy(high, text, HEX_DIGITS / 2);
    *member = (sl_hash_value){.high = strtoull(high, NULL, 16),
                              .low = strtoull(text + HEX_DIGITS / 2, NULL, 16)};
    return SL_OK;
}

static sl_status read_text(const place *at, const sl_field *field, const char *key,
                           const json_t *value, void *member)
{
    char hint[HINT_BYTES];
    const char *text = json_string_value(value);
    if (!text)
        return fail_key(at, key, "is not a string");
    if (field->kind == SL_FIELD_TEXT)
        return keep_text(at, strdup(text), member);
    if (field->kind == SL_FIELD_U64_TEXT)
        return parse_digits(at, key, text, member);
    if (field->kind == SL_FIELD_HEX128)
        return parse_hex(at, key, text, member);
    if (field->kind == SL_FIELD_CHARS)
        snprintf(member, field->bytes, "%s", sl_files_show(text).text);
    else if (!find_name(field->names, text, member, hint))
        return fail_key(at, key, "is \"%s\", none of %s%s", sl_files_show(text).text, field->names,
                        hint);
    return SL_OK;
}

static sl_status read_value(const place *at, const sl_field *field, const char *key,
                            const json_t *value, char *out_struct);

static sl_status check_keys(const place *at, const char *names, json_t *object)
{
    uint32_t index;
    const char *key;
    json_t *value;
    char hint[HINT_BYTES];
    json_object_foreach(object, key, value)
    {
        if (!find_name(names, key, &index, hint))
            return fail_key(at, key, "is unknown to this version%s", hint);
    }
    return SL_OK;
}

static sl_status read_entries(const place *at, const sl_field *of, const json_t *object,
                              char *member)
{
    entry next;
    if (of->flags & SL_FIELD_CLOSED)
        SL_TRY(check_keys(at, of->names, (json_t *)object));
    for (uint32_t i = 0; find_entry(of, i, &next); i++) {
        unsigned flags = next.field->flags;
        const json_t *value = json_object_get(object, next.key);
        bool is_null = json_is_null(value) && (flags & SL_FIELD_NULLABLE);
        if (is_null || (!value && (flags & SL_FIELD_OPTIONAL)))
            continue;
        SL_TRY(read_value(at, next.field, next.key, value, member + next.offset));
        if (flags & SL_FIELD_LISTED)
            *(bool *)(member + next.offset) = true;
    }
    return SL_OK;
}

static sl_status read_object(const place *at, const sl_field *field, const char *key,
                             const json_t *value, char *member)
{
    place below = {.path = at->path};
    if (!json_is_object(value))
        return fail_key(at, key, "is not an object");
    if (field->kind == SL_FIELD_JSON_TEXT)
        return keep_text(at, sl_json_file_dump(value, JSON_COMPACT | JSON_REAL_PRECISION(17)),
                         (char **)member);
    snprintf(below.above, sizeof below.above, "%.120s%.60s: ", at->above, key);
    return read_entries(&below, field, value, member);
}

static sl_status read_value(const place *at, const sl_field *field, const char *key,
                            const json_t *value, char *out_struct)
{
    char *member = out_struct + field->offset;
    if (!value)
        return fail_key(at, key, "is missing");
    switch (field->kind) {
    case SL_FIELD_U32:
    case SL_FIELD_U64:
        return read_integer(at, field, key, value, member);
    case SL_FIELD_F32:
    case SL_FIELD_F64:
        return read_number(at, field, key, value, member);
    case SL_FIELD_BOOL:
        *(bool *)member = json_is_true(value);
        return json_is_boolean(value) ? SL_OK : fail_key(at, key, "is not true or false");
    case SL_FIELD_JSON_TEXT:
    case SL_FIELD_OBJECT:
    case SL_FIELD_MAP:
        return read_object(at, field, key, value, member);
    default:
        return read_text(at, field, key, value, member);
    }
}

sl_status sl_fields_read(const char *path, const json_t *object, const sl_field *fields,
                         void *out_struct)
{
    const sl_field all = {.kind = SL_FIELD_OBJECT, .fields = fields};
    return read_entries(&(place){.path = path}, &all, object, out_struct);
}

/* ---- writing; values are NULL where memory is refused or text is not UTF-8 ---- */

static uint64_t integer_of(const sl_field *field, const void *member)
{
    return field->kind == SL_FIELD_U32 ? *(const uint32_t *)member : *(const uint64_t *)member;
}

static double number_of(const sl_field *field, const void *member)
{
    return field->kind == SL_FIELD_F32 ? (double)*(const float *)member : *(const double *)member;
}

static sl_status write_integer(const sl_field *field, uint64_t value, json_t **out_value)
{
    bool is_unset = value == UINT64_MAX;
    if (value <= INT64_MAX)
        *out_value = json_integer((json_int_t)value);
    else if (field->flags & SL_FIELD_AUTO)
        *out_value = is_unset ? json_string("auto") : json_real((double)value);
    else
        SL_FAIL(SL_ERROR_USAGE, "%s is too large for JSON", field->key ? field->key : "an entry");
    return SL_OK;
}

static sl_status write_number(const sl_field *field, double value, json_t **out_value)
{
    if (isfinite(value))
        *out_value = json_real(value);
    else if (field->flags & (SL_FIELD_AUTO | SL_FIELD_NULLABLE))
        *out_value = field->flags & SL_FIELD_AUTO ? json_string("auto") : json_null();
    else
        SL_FAIL(SL_ERROR_USAGE, "%s is not finite", field->key ? field->key : "an entry");
    return SL_OK;
}

static json_t *format_text(const sl_field *field, const void *member)
{
    char text[NAME_BYTES] = "";
    const sl_hash_value *hash = member;
    if (field->kind == SL_FIELD_CHARS)
        return json_string(member);
    if (field->kind == SL_FIELD_TEXT)
        return json_string(*(char *const *)member);
    if (field->kind == SL_FIELD_U64_TEXT)
        snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)member);
    else if (field->kind == SL_FIELD_HEX128)
        snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, hash->high, hash->low);
    else if (!copy_name(field->names, *(const uint32_t *)member, text))
        return NULL;
    return json_string(text);
}

static sl_status write_json_text(const sl_field *field, const char *text, json_t **out_value)
{
    sl_status status = sl_json_file_parse(field->key, text, strlen(text), out_value);
    return status == SL_ERROR_DATA ? sl_status_prefix(SL_ERROR_USAGE, "a JSON object is needed")
                                   : status;
}

/* True for a text that is not there. */
static bool is_absent(const sl_field *field, const void *member)
{
    bool is_pointer = field->kind == SL_FIELD_TEXT || field->kind == SL_FIELD_JSON_TEXT;
    return is_pointer && !*(char *const *)member;
}

/* Reading takes null for nothing else than what may be absent, so nothing else is written so. */
static sl_status write_null(const sl_field *field, json_t **out_value)
{
    if (!(field->flags & (SL_FIELD_AUTO | SL_FIELD_NULLABLE)))
        SL_FAIL(SL_ERROR_USAGE, "%s is missing", field->key ? field->key : "an entry");
    *out_value = json_null();
    return SL_OK;
}

static sl_status write_entries(const sl_field *of, const char *from, json_t *object)
{
    entry next;
    for (uint32_t i = 0; find_entry(of, i, &next); i++) {
        json_t *value = NULL;
        const char *below = from + next.offset;
        if ((next.field->flags & SL_FIELD_LISTED) && !*(const bool *)below)
            continue;
        SL_TRY(sl_fields_write_value(next.field, below, &value));
        if (json_object_set_new(object, next.key, value) != 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for \"%s\"", next.key);
    }
    return SL_OK;
}

static sl_status make_object(const sl_field *of, const void *from, json_t **out_object)
{
    json_t *object = json_object();
    sl_status status = write_entries(of, from, object);
    if (status == SL_OK)
        *out_object = object;
    else
        json_decref(object);
    return status;
}

sl_status sl_fields_write_value(const sl_field *field, const void *from, json_t **out_value)
{
    const void *member = (const char *)from + field->offset;
    json_t *value = NULL;
    if (is_absent(field, member))
        return write_null(field, out_value);
    switch (field->kind) {
    case SL_FIELD_U32:
    case SL_FIELD_U64:
        SL_TRY(write_integer(field, integer_of(field, member), &value));
        break;
    case SL_FIELD_F32:
    case SL_FIELD_F64:
        SL_TRY(write_number(field, number_of(field, member), &value));
        break;
    case SL_FIELD_BOOL:
        value = json_boolean(*(const bool *)member);
        break;
    case SL_FIELD_JSON_TEXT:
        SL_TRY(write_json_text(field, *(char *const *)member, &value));
        break;
    case SL_FIELD_OBJECT:
    case SL_FIELD_MAP:
        SL_TRY(make_object(field, member, &value));
        break;
    default:
        value = format_text(field, member);
    }
    if (!value)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a JSON value, or text that is not UTF-8");
    *out_value = value;
    return SL_OK;
}

sl_status sl_fields_write(const sl_field *fields, const void *from, json_t *object)
{
    return write_entries(&(sl_field){.kind = SL_FIELD_OBJECT, .fields = fields}, from, object);
}

sl_status sl_fields_make(const sl_field *fields, const void *from, json_t **out_object)
{
    return make_object(&(sl_field){.kind = SL_FIELD_OBJECT, .fields = fields}, from, out_object);
}

/* ---- printing ---- */

typedef struct printer {
    char *text;
    size_t length, capacity;
} printer;

static void __attribute__((format(printf, 2, 3))) print(printer *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written =
        vsnprintf(out->text + out->length, out->capacity - out->length, format, arguments);
    va_end(arguments);
    out->length += written > 0 ? (size_t)written : 0;
    if (out->length >= out->capacity)
        out->length = out->capacity - 1;
}

/* 17 digits read back to the same double, 9 to the same float; often fewer do. */
static void print_number(const sl_field *field, double value, printer *out)
{
    char number[NUMBER_BYTES] = "null";
    int most = field->kind == SL_FIELD_F32 ? 9 : 17;
    if (field->digits && isfinite(value))
        snprintf(number, sizeof number, "%.*g", (int)field->digits, value);
    for (int digits = most - 2; !field->digits && isfinite(value) && digits <= most; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtod(number, NULL) == value)
            break;
    }
    print(out, "%s", number);
}

static void print_value(const sl_field *field, const char *from, printer *out);

static void print_entries(const sl_field *of, const char *from, printer *out)
{
    entry next;
    for (uint32_t i = 0; find_entry(of, i, &next); i++) {
        print(out, "%s\"%s\":", i ? "," : "", next.key);
        print_value(next.field, from + next.offset, out);
    }
}

static void print_value(const sl_field *field, const char *from, printer *out)
{
    const char *member = from + field->offset;
    switch (field->kind) {
    case SL_FIELD_U64:
        print(out, "%" PRIu64, *(const uint64_t *)(const void *)member);
        break;
    case SL_FIELD_F32:
    case SL_FIELD_F64:
        print_number(field, number_of(field, member), out);
        break;
    case SL_FIELD_BOOL:
        print(out, "%s", *(const bool *)member ? "true" : "false");
        break;
    case SL_FIELD_TEXT:
        if (is_absent(field, member))
            print(out, "null");
        else
            print(out, "\"%s\"", *(char *const *)(const void *)member);
        break;
    case SL_FIELD_OBJECT:
    case SL_FIELD_MAP:
        print(out, "{");
        print_entries(field, member, out);
        print(out, "}");
        break;
    default:
        assert(!"a kind that is not printed");
    }
}

size_t sl_fields_print(const sl_field *fields, const void *from, char *out_text, size_t capacity)
{
    printer out = {.text = out_text, .capacity = capacity};
    print_entries(&(sl_field){.kind = SL_FIELD_OBJECT, .fields = fields}, from, &out);
    return out.length;
}

size_t sl_fields_print_value(const sl_field *field, const void *from, char *out_text,
                             size_t capacity)
{
    printer out = {.text = out_text, .capacity = capacity};
    print_value(field, from, &out);
    return out.length;
}

double sl_fields_number(const sl_field *field, const void *from)
{
    const void *member = (const char *)from + field->offset;
    if (field->kind == SL_FIELD_BOOL)
        return *(const bool *)member ? 1 : 0;
    bool is_integer = field->kind == SL_FIELD_U32 || field->kind == SL_FIELD_U64;
    return is_integer ? (double)integer_of(field, member) : number_of(field, member);
}
