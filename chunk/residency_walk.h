/* One walk over a loop body with a guessed set of carried objects: the working part of residency.c.
 */
#ifndef SL_CHUNK_RESIDENCY_WALK_H
#define SL_CHUNK_RESIDENCY_WALK_H

#include "residency.h"

/* How distance and cost make a victim. */
typedef enum sl_weighting {
    SL_WEIGH_DISTANCE,
    SL_WEIGH_RATIO,
    SL_WEIGH_COST,
    SL_WEIGHTING_COUNT
} sl_weighting;

typedef struct sl_object_state sl_object_state;

typedef struct sl_residency_walk {
    const sl_residency_request *request;
    sl_weighting weighting;
    sl_object_state *objects;
    uint32_t *order;     /* use indices grouped by object, by tick */
    uint32_t *residents; /* objects here now */
    uint32_t resident_count;
    uint64_t resident_bytes;
    bool *is_carried_in; /* [object_count]: the guess */
    bool is_guess_wrong; /* a carried object left before it was used */
    bool *is_needed;     /* [object_count]: used away at the present tick */
    sl_residency result;
    uint32_t visit_capacity, write_back_capacity;
    sl_status status; /* the first refused allocation */
} sl_residency_walk;

sl_status sl_residency_walk_open(const sl_residency_request *request, sl_residency_walk *out_walk);
void sl_residency_walk_close(sl_residency_walk *walk);

/* Walks the body once from the guess; visits and write-backs are in walk->result. */
void sl_residency_walk_body(sl_residency_walk *walk);

/* Takes what the last walk left in place as the next guess. */
void sl_residency_walk_take_guess(sl_residency_walk *walk);

/* Drops from the guess what the last walk did not leave in place; true if the guess held. */
bool sl_residency_walk_shrink_guess(sl_residency_walk *walk);

/* Joins the visits that are open at the end with those carried in, and closes the others. */
sl_status sl_residency_walk_close_body(sl_residency_walk *walk);

#endif
