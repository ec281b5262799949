/* Residency: when objects visit a tier that is not their home, and which of them stay there between
 * uses.
 *
 * Plans one tier at a time, in ticks of the body, which is repeated without end (once per step). It
 * knows objects, bytes and uses; nothing of addresses, lanes or seconds. "Here" means on the tier
 * that is planned.
 *
 *   away use   a use on the tier that is planned: the object must be here
 *   home use   a use at the object's home: ends any visit before it (dirty content is written back
 *              first)
 *   visit      first .. last tick of an uninterrupted stay; fetched unless its first use writes the
 *              object whole; carried visits cross the end of the body, clean, and wrap
 *   loop       ticks of the body that run any number of times (repetitions) before the ticks behind
 *              them; a move at one of these ticks happens in each repetition
 *   seam       the edge between two repetitions: the state before the first tick of the loop is the
 *              state after its last one. The same objects are here, and the same ones are dirty, so
 *              a plan is valid for any number of repetitions
 *
 * The victim is the object with the farthest next use, weighted by the cost of its eviction
 * (Belady's rule, extended to write-backs). An object whose first use in the body writes it whole
 * has no content to preserve from one iteration to the next: at the end of the body it is not
 * written back, unless the request says that it outlives the body.
 */
#ifndef SL_CHUNK_PLAN_RESIDENCY_H
#define SL_CHUNK_PLAN_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* When walks and distances are compared, each loop counts as this many repetitions, whatever the
 * real number is. */
enum { SL_RESIDENCY_REPETITIONS = 16 };

typedef struct sl_residency_use {
    uint32_t tick, object;
    bool is_away;
    bool reads, writes; /* writes without reads: the whole object */
} sl_residency_use;

typedef struct sl_residency_loop {
    uint32_t first_tick, end_tick; /* half open, not empty */
} sl_residency_loop;

typedef struct sl_residency_request {
    uint32_t tick_count;
    const sl_residency_use *uses; /* by tick; at most one an object and tick */
    uint32_t use_count;
    uint32_t object_count;
    const uint64_t *object_bytes; /* [object_count]: that a visit takes */
    const uint64_t *copy_bytes;   /* [object_count]: that a fetch or a write-back moves */
    const uint64_t *room_bytes;   /* [tick_count]: bytes that visits may take at each tick */
    /* [object_count]: its content is needed after the body, although the first use here writes it
     * whole; NULL: no object */
    const bool *outlives;
    const sl_residency_loop *loops; /* in order, disjoint */
    uint32_t loop_count;
} sl_residency_request;

typedef struct sl_visit {
    uint32_t object;
    uint32_t first_tick; /* > last_tick: wraps round the end of the body */
    uint32_t last_tick;
    /* The tick of the first use after the fetch. Before prefetch it is first_tick, unless the visit
     * begins at the tick before a loop to be in place at the loop's entry. */
    uint32_t first_use;
    bool is_fetched; /* in the body */
    bool is_carried; /* here at the start of the body: the prologue loads it */
} sl_visit;

typedef struct sl_write_back {
    uint32_t visit;
    uint32_t after_tick; /* of the last write, or later to keep the write-back out of a loop */
} sl_write_back;

/* The two visits of an object that is here at the seam of a loop, leaves within the loop and comes
 * back. Both get one address. */
typedef struct sl_visit_pair {
    uint32_t at_entry, at_end; /* visits */
} sl_visit_pair;

typedef struct sl_residency {
    sl_visit *visits;
    uint32_t visit_count;
    sl_write_back *write_backs;
    uint32_t write_back_count;
    sl_visit_pair *pairs;
    uint32_t pair_count;
    uint64_t moved_bytes;   /* by fetches and write-backs, with one repetition of each loop */
    uint64_t weighed_bytes; /* the same with SL_RESIDENCY_REPETITIONS repetitions of each loop */
} sl_residency;

/* Plans the visits of one tier. SL_ERROR_FIT if the objects of the away uses of a tick do not fit
 * its room; then writes the tick where most bytes are missing, and these bytes. */
sl_status sl_residency_plan(const sl_residency_request *request, sl_residency *out_residency,
                            uint32_t *out_tick, uint64_t *out_missing_bytes);

/* Frees the arrays and zeroes the struct. */
void sl_residency_clear(sl_residency *residency);

#endif
