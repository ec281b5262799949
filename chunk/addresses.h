/* Addresses: one static offset for every stretch of memory with a known life.
 *
 * Lives are closed intervals of ticks of a loop body; first > last wraps round its end. Two items
 * whose lives meet never overlap in bytes. Knows nothing of what the bytes are for.
 */
#ifndef SL_CHUNK_ADDRESSES_H
#define SL_CHUNK_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_address_item {
    uint64_t bytes; /* 0: it takes no room */
    uint32_t first_tick, last_tick;
    uint64_t offset; /* out: a multiple of the alignment */
} sl_address_item;

/* Whether two lives share a tick. */
bool sl_addresses_meet(const sl_address_item *a, const sl_address_item *b);

/* Places every item at or above `base` on a multiple of `alignment`; writes the offsets and the end
 * of the highest item (at least `base`). First fit in several orders, by size and by first tick;
 * the lowest peak wins. */
sl_status sl_addresses_assign(sl_address_item *items, uint32_t item_count, uint64_t base,
                              uint64_t alignment, uint64_t *out_peak);

#endif
