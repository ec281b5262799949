/* First fit: clusters are placed one after the other, each at the lowest free offset (the greedy
 * strategies of Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
 * 2020). A cluster is one item, or all items that pairs join. A cluster is alive in a sorted list
 * of tick ranges that do not touch.
 */
#include "addresses.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/bits.h"
#include "occupancy.h"

typedef enum order_kind {
    ORDER_TICK,        /* by first tick */
    ORDER_TURNED,      /* by first tick, counted from the emptiest tick; those alive there first */
    ORDER_SIZE,        /* the largest first, equal sizes as ORDER_TICK */
    ORDER_SIZE_TURNED, /* the largest first, equal sizes as ORDER_TURNED */
    ORDER_COUNT
} order_kind;

typedef struct ordered_cluster {
    uint64_t first, second; /* sort keys */
    uint32_t index;
} ordered_cluster;

typedef struct cluster {
    uint64_t bytes, offset;
    uint32_t first_tick; /* the lowest first_tick of its items */
    uint32_t first_range, range_count;
} cluster;

typedef struct placer {
    const sl_address_request *request;
    uint64_t base;          /* aligned, unless all items have 0 bytes */
    uint32_t tick_count;    /* the last tick of any item, plus 1 */
    uint32_t emptiest_tick; /* where the fewest bytes are alive */
    uint64_t live_peak;     /* the most bytes alive at one tick */
    uint32_t cluster_count;
    uint32_t *cluster_of;  /* [item_count] */
    cluster *clusters;     /* [cluster_count] */
    sl_tick_range *ranges; /* live ranges of clusters, one cluster after the other */
    uint64_t *live_bytes;  /* [tick_count + 1] */
    sl_occupancy *occupancy;
    uint64_t *best_offset;  /* [cluster_count] */
    ordered_cluster *order; /* [cluster_count] */
} placer;

/* ---- clusters ---- */

static uint32_t find_root(uint32_t *parent, uint32_t item)
{
    while (parent[item] != item) {
        parent[item] = parent[parent[item]];
        item = parent[item];
    }
    return item;
}

/* Writes for each item its root: the lowest index among the item and all that it is joined to. */
static sl_status join_pairs(const sl_address_request *request, uint32_t *root)
{
    for (uint32_t n = 0; n < request->item_count; n++)
        root[n] = n;
    for (uint32_t p = 0; p < request->pair_count; p++) {
        sl_address_pair pair = request->pairs[p];
        if (pair.a >= request->item_count || pair.b >= request->item_count)
            SL_FAIL(SL_ERROR_INTERNAL, "pair %u of %u items names items %u and %u", p,
                    request->item_count, pair.a, pair.b);
        if (request->items[pair.a].bytes != request->items[pair.b].bytes)
            SL_FAIL(SL_ERROR_INTERNAL, "items %u and %u lie at one offset and differ in size",
                    pair.a, pair.b);
        uint32_t a = find_root(root, pair.a), b = find_root(root, pair.b);
        root[a > b ? a : b] = a > b ? b : a;
    }
    for (uint32_t n = 0; n < request->item_count; n++)
        root[n] = root[root[n]]; /* the parent has a lower index: its root is final */
    return SL_OK;
}

/* Replaces roots by cluster indices, in the order of the roots. */
static void number_clusters(placer *p)
{
    for (uint32_t n = 0; n < p->request->item_count; n++) {
        const sl_address_item *item = &p->request->items[n];
        bool is_first = p->cluster_of[n] == n;
        uint32_t index = is_first ? p->cluster_count++ : p->cluster_of[p->cluster_of[n]];
        cluster *it = &p->clusters[index];
        p->cluster_of[n] = index;
        if (is_first)
            *it = (cluster){.bytes = item->bytes, .first_tick = item->first_tick};
        it->first_tick = item->first_tick < it->first_tick ? item->first_tick : it->first_tick;
        it->range_count += item->first_tick > item->last_tick ? 2 : 1;
    }
}

static int compare_ranges(const void *left, const void *right)
{
    const sl_tick_range *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->last > b->last) - (a->last < b->last);
}

/* Sorts the live ranges of a cluster and merges ranges that overlap or touch. */
static void unite_ranges(placer *p, cluster *it)
{
    sl_tick_range *ranges = &p->ranges[it->first_range];
    uint32_t kept = 0;
    if (it->range_count > 1)
        qsort(ranges, it->range_count, sizeof *ranges, compare_ranges);
    for (uint32_t s = 1; s < it->range_count; s++) {
        if (ranges[s].first > ranges[kept].last && ranges[s].first - ranges[kept].last > 1)
            ranges[++kept] = ranges[s];
        else if (ranges[s].last > ranges[kept].last)
            ranges[kept].last = ranges[s].last;
    }
    it->range_count = kept + 1;
}

