/* A first walk over the fetches, from the last use to the first, finds the time at which each
 * should start: as late as possible, but so that its lane finishes every copy in time. A second
 * walk, from the first use to the last, moves each fetch back to that time as far as there is room.
 * Objects that are used first get room first, so a lane that is too slow still delivers in order of
 * use. A third walk, like the second, may also move fetches over the start of the body, into room
 * that the last visits left.
 *
 * Invariant: the visits of the input are in order of first_tick, so visit order is the order in
 * which a lane delivers.
 */
#include "prefetch.h"

#include <assert.h>
#include <stdlib.h>

#include "tick_tree.h"
#include "uses.h"

#define NO_USE UINT32_MAX

typedef struct prefetcher {
    const sl_prefetch_request *request;
    sl_residency *residency;
    uint32_t tick_count;
    sl_uses uses;
    sl_tick_tree free_bytes; /* by tick: room that visits leave */
    sl_tick_tree ahead_left; /* by tick: how many more visits may be fetched ahead of their use */
    sl_tick_tree staged;     /* by tick: fetches of disk objects that start ahead of their use */
    double *start_seconds;   /* [tick_count + 1]: when each tick starts */
    double *wanted_seconds;  /* [visit_count]: when its fetch should start */
    uint32_t *earlier_use;   /* [visit_count]: last tick before it at which its object was used or
                              * visited, or NO_USE */
    uint32_t *last_use;      /* [object_count]: last tick of use or visit in the body, or NO_USE */
    uint32_t *next_start;    /* [visit_count]: first tick of its object's next visit, or
                              * tick_count */
    uint32_t *first_start;   /* [object_count]: first tick of its first visit in the body, or
                              * tick_count; that of a visit that wraps counts as 0 */
    uint32_t *section_first; /* [tick_count]: first tick of its loop, or of the ticks between two
                              * loops */
    uint32_t *section_end;
    sl_write_back *in_order; /* [write_back_count], by after_tick */
} prefetcher;

static void close_prefetcher(prefetcher *p)
{
    sl_uses_close(&p->uses);
    sl_tick_tree_close(&p->free_bytes);
    sl_tick_tree_close(&p->ahead_left);
    sl_tick_tree_close(&p->staged);
    free(p->start_seconds);
    free(p->wanted_seconds);
    free(p->earlier_use);
    free(p->last_use);
    free(p->next_start);
    free(p->first_start);
    free(p->section_first);
    free(p->section_end);
    free(p->in_order);
}

/* ---- opening ---- */

static bool wraps(const sl_visit *visit)
{
    return visit->first_tick > visit->last_tick;
}

static bool is_disk(const prefetcher *p, const sl_visit *visit)
{
    return p->request->is_disk && p->request->is_disk[visit->object];
}

static bool is_ahead(const sl_visit *visit)
{
    return visit->is_fetched && visit->first_tick != visit->first_use;
}

static void record_use(prefetcher *p, uint32_t object, uint32_t tick)
{
    if (p->last_use[object] == NO_USE || p->last_use[object] < tick)
        p->last_use[object] = tick;
}

/* Fills earlier_use and last_use in one sweep over uses and visits. */
static void find_earlier_uses(prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    for (uint32_t o = 0; o < residency->object_count; o++)
        p->last_use[o] = NO_USE;
    for (uint32_t v = 0; v < p->residency->visit_count; v++)
        if (wraps(&p->residency->visits[v]))
            record_use(p, p->residency->visits[v].object, p->residency->visits[v].last_tick);
    uint32_t u = 0;
    for (uint32_t v = 0; v < p->residency->visit_count; v++) {
        const sl_visit *visit = &p->residency->visits[v];
        for (; u < residency->use_count && residency->uses[u].tick < visit->first_tick; u++)
            record_use(p, residency->uses[u].object, residency->uses[u].tick);
        p->earlier_use[v] = p->last_use[visit->object];
        if (!wraps(visit))
            record_use(p, visit->object, visit->last_tick);
    }
    for (; u < residency->use_count; u++)
        record_use(p, residency->uses[u].object, residency->uses[u].tick);
}

/* A section is a loop, or the ticks before, between or behind loops. */
static void find_sections(prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    uint32_t tick = 0;
    for (uint32_t l = 0; l <= residency->loop_count; l++) {
        const sl_residency_loop *loop = l < residency->loop_count ? &residency->loops[l] : NULL;
        uint32_t edge[2] = {loop ? loop->first_tick : p->tick_count,
                            loop ? loop->end_tick : p->tick_count};
        for (int e = 0; e < 2; e++)
            for (uint32_t first = tick; tick < edge[e]; tick++) {
                p->section_first[tick] = first;
                p->section_end[tick] = edge[e];
            }
    }
}

