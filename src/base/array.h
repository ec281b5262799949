/* Arrays that grow as they are filled. `items` is the address of a pointer to items of
 * `item_bytes`, which its owner frees. SL_ERROR_SYSTEM: "no memory for WHAT", or there are too
 * many; then nothing has changed. */
#ifndef SL_BASE_ARRAY_H
#define SL_BASE_ARRAY_H

#include <stdint.h>

#include "status.h"

/* Makes room for `needed` items in all; an array that is too small gets twice its capacity or more.
 */
sl_status sl_array_reserve(void **items, uint64_t needed, uint64_t *capacity, uint64_t item_bytes,
                           const char *what);

/* Makes room for one more item behind `count` items, at most 2^31 in all; first for 16. */
sl_status sl_array_grow(void **items, uint64_t count, uint32_t *capacity, uint64_t item_bytes,
                        const char *what);

#define SL_ARRAY_RESERVE(items, needed, capacity, what)                                            \
    sl_array_reserve((void **)&(items), needed, &(capacity), sizeof *(items), what)

#define SL_ARRAY_GROW(items, count, capacity, what)                                                \
    sl_array_grow((void **)&(items), count, &(capacity), sizeof *(items), what)

#endif
