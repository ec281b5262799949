/* A walk over the fetches from the last use to the first schedules them as links that must deliver
 * each in time would, and says when each wants to start. A walk from the first use to the last lets
 * each start as early as it wants and room allows: what is needed first gets the room first, so a
 * link that is late for all of them still delivers in order, one after the other. A second such
 * walk lets the first ones go on over the start of the body, into room that the last ones left.
 *
 * Invariant: visits stand in the order of their first tick when they come in, so visit order is the
 * order in which the links deliver.
 */
#include "prefetch.h"

#include <stdlib.h>

#define NO_USE UINT32_MAX

typedef struct prefetcher {
    const sl_prefetch_request *request;
    sl_residency *residency;
    uint32_t tick_count;
    uint64_t *used_bytes;   /* [tick_count]: by visits */
    uint32_t *ahead_count;  /* [tick_count]: visits fetched and not yet used */
    uint32_t *staged_count; /* [tick_count]: ahead-of-use arrivals by way of the stage */
    double *start_seconds;  /* [tick_count + 1] */
    double *wanted_seconds; /* [visit_count]: when its fetch wants to start */
    uint32_t *earlier_use; /* [visit_count]: last use or visit of the object before it, or NO_USE */
    uint32_t *last_use;    /* [object_count]: in the body, or NO_USE */
    uint32_t *section_first; /* [tick_count]: of its loop, or of the ticks between two loops */
    uint32_t *section_end;
    uint32_t *next_start;    /* [visit_count]: first tick of the object's next visit; tick_count */
    uint32_t *tick_uses;     /* [tick_count + 1]: the first use of each tick */
    sl_write_back *in_order; /* [write_back_count], by after_tick */
} prefetcher;

static void release(prefetcher *p)
{
    free(p->used_bytes);
    free(p->ahead_count);
    free(p->staged_count);
    free(p->start_seconds);
    free(p->wanted_seconds);
    free(p->earlier_use);
    free(p->last_use);
    free(p->section_first);
    free(p->section_end);
    free(p->next_start);
    free(p->tick_uses);
    free(p->in_order);
}

static void count_visit_bytes(prefetcher *p, const sl_visit *visit)
{
    uint64_t bytes = p->request->residency->object_bytes[visit->object];
    bool wraps = visit->first_tick > visit->last_tick;
    uint32_t last = wraps ? p->tick_count - 1 : visit->last_tick;
    for (uint32_t tick = visit->first_tick; tick <= last; tick++)
        p->used_bytes[tick] += bytes;
    for (uint32_t tick = 0; wraps && tick <= visit->last_tick; tick++)
        p->used_bytes[tick] += bytes;
}

static bool wraps(const sl_visit *visit)
{
    return visit->first_tick > visit->last_tick;
}

static void note_use(prefetcher *p, uint32_t object, uint32_t tick)
{
    if (p->last_use[object] == NO_USE || p->last_use[object] < tick)
        p->last_use[object] = tick;
}

/* One sweep over uses and visits finds, for each visit, until when its object was used or here. */
static void find_earlier_uses(prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    for (uint32_t o = 0; o < residency->object_count; o++)
        p->last_use[o] = NO_USE;
    for (uint32_t v = 0; v < p->residency->visit_count; v++)
        if (wraps(&p->residency->visits[v]))
            note_use(p, p->residency->visits[v].object, p->residency->visits[v].last_tick);
    uint32_t u = 0;
    for (uint32_t v = 0; v < p->residency->visit_count; v++) {
        const sl_visit *visit = &p->residency->visits[v];
        for (; u < residency->use_count && residency->uses[u].tick < visit->first_tick; u++)
            note_use(p, residency->uses[u].object, residency->uses[u].tick);
        p->earlier_use[v] = p->last_use[visit->object];
        if (!wraps(visit))
            note_use(p, visit->object, visit->last_tick);
    }
    for (; u < residency->use_count; u++)
        note_use(p, residency->uses[u].object, residency->uses[u].tick);
}

/* Sections are the loops and what is before, between and behind them. */
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

static bool is_disk(const prefetcher *p, const sl_visit *visit)
{
    return p->request->is_disk && p->request->is_disk[visit->object];
}

/* Visits that come ahead of their first use for the sake of a loop. */
static void count_ahead(prefetcher *p, const sl_visit *visit)
{
    if (!visit->is_fetched || visit->first_tick >= visit->first_use)
        return;
    for (uint32_t tick = visit->first_tick; tick < visit->first_use; tick++)
        p->ahead_count[tick]++;
    if (is_disk(p, visit))
        p->staged_count[visit->first_tick]++;
}