static void fill_ranges(placer *p)
{
    uint32_t range_count = 0;
    for (uint32_t c = 0; c < p->cluster_count; c++) {
        p->clusters[c].first_range = range_count;
        range_count += p->clusters[c].range_count;
        p->clusters[c].range_count = 0;
    }
    for (uint32_t n = 0; n < p->request->item_count; n++) {
        const sl_address_item *item = &p->request->items[n];
        cluster *it = &p->clusters[p->cluster_of[n]];
        bool wraps = item->first_tick > item->last_tick;
        sl_tick_range *next = &p->ranges[it->first_range + it->range_count];
        next[0] = (sl_tick_range){item->first_tick, wraps ? p->tick_count - 1 : item->last_tick};
        if (wraps)
            next[1] = (sl_tick_range){0, item->last_tick};
        it->range_count += wraps ? 2 : 1;
    }
    for (uint32_t c = 0; c < p->cluster_count; c++)
        unite_ranges(p, &p->clusters[c]);
}

static void measure_live(placer *p)
{
    uint64_t live = 0, least = UINT64_MAX;
    for (uint32_t c = 0; c < p->cluster_count; c++) { /* first: changes of the live bytes */
        const cluster *it = &p->clusters[c];
        for (uint32_t s = it->first_range; s < it->first_range + it->range_count; s++) {
            p->live_bytes[p->ranges[s].first] += it->bytes;
            p->live_bytes[p->ranges[s].last + 1] -= it->bytes;
        }
    }
    for (uint32_t tick = 0; tick < p->tick_count; tick++) {
        live += p->live_bytes[tick];
        p->live_peak = live > p->live_peak ? live : p->live_peak;
        if (live < least) {
            least = live;
            p->emptiest_tick = tick;
        }
    }
}

/* ---- orders ---- */

static int compare_keys(const void *left, const void *right)
{
    const ordered_cluster *a = left, *b = right;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second < b->second ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Ticks from the emptiest tick to the next start of the cluster; 0 if it is alive at the emptiest
 * tick. */
static uint64_t ticks_from_emptiest(const placer *p, const cluster *it)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t s = it->first_range; s < it->first_range + it->range_count; s++) {
        const sl_tick_range *life = &p->ranges[s];
        if (life->first <= p->emptiest_tick && p->emptiest_tick <= life->last)
            return 0;
        uint64_t ticks = ((uint64_t)life->first + p->tick_count - p->emptiest_tick) % p->tick_count;
        least = ticks < least ? ticks : least;
    }
    return least;
}

static void sort_clusters(placer *p, order_kind kind)
{
    for (uint32_t c = 0; c < p->cluster_count; c++) {
        const cluster *it = &p->clusters[c];
        bool is_turned = kind == ORDER_TURNED || kind == ORDER_SIZE_TURNED;
        bool is_by_size = kind == ORDER_SIZE || kind == ORDER_SIZE_TURNED;
        uint64_t start = is_turned ? ticks_from_emptiest(p, it) : it->first_tick;
        uint64_t smallness = UINT64_MAX - it->bytes;
        p->order[c] = (ordered_cluster){.first = is_by_size ? smallness : start,
                                        .second = is_by_size ? start : smallness,
                                        .index = c};
    }
    qsort(p->order, p->cluster_count, sizeof *p->order, compare_keys);
}

/* ---- first fit ---- */

static sl_status place_cluster(placer *p, cluster *it)
{
    const sl_tick_range *ranges = &p->ranges[it->first_range];
    uint64_t bytes = sl_bits_round_up(it->bytes, p->request->alignment);
    it->offset = p->base;
    if (bytes == 0)
        return SL_OK;
    it->offset = sl_occupancy_find(p->occupancy, ranges, it->range_count, p->base, bytes);
    for (uint32_t s = 0; s < it->range_count; s++)
        SL_TRY(sl_occupancy_take(p->occupancy, ranges[s], it->offset, it->offset + bytes));
    return SL_OK;
}

/* Places the clusters and writes the end of the highest one; stops early once the end reaches
 * `limit`. */
