/* Which addresses are taken at which ticks. Knows nothing of the items that take them.
 *
 * Ticks are the leaves of a binary tree (a segment tree). A node keeps two sets of addresses. The
 * first holds those taken at one or more of its ticks; the second those taken by a range of ticks
 * that covers the whole node but not its whole parent. A range of ticks is the union of a few
 * nodes: the addresses taken in it are in the first sets of these nodes and in the second sets of
 * their ancestors. Ranges of a set that touch are merged, so sets stay short if addresses are
 * packed well.
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

/* Opens an occupancy of ticks 0 to tick_count - 1 without taken addresses. */
sl_status sl_occupancy_open(uint32_t tick_count, sl_occupancy **out_occupancy);
/* NULL is fine. */
void sl_occupancy_close(sl_occupancy *occupancy);

/* Frees all addresses at all ticks; keeps the memory of the sets. */
void sl_occupancy_clear(sl_occupancy *occupancy);

/* Takes the addresses [begin, end) at `ticks`; some of them may be taken already. */
sl_status sl_occupancy_take(sl_occupancy *occupancy, sl_tick_range ticks, uint64_t begin,
                            uint64_t end);

/* The lowest begin >= `from` such that `bytes` > 0 bytes are free in all ranges of ticks: either
 * `from` or the end of a taken range. The caller makes sure that no sum overflows. */
uint64_t sl_occupancy_find(const sl_occupancy *occupancy, const sl_tick_range *ranges,
                           uint32_t range_count, uint64_t from, uint64_t bytes);

#endif