static sl_status prepare(const sl_prefetch_request *request, sl_residency *residency, prefetcher *p)
{
    uint64_t ticks = request->residency->tick_count;
    *p = (prefetcher){.request = request, .residency = residency, .tick_count = (uint32_t)ticks};
    p->used_bytes = calloc(ticks + 1, sizeof *p->used_bytes);
    p->ahead_count = calloc(ticks + 1, sizeof *p->ahead_count);
    p->staged_count = calloc(ticks + 1, sizeof *p->staged_count);
    p->start_seconds = calloc(ticks + 1, sizeof *p->start_seconds);
    p->wanted_seconds = calloc((uint64_t)residency->visit_count + 1, sizeof *p->wanted_seconds);
    p->earlier_use = calloc((uint64_t)residency->visit_count + 1, sizeof *p->earlier_use);
    p->next_start = calloc((uint64_t)residency->visit_count + 1, sizeof *p->next_start);
    p->tick_uses = calloc(ticks + 2, sizeof *p->tick_uses);
    p->in_order = calloc((uint64_t)residency->write_back_count + 1, sizeof *p->in_order);
    p->section_first = calloc(ticks + 1, sizeof *p->section_first);
    p->section_end = calloc(ticks + 1, sizeof *p->section_end);
    p->last_use = calloc((uint64_t)request->residency->object_count + 1, sizeof *p->last_use);
    if (!p->used_bytes || !p->ahead_count || !p->staged_count || !p->start_seconds ||
        !p->wanted_seconds || !p->earlier_use || !p->last_use || !p->next_start || !p->tick_uses ||
        !p->in_order || !p->section_first || !p->section_end) {
        release(p);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u visits", residency->visit_count);
    }
    for (uint64_t tick = 0; tick < ticks; tick++)
        p->start_seconds[tick + 1] = p->start_seconds[tick] + request->tick_seconds[tick];
    for (uint32_t v = 0; v < residency->visit_count; v++) {
        count_visit_bytes(p, &residency->visits[v]);
        count_ahead(p, &residency->visits[v]);
    }
    find_earlier_uses(p);
    find_sections(p);
    return SL_OK;
}

static bool has_room(const prefetcher *p, uint32_t tick, uint64_t bytes)
{
    return p->used_bytes[tick] + bytes <= p->request->residency->room_bytes[tick] &&
           p->ahead_count[tick] < p->request->most_ahead;
}

/* Whether a fetch of the visit that is ahead of its use may be issued at `tick`. */
static bool may_arrive(const prefetcher *p, const sl_visit *visit, uint32_t tick)
{
    bool is_staged = p->request->is_staged && is_disk(p, visit);
    return !is_staged || p->staged_count[tick] < p->request->staged_ahead;
}

/* A step back in time: a tick, and in which iteration it lies. */
typedef struct step {
    uint32_t tick;
    bool is_wrapped; /* in the iteration before */
} step;

static step step_back(const prefetcher *p, step from)
{
    if (from.tick == 0)
        return (step){p->tick_count - 1, true};
    return (step){from.tick - 1, from.is_wrapped};
}

/* Whether the body begins and ends outside of loops. */
static bool is_edge_free(const prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    uint32_t loop_count = residency->loop_count;
    return loop_count == 0 || (residency->loops[0].first_tick > 0 &&
                               residency->loops[loop_count - 1].end_tick < p->tick_count);
}

/* Whether the visit may be here at `to`, as far as other uses of its object, loops and room go. */
static bool may_stay(const prefetcher *p, uint32_t v, step to, bool may_wrap)
{
    const sl_visit *visit = &p->residency->visits[v];
    uint32_t earlier = p->earlier_use[v];
    if (to.is_wrapped) {
        bool has_wrap = may_wrap && earlier == NO_USE && !visit->is_carried && is_edge_free(p);
        uint32_t last_use = p->last_use[visit->object];
        if (!has_wrap || to.tick <= visit->last_tick ||
            (last_use != NO_USE && to.tick <= last_use) ||
            to.tick < p->section_first[p->tick_count - 1])
            return false;
    } else if ((earlier != NO_USE && to.tick <= earlier) ||
               to.tick < p->section_first[visit->first_tick]) {
        return false;
    }
    return has_room(p, to.tick, p->request->residency->object_bytes[visit->object]);
}

/* Lets the visit start earlier while the wanted start lies before it and there is room. */
static void move_earlier(prefetcher *p, uint32_t v, bool may_wrap)
{
    sl_visit *visit = &p->residency->visits[v];
    double body_seconds = p->start_seconds[p->tick_count];
    step now = {visit->first_tick, false}, arrival = now;
    while (p->start_seconds[now.tick] - (now.is_wrapped ? body_seconds : 0.0) >
           p->wanted_seconds[v]) {
        step next = step_back(p, now);
        if (!may_stay(p, v, next, may_wrap))
            break;
        now = next;
        if (may_arrive(p, visit, now.tick))
            arrival = now;
    }
    if (arrival.tick == visit->first_tick)
        return;
    bool was_ahead = visit->first_tick != visit->first_use;
    if (was_ahead && is_disk(p, visit))
        p->staged_count[visit->first_tick]--;
    for (step at = {visit->first_tick, false}; at.tick != arrival.tick;) {
        at = step_back(p, at);
        p->used_bytes[at.tick] += p->request->residency->object_bytes[visit->object];
        p->ahead_count[at.tick]++;
    }
    if (is_disk(p, visit))
        p->staged_count[arrival.tick]++;
    visit->first_tick = arrival.tick;
    visit->is_carried = visit->is_carried || arrival.is_wrapped;
}