/* Replaces the changes from tick to tick by the limit minus their sum up to each tick. */
static void subtract_from(int64_t *changes, uint32_t tick_count, const uint64_t *limits,
                          uint64_t limit)
{
    int64_t taken = 0;
    for (uint32_t tick = 0; tick < tick_count; tick++) {
        uint64_t most = limits ? limits[tick] : limit;
        taken += changes[tick];
        changes[tick] = (int64_t)(most < INT64_MAX / 4 ? most : INT64_MAX / 4) - taken;
    }
}

static sl_status count_bytes(prefetcher *p, int64_t *changes)
{
    const sl_residency_request *residency = p->request->residency;
    for (uint32_t v = 0; v < p->residency->visit_count; v++) {
        const sl_visit *visit = &p->residency->visits[v];
        int64_t bytes = (int64_t)residency->object_bytes[visit->object];
        changes[visit->first_tick] += bytes;
        changes[visit->last_tick + 1] -= bytes;
        changes[0] += wraps(visit) ? bytes : 0;
    }
    subtract_from(changes, p->tick_count, residency->room_bytes, 0);
    return sl_tick_tree_open(changes, p->tick_count, &p->free_bytes);
}

/* Before prefetch the only visits ahead of their first use are those that begin at the tick before
 * a loop, to be in place at its entry. */
static sl_status count_ahead(prefetcher *p, int64_t *changes)
{
    const sl_residency *residency = p->residency;
    for (uint32_t v = 0; v < residency->visit_count; v++) {
        if (!is_ahead(&residency->visits[v]))
            continue;
        changes[residency->visits[v].first_tick]++;
        changes[residency->visits[v].first_use]--;
    }
    subtract_from(changes, p->tick_count, NULL, p->request->most_ahead);
    return sl_tick_tree_open(changes, p->tick_count, &p->ahead_left);
}

static sl_status count_staged(prefetcher *p, int64_t *counts)
{
    const sl_residency *residency = p->residency;
    for (uint32_t v = 0; v < residency->visit_count; v++)
        if (is_ahead(&residency->visits[v]) && is_disk(p, &residency->visits[v]))
            counts[residency->visits[v].first_tick]++;
    return sl_tick_tree_open(counts, p->tick_count, &p->staged);
}

static sl_status count_visits(prefetcher *p)
{
    sl_status (*const counts[])(prefetcher *, int64_t *) = {count_bytes, count_ahead, count_staged};
    sl_status status = SL_OK;
    for (size_t n = 0; n < sizeof counts / sizeof *counts && status == SL_OK; n++) {
        int64_t *values = calloc((uint64_t)p->tick_count + 1, sizeof *values);
        if (!values)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ticks", p->tick_count);
        status = counts[n](p, values);
        free(values);
    }
    return status;
}

static sl_status open_prefetcher(const sl_prefetch_request *request, sl_residency *residency,
                                 prefetcher *p)
{
    uint64_t ticks = request->residency->tick_count, visits = (uint64_t)residency->visit_count + 1;
    *p = (prefetcher){.request = request, .residency = residency, .tick_count = (uint32_t)ticks};
    p->start_seconds = calloc(ticks + 1, sizeof *p->start_seconds);
    p->wanted_seconds = calloc(visits, sizeof *p->wanted_seconds);
    p->earlier_use = calloc(visits, sizeof *p->earlier_use);
    p->next_start = calloc(visits, sizeof *p->next_start);
    p->section_first = calloc(ticks + 1, sizeof *p->section_first);
    p->section_end = calloc(ticks + 1, sizeof *p->section_end);
    p->in_order = calloc((uint64_t)residency->write_back_count + 1, sizeof *p->in_order);
    p->last_use = calloc((uint64_t)request->residency->object_count + 1, sizeof *p->last_use);
    p->first_start = calloc((uint64_t)request->residency->object_count + 1, sizeof *p->first_start);
    if (!p->start_seconds || !p->wanted_seconds || !p->earlier_use || !p->last_use ||
        !p->first_start || !p->next_start || !p->in_order || !p->section_first || !p->section_end)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u visits", residency->visit_count);
    SL_TRY(sl_uses_open(request->residency, &p->uses));
    SL_TRY(count_visits(p));
    for (uint64_t tick = 0; tick < ticks; tick++)
        p->start_seconds[tick + 1] = p->start_seconds[tick] + request->tick_seconds[tick];
    find_earlier_uses(p);
    find_sections(p);
    return SL_OK;
}

