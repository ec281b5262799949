/* Whom a wait is to be charged to. A lane that waits for another often waits for one further back:
 * the copy to the device cannot start because its chunk is still being read from disk. So of each
 * lane the last waits are remembered, and a wait for it is divided: what it waited for itself
 * meanwhile is charged there, only the rest to it.
 *
 * Times are in any unit. Spans of one lane do not overlap and are remembered in the order of time,
 * already divided; so the wait of the lane waited for has to be remembered before a wait for that
 * lane is divided. What was forgotten stays with the lane waited for.
 */
#ifndef SL_CHUNK_SIMULATE_STALL_H
#define SL_CHUNK_SIMULATE_STALL_H

#include "sluice/plan.h"

enum { SL_STALL_HISTORY = 128, SL_STALL_PART_MAX = 2 * SL_STALL_HISTORY + 1 };

/* Time that a lane waited, and the lane whose work it waited for in the end. */
typedef struct sl_stall_span {
    double start, end;
    sl_lane cause;
} sl_stall_span;

typedef struct sl_stall_history {
    sl_stall_span spans[SL_STALL_HISTORY]; /* number i stands in spans[i % SL_STALL_HISTORY] */
    uint64_t count;                        /* ever */
} sl_stall_history;

/* Adds a span; the oldest gives way. */
void sl_stall_remember(sl_stall_history *history, const sl_stall_span *span);

/* Adds the spans from number `first` on again, `times` times, each time `seconds` later than the
 * time before. */
void sl_stall_repeat(sl_stall_history *history, uint64_t first, double seconds, uint32_t times);

/* Divides a wait of lane `waiter` by the history of the lane it waited for, which `wait->cause`
 * names. Writes the parts in the order of time, none of them empty; returns how many. */
uint32_t sl_stall_divide(const sl_stall_history *history, sl_lane waiter, const sl_stall_span *wait,
                         sl_stall_span out_parts[SL_STALL_PART_MAX]);

#endif
