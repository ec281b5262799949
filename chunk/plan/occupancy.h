/* Which addresses are taken at which ticks. Knows nothing of who takes them.
 *
 * Ticks are the leaves of a binary tree (a segment tree). A node keeps two unions of addresses:
 * those taken at some of its ticks, and those taken by who is there throughout its ticks but not
 * throughout its parent's. So a range of ticks is a few nodes and their parents, and what is
 * taken in it is the union of as many sets. Neighbours in a set become one, so sets stay short
 * where addresses are packed well.
 */
#ifndef SL_CHUNK_PLAN_OCCUPANCY_H
#define SL_CHUNK_PLAN_OCCUPANCY_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_occupancy sl_occupancy;

/* A closed interval of ticks; first <= last. */
typedef struct sl_tick_range {
    uint32_t first, last;
} sl_tick_range;

/* Opens one for ticks 0 to tick_count - 1 in which nothing is taken. */
sl_status sl_occupancy_open(uint32_t tick_count, sl_occupancy **out_occupancy);
/* NULL is fine. */
void sl_occupancy_close(sl_occupancy *occupancy);

/* Gives everything back. */
void sl_occupancy_clear(sl_occupancy *occupancy);

/* Takes addresses from `begin` on up to `end`, which may be taken already. */
sl_status sl_occupancy_take(sl_occupancy *occupancy, sl_tick_range ticks, uint64_t begin,
                            uint64_t end);

/* The lowest begin >= `from` such that `bytes` > 0 bytes are free in all ranges of ticks: `from`,
 * or an end of what was taken. The caller knows that no sum overflows. */
uint64_t sl_occupancy_find(const sl_occupancy *occupancy, const sl_tick_range *ranges,
                           uint32_t range_count, uint64_t from, uint64_t bytes);

#endif
