/* Arrays that grow as they are filled; see array.h. */
#include "array.h"

#include <stdlib.h>

#include "bits.h"

enum { FIRST_CAPACITY = 16 };

sl_status sl_array_reserve(void **items, uint64_t needed, uint64_t *capacity, uint64_t item_bytes,
                           const char *what)
{
    uint64_t bytes;
    if (needed <= *capacity)
        return SL_OK;
    needed = sl_bits_max(needed, 2 * *capacity);
    SL_TRY(sl_bits_multiply(needed, item_bytes, what, &bytes));
    void *grown = realloc(*items, bytes);
    if (grown == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %s", what);
    *items = grown;
    *capacity = needed;
    return SL_OK;
}

sl_status sl_array_grow(void **items, uint64_t count, uint32_t *capacity, uint64_t item_bytes,
                        const char *what)
{
    uint64_t larger = *capacity;
    if (count < *capacity)
        return SL_OK;
    if (count > INT32_MAX)
        SL_FAIL(SL_ERROR_SYSTEM, "more than 2^31 items: %s", what);
    SL_TRY(
        sl_array_reserve(items, sl_bits_max(count + 1, FIRST_CAPACITY), &larger, item_bytes, what));
    *capacity = (uint32_t)larger;
    return SL_OK;
}
