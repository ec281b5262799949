#include "occupancy.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* On each level at most two nodes make up a range of ticks, and at most two lie partly within it.
 */
enum { LEVEL_MAX = 32, NODES_MAX = 2 * LEVEL_MAX };

typedef struct range {
    uint64_t begin, end;
} range;

/* Sorted ranges; no two of them touch. */
typedef struct range_set {
    range *ranges;
    uint32_t count, capacity;
} range_set;

typedef struct node {
    range_set sometimes;  /* taken at one or more of the node's ticks */
    range_set throughout; /* taken by a range of ticks that covers the node but not its parent */
} node;

/* Node 1 is the root, nodes 2n and 2n + 1 are the halves of n, node leaf_count + tick is a leaf. */
struct sl_occupancy {
    uint32_t leaf_count; /* a power of two */
    node *nodes;         /* [2 * leaf_count] */
};

/* The nodes that make up a range of ticks, and the nodes that lie partly within it. */
typedef struct cover {
    uint32_t inside[NODES_MAX], partial[NODES_MAX];
    uint32_t inside_count, partial_count;
} cover;

sl_status sl_occupancy_open(uint32_t tick_count, sl_occupancy **out_occupancy)
{
    uint64_t leaf_count = 1;
    while (leaf_count < tick_count)
        leaf_count *= 2;
    sl_occupancy *occupancy = calloc(1, sizeof *occupancy);
    node *nodes = leaf_count <= UINT32_MAX / 2 ? calloc(2 * leaf_count, sizeof *nodes) : NULL;
    if (!occupancy || !nodes) {
        free(occupancy);
        free(nodes);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the addresses of %u ticks", tick_count);
    }
    occupancy->leaf_count = (uint32_t)leaf_count;
    occupancy->nodes = nodes;
    *out_occupancy = occupancy;
    return SL_OK;
}

void sl_occupancy_close(sl_occupancy *occupancy)
{
    if (!occupancy)
        return;
    for (uint32_t n = 1; n < 2 * occupancy->leaf_count; n++) {
        free(occupancy->nodes[n].sometimes.ranges);
        free(occupancy->nodes[n].throughout.ranges);
    }
    free(occupancy->nodes);
    free(occupancy);
}

void sl_occupancy_clear(sl_occupancy *occupancy)
{
    for (uint32_t n = 1; n < 2 * occupancy->leaf_count; n++)
        occupancy->nodes[n].sometimes.count = occupancy->nodes[n].throughout.count = 0;
}

static void add_partial(uint32_t index, uint32_t shift, sl_tick_range leaves, cover *it)
{
    if (index << shift < leaves.first || ((index + 1) << shift) - 1 > leaves.last)
        it->partial[it->partial_count++] = index;
}

static void find_cover(const sl_occupancy *occupancy, sl_tick_range ticks, cover *it)
{
    const sl_tick_range leaves = {ticks.first + occupancy->leaf_count,
                                  ticks.last + occupancy->leaf_count};
    uint32_t first = leaves.first, last = leaves.last;
    it->inside_count = it->partial_count = 0;
    for (; first < last; first /= 2, last /= 2) {
        if (first % 2 == 1) /* a right half: its parent also covers earlier ticks */
            it->inside[it->inside_count++] = first++;
        if (last % 2 == 0)
            it->inside[it->inside_count++] = last--;
    }
    if (first == last)
        it->inside[it->inside_count++] = first;
    for (uint32_t shift = 1; occupancy->leaf_count >> shift; shift++) {
        first = leaves.first >> shift, last = leaves.last >> shift;
        add_partial(first, shift, leaves, it);
        if (last != first)
            add_partial(last, shift, leaves, it);
    }
}

/* ---- sets ---- */

