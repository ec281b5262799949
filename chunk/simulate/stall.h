/* Finds the lane that a wait is charged to. Often the lane that is waited for was itself waiting
 * for a third lane: the compute lane waits for a copy to the device, and this copy could not start
 * because its chunk was still being read from disk. So the last waits of each lane are remembered.
 * When lane A waits for lane B, the time in which B itself waited is charged to the lanes that B
 * waited for; only the rest is charged to B.
 *
 * Times are in any unit. The spans of one lane do not overlap. They are remembered in the order of
 * time, after they have been divided, so the waits of lane B have to be remembered before a wait
 * for B is divided. Time in which B waited, but whose span the history no longer has, is charged to
 * B.
 */
#ifndef SL_CHUNK_SIMULATE_STALL_H
#define SL_CHUNK_SIMULATE_STALL_H

#include "chunk/plan.h"

enum { SL_STALL_HISTORY = 128, SL_STALL_PART_MAX = 2 * SL_STALL_HISTORY + 1 };

/* Time that a lane waited, and the lane whose work it waited for in the end. */
typedef struct sl_stall_span {
    double start, end;
    sl_lane cause;
} sl_stall_span;

typedef struct sl_stall_history {
    sl_stall_span spans[SL_STALL_HISTORY]; /* number i is spans[i % SL_STALL_HISTORY] */
    uint64_t count;                        /* of all spans so far, kept or not */
} sl_stall_history;

/* Adds a span, in place of the oldest one if the history is full. */
void sl_stall_remember(sl_stall_history *history, const sl_stall_span *span);

/* Adds copies of the spans from number `first` on, `times` times; each copy is `seconds` later than
 * the copy before. */
void sl_stall_repeat(sl_stall_history *history, uint64_t first, double seconds, uint32_t times);

/* Divides a wait of lane `waiter` by the history of the lane `wait->cause`, for which it waited.
 * Writes the parts in the order of time, none of them empty; returns their number. */
uint32_t sl_stall_divide(const sl_stall_history *history, sl_lane waiter, const sl_stall_span *wait,
                         sl_stall_span out_parts[SL_STALL_PART_MAX]);

#endif
