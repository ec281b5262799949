/* Settings by name and text. Knows kinds and ranges of values, not what options mean together. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "units.h"

enum {
    T = SL_CONFIG_TRAIN | SL_CONFIG_PLAN,
    P = SL_CONFIG_PLAN,
    G = SL_CONFIG_GENERATE,
    E = SL_CONFIG_EVAL,
    TE = T | E,
    TG = T | G,
    TGE = T | G | E,
    GE = G | E,
    B = SL_CONFIG_BENCH,
    TGEB = TGE | B,
    TGEDB = TGEB | SL_CONFIG_DOCTOR,
    PEDB = P | E | SL_CONFIG_DOCTOR | B
};

#define KIND_TEXT SL_CONFIG_TEXT
#define KIND_LIST SL_CONFIG_LIST_OF
#define KIND_COUNT SL_CONFIG_COUNT
#define KIND_REAL SL_CONFIG_REAL
#define KIND_SIZE SL_CONFIG_SIZE
#define KIND_SWITCH SL_CONFIG_SWITCH
#define KIND_CHOICE SL_CONFIG_CHOICE

static const sl_config_row rows[SL_CONFIG_ROW_COUNT] = {
#define X(kind, field, name, initial, hint, low, high, commands, group, help)                      \
    {KIND_##kind, offsetof(sl_config, field), name, initial, hint, low, high,                      \
     commands,    SL_CONFIG_GROUP_##group,    help},
    SL_CONFIG_LIST(X)
#undef X
};

const sl_config_row *sl_config_rows(void)
{
    return rows;
}

static void *find_field(sl_config *config, uint32_t row)
{
    return (char *)config + rows[row].offset;
}

static bool takes_auto(const sl_config_row *row)
{
    return strcmp(row->initial, "auto") == 0;
}

static sl_status copy_text(const char *text, char **out_copy)
{
    *out_copy = strdup(text);
    if (!*out_copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a setting");
    return SL_OK;
}

static void clear_list(sl_config_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (sl_config_list){0};
}

static sl_status append_item(sl_config_list *list, const char *text)
{
    char *copy;
    SL_TRY(copy_text(text, &copy));
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items) {
        free(copy);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of settings");
    }
    items[list->count++] = copy;
    list->items = items;
    return SL_OK;
}

static sl_status set_text(char **field, const char *text)
{
    char *copy = NULL;
    if (*text)
        SL_TRY(copy_text(text, &copy));
    free(*field);
    *field = copy;
    return SL_OK;
}

static sl_status check_range(const sl_config_row *row, double value)
{
    if (row->low < row->high && (value < row->low || value > row->high))
        SL_FAIL(SL_ERROR_USAGE, "%g is not in the range %g to %g", value, row->low, row->high);
    return SL_OK;
}

static sl_status set_count(const sl_config_row *row, uint64_t *field, const char *text)
{
    uint64_t value = SL_CONFIG_UNSET;
    if (!(takes_auto(row) && strcmp(text, "auto") == 0)) {
        SL_TRY(sl_units_parse_count(text, &value));
        SL_TRY(check_range(row, (double)value));
    }
    *field = value;
    return SL_OK;
}

static sl_status set_real(const sl_config_row *row, double *field, const char *text)
{
    double value = NAN;
    if (!(takes_auto(row) && strcmp(text, "auto") == 0)) {
        SL_TRY(sl_units_parse_real(text, &value));
        SL_TRY(check_range(row, value));
    }
    *field = value;
    return SL_OK;
}

static sl_status set_size(const sl_config_row *row, uint64_t *field, const char *text)
{
    uint64_t value = SL_CONFIG_UNSET;
    if (!(takes_auto(row) && strcmp(text, "auto") == 0))
        SL_TRY(sl_units_parse_size(text, &value));
    *field = value;
    return SL_OK;
}

static sl_status set_switch(bool *field, const char *text)
{
    bool is_on = strcmp(text, "true") == 0 || strcmp(text, "on") == 0 || strcmp(text, "1") == 0;
    bool is_off = strcmp(text, "false") == 0 || strcmp(text, "off") == 0 || strcmp(text, "0") == 0;
    if (!is_on && !is_off)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is neither true nor false", text);
    *field = is_on;
    return SL_OK;
}

static sl_status set_choice(const sl_config_row *row, uint32_t *field, const char *text)
{
    char names[128];
    snprintf(names, sizeof names, "%s", row->hint);
    sl_nearest nearest = sl_nearest_start(text);
    uint32_t index = 0;
    char *save = NULL;
    for (char *name = strtok_r(names, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
        if (strcmp(name, text) == 0) {
            *field = index;
            return SL_OK;
        }
        sl_nearest_offer(&nearest, name);
        index++;
    }
    char hint[96];
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    SL_FAIL(SL_ERROR_USAGE, "\"%s\" is none of %s%s", text, row->hint, hint);
}

static sl_status set_list(sl_config_list *list, const char *text)
{
    clear_list(list);
    return *text ? append_item(list, text) : SL_OK;
}

static sl_status set_field(sl_config *config, uint32_t row, const char *text)
{
    void *field = find_field(config, row);
    switch (rows[row].kind) {
    case SL_CONFIG_TEXT:
        return set_text(field, text);
    case SL_CONFIG_LIST_OF:
        return set_list(field, text);
    case SL_CONFIG_COUNT:
        return set_count(&rows[row], field, text);
    case SL_CONFIG_REAL:
        return set_real(&rows[row], field, text);
    case SL_CONFIG_SIZE:
        return set_size(&rows[row], field, text);
    case SL_CONFIG_SWITCH:
        return set_switch(field, text);
    case SL_CONFIG_CHOICE:
        return set_choice(&rows[row], field, text);
    }
    SL_FAIL(SL_ERROR_INTERNAL, "option %s has no kind", rows[row].name);
}

sl_status sl_config_init(sl_config *config)
{
    memset(config, 0, sizeof *config);
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        sl_status status = set_field(config, row, rows[row].initial);
        if (status != SL_OK) {
            sl_config_clear(config);
            return sl_status_prefix(SL_ERROR_INTERNAL, "default of --%s", rows[row].name);
        }
    }
    return SL_OK;
}

void sl_config_clear(sl_config *config)
{
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (rows[row].kind == SL_CONFIG_TEXT)
            free(*(char **)find_field(config, row));
        else if (rows[row].kind == SL_CONFIG_LIST_OF)
            clear_list(find_field(config, row));
    }
    memset(config, 0, sizeof *config);
}

static bool names_match(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return false;
    return *a == *b;
}

sl_status sl_config_find(sl_config_command command, const char *name, uint32_t *out_row)
{
    sl_nearest nearest = sl_nearest_start(name);
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (!(rows[row].commands & command))
            continue;
        if (names_match(rows[row].name, name)) {
            *out_row = row;
            return SL_OK;
        }
        sl_nearest_offer(&nearest, rows[row].name);
    }
    char hint[96];
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    SL_FAIL(SL_ERROR_USAGE, "unknown option \"%s\"%s", name, hint);
}

sl_status sl_config_set(sl_config *config, uint32_t row, const char *text)
{
    sl_status status = set_field(config, row, text);
    if (status != SL_OK)
        return sl_status_prefix(status, "--%s", rows[row].name);
    config->given[row] = true;
    return SL_OK;
}

sl_status sl_config_append(sl_config *config, uint32_t row, const char *text)
{
    if (rows[row].kind != SL_CONFIG_LIST_OF)
        SL_FAIL(SL_ERROR_USAGE, "--%s takes one value", rows[row].name);
    config->given[row] = true;
    return append_item(find_field(config, row), text);
}

sl_status sl_config_assign(sl_config *config, sl_config_command command, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    char name[64];
    if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof name)
        SL_FAIL(SL_ERROR_USAGE, "--set \"%s\": use key=value", assignment);
    memcpy(name, assignment, (size_t)(equals - assignment));
    name[equals - assignment] = '\0';
    uint32_t row;
    SL_TRY(sl_config_find(command, name, &row));
    return sl_config_set(config, row, equals + 1);
}