/* Each link delivers in order of use, as late as it may, with one copy's time as slack. */
static void want_starts(prefetcher *p)
{
    const sl_residency *residency = p->residency;
    double body_seconds = p->start_seconds[p->tick_count];
    double link_free[2] = {body_seconds, body_seconds};
    for (uint32_t v = residency->visit_count; v-- > 0;) {
        const sl_visit *visit = &residency->visits[v];
        if (!visit->is_fetched)
            continue;
        int link = is_disk(p, visit);
        uint64_t bytes = p->request->residency->object_bytes[visit->object];
        double seconds = (double)bytes / p->request->fetch_rate[link];
        double deadline = p->start_seconds[visit->first_use];
        double start = (deadline < link_free[link] ? deadline : link_free[link]) - seconds;
        link_free[link] = start;
        p->wanted_seconds[v] = start - seconds;
    }
}

/* ---- staying until written back ---- */

/* When the next visit of each visit's object starts, now that fetches have moved. */
static void find_next_starts(prefetcher *p)
{
    const sl_residency *residency = p->residency;
    uint32_t *next = p->last_use; /* by object; its content is not needed any more */
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
}

static void index_uses(prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    uint32_t u = 0;
    for (uint32_t tick = 0; tick <= p->tick_count; tick++) {
        while (u < residency->use_count && residency->uses[u].tick < tick)
            u++;
        p->tick_uses[tick] = u;
    }
}

static bool is_used_at(const prefetcher *p, uint32_t object, uint32_t tick)
{
    for (uint32_t u = p->tick_uses[tick]; u < p->tick_uses[tick + 1]; u++)
        if (p->request->residency->uses[u].object == object)
            return true;
    return false;
}

/* Lets the visit stay until `end_seconds`, while there is room and its object is not wanted. */
static void stay(prefetcher *p, uint32_t v, double end_seconds)
{
    const sl_residency_request *residency = p->request->residency;
    sl_visit *visit = &p->residency->visits[v];
    uint64_t bytes = residency->object_bytes[visit->object];
    uint32_t tick = visit->last_tick + 1;
    if (wraps(visit))
        return;
    while (tick < p->next_start[v] && tick < p->section_end[visit->last_tick] &&
           p->start_seconds[tick] < end_seconds &&
           p->used_bytes[tick] + bytes <= residency->room_bytes[tick] &&
           !is_used_at(p, visit->object, tick))
        p->used_bytes[tick++] += bytes;
    visit->last_tick = tick - 1;
}

static int compare_write_backs(const void *left, const void *right)
{
    const sl_write_back *a = left, *b = right;
    if (a->after_tick != b->after_tick)
        return a->after_tick < b->after_tick ? -1 : 1;
    return (a->visit > b->visit) - (a->visit < b->visit);
}

/* Each link writes back in the order of the last writes, as soon as it may. */
static void let_stay(prefetcher *p)
{
    const sl_residency *residency = p->residency;
    double link_free[2] = {0.0, 0.0};
    uint32_t count = residency->write_back_count;
    find_next_starts(p);
    index_uses(p);
    for (uint32_t b = 0; b < count; b++)
        p->in_order[b] = residency->write_backs[b];
    qsort(p->in_order, count, sizeof *p->in_order, compare_write_backs);
    for (uint32_t b = 0; b < count; b++) {
        uint32_t v = p->in_order[b].visit;
        int link = is_disk(p, &residency->visits[v]);
        uint64_t bytes = p->request->residency->object_bytes[residency->visits[v].object];
        double ready = p->start_seconds[p->in_order[b].after_tick + 1];
        double start = ready > link_free[link] ? ready : link_free[link];
        double seconds = (double)bytes / p->request->write_back_rate[link];
        link_free[link] = start + seconds;
        stay(p, v, start + 2 * seconds); /* one copy's time as slack */
    }
}

sl_status sl_prefetch_plan(const sl_prefetch_request *request, sl_residency *residency)
{
    prefetcher p;
    SL_TRY(prepare(request, residency, &p));
    want_starts(&p);
    for (int may_wrap = 0; may_wrap <= 1; may_wrap++)
        for (uint32_t v = 0; v < residency->visit_count; v++)
            if (residency->visits[v].is_fetched)
                move_earlier(&p, v, may_wrap);
    let_stay(&p);
    release(&p);
    return SL_OK;
}
