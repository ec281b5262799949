/* The growing lists of a tier's visits, write-backs and pairs, and the sum of the bytes that they
 * move. The caller decides when a visit begins or ends. If memory is refused, `status` has the
 * error from then on, and the caller stops.
 */
#ifndef SL_CHUNK_PLAN_VISIT_LIST_H
#define SL_CHUNK_PLAN_VISIT_LIST_H

#include "uses.h"

#define SL_NO_VISIT UINT32_MAX

typedef struct sl_visit_list {
    const sl_uses *uses;
    sl_residency residency;
    uint32_t visit_capacity, write_back_capacity, pair_capacity;
    sl_status status;
} sl_visit_list;

/* The lengths of the lists and the sums at one moment, for going back to it. */
typedef struct sl_visit_mark {
    uint32_t visit_count, write_back_count;
    uint64_t moved_bytes, weighed_bytes;
} sl_visit_mark;

/* Empties the lists and frees their memory. */
void sl_visit_list_clear(sl_visit_list *list);

/* Appends a visit of one tick and returns its index; SL_NO_VISIT if memory is refused. */
uint32_t sl_visit_list_add(sl_visit_list *list, uint32_t object, uint32_t tick, bool is_fetched);
void sl_visit_list_add_write_back(sl_visit_list *list, uint32_t visit, uint32_t after_tick);
void sl_visit_list_add_pair(sl_visit_list *list, uint32_t at_entry, uint32_t at_end);

sl_visit_mark sl_visit_list_mark(const sl_visit_list *list);
void sl_visit_list_rewind(sl_visit_list *list, const sl_visit_mark *mark);

/* Removes each visit whose object is SL_NO_VISIT: it was joined to a later visit, whose index is in
 * moved_to. Also removes pairs whose two visits are now one. Overwrites moved_to [visit_count]. */
void sl_visit_list_compact(sl_visit_list *list, uint32_t *moved_to);

#endif
