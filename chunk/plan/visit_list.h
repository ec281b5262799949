/* The visits, write-backs and pairs of a tier while they are made, and the bytes that they move.
 *
 * It knows lists; why a visit begins or ends is for the caller. The first refused allocation stays
 * in `status`, and nothing is added from then on.
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

/* How long the lists were at some time, to go back to it. */
typedef struct sl_visit_mark {
    uint32_t visit_count, write_back_count;
    uint64_t moved_bytes, weighed_bytes;
} sl_visit_mark;

/* Frees what the lists hold. */
void sl_visit_list_clear(sl_visit_list *list);

/* Opens a visit of one tick and returns its index, SL_NO_VISIT when memory is refused. */
uint32_t sl_visit_list_add(sl_visit_list *list, uint32_t object, uint32_t tick, bool is_fetched);
void sl_visit_list_add_write_back(sl_visit_list *list, uint32_t visit, uint32_t after_tick);
void sl_visit_list_add_pair(sl_visit_list *list, uint32_t at_entry, uint32_t at_end);

sl_visit_mark sl_visit_list_mark(const sl_visit_list *list);
void sl_visit_list_rewind(sl_visit_list *list, const sl_visit_mark *mark);

/* Removes each visit without object: it is one with a later visit, whose index stands in moved_to
 * [visit_count], which is overwritten. Pairs that became one visit go too. */
void sl_visit_list_compact(sl_visit_list *list, uint32_t *moved_to);

#endif
