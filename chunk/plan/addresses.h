/* Addresses: one static offset for every item of memory with a known live range.
 *
 * Live ranges are closed intervals of ticks of the body; if first > last, the range wraps round the
 * end of the body. Two items whose live ranges overlap share no byte, unless pairs join them. All
 * joined items have one offset, and its bytes are in use while any of them is alive. Knows nothing
 * of the contents of the bytes.
 */
#ifndef SL_CHUNK_PLAN_ADDRESSES_H
#define SL_CHUNK_PLAN_ADDRESSES_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_address_item {
    uint64_t bytes; /* 0: the item takes no room */
    uint32_t first_tick, last_tick;
    uint64_t offset; /* out: a multiple of the alignment */
} sl_address_item;

/* Two items of equal size that get one offset. Joining is transitive. */
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
 * the order with the lowest peak wins. SL_ERROR_INTERNAL: a pair has an index that is no item, or
 * joins items of different size. SL_ERROR_USAGE: the sum of all sizes overflows. */
sl_status sl_addresses_assign(const sl_address_request *request, uint64_t *out_peak);

#endif
