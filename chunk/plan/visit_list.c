/* Three growing arrays and two sums. */
#include "visit_list.h"

#include "base/array.h"

void sl_visit_list_clear(sl_visit_list *list)
{
    sl_residency_clear(&list->residency);
    list->visit_capacity = list->write_back_capacity = list->pair_capacity = 0;
}

/* False, and kept, if memory is refused. */
static bool has_grown(sl_visit_list *list, sl_status status)
{
    if (status != SL_OK)
        list->status = status;
    return status == SL_OK;
}

#define GROW(list, items, count, capacity)                                                         \
    has_grown(list, SL_ARRAY_GROW(items, count, capacity, "the moves of a plan"))

static void count_move(sl_visit_list *list, uint32_t object, uint32_t tick)
{
    uint64_t bytes = list->uses->request->copy_bytes[object];
    bool is_in_loop = list->uses->loop_of_tick[tick] != SL_NO_LOOP;
    list->residency.moved_bytes += bytes;
    list->residency.weighed_bytes += is_in_loop ? SL_RESIDENCY_REPETITIONS * bytes : bytes;
}

uint32_t sl_visit_list_add(sl_visit_list *list, uint32_t object, uint32_t tick, bool is_fetched)
{
    sl_residency *residency = &list->residency;
    if (!GROW(list, residency->visits, residency->visit_count, list->visit_capacity))
        return SL_NO_VISIT;
    residency->visits[residency->visit_count] = (sl_visit){.object = object,
                                                           .first_tick = tick,
                                                           .last_tick = tick,
                                                           .first_use = tick,
                                                           .is_fetched = is_fetched};
    if (is_fetched)
        count_move(list, object, tick);
    return residency->visit_count++;
}

void sl_visit_list_add_write_back(sl_visit_list *list, uint32_t visit, uint32_t after_tick)
{
    sl_residency *residency = &list->residency;
    if (!GROW(list, residency->write_backs, residency->write_back_count, list->write_back_capacity))
        return;
    residency->write_backs[residency->write_back_count++] = (sl_write_back){visit, after_tick};
    count_move(list, residency->visits[visit].object, after_tick);
}

void sl_visit_list_add_pair(sl_visit_list *list, uint32_t at_entry, uint32_t at_end)
{
    sl_residency *residency = &list->residency;
    if (!GROW(list, residency->pairs, residency->pair_count, list->pair_capacity))
        return;
    residency->pairs[residency->pair_count++] = (sl_visit_pair){at_entry, at_end};
}

sl_visit_mark sl_visit_list_mark(const sl_visit_list *list)
{
    return (sl_visit_mark){list->residency.visit_count, list->residency.write_back_count,
                           list->residency.moved_bytes, list->residency.weighed_bytes};
}

void sl_visit_list_rewind(sl_visit_list *list, const sl_visit_mark *mark)
{
    list->residency.visit_count = mark->visit_count;
    list->residency.write_back_count = mark->write_back_count;
    list->residency.moved_bytes = mark->moved_bytes;
    list->residency.weighed_bytes = mark->weighed_bytes;
}

void sl_visit_list_compact(sl_visit_list *list, uint32_t *moved_to)
{
    sl_residency *residency = &list->residency;
    uint32_t kept = 0, kept_pairs = 0;
    for (uint32_t v = residency->visit_count; v-- > 0;)
        kept += residency->visits[v].object != SL_NO_VISIT;
    uint32_t next = kept;
    for (uint32_t v = residency->visit_count; v-- > 0;) /* backwards: v is joined to a later one */
        moved_to[v] = residency->visits[v].object != SL_NO_VISIT ? --next : moved_to[moved_to[v]];
    for (uint32_t v = 0; v < residency->visit_count; v++)
        if (residency->visits[v].object != SL_NO_VISIT)
            residency->visits[moved_to[v]] = residency->visits[v];
    for (uint32_t b = 0; b < residency->write_back_count; b++)
        residency->write_backs[b].visit = moved_to[residency->write_backs[b].visit];
    for (uint32_t p = 0; p < residency->pair_count; p++) {
        sl_visit_pair pair = {moved_to[residency->pairs[p].at_entry],
                              moved_to[residency->pairs[p].at_end]};
        if (pair.at_entry != pair.at_end)
            residency->pairs[kept_pairs++] = pair;
    }
    residency->visit_count = kept;
    residency->pair_count = kept_pairs;
}
