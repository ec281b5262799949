/* First fit over items in a fixed order, lowest offset first (the greedy strategies of Pisarchyk
 * and Lee, "Efficient memory management for deep neural net inference", 2020). */
#include "addresses.h"

#include <stdlib.h>

#include "base/bits.h"

typedef enum order_kind {
    ORDER_TICK,     /* by first tick */
    ORDER_CUT,      /* the same from another tick on: those that are alive there, then the rest */
    ORDER_SIZE,     /* the largest first */
    ORDER_SIZE_CUT, /* the same, and equal ones from the cut on */
    ORDER_COUNT
} order_kind;

typedef struct ordered_item {
    uint64_t first, second; /* keys */
    uint32_t index;
} ordered_item;

typedef struct placer {
    sl_address_item *items;
    uint32_t item_count;
    uint64_t base, alignment; /* base is aligned */
    uint32_t tick_count;      /* behind the last tick of any item */
    uint32_t cut_tick;        /* where the fewest bytes are alive */
    uint64_t live_peak;       /* the most bytes alive at one tick */
    uint64_t *live_bytes;     /* [tick_count + 1] */
    sl_address_item *placed;  /* copies, by offset */
    uint64_t *placed_mask;    /* of the same */
    uint64_t *best_offset;    /* [item_count] */
    ordered_item *order;      /* [item_count] */
} placer;

static bool meet(const sl_address_item *a, const sl_address_item *b)
{
    bool a_wraps = a->first_tick > a->last_tick;
    bool b_wraps = b->first_tick > b->last_tick;
    bool a_first = a->first_tick <= b->last_tick, b_first = b->first_tick <= a->last_tick;
    if (a_wraps || b_wraps)
        return (a_wraps && b_wraps) || a_first || b_first;
    return a_first && b_first;
}

bool sl_addresses_meet(const sl_address_item *a, const sl_address_item *b)
{
    return meet(a, b);
}

