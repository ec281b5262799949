/* Reads the items of a list and matches names with fnmatch. */
#include "tensor_patterns.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

/* Writes one item: `!`, pattern, `=` and value. */
static void split_item(const char *start, size_t length, sl_tensor_pattern *at)
{
    size_t equals = length;
    for (size_t i = 0; i < length; i++)
        if (start[i] == '=')
            equals = i;
    at->is_negated = *start == '!';
    at->has_value = equals < length;
    const size_t first = at->is_negated ? 1 : 0;
    const size_t text_length = equals > first ? equals - first : 0;
    const size_t value_length = at->has_value ? length - equals - 1 : 0;
    snprintf(at->text, sizeof at->text, "%.*s", (int)text_length, start + first);
    snprintf(at->value, sizeof at->value, "%.*s", (int)value_length, start + length - value_length);
    at->is_cut = text_length >= sizeof at->text || value_length >= sizeof at->value;
}

bool sl_tensor_patterns_next(const sl_config_list *list, sl_tensor_pattern *at)
{
    while (at->item < list->count) {
        const char *start = at->rest != NULL ? at->rest : list->items[at->item];
        const size_t length = strcspn(start, ",");
        at->rest = start + length + 1;
        if (start[length] == '\0') {
            at->rest = NULL;
            at->item++;
        }
        if (length == 0)
            continue;
        split_item(start, length, at);
        return true;
    }
    return false;
}

bool sl_tensor_patterns_find(const sl_config_list *list, const char *name, sl_tensor_pattern *out)
{
    sl_tensor_pattern at = {0};
    bool is_found = false;
    while (sl_tensor_patterns_next(list, &at))
        if (fnmatch(at.text, name, 0) == 0) {
            *out = at;
            is_found = true;
        }
    return is_found;
}

sl_tensor_examples sl_tensor_patterns_examples(const sl_program *program)
{
    static const char digits[] = "0123456789";
    sl_tensor_examples made = {"*.weight", "*.weight"};
    for (uint32_t t = program->tensor_count; t-- > 0;) {
        const char *name = program->tensors[t].name;
        const size_t front = strcspn(name, digits);
        const size_t end = front + strspn(name + front, digits);
        if (front == 0 || name[front - 1] != '.' || end == front || name[end] != '.')
            continue;
        snprintf(made.pattern, sizeof made.pattern, "%.*s[0-8].*", (int)front, name);
        snprintf(made.last_block, sizeof made.last_block, "%.*s.*", (int)end, name);
        break;
    }
    return made;
}

static bool matches_any(const char *pattern, const sl_program *program)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (fnmatch(pattern, program->tensors[t].name, 0) == 0)
            return true;
    return false;
}

sl_status sl_tensor_patterns_check(const char *option, const sl_tensor_pattern *item,
                                   const sl_program *program)
{
    if (!item->is_cut && matches_any(item->text, program))
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE,
            "--%s: \"%s%s\" matches no tensor; names are like %s, %s and %s, and a pattern is of "
            "the whole name, as in '%s'",
            option, item->is_negated ? "!" : "", item->text, program->tensors[0].name,
            program->tensors[program->tensor_count / 2].name,
            program->tensors[program->tensor_count - 1].name,
            sl_tensor_patterns_examples(program).pattern);
}