/* ---- fetching earlier ---- */

/* Whether the body begins and ends outside of loops. */
static bool is_edge_free(const prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    uint32_t loop_count = residency->loop_count;
    return loop_count == 0 || (residency->loops[0].first_tick > 0 &&
                               residency->loops[loop_count - 1].end_tick < p->tick_count);
}

/* Earlier ticks [first, end) at which a visit could begin. */
typedef struct tick_range {
    uint32_t first, end;
} tick_range;

/* The last tick of [0, end] whose start, minus `less` seconds, is at or before `seconds`. If there
 * is none, returns 0 and sets *out_found to false. */
static uint32_t find_start(const prefetcher *p, uint32_t end, double less, double seconds,
                           bool *out_found)
{
    uint32_t low = 0, high = end + 1; /* low - 1 <= the answer < high */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->start_seconds[middle] - less > seconds)
            high = middle;
        else
            low = middle + 1;
    }
    *out_found = low > 0;
    return low > 0 ? low - 1 : 0;
}

/* Cuts the range to the ticks at its end that all have room for the visit; true if nothing was cut.
 */
static bool trim_to_room(const prefetcher *p, uint32_t v, tick_range *ticks)
{
    uint64_t bytes = p->request->residency->object_bytes[p->residency->visits[v].object];
    uint32_t full =
        sl_tick_tree_find_last(&p->free_bytes, ticks->first, ticks->end, (int64_t)bytes);
    uint32_t first = full == SL_NO_TICK ? ticks->first : full + 1;
    uint32_t crowded = sl_tick_tree_find_last(&p->ahead_left, first, ticks->end, 1);
    first = crowded == SL_NO_TICK ? first : crowded + 1;
    bool is_all = first == ticks->first;
    ticks->first = first;
    return is_all;
}

/* Writes the earlier ticks of the body at which the visit may begin, not before its wanted start.
 * True if it could begin even before the body's start. */
static bool find_range(const prefetcher *p, uint32_t v, tick_range *out_range)
{
    const sl_visit *visit = &p->residency->visits[v];
    uint32_t earlier = p->earlier_use[v], least = p->section_first[visit->first_tick];
    bool is_early = false;
    uint32_t wanted = find_start(p, visit->first_tick, 0.0, p->wanted_seconds[v], &is_early);
    if (earlier != NO_USE && earlier + 1 > least)
        least = earlier + 1;
    *out_range = (tick_range){wanted > least ? wanted : least, visit->first_tick};
    if (out_range->first > out_range->end)
        out_range->first = out_range->end;
    return trim_to_room(p, v, out_range) && out_range->first == 0 && !is_early && earlier == NO_USE;
}

/* The same for the tail of the previous iteration. */
static tick_range find_wrapped_range(const prefetcher *p, uint32_t v)
{
    const sl_visit *visit = &p->residency->visits[v];
    uint32_t last_use = p->last_use[visit->object], end = p->tick_count;
    uint32_t least = p->section_first[end - 1];
    bool is_early;
    uint32_t wanted = find_start(p, end, p->start_seconds[end], p->wanted_seconds[v], &is_early);
    least = visit->last_tick + 1 > least ? visit->last_tick + 1 : least;
    least = last_use != NO_USE && last_use + 1 > least ? last_use + 1 : least;
    tick_range ticks = {wanted > least ? wanted : least, end};
    if (ticks.first > end)
        ticks.first = end;
    trim_to_room(p, v, &ticks);
    return ticks;
}

/* The earliest tick of the range at which the visit's fetch may start; SL_NO_TICK if there is none.
 */
static uint32_t find_arrival(const prefetcher *p, const sl_visit *visit, tick_range ticks)
{
    if (ticks.first >= ticks.end)
        return SL_NO_TICK;
    if (!p->request->is_staged || !is_disk(p, visit))
        return ticks.first;
    return sl_tick_tree_find_first(&p->staged, ticks.first, ticks.end, p->request->staged_ahead);
}

static void take_room(prefetcher *p, const sl_visit *visit, uint32_t first, uint32_t end)
{
    uint64_t bytes = p->request->residency->object_bytes[visit->object];
    sl_tick_tree_add(&p->free_bytes, first, end, -(int64_t)bytes);
    sl_tick_tree_add(&p->ahead_left, first, end, -1);
}

