/* Walks the fetches from the last use to the first, as a link that must deliver each in time would
 * schedule them backwards, and lets each start as early as that asks and room allows.
 *
 * Invariant: visits stand in the order of their first tick when they come in, so visit order is the
 * order in which the link delivers.
 */
#include "prefetch.h"

#include <stdlib.h>

#define NO_USE UINT32_MAX

typedef struct prefetcher {
    const sl_prefetch_request *request;
    sl_residency *residency;
    uint32_t tick_count;
    uint64_t *used_bytes;  /* [tick_count]: by visits */
    uint32_t *ahead_count; /* [tick_count]: visits fetched and not yet used */
    double *start_seconds; /* [tick_count + 1] */
    uint32_t *earlier_use; /* [visit_count]: last use of the object before the visit, or NO_USE */
    uint32_t *last_use;    /* [object_count]: in the body, or NO_USE */
} prefetcher;

static void release(prefetcher *p)
{
    free(p->used_bytes);
    free(p->ahead_count);
    free(p->start_seconds);
    free(p->earlier_use);
    free(p->last_use);
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

/* One sweep over the uses finds, for each visit, the use of its object that came before it. */
static void find_earlier_uses(prefetcher *p)
{
    const sl_residency_request *residency = p->request->residency;
    for (uint32_t o = 0; o < residency->object_count; o++)
        p->last_use[o] = NO_USE;
    uint32_t u = 0;
    for (uint32_t v = 0; v < p->residency->visit_count; v++) {
        const sl_visit *visit = &p->residency->visits[v];
        for (; u < residency->use_count && residency->uses[u].tick < visit->first_use; u++)
            p->last_use[residency->uses[u].object] = residency->uses[u].tick;
        p->earlier_use[v] = p->last_use[visit->object];
    }
    for (; u < residency->use_count; u++)
        p->last_use[residency->uses[u].object] = residency->uses[u].tick;
}

static sl_status prepare(const sl_prefetch_request *request, sl_residency *residency, prefetcher *p)
{
    uint64_t ticks = request->residency->tick_count;
    *p = (prefetcher){.request = request, .residency = residency, .tick_count = (uint32_t)ticks};
    p->used_bytes = calloc(ticks + 1, sizeof *p->used_bytes);
    p->ahead_count = calloc(ticks + 1, sizeof *p->ahead_count);
    p->start_seconds = calloc(ticks + 1, sizeof *p->start_seconds);
    p->earlier_use = calloc((uint64_t)residency->visit_count + 1, sizeof *p->earlier_use);
    p->last_use = calloc((uint64_t)request->residency->object_count + 1, sizeof *p->last_use);
    if (!p->used_bytes || !p->ahead_count || !p->start_seconds || !p->earlier_use || !p->last_use) {
        release(p);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u visits", residency->visit_count);
    }
    for (uint64_t tick = 0; tick < ticks; tick++)
        p->start_seconds[tick + 1] = p->start_seconds[tick] + request->tick_seconds[tick];
    for (uint32_t v = 0; v < residency->visit_count; v++)
        count_visit_bytes(p, &residency->visits[v]);
    find_earlier_uses(p);
    return SL_OK;
}

static bool has_room(const prefetcher *p, uint32_t tick, uint64_t bytes)
{
    return p->used_bytes[tick] + bytes <= p->request->residency->room_bytes[tick] &&
           p->ahead_count[tick] < p->request->most_ahead;
}

/* Lets the visit start one tick earlier while the wanted start lies before it and there is room. */
static void move_earlier(prefetcher *p, uint32_t v, double wanted_seconds)
{
    sl_visit *visit = &p->residency->visits[v];
    uint64_t bytes = p->request->residency->object_bytes[visit->object];
    double body_seconds = p->start_seconds[p->tick_count];
    uint32_t earlier = p->earlier_use[v];
    bool may_wrap = earlier == NO_USE && !visit->is_carried;
    uint32_t tick = visit->first_tick;
    double shift = 0.0; /* of the iteration that `tick` lies in */
    while (p->start_seconds[tick] + shift > wanted_seconds) {
        uint32_t next = tick - 1;
        double next_shift = shift;
        if (tick == 0) {
            if (!may_wrap)
                break;
            next = p->tick_count - 1;
            next_shift = -body_seconds;
            earlier = p->last_use[visit->object];
        }
        bool is_floor = earlier != NO_USE && next <= earlier && (next_shift < 0 || !may_wrap);
        if (is_floor || (next_shift < 0 && next <= visit->last_tick) || !has_room(p, next, bytes))
            break;
        tick = next;
        shift = next_shift;
        p->used_bytes[tick] += bytes;
        p->ahead_count[tick]++;
    }
    visit->first_tick = tick;
    visit->is_carried = visit->is_carried || shift < 0.0;
}

sl_status sl_prefetch_plan(const sl_prefetch_request *request, sl_residency *residency)
{
    prefetcher p;
    SL_TRY(prepare(request, residency, &p));
    double link_free = p.start_seconds[p.tick_count];
    for (uint32_t v = residency->visit_count; v-- > 0;) {
        const sl_visit *visit = &residency->visits[v];
        if (!visit->is_fetched)
            continue;
        uint64_t bytes = request->residency->object_bytes[visit->object];
        double seconds = (double)bytes / request->bytes_per_second;
        double deadline = p.start_seconds[visit->first_use];
        double start = (deadline < link_free ? deadline : link_free) - seconds;
        link_free = start;
        move_earlier(&p, v, start - seconds); /* one copy's time as slack */
    }
    release(&p);
    return SL_OK;
}
