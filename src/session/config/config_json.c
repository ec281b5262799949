/* JSON values become text and take the way of every other setting. */
#include "config_json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "files/fields.h"

enum { NUMBER_BYTES = 32 };

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

static sl_status set_json(sl_config *config, uint32_t row, const json_t *value)
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
        return sl_config_set(config, row, sl_config_rows()[row].initial);
    case JSON_ARRAY:
        return set_item_list(config, row, value);
    case JSON_OBJECT:
        break;
    }
    SL_FAIL(SL_ERROR_USAGE, "an object is not a value");
}

static sl_status set_all(sl_config *config, sl_config_command command, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        uint32_t row;
        SL_TRY(sl_config_find(command, key, &row));
        sl_status status = set_json(config, row, value);
        if (status != SL_OK)
            return sl_status_prefix(status, "key \"%s\"", key);
    }
    return SL_OK;
}

sl_status sl_config_load(sl_config *config, sl_config_command command, const char *path)
{
    json_error_t error;
    FILE *file = fopen(path, "re");
    if (!file)
        SL_FAIL(errno == ENOENT ? SL_ERROR_MISSING : SL_ERROR_IO, "%s: %s", path, strerror(errno));
    json_t *object = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!object)
        SL_FAIL(SL_ERROR_DATA, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    sl_status status;
    if (json_is_object(object))
        status = set_all(config, command, object);
    else
        status = sl_status_fail(SL_ERROR_DATA, "the configuration is not a JSON object");
    json_decref(object);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", path);
}

static json_t *format_list(const sl_config_list *list)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array && i < list->count; i++)
        if (json_array_append_new(array, json_string(list->items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

/* JSON readers keep no more than 63 bits of a number; as text it is read back in full. */
static sl_field_kind choose_integer(uint64_t value)
{
    return value > INT64_MAX && value != SL_CONFIG_UNSET ? SL_FIELD_U64_TEXT : SL_FIELD_U64;
}

/* A path that is not UTF-8 has no JSON spelling: null. */
static json_t *format_option(const sl_config *config, const sl_config_row *row)
{
    static const sl_field_kind kinds[] = {
        [SL_CONFIG_TEXT] = SL_FIELD_TEXT,   [SL_CONFIG_COUNT] = SL_FIELD_U64,
        [SL_CONFIG_SIZE] = SL_FIELD_U64,    [SL_CONFIG_REAL] = SL_FIELD_F64,
        [SL_CONFIG_SWITCH] = SL_FIELD_BOOL, [SL_CONFIG_CHOICE] = SL_FIELD_CHOICE,
    };
    const void *field = (const char *)config + row->offset;
    json_t *value = NULL;
    sl_field_kind kind = kinds[row->kind];
    if (kind == SL_FIELD_U64)
        kind = choose_integer(*(const uint64_t *)field);
    if (row->kind == SL_CONFIG_LIST_OF)
        value = format_list(field);
    else
        (void)sl_fields_write_value(
            &(sl_field){
                .kind = kind, .offset = row->offset, .flags = SL_FIELD_AUTO, .names = row->hint},
            config, &value);
    return value ? value : json_null();
}

static void format_key(const char *name, char *out_key, size_t capacity)
{
    snprintf(out_key, capacity, "%s", name);
    for (char *letter = out_key; *letter; letter++)
        if (*letter == '-')
            *letter = '_';
}

sl_status sl_config_format(const sl_config *config, sl_config_command command, json_t **out_object)
{
    json_t *object = json_object();
    for (uint32_t i = 0; object && i < SL_CONFIG_ROW_COUNT; i++) {
        const sl_config_row *row = &sl_config_rows()[i];
        char key[64];
        format_key(row->name, key, sizeof key);
        if (!(row->commands & command))
            continue;
        if (json_object_set_new(object, key, format_option(config, row)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
    *out_object = object;
    return SL_OK;
}