static int compare_keys(const void *left, const void *right)
{
    const ordered_item *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second < b->second ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Ticks from the cut on to where the item starts; 0: it is alive at the cut. */
static uint64_t ticks_from_cut(const placer *p, const sl_address_item *item)
{
    sl_address_item cut = {.first_tick = p->cut_tick, .last_tick = p->cut_tick};
    if (sl_addresses_meet(item, &cut))
        return 0;
    return (item->first_tick + p->tick_count - p->cut_tick) % p->tick_count;
}

static void sort_items(placer *p, order_kind kind)
{
    for (uint32_t n = 0; n < p->item_count; n++) {
        const sl_address_item *item = &p->items[n];
        bool is_cut = kind == ORDER_CUT || kind == ORDER_SIZE_CUT;
        bool is_by_size = kind == ORDER_SIZE || kind == ORDER_SIZE_CUT;
        uint64_t start = is_cut ? ticks_from_cut(p, item) : item->first_tick;
        uint64_t smallness = UINT64_MAX - item->bytes;
        p->order[n] = (ordered_item){.first = is_by_size ? smallness : start,
                                     .second = is_by_size ? start : smallness,
                                     .index = n};
    }
    qsort(p->order, p->item_count, sizeof *p->order, compare_keys);
}

/* A bit for each 64th of the ticks that the item's life touches: no common bit, no meeting. */
static uint64_t mask_of(const placer *p, const sl_address_item *item)
{
    uint64_t first = (uint64_t)item->first_tick * 64 / p->tick_count;
    uint64_t last = (uint64_t)item->last_tick * 64 / p->tick_count;
    uint64_t from_first = UINT64_MAX << first, to_last = UINT64_MAX >> (63 - last);
    return item->first_tick > item->last_tick ? from_first | to_last : from_first & to_last;
}

/* The lowest offset at which `item` meets none of the placed ones, which stand by offset. */
static uint64_t find_gap(const placer *p, uint32_t placed_count, const sl_address_item *item)
{
    uint64_t candidate = p->base, mask = mask_of(p, item);
    for (uint32_t n = 0; n < placed_count; n++) {
        const sl_address_item *other = &p->placed[n];
        if (!(p->placed_mask[n] & mask) || !meet(item, other))
            continue;
        if (other->offset >= candidate && other->offset - candidate >= item->bytes)
            break;
        uint64_t end = sl_bits_round_up(other->offset + other->bytes, p->alignment);
        candidate = end > candidate ? end : candidate;
    }
    return candidate;
}

static void insert_placed(placer *p, uint32_t placed_count, const sl_address_item *item)
{
    uint32_t at = placed_count;
    for (; at > 0 && p->placed[at - 1].offset > item->offset; at--) {
        p->placed[at] = p->placed[at - 1];
        p->placed_mask[at] = p->placed_mask[at - 1];
    }
    p->placed[at] = *item;
    p->placed_mask[at] = mask_of(p, item);
}

/* Returns the end of the highest item. */
static uint64_t place_in_order(placer *p, order_kind kind)
{
    uint64_t peak = p->base;
    uint32_t placed_count = 0;
    sort_items(p, kind);
    for (uint32_t n = 0; n < p->item_count; n++) {
        sl_address_item *item = &p->items[p->order[n].index];
        item->offset = p->base;
        if (item->bytes == 0)
            continue;
        item->offset = find_gap(p, placed_count, item);
        insert_placed(p, placed_count++, item);
        if (item->offset + item->bytes > peak)
            peak = item->offset + item->bytes;
    }
    return peak;
}

static void measure_live(placer *p)
{
    uint64_t live = 0, least = UINT64_MAX;
    for (uint32_t n = 0; n < p->item_count; n++) { /* first: how the live bytes change */
        const sl_address_item *item = &p->items[n];
        p->live_bytes[item->first_tick] += item->bytes;
        p->live_bytes[item->last_tick + 1] -= item->bytes;
        if (item->first_tick > item->last_tick)
            live += item->bytes;
    }
    for (uint32_t tick = 0; tick < p->tick_count; tick++) {
        live += p->live_bytes[tick];
        p->live_peak = live > p->live_peak ? live : p->live_peak;
        if (live < least) {
            least = live;
            p->cut_tick = tick;
        }
    }
}

static sl_status open_placer(sl_address_item *items, uint32_t item_count, placer *p)
{
    *p = (placer){.items = items, .item_count = item_count, .tick_count = 1};
    for (uint32_t n = 0; n < item_count; n++) {
        const sl_address_item *item = &items[n];
        uint32_t last = item->first_tick > item->last_tick ? item->first_tick : item->last_tick;
        p->tick_count = last >= p->tick_count ? last + 1 : p->tick_count;
    }
    p->live_bytes = calloc((uint64_t)p->tick_count + 1, sizeof *p->live_bytes);
    p->placed = calloc((uint64_t)item_count + 1, sizeof *p->placed);
    p->placed_mask = calloc((uint64_t)item_count + 1, sizeof *p->placed_mask);
    p->order = calloc((uint64_t)item_count + 1, sizeof *p->order);
    p->best_offset = calloc((uint64_t)item_count + 1, sizeof *p->best_offset);
    if (!p->live_bytes || !p->placed || !p->placed_mask || !p->order || !p->best_offset)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to place %u items", item_count);
    measure_live(p);
    return SL_OK;
}

static bool has_bytes(const sl_address_item *items, uint32_t item_count)
{
    for (uint32_t n = 0; n < item_count; n++)
        if (items[n].bytes > 0)
            return true;
    return false;
}

sl_status sl_addresses_assign(sl_address_item *items, uint32_t item_count, uint64_t base,
                              uint64_t alignment, uint64_t *out_peak)
{
    placer p;
    sl_status status = open_placer(items, item_count, &p);
    p.base = has_bytes(items, item_count) ? sl_bits_round_up(base, alignment) : base;
    p.alignment = alignment;
    for (int kind = 0; status == SL_OK && kind < ORDER_COUNT; kind++) {
        uint64_t peak = place_in_order(&p, (order_kind)kind);
        if (kind > 0 && peak >= *out_peak)
            continue;
        *out_peak = peak;
        for (uint32_t n = 0; n < item_count; n++)
            p.best_offset[n] = items[n].offset;
        if (peak - p.base <= p.live_peak)
            break; /* no order is better */
    }
    for (uint32_t n = 0; status == SL_OK && n < item_count; n++)
        items[n].offset = p.best_offset[n];
    free(p.live_bytes);
    free(p.placed);
    free(p.placed_mask);
    free(p.best_offset);
    free(p.order);
    return status;
}
