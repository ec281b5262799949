/* A growing array of ids. Zeros: empty. */
#ifndef SL_TEXT_IDS_H
#define SL_TEXT_IDS_H

#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"

typedef struct sl_ids {
    uint32_t *items;
    uint64_t count, capacity;
} sl_ids;

/* Makes room for `more` further ids. SL_ERROR_SYSTEM. */
static inline sl_status sl_ids_reserve(sl_ids *ids, uint64_t more)
{
    uint64_t needed = ids->count + more;
    if (needed <= ids->capacity)
        return SL_OK;
    uint64_t capacity = needed < 2 * ids->capacity ? 2 * ids->capacity : needed;
    uint32_t *items = (uint32_t *)realloc(ids->items, capacity * sizeof *items);
    if (!items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu ids", (unsigned long long)capacity);
    ids->items = items;
    ids->capacity = capacity;
    return SL_OK;
}

static inline void sl_ids_free(sl_ids *ids)
{
    free(ids->items);
    *ids = (sl_ids){0};
}

#endif
