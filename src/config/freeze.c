/* Matches names of tensors with the patterns of --freeze; see freeze.h. */
#include "freeze.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum { PATTERN_BYTES = 128 };

/* A pattern of the list. */
typedef struct cursor {
    uint32_t item;
    const char *rest;         /* of the item; NULL: it is not begun */
    size_t length;            /* of the pattern, without `!` */
    char text[PATTERN_BYTES]; /* the pattern, without `!`; cut if it is longer */
    bool trains;              /* it began with `!` */
} cursor;

/* Reads the next pattern; false behind the last one. */
static bool next_pattern(const sl_config_list *patterns, cursor *at)
{
    while (at->item < patterns->count) {
        const char *start = at->rest != NULL ? at->rest : patterns->items[at->item];
        const size_t length = strcspn(start, ",");
        at->rest = start + length + 1;
        if (start[length] == '\0') {
            at->rest = NULL;
            at->item++;
        }
        at->trains = *start == '!';
        at->length = length - at->trains;
        snprintf(at->text, sizeof at->text, "%.*s", (int)at->length, start + at->trains);
        if (length > 0)
            return true;
    }
    return false;
}

static bool is_frozen(const sl_config_list *patterns, const char *name)
{
    cursor at = {0};
    bool frozen = false;
    while (next_pattern(patterns, &at))
        if (fnmatch(at.text, name, 0) == 0)
            frozen = !at.trains;
    return frozen;
}

void sl_freeze_apply(const sl_config_list *patterns, sl_program *program)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (is_frozen(patterns, program->tensors[t].name))
            program->tensors[t].rule = SL_RULE_NONE;
}

static bool matches_any(const char *pattern, const sl_program *program)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (fnmatch(pattern, program->tensors[t].name, 0) == 0)
            return true;
    return false;
}

sl_status sl_freeze_check(const sl_config_list *patterns, const sl_program *program)
{
    cursor at = {0};
    const char *last = program->tensors[program->tensor_count - 1].name;
    while (next_pattern(patterns, &at))
        if (at.length >= sizeof at.text || !matches_any(at.text, program))
            SL_FAIL(SL_ERROR_USAGE,
                    "--freeze: \"%s%s\" matches no tensor; names are like %s, %s and %s, and a "
                    "pattern is of the whole name, as in 'h.[0-8].*'",
                    at.trains ? "!" : "", at.text, program->tensors[0].name,
                    program->tensors[program->tensor_count / 2].name, last);
    if (sl_freeze_count_trained(program) == 0)
        SL_FAIL(SL_ERROR_USAGE, "--freeze: all tensors are frozen, so there is nothing to train; "
                                "take some back, as in --freeze '*' '!h.11.*'");
    return SL_OK;
}

/* Elements of the whole tensor; 0 for a panel behind the first one. */
static uint64_t count_elements(const sl_program *program, uint32_t tensor)
{
    const sl_tensor_spec *spec = &program->tensors[tensor];
    if (tensor > 0 && strcmp(spec->name, program->tensors[tensor - 1].name) == 0)
        return 0;
    return spec->whole_shape[0] * (spec->dim_count == 2 ? spec->whole_shape[1] : 1);
}

uint64_t sl_freeze_count_trained(const sl_program *program)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (sl_program_trains(program, t))
            count += count_elements(program, t);
    return count;
}

/* The head uses the first tensor, the table, again, behind all layers: so the gradient of the
 * head's input is needed even if the table is frozen. */
double sl_freeze_token_flops(const sl_program *program, uint64_t seq)
{
    double flops = 0;
    bool has_trained = false;
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        const bool is_trained = sl_program_trains(program, t);
        has_trained = has_trained || is_trained;
        const bool has_backward = has_trained || strcmp(spec->name, program->tensors[0].name) == 0;
        flops += (double)count_elements(program, t) * (2 + 2 * is_trained + 2 * has_backward);
        if (strstr(spec->name, "attn.c_attn.weight") != NULL)
            flops += (double)spec->whole_shape[0] * (double)seq * (has_trained ? 6 : 2);
    }
    return flops;
}

/* Both have their tensors in the order of the model, but for a tied one, which comes again at the
 * end of the last stage. So the first tensor of a later stage is one of its first layer. */
bool sl_freeze_is_before(const sl_program *whole, const sl_program *stage)
{
    for (uint32_t t = 0; t < whole->tensor_count; t++) {
        if (strcmp(whole->tensors[t].name, stage->tensors[0].name) == 0)
            break;
        if (sl_program_trains(whole, t))
            return false;
    }
    return true;
}