/* The index of the first range that ends above `address`; with `or_at` also one that ends there. */
static uint32_t find_range(const range_set *set, uint64_t address, bool or_at)
{
    uint32_t low = 0, high = set->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t end = set->ranges[middle].end;
        if (end > address || (or_at && end == address))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Adds a range, merged with all ranges that it touches. */
static sl_status add_range(range_set *set, range added)
{
    uint32_t first = find_range(set, added.begin, true), behind = first;
    for (; behind < set->count && set->ranges[behind].begin <= added.end; behind++) {
        const range *other = &set->ranges[behind];
        added.begin = other->begin < added.begin ? other->begin : added.begin;
        added.end = other->end > added.end ? other->end : added.end;
    }
    if (behind == first)
        SL_TRY(SL_ARRAY_GROW(set->ranges, set->count, set->capacity, "ranges of addresses"));
    if (behind != first + 1)
        memmove(&set->ranges[first + 1], &set->ranges[behind],
                (set->count - behind) * sizeof *set->ranges);
    set->count = set->count - (behind - first) + 1;
    set->ranges[first] = added;
    assert(first == 0 || set->ranges[first - 1].end < added.begin);
    assert(first + 1 == set->count || added.end < set->ranges[first + 1].begin);
    return SL_OK;
}

sl_status sl_occupancy_take(sl_occupancy *occupancy, sl_tick_range ticks, uint64_t begin,
                            uint64_t end)
{
    cover nodes;
    const range added = {begin, end};
    find_cover(occupancy, ticks, &nodes);
    for (uint32_t i = 0; i < nodes.inside_count; i++) {
        SL_TRY(add_range(&occupancy->nodes[nodes.inside[i]].sometimes, added));
        SL_TRY(add_range(&occupancy->nodes[nodes.inside[i]].throughout, added));
    }
    for (uint32_t i = 0; i < nodes.partial_count; i++)
        SL_TRY(add_range(&occupancy->nodes[nodes.partial[i]].sometimes, added));
    return SL_OK;
}

/* ---- gaps ---- */

/* The ranges of a set that still have to be compared with the candidate address. */
typedef struct set_cursor {
    const range *next, *end;
} set_cursor;

static uint32_t open_cursors(const sl_occupancy *occupancy, sl_tick_range ticks, uint64_t from,
                             set_cursor *cursors)
{
    cover nodes;
    uint32_t count = 0;
    find_cover(occupancy, ticks, &nodes);
    for (uint32_t i = 0; i < nodes.inside_count + nodes.partial_count; i++) {
        bool is_inside = i < nodes.inside_count;
        uint32_t index = is_inside ? nodes.inside[i] : nodes.partial[i - nodes.inside_count];
        const node *at = &occupancy->nodes[index];
        const range_set *set = is_inside ? &at->sometimes : &at->throughout;
        uint32_t first = find_range(set, from, false);
        if (first < set->count)
            cursors[count++] = (set_cursor){set->ranges + first, set->ranges + set->count};
    }
    return count;
}

/* Whether the range lies below `from` or overlaps the gap of `bytes` bytes that starts there. */
static bool is_in_way(const range *it, uint64_t from, uint64_t bytes)
{
    return it->begin < from || it->begin - from < bytes;
}

/* The lowest begin >= `from` that is free in one range of ticks. */
static uint64_t find_in_ticks(const sl_occupancy *occupancy, sl_tick_range ticks, uint64_t from,
                              uint64_t bytes)
{
    set_cursor cursors[2 * NODES_MAX];
    uint32_t count = open_cursors(occupancy, ticks, from, cursors), free_count = 0;
    for (uint32_t i = 0; free_count < count; i = i + 1 < count ? i + 1 : 0) {
        set_cursor *it = &cursors[i];
        uint64_t before = from;
        for (; it->next < it->end && is_in_way(it->next, from, bytes); it->next++)
            from = it->next->end > from ? it->next->end : from;
        free_count = from == before ? free_count + 1 : 1;
    }
    return from;
}

uint64_t sl_occupancy_find(const sl_occupancy *occupancy, const sl_tick_range *ranges,
                           uint32_t range_count, uint64_t from, uint64_t bytes)
{
    uint32_t free_count = 0;
    for (uint32_t s = 0; free_count < range_count; s = s + 1 < range_count ? s + 1 : 0) {
        uint64_t before = from;
        from = find_in_ticks(occupancy, ranges[s], from, bytes);
        free_count = from == before ? free_count + 1 : 1;
    }
    return from;
}
