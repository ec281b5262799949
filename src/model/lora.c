/* See lora.h. */
#include "lora.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

bool sl_lora_next(const sl_lora *lora, sl_lora_target *at)
{
    const char *start = at->rest ? at->rest : lora->targets;
    start += strspn(start, ",");
    const size_t length = strcspn(start, ",");
    snprintf(at->text, sizeof at->text, "%.*s", (int)length, start);
    at->rest = start + length;
    return length > 0;
}

bool sl_lora_matches(const char *target, const char *layer)
{
    if (strcmp(target, SL_LORA_ALL) == 0)
        return true;
    for (const char *end = layer; end != NULL; end = strchr(end, '.')) {
        end += *end == '.';
        if (fnmatch(target, end, 0) == 0)
            return true;
    }
    return false;
}

bool sl_lora_adapts(const sl_lora *lora, const char *layer)
{
    sl_lora_target at = {.rest = NULL};
    while (sl_lora_next(lora, &at))
        if (sl_lora_matches(at.text, layer))
            return true;
    return false;
}

bool sl_lora_is_same(const sl_lora *a, const sl_lora *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || (a->alpha == b->alpha && strcmp(a->targets, b->targets) == 0));
}