/* Moves the visit's start back, at most to its wanted start, as far as there is room. */
static void fetch_earlier(prefetcher *p, uint32_t v, bool may_wrap)
{
    sl_visit *visit = &p->residency->visits[v];
    tick_range ticks;
    bool goes_on = find_range(p, v, &ticks) && may_wrap && !visit->is_carried && is_edge_free(p);
    uint32_t arrival = SL_NO_TICK;
    if (goes_on)
        arrival = find_arrival(p, visit, find_wrapped_range(p, v));
    bool is_wrapped = arrival != SL_NO_TICK;
    if (!is_wrapped)
        arrival = find_arrival(p, visit, ticks);
    if (arrival == SL_NO_TICK)
        return;
    if (is_disk(p, visit) && is_ahead(visit))
        sl_tick_tree_add(&p->staged, visit->first_tick, visit->first_tick + 1, -1);
    if (is_disk(p, visit))
        sl_tick_tree_add(&p->staged, arrival, arrival + 1, 1);
    take_room(p, visit, is_wrapped ? 0 : arrival, visit->first_tick);
    if (is_wrapped)
        take_room(p, visit, arrival, p->tick_count);
    visit->first_tick = arrival;
    visit->is_carried = visit->is_carried || is_wrapped;
}

/* Each lane delivers in order of use, as late as possible; the time of one copy is added as slack.
 */
static void schedule_fetches(prefetcher *p)
{
    const sl_residency *residency = p->residency;
    double body_seconds = p->start_seconds[p->tick_count];
    double link_free[2] = {body_seconds, body_seconds};
    for (uint32_t v = residency->visit_count; v-- > 0;) {
        const sl_visit *visit = &residency->visits[v];
        if (!visit->is_fetched)
            continue;
        int link = is_disk(p, visit);
        uint64_t bytes = p->request->residency->copy_bytes[visit->object];
        double seconds = (double)bytes / p->request->fetch_rate[link];
        double deadline = p->start_seconds[visit->first_use];
        double start = (deadline < link_free[link] ? deadline : link_free[link]) - seconds;
        link_free[link] = start;
        p->wanted_seconds[v] = start - seconds;
    }
}

/* ---- staying until written back ---- */

/* Finds when the next visit of each visit's object starts; fetches have moved by now. */
static void find_next_starts(prefetcher *p)
{
    const sl_residency *residency = p->residency;
    uint32_t *next = p->last_use; /* by object; the old content of last_use is not needed now */
    for (uint32_t o = 0; o < p->request->residency->object_count; o++)
        next[o] = p->tick_count;
    for (uint32_t v = 0; v < residency->visit_count; v++)
        if (wraps(&residency->visits[v]))
            next[residency->visits[v].object] = residency->visits[v].first_tick;
    for (uint32_t v = residency->visit_count; v-- > 0;) {
        const sl_visit *visit = &residency->visits[v];
        p->next_start[v] = next[visit->object];
        if (!wraps(visit))
            next[visit->object] = visit->first_tick;
    }
    for (uint32_t o = 0; o < p->request->residency->object_count; o++)
        p->first_start[o] = next[o];
    for (uint32_t v = 0; v < residency->visit_count; v++)
        if (wraps(&residency->visits[v]))
            p->first_start[residency->visits[v].object] = 0;
}

/* The tick of the object's first use after `tick`; tick_count if there is none. */
static uint32_t find_next_use(const prefetcher *p, uint32_t object, uint32_t tick)
{
    uint32_t low = 0, high = sl_uses_count(&p->uses, object);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sl_uses_get(&p->uses, object, middle)->tick > tick)
            high = middle;
        else
            low = middle + 1;
    }
    return low < sl_uses_count(&p->uses, object) ? sl_uses_get(&p->uses, object, low)->tick
                                                 : p->tick_count;
}

/* The first tick that starts at or after `seconds`; tick_count + 1 if there is none. */
static uint32_t find_end(const prefetcher *p, double seconds)
{
    uint32_t low = 0, high = p->tick_count + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->start_seconds[middle] < seconds)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Extends a visit that stays to the end of the body into the next iteration: the write-back is
 * still under way while the next iteration computes. Nothing is read from the visit there, so the
 * prologue does not load it. */
