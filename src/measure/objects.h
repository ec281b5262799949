/* What a tier's peak is made of: the objects of a plan that are alive at the tick with most live
 * bytes, those of one name together.
 */
#ifndef SL_MEASURE_OBJECTS_H
#define SL_MEASURE_OBJECTS_H

#include "sluice/plan.h"

enum { SL_OBJECTS_MAX = 48, SL_OBJECTS_NAME_BYTES = 72 };

typedef struct sl_object {
    char name[SL_OBJECTS_NAME_BYTES]; /* "moment1 chunks, at home"; "h.*.attn", of all layers */
    sl_memory_kind kind;
    uint64_t bytes; /* of all */
    uint32_t count;
} sl_object;

typedef struct sl_objects {
    uint32_t tick;       /* of the peak */
    uint64_t live_bytes; /* there; the items add up to it */
    uint32_t count;
    sl_object items[SL_OBJECTS_MAX]; /* the largest first; the last may be "others" */
} sl_objects;

/* SL_ERROR_SYSTEM: no memory. */
sl_status sl_objects_find(const sl_program *program, const sl_plan *plan, sl_tier tier,
                          sl_objects *out_objects);

#endif
