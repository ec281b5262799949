/* A growing array of ids. Zeros: empty. */
#ifndef SL_TEXT_IDS_H
#define SL_TEXT_IDS_H

#include <stdint.h>
#include <stdlib.h>

#include "base/array.h"

typedef struct sl_ids {
    uint32_t *items;
    uint64_t count, capacity;
} sl_ids;

/* Makes room for `more` further ids. SL_ERROR_SYSTEM. */
static inline sl_status sl_ids_reserve(sl_ids *ids, uint64_t more)
{
    return SL_ARRAY_RESERVE(ids->items, ids->count + more, ids->capacity, "ids");
}

static inline void sl_ids_free(sl_ids *ids)
{
    free(ids->items);
    *ids = (sl_ids){0};
}

#endif
