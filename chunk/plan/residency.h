/* Residency: when a chunk that is used away from its home stays there between uses.
 *
 * One tier at a time, in ticks of the body of an endless loop (the step). It knows objects, bytes
 * and uses; it knows nothing of addresses, lanes or time.
 *
 *   away use   on the tier that is planned: the object must be there
 *   home use   at the object's home: ends any visit before it (dirty content is written back first)
 *   visit      first .. last tick of an uninterrupted stay; fetched unless its first use writes the
 *              object whole; carried visits cross the end of the body, clean, and wrap
 *   loop       ticks of the body that run any number of times (repetitions) before the ticks behind
 *              them; what moves at one of these ticks moves in each repetition
 *   seam       the edge between two repetitions: the state before the first tick of the loop is the
 *              state after its last one, with the same objects here and each as dirty, so a plan
 *              is valid for any number of repetitions
 *
 * The victim is the object with the farthest next use, weighted by what evicting it costs (Belady's
 * rule, extended to write-backs). Objects whose first use in the body writes them whole hold
 * nothing from one iteration to the next and are never written back for the body's sake, unless the
 * request says that they outlive it.
 */
#ifndef SL_CHUNK_PLAN_RESIDENCY_H
#define SL_CHUNK_PLAN_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* When plans are compared, each loop counts as run this often, whatever the real number. */
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
    const uint64_t *object_bytes; /* [object_count] */
    const uint64_t *room_bytes;   /* [tick_count]: what visits may take at each tick */
    const bool
        *outlives; /* [object_count]: its content is needed when the body is over, although */
                   /* the first use here writes it whole; NULL: none */
    const sl_residency_loop *loops; /* in order, disjoint */
    uint32_t loop_count;
} sl_residency_request;

typedef struct sl_visit {
    uint32_t object;
    uint32_t first_tick; /* > last_tick: wraps round the end of the body */
    uint32_t last_tick;
    uint32_t
        first_use;   /* the tick of the first use after the fetch; > first_tick before prefetch */
                     /* only where a visit begins in front of a loop, for its sake */
    bool is_fetched; /* in the body */
    bool is_carried; /* here at the start of the body: the prologue loads it */
} sl_visit;

typedef struct sl_write_back {
    uint32_t visit;
    uint32_t after_tick; /* the last write, or later where that keeps it out of a loop */
} sl_write_back;

/* An object that is here at the seam of a loop, leaves within the loop and comes back: both visits
 * lie at one address. */
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
    uint64_t moved_bytes;   /* fetches and write-backs, each loop run once */
    uint64_t weighed_bytes; /* the same, each loop run SL_RESIDENCY_REPETITIONS times */
} sl_residency;

/* Plans the visits of one tier. SL_ERROR_FIT when the objects of one tick do not fit: writes the
 * tick and the missing bytes (the largest over all ticks). */
sl_status sl_residency_plan(const sl_residency_request *request, sl_residency *out_residency,
                            uint32_t *out_tick, uint64_t *out_missing_bytes);

/* Frees the arrays and zeroes the struct. */
void sl_residency_clear(sl_residency *residency);

#endif
