/* First fit over items in a fixed order, lowest offset first (the greedy strategies of Pisarchyk
 * and Lee, "Efficient memory management for deep neural net inference", 2020). */
#include "addresses.h"

#include <stdlib.h>

#include "base/bits.h"

typedef struct ordered_item {
    const sl_address_item *item;
    uint32_t index;
} ordered_item;

typedef struct placer {
    sl_address_item *items;
    uint32_t item_count;
    uint64_t base, alignment; /* base is aligned */
    uint32_t *placed;         /* by offset */
    ordered_item *order;      /* [item_count] */
} placer;

bool sl_addresses_meet(const sl_address_item *a, const sl_address_item *b)
{
    bool a_wraps = a->first_tick > a->last_tick;
    bool b_wraps = b->first_tick > b->last_tick;
    if (a_wraps && b_wraps)
        return true;
    if (a_wraps)
        return b->last_tick >= a->first_tick || b->first_tick <= a->last_tick;
    if (b_wraps)
        return a->last_tick >= b->first_tick || a->first_tick <= b->last_tick;
    return a->first_tick <= b->last_tick && b->first_tick <= a->last_tick;
}

static int compare_indices(const ordered_item *a, const ordered_item *b)
{
    return (a->index > b->index) - (a->index < b->index);
}

static int compare_by_size(const void *left, const void *right)
{
    const ordered_item *a = left, *b = right;
    if (a->item->bytes != b->item->bytes)
        return a->item->bytes < b->item->bytes ? 1 : -1;
    if (a->item->first_tick != b->item->first_tick)
        return a->item->first_tick < b->item->first_tick ? -1 : 1;
    return compare_indices(a, b);
}

static int compare_by_tick(const void *left, const void *right)
{
    const ordered_item *a = left, *b = right;
    if (a->item->first_tick != b->item->first_tick)
        return a->item->first_tick < b->item->first_tick ? -1 : 1;
    if (a->item->bytes != b->item->bytes)
        return a->item->bytes < b->item->bytes ? 1 : -1;
    return compare_indices(a, b);
}

/* The lowest offset at which `item` meets none of the placed ones, which stand by offset. */
static uint64_t find_gap(const placer *p, uint32_t placed_count, const sl_address_item *item)
{
    uint64_t candidate = p->base;
    for (uint32_t n = 0; n < placed_count; n++) {
        const sl_address_item *other = &p->items[p->placed[n]];
        if (!sl_addresses_meet(item, other))
            continue;
        if (other->offset >= candidate && other->offset - candidate >= item->bytes)
            break;
        uint64_t end = sl_bits_round_up(other->offset + other->bytes, p->alignment);
        candidate = end > candidate ? end : candidate;
    }
    return candidate;
}

static void insert_placed(placer *p, uint32_t placed_count, uint32_t index)
{
    uint32_t at = placed_count;
    while (at > 0 && p->items[p->placed[at - 1]].offset > p->items[index].offset) {
        p->placed[at] = p->placed[at - 1];
        at--;
    }
    p->placed[at] = index;
}

/* Returns the end of the highest item. */
static uint64_t place_in_order(placer *p)
{
    uint64_t peak = p->base;
    for (uint32_t n = 0; n < p->item_count; n++) {
        sl_address_item *item = &p->items[p->order[n].index];
        item->offset = find_gap(p, n, item);
        insert_placed(p, n, p->order[n].index);
        if (item->offset + item->bytes > peak)
            peak = item->offset + item->bytes;
    }
    return peak;
}

sl_status sl_addresses_assign(sl_address_item *items, uint32_t item_count, uint64_t base,
                              uint64_t alignment, uint64_t *out_peak)
{
    sl_status status = SL_OK;
    placer p = {.items = items,
                .item_count = item_count,
                .base = sl_bits_round_up(base, alignment),
                .alignment = alignment,
                .placed = calloc((uint64_t)item_count + 1, sizeof(uint32_t)),
                .order = calloc((uint64_t)item_count + 1, sizeof(ordered_item))};
    if (!p.placed || !p.order) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory to place %u items", item_count);
        goto free_lists;
    }
    for (uint32_t n = 0; n < item_count; n++)
        p.order[n] = (ordered_item){&items[n], n};
    qsort(p.order, item_count, sizeof *p.order, compare_by_tick);
    uint64_t peak_by_tick = place_in_order(&p);
    qsort(p.order, item_count, sizeof *p.order, compare_by_size);
    *out_peak = place_in_order(&p);
    if (peak_by_tick < *out_peak) {
        qsort(p.order, item_count, sizeof *p.order, compare_by_tick);
        *out_peak = place_in_order(&p);
    }
    if (item_count == 0)
        *out_peak = base;
free_lists:
    free(p.order);
    free(p.placed);
    return status;
}
