/* First fit over items in a fixed order, lowest offset first (the greedy strategies of Pisarchyk
 * and Lee, "Efficient memory management for deep neural net inference", 2020). */
#include "addresses.h"

#include <stdlib.h>

#include "base/bits.h"

typedef struct ordered_item {
    const sl_address_item *item;
    uint32_t index;
} ordered_item;

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
static uint64_t find_gap(const sl_address_item *items, const uint32_t *placed,
                         uint32_t placed_count, const sl_address_item *item, uint64_t base)
{
    uint64_t candidate = base;
    for (uint32_t p = 0; p < placed_count; p++) {
        const sl_address_item *other = &items[placed[p]];
        if (!sl_addresses_meet(item, other))
            continue;
        if (other->offset >= candidate && other->offset - candidate >= item->bytes)
            break;
        uint64_t end = sl_bits_round_up(other->offset + other->bytes, SL_ADDRESS_ALIGNMENT);
        candidate = end > candidate ? end : candidate;
    }
    return candidate;
}

static void insert_placed(const sl_address_item *items, uint32_t *placed, uint32_t placed_count,
                          uint32_t index)
{
    uint32_t at = placed_count;
    while (at > 0 && items[placed[at - 1]].offset > items[index].offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = index;
}

static uint64_t place_in_order(sl_address_item *items, const ordered_item *order,
                               uint32_t item_count, uint64_t base, uint32_t *placed)
{
    uint64_t peak = base;
    base = sl_bits_round_up(base, SL_ADDRESS_ALIGNMENT);
    for (uint32_t n = 0; n < item_count; n++) {
        sl_address_item *item = &items[order[n].index];
        item->offset = find_gap(items, placed, n, item, base);
        insert_placed(items, placed, n, order[n].index);
        if (item->offset + item->bytes > peak)
            peak = item->offset + item->bytes;
    }
    return peak;
}

sl_status sl_addresses_assign(sl_address_item *items, uint32_t item_count, uint64_t base,
                              uint64_t *out_peak)
{
    sl_status status = SL_OK;
    uint32_t *placed = calloc((uint64_t)item_count + 1, sizeof *placed);
    ordered_item *order = calloc((uint64_t)item_count + 1, sizeof *order);
    if (!placed || !order) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory to place %u items", item_count);
        goto free_lists;
    }
    for (uint32_t n = 0; n < item_count; n++)
        order[n] = (ordered_item){&items[n], n};
    qsort(order, item_count, sizeof *order, compare_by_tick);
    uint64_t peak_by_tick = place_in_order(items, order, item_count, base, placed);
    qsort(order, item_count, sizeof *order, compare_by_size);
    *out_peak = place_in_order(items, order, item_count, base, placed);
    if (peak_by_tick < *out_peak) {
        qsort(order, item_count, sizeof *order, compare_by_tick);
        *out_peak = place_in_order(items, order, item_count, base, placed);
    }
free_lists:
    free(order);
    free(placed);
    return status;
}
