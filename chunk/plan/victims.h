/* Candidates for eviction, and which of them is evicted first: Belady's rule, weighted by cost.
 *
 * Each class of cost has a heap with the farthest next use at the top, so the victim is the best of
 * a few tops. Knows objects, classes and the tick of each object's next use; nothing of tiers and
 * visits. Each object is a candidate at most once.
 */
#ifndef SL_CHUNK_PLAN_VICTIMS_H
#define SL_CHUNK_PLAN_VICTIMS_H

#include <stdint.h>

#include "base/status.h"

/* The cost of evicting an object. Objects that are used in the loop that is walked have classes of
 * their own; objects that are here but not used in it keep their class from before the loop. */
typedef enum sl_victim_class {
    SL_VICTIM_FREE,  /* its content is not needed again */
    SL_VICTIM_CLEAN, /* a fetch */
    SL_VICTIM_DIRTY, /* a fetch, and a write-back that is not needed without the eviction */
    SL_VICTIM_LOOP_CLEAN,
    SL_VICTIM_LOOP_DIRTY,
    SL_VICTIM_STRANDED, /* a write-back in each repetition of the loop that has just ended */
    SL_VICTIM_CLASSES
} sl_victim_class;

/* How the victim is chosen by distance and cost. No rule is best for all mixtures of clean and
 * dirty objects. */
typedef enum sl_weighting {
    SL_WEIGH_DISTANCE, /* the farthest next use */
    SL_WEIGH_RATIO,    /* the same, with the distance of a dirty object halved */
    SL_WEIGH_COST,     /* objects without a use in the loop first, then clean ones */
    SL_WEIGHTING_COUNT
} sl_weighting;

typedef struct sl_victims {
    uint32_t *heap[SL_VICTIM_CLASSES]; /* objects */
    uint32_t count[SL_VICTIM_CLASSES];
    uint64_t *need;        /* [object_count]: the tick of the next use */
    uint32_t *heap_index;  /* [object_count]: index in the heap of its class */
    uint8_t *victim_class; /* [object_count]: SL_VICTIM_CLASSES when it is no candidate */
    uint32_t object_count;
} sl_victims;

sl_status sl_victims_open(uint32_t object_count, sl_victims *out_victims);
void sl_victims_close(sl_victims *victims);

/* Removes all candidates. */
void sl_victims_clear(sl_victims *victims);

/* Makes the object a candidate, or changes its class and next use. */
void sl_victims_put(sl_victims *victims, uint32_t object, uint32_t victim_class, uint64_t need);

/* Removes the object if it is a candidate. */
void sl_victims_remove(sl_victims *victims, uint32_t object);

/* The candidate of a class with the farthest next use, the lowest index among equals; UINT32_MAX:
 * none. */
uint32_t sl_victims_top(const sl_victims *victims, uint32_t victim_class);

/* The candidate to evict at `tick`, the lowest index among equals; UINT32_MAX: none. While a loop
 * is walked, objects without a use in it are needed `behind_loop` ticks later than `need` says; 0:
 * no loop is walked. */
uint32_t sl_victims_choose(const sl_victims *victims, sl_weighting weighting, uint32_t tick,
                           uint64_t behind_loop);

#endif