static void extend_over_edge(prefetcher *p, sl_visit *visit, double end_seconds)
{
    const uint64_t bytes = p->request->residency->object_bytes[visit->object];
    const double seconds = end_seconds - p->start_seconds[p->tick_count];
    if (!p->request->may_trail || !is_edge_free(p) || seconds <= 0)
        return;
    uint32_t end = least_of(p->first_start[visit->object], p->section_end[0]);
    end = least_of(end, find_end(p, seconds));
    if (sl_uses_count(&p->uses, visit->object) > 0)
        end = least_of(end, sl_uses_get(&p->uses, visit->object, 0)->tick);
    end = least_of(end, sl_tick_tree_find_first(&p->free_bytes, 0, end, (int64_t)bytes));
    if (end == 0)
        return;
    sl_tick_tree_add(&p->free_bytes, 0, end, -(int64_t)bytes);
    visit->last_tick = end - 1;
}

/* Extends the visit until `end_seconds` at most, as far as there is room, not over an edge of a
 * loop, and not to the object's next use or visit. */
static void extend_visit(prefetcher *p, uint32_t v, double end_seconds)
{
    sl_visit *visit = &p->residency->visits[v];
    uint64_t bytes = p->request->residency->object_bytes[visit->object];
    if (wraps(visit))
        return;
    uint32_t first = visit->last_tick + 1;
    uint32_t end = least_of(p->next_start[v], p->section_end[visit->last_tick]);
    end = least_of(end, find_end(p, end_seconds));
    end = least_of(end, find_next_use(p, visit->object, visit->last_tick));
    end = least_of(end, sl_tick_tree_find_first(&p->free_bytes, first, end, (int64_t)bytes));
    if (end > first) {
        sl_tick_tree_add(&p->free_bytes, first, end, -(int64_t)bytes);
        visit->last_tick = end - 1;
    }
    if (visit->last_tick + 1 == p->tick_count)
        extend_over_edge(p, visit, end_seconds);
}

static int compare_write_backs(const void *left, const void *right)
{
    const sl_write_back *a = left, *b = right;
    if (a->after_tick != b->after_tick)
        return a->after_tick < b->after_tick ? -1 : 1;
    return (a->visit > b->visit) - (a->visit < b->visit);
}

/* Each lane writes back in the order of after_tick, each object as soon as possible. */
static void extend_write_backs(prefetcher *p)
{
    const sl_residency *residency = p->residency;
    double link_free[2] = {0.0, 0.0};
    uint32_t count = residency->write_back_count;
    find_next_starts(p);
    for (uint32_t b = 0; b < count; b++)
        p->in_order[b] = residency->write_backs[b];
    qsort(p->in_order, count, sizeof *p->in_order, compare_write_backs);
    for (uint32_t b = 0; b < count; b++) {
        uint32_t v = p->in_order[b].visit;
        int link = is_disk(p, &residency->visits[v]);
        uint64_t bytes = p->request->residency->copy_bytes[residency->visits[v].object];
        double ready = p->start_seconds[p->in_order[b].after_tick + 1];
        double start = ready > link_free[link] ? ready : link_free[link];
        double seconds = (double)bytes / p->request->write_back_rate[link];
        link_free[link] = start + seconds;
        extend_visit(p, v, start + 2 * seconds); /* one copy's time as slack */
    }
}

#ifndef NDEBUG
static bool are_in_order(const sl_residency *residency)
{
    for (uint32_t v = 1; v < residency->visit_count; v++)
        if (residency->visits[v - 1].first_tick > residency->visits[v].first_tick &&
            !residency->visits[v - 1].is_carried)
            return false;
    return true;
}

/* True if the visits of each tick fit its room. */
static bool has_room(const prefetcher *p)
{
    return sl_tick_tree_find_first(&p->free_bytes, 0, p->tick_count, 0) == SL_NO_TICK;
}
#endif

sl_status sl_prefetch_plan(const sl_prefetch_request *request, sl_residency *residency)
{
    prefetcher p;
    assert(are_in_order(residency));
    sl_status status = open_prefetcher(request, residency, &p);
    if (status == SL_OK) {
        schedule_fetches(&p);
        for (int may_wrap = 0; may_wrap <= 1; may_wrap++)
            for (uint32_t v = 0; v < residency->visit_count; v++)
                if (residency->visits[v].is_fetched)
                    fetch_earlier(&p, v, may_wrap);
        extend_write_backs(&p);
        assert(has_room(&p));
    }
    close_prefetcher(&p);
    return status;
}
