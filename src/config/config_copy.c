/* Copies row by row what a configuration owns; see config_copy.h. */
#include "config_copy.h"

#include <stdlib.h>
#include <string.h>

/* NULL stays NULL. */
static sl_status copy_text(char **text)
{
    char *copy = *text ? strdup(*text) : NULL;
    if (*text && !copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a copy of the options");
    *text = copy;
    return SL_OK;
}

static sl_status copy_list(const sl_config_list *from, sl_config_list *to)
{
    to->items = calloc(from->count + 1, sizeof *to->items);
    if (!to->items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a copy of the options");
    for (; to->count < from->count; to->count++) {
        char *text = from->items[to->count];
        SL_TRY(copy_text(&text));
        to->items[to->count] = text;
    }
    return SL_OK;
}

static sl_status copy_row(const sl_config *config, uint32_t row, sl_config *copy)
{
    const sl_config_row *it = &sl_config_rows()[row];
    const char *from = (const char *)config + it->offset;
    char *to = (char *)copy + it->offset;
    if (it->kind == SL_CONFIG_LIST_OF)
        return copy_list((const sl_config_list *)from, (sl_config_list *)to);
    if (it->kind != SL_CONFIG_TEXT)
        return SL_OK;
    char *text = *(char *const *)from;
    SL_TRY(copy_text(&text));
    *(char **)to = text;
    return SL_OK;
}

/* Clears the pointers that `copy` shares with the original, without freeing them. */
static void disown(sl_config *copy)
{
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        const sl_config_row *it = &sl_config_rows()[row];
        if (it->kind == SL_CONFIG_LIST_OF)
            *(sl_config_list *)((char *)copy + it->offset) = (sl_config_list){0};
        else if (it->kind == SL_CONFIG_TEXT)
            *(char **)((char *)copy + it->offset) = NULL;
    }
    copy->explanation = NULL;
}

sl_status sl_config_copy(const sl_config *config, sl_config *out_copy)
{
    sl_status status = SL_OK;
    sl_config copy = *config;
    char *explanation = config->explanation;
    disown(&copy);
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT && status == SL_OK; row++)
        status = copy_row(config, row, &copy);
    if (status == SL_OK)
        status = copy_text(&explanation);
    if (status != SL_OK) {
        sl_config_clear(&copy);
        return status;
    }
    copy.explanation = explanation;
    *out_copy = copy;
    return SL_OK;
}