static sl_status place_in_order(placer *p, order_kind kind, uint64_t limit, uint64_t *out_peak)
{
    uint64_t peak = p->base;
    sl_occupancy_clear(p->occupancy);
    sort_clusters(p, kind);
    for (uint32_t n = 0; n < p->cluster_count && peak < limit; n++) {
        cluster *it = &p->clusters[p->order[n].index];
        SL_TRY(place_cluster(p, it));
        if (it->offset + it->bytes > peak)
            peak = it->offset + it->bytes;
    }
    *out_peak = peak;
    return SL_OK;
}

/* ---- all orders ---- */

static sl_status open_arrays(placer *p)
{
    uint64_t item_count = p->request->item_count, tick_count = p->tick_count;
    p->cluster_of = calloc(item_count + 1, sizeof *p->cluster_of);
    p->clusters = calloc(item_count + 1, sizeof *p->clusters);
    p->ranges = calloc(2 * item_count + 1, sizeof *p->ranges);
    p->live_bytes = calloc(tick_count + 1, sizeof *p->live_bytes);
    p->best_offset = calloc(item_count + 1, sizeof *p->best_offset);
    p->order = calloc(item_count + 1, sizeof *p->order);
    if (!p->cluster_of || !p->clusters || !p->ranges || !p->live_bytes || !p->best_offset ||
        !p->order)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to place %u items", p->request->item_count);
    return SL_OK;
}

/* First fit never places an item above the sum of all sizes, so it is enough that this sum does not
 * overflow. */
static sl_status check_sum(const placer *p)
{
    uint64_t sum = p->request->base, padding = p->request->alignment - 1;
    SL_TRY(sl_bits_add(sum, padding, "the end of all addresses", &sum));
    for (uint32_t c = 0; c < p->cluster_count; c++) {
        SL_TRY(sl_bits_add(sum, p->clusters[c].bytes, "the end of all addresses", &sum));
        SL_TRY(sl_bits_add(sum, padding, "the end of all addresses", &sum));
    }
    return SL_OK;
}

static sl_status open_placer(placer *p)
{
    const sl_address_request *request = p->request;
    bool has_bytes = false;
    p->tick_count = 1;
    for (uint32_t n = 0; n < request->item_count; n++) {
        const sl_address_item *item = &request->items[n];
        uint32_t last = item->first_tick > item->last_tick ? item->first_tick : item->last_tick;
        p->tick_count = last >= p->tick_count ? last + 1 : p->tick_count;
        has_bytes = has_bytes || item->bytes > 0;
    }
    SL_TRY(open_arrays(p));
    SL_TRY(join_pairs(request, p->cluster_of));
    number_clusters(p);
    SL_TRY(check_sum(p));
    p->base = has_bytes ? sl_bits_round_up(request->base, request->alignment) : request->base;
    fill_ranges(p);
    measure_live(p);
    return SL_OK;
}

static void close_placer(placer *p)
{
    free(p->cluster_of);
    free(p->clusters);
    free(p->ranges);
    free(p->live_bytes);
    sl_occupancy_close(p->occupancy);
    free(p->best_offset);
    free(p->order);
}

/* Writes the offsets with the lowest peak to best_offset, and that peak. */
static sl_status try_orders(placer *p, uint64_t *out_peak)
{
    uint64_t best = UINT64_MAX;
    for (int kind = 0; kind < ORDER_COUNT; kind++) {
        uint64_t peak;
        SL_TRY(place_in_order(p, (order_kind)kind, kind > 0 ? best : UINT64_MAX, &peak));
        if (kind > 0 && peak >= best)
            continue;
        best = peak;
        for (uint32_t c = 0; c < p->cluster_count; c++)
            p->best_offset[c] = p->clusters[c].offset;
        if (peak - p->base <= p->live_peak)
            break; /* the lower bound is reached */
    }
    *out_peak = best;
    return SL_OK;
}

static sl_status assign_offsets(placer *p, uint64_t *out_peak)
{
    SL_TRY(open_placer(p));
    SL_TRY(sl_occupancy_open(p->tick_count, &p->occupancy));
    SL_TRY(try_orders(p, out_peak));
    for (uint32_t n = 0; n < p->request->item_count; n++)
        p->request->items[n].offset = p->best_offset[p->cluster_of[n]];
    return SL_OK;
}

sl_status sl_addresses_assign(const sl_address_request *request, uint64_t *out_peak)
{
    placer p = {.request = request};
    sl_status status = assign_offsets(&p, out_peak);
    close_placer(&p);
    return status;
}
