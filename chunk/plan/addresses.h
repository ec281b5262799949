/* Addresses: one static offset for every item of memory with a known live range.
 *
 * Live ranges are closed intervals of ticks of a loop body; first > last wraps round its end. Two
 * items whose live ranges overlap share no byte, unless pairs join them: then they lie at one
 * offset and live while any of them does. Knows nothing of what the bytes are for.
 */
#ifndef SL_CHUNK_PLAN_ADDRESSES_H
#define SL_CHUNK_PLAN_ADDRESSES_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_address_item {
    uint64_t bytes; /* 0: it takes no room */
    uint32_t first_tick, last_tick;
    uint64_t offset; /* out: a multiple of the alignment */
} sl_address_item;

/* Two items of equal bytes that lie at one offset. What is joined to one is joined to the other. */
typedef struct sl_address_pair {
    uint32_t a, b; /* item indices */
} sl_address_pair;

typedef struct sl_address_request {
    sl_address_item *items;
    uint32_t item_count;
    uint32_t pair_count;
    const sl_address_pair *pairs;
    uint64_t base, alignment;
} sl_address_request;

/* Places every item at or above `base` on a multiple of `alignment`; writes the offsets and the end
 * of the highest item (at least `base`). First fit in several orders, by size and by first tick;
 * the lowest peak wins. SL_ERROR_INTERNAL: a pair names no item or joins unequal ones.
 * SL_ERROR_USAGE: all sizes together overflow. */
sl_status sl_addresses_assign(const sl_address_request *request, uint64_t *out_peak);

#endif
