/* Candidates for eviction: for each class of cost a heap whose top is needed last.
 *
 * It knows objects, classes and when each is needed next; what a class means is for the caller.
 * Each object is a candidate at most once.
 */
#ifndef SL_CHUNK_PLAN_VICTIMS_H
#define SL_CHUNK_PLAN_VICTIMS_H

#include <stdint.h>

#include "base/status.h"

enum { SL_VICTIM_CLASSES = 6 };

typedef struct sl_victims {
    uint32_t *heap[SL_VICTIM_CLASSES]; /* objects */
    uint32_t count[SL_VICTIM_CLASSES];
    uint64_t *need;        /* [object_count]: when it is needed next */
    uint32_t *slot;        /* [object_count]: in its heap */
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

#endif
