/* Candidates for eviction, and which of them goes first: Belady's rule, weighted by cost.
 *
 * For each class of cost there is a heap whose top is needed last, so a victim is the best of a few
 * tops. It knows objects, classes and when each is needed next; nothing of ticks, tiers and visits.
 * Each object is a candidate at most once.
 */
#ifndef SL_CHUNK_PLAN_VICTIMS_H
#define SL_CHUNK_PLAN_VICTIMS_H

#include <stdint.h>

#include "base/status.h"

/* What evicting an object costs. What is used in the loop that is walked has classes of its own;
 * what only passes through it keeps those it had before. */
typedef enum sl_victim_class {
    SL_VICTIM_FREE,  /* its content is not needed again */
    SL_VICTIM_CLEAN, /* a fetch */
    SL_VICTIM_DIRTY, /* a fetch, and a write-back that would not have been */
    SL_VICTIM_LOOP_CLEAN,
    SL_VICTIM_LOOP_DIRTY,
    SL_VICTIM_STRANDED, /* a write-back in each repetition of the loop that is just over */
    SL_VICTIM_CLASSES
} sl_victim_class;

/* How distance and cost make a victim. None is best for every mixture of clean and dirty objects.
 */
typedef enum sl_weighting {
    SL_WEIGH_DISTANCE, /* the farthest next use */
    SL_WEIGH_RATIO,    /* a dirty object counts as half as far */
    SL_WEIGH_COST,     /* clean objects first */
    SL_WEIGHTING_COUNT
} sl_weighting;

typedef struct sl_victims {
    uint32_t *heap[SL_VICTIM_CLASSES]; /* objects */
    uint32_t count[SL_VICTIM_CLASSES];
    uint64_t *need;        /* [object_count]: when it is needed next */
    uint32_t *heap_index;  /* [object_count]: in its heap */
    uint8_t *victim_class; /* [object_count]: SL_VICTIM_CLASSES when it is no candidate */
    uint32_t object_count;
} sl_victims;

sl_status sl_victims_open(uint32_t object_count, sl_victims *out_victims);
void sl_victims_close(sl_victims *victims);

/* Removes all candidates. */
void sl_victims_clear(sl_victims *victims);

/* Makes the object a candidate, or changes what is known of it. */
void sl_victims_put(sl_victims *victims, uint32_t object, uint32_t victim_class, uint64_t need);

/* Removes the object if it is a candidate. */
void sl_victims_remove(sl_victims *victims, uint32_t object);

/* The candidate of a class that is needed last, of equal ones the lowest; UINT32_MAX: none. */
uint32_t sl_victims_top(const sl_victims *victims, uint32_t victim_class);

/* The candidate to evict at `tick`, of equal ones the lowest; UINT32_MAX: none. While a loop is
 * walked, what only passes through it is needed `behind_loop` ticks later than its tick says; 0:
 * there is no loop. */
uint32_t sl_victims_choose(const sl_victims *victims, sl_weighting weighting, uint32_t tick,
                           uint64_t behind_loop);

#endif
