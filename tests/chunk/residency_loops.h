/* Plays a residency with loops the plain way: each loop unrolled to a number of repetitions, each
 * object with the version of its content at home and away. Says in words what is wrong, or NULL.
 *
 * It reads the plan as its header defines it and shares no code with the planner: what is here
 * follows from the ticks of visits alone; over the edge from the end of a loop back to its first
 * tick an object stays only if one visit covers both sides or two visits are a pair.
 */
#ifndef SL_TESTS_RESIDENCY_LOOPS_H
#define SL_TESTS_RESIDENCY_LOOPS_H

#include <stdio.h>
#include <string.h>

#include "chunk/plan/residency.h"

enum { PLAY_OBJECTS = 16, PLAY_LOOPS = 4, PLAY_ITERATIONS = 3 };
#define PLAY_NOT_HERE UINT32_MAX
#define PLAY_UNDEFINED UINT32_MAX

typedef struct play {
    const sl_residency_request *request;
    const sl_residency *plan;
    uint32_t visit[PLAY_OBJECTS]; /* that the object is here with */
    uint32_t home[PLAY_OBJECTS], away[PLAY_OBJECTS], newest[PLAY_OBJECTS]; /* versions */
    uint64_t moved_bytes;
    const char *problem;
    char text[160];
} play;

static inline bool play_is_there(const sl_visit *visit, uint32_t tick)
{
    if (visit->first_tick > visit->last_tick)
        return tick >= visit->first_tick || tick <= visit->last_tick;
    return tick >= visit->first_tick && tick <= visit->last_tick;
}

static inline void play_fail(play *p, const char *what, uint32_t object, uint32_t tick)
{
    if (p->problem)
        return;
    snprintf(p->text, sizeof p->text, "object %u at tick %u: %s", object, tick, what);
    p->problem = p->text;
}

/* Whether a stay with visit `from` goes on as `to` over the back edge of a loop. */
static inline bool play_goes_on(const play *p, uint32_t from, uint32_t to)
{
    if (from == to)
        return true;
    for (uint32_t n = 0; n < p->plan->pair_count; n++)
        if (p->plan->pairs[n].at_end == from && p->plan->pairs[n].at_entry == to)
            return true;
    return false;
}

/* Whether the visit begins at the tick, rather than going on. */
static inline bool play_begins(const sl_visit *visit, uint32_t tick)
{
    bool is_all_through = visit->is_carried && visit->first_tick <= visit->last_tick;
    return visit->first_tick == tick && !(is_all_through && tick == 0);
}

static inline void play_begin_visit(play *p, uint32_t v, uint32_t tick)
{
    uint32_t o = p->plan->visits[v].object;
    p->visit[o] = v;
    p->away[o] = PLAY_UNDEFINED;
    if (!p->plan->visits[v].is_fetched)
        return;
    if (p->home[o] != p->newest[o])
        play_fail(p, "fetched from a home that is not current", o, tick);
    p->away[o] = p->home[o];
    p->moved_bytes += p->request->object_bytes[o];
}

/* Who is here at the tick, coming from the tick before or over the back edge of a loop. */
static inline void play_visits(play *p, uint32_t tick, bool is_back)
{
    uint32_t now[PLAY_OBJECTS];
    uint64_t held = 0;
    for (uint32_t o = 0; o < p->request->object_count; o++)
        now[o] = PLAY_NOT_HERE;
    for (uint32_t v = 0; v < p->plan->visit_count; v++) {
        const sl_visit *visit = &p->plan->visits[v];
        uint32_t o = visit->object;
        if (!play_is_there(visit, tick))
            continue;
        if (now[o] != PLAY_NOT_HERE)
            play_fail(p, "here twice", o, tick);
        now[o] = v;
        held += p->request->object_bytes[o];
    }
    if (held > p->request->room_bytes[tick])
        play_fail(p, "no room", 0, tick);
    for (uint32_t o = 0; o < p->request->object_count; o++) {
        uint32_t before = p->visit[o], v = now[o];
        p->visit[o] = v;
        if (v == PLAY_NOT_HERE)
            continue;
        bool stays =
            before != PLAY_NOT_HERE && (is_back ? play_goes_on(p, before, v) : before == v);
        if (play_begins(&p->plan->visits[v], tick))
            play_begin_visit(p, v, tick);
        else if (!stays)
            play_fail(p, "a visit goes on that did not begin", o, tick);
    }
}

static inline void play_use(play *p, const sl_residency_use *use)
{
    uint32_t o = use->object;
    bool is_here = p->visit[o] != PLAY_NOT_HERE;
    uint32_t *version = use->is_away ? &p->away[o] : &p->home[o];
    if (is_here != use->is_away)
        play_fail(p, use->is_away ? "not here for its use" : "here at a use at home", o, use->tick);
    if (use->reads && *version != p->newest[o])
        play_fail(p, "reads old content", o, use->tick);
    if (use->writes)
        *version = ++p->newest[o];
}

static inline void play_write_backs(play *p, uint32_t tick)
{
    for (uint32_t b = 0; b < p->plan->write_back_count; b++) {
        uint32_t v = p->plan->write_backs[b].visit, o = p->plan->visits[v].object;
        if (p->plan->write_backs[b].after_tick != tick)
            continue;
        if (p->visit[o] != v)
            play_fail(p, "written back while it is not here", o, tick);
        if (p->away[o] != p->newest[o])
            play_fail(p, "writes back old content", o, tick);
        p->home[o] = p->away[o];
        p->moved_bytes += p->request->object_bytes[o];
    }
}

static inline void play_tick(play *p, uint32_t tick, bool is_back)
{
    play_visits(p, tick, is_back);
    for (uint32_t u = 0; u < p->request->use_count; u++)
        if (p->request->uses[u].tick == tick)
            play_use(p, &p->request->uses[u]);
    play_write_backs(p, tick);
}

static inline bool play_is_transient(const sl_residency_request *request, uint32_t object)
{
    for (uint32_t u = 0; u < request->use_count; u++)
        if (request->uses[u].object == object)
            return request->uses[u].writes && !request->uses[u].reads &&
                   !(request->outlives && request->outlives[object]);
    return false;
}

/* Between iterations nothing is flushed, but every home holds what matters, and what is carried is
 * clean. */
static inline void play_end_body(play *p)
{
    uint32_t tick = p->request->tick_count;
    for (uint32_t o = 0; o < p->request->object_count; o++)
        if (!play_is_transient(p->request, o) && p->home[o] != p->newest[o])
            play_fail(p, "not current at home after the body", o, tick);
    for (uint32_t v = 0; v < p->plan->visit_count; v++)
        if (p->plan->visits[v].is_carried &&
            p->away[p->plan->visits[v].object] != p->home[p->plan->visits[v].object])
            play_fail(p, "carried dirty", p->plan->visits[v].object, tick);
}

static inline void play_body(play *p, const uint32_t *repetitions)
{
    uint32_t loop = 0;
    for (uint32_t tick = 0; tick < p->request->tick_count && !p->problem;) {
        const sl_residency_loop *loops = p->request->loops;
        if (loop == p->request->loop_count || tick < loops[loop].first_tick) {
            play_tick(p, tick++, false);
            continue;
        }
        for (uint32_t r = 0; r < repetitions[loop]; r++)
            for (uint32_t t = tick; t < loops[loop].end_tick; t++)
                play_tick(p, t, r > 0 && t == tick);
        tick = loops[loop++].end_tick;
    }
    play_end_body(p);
}

/* What the prologue loads. */
static inline void play_prologue(play *p)
{
    for (uint32_t o = 0; o < PLAY_OBJECTS; o++)
        p->visit[o] = PLAY_NOT_HERE;
    for (uint32_t v = 0; v < p->plan->visit_count; v++)
        if (p->plan->visits[v].is_carried)
            p->visit[p->plan->visits[v].object] = v;
}

/* The visit of an object at a tick; `crosses`: that goes on from the tick before. */
static inline uint32_t play_find(const play *p, uint32_t object, uint32_t tick, bool crosses)
{
    for (uint32_t v = 0; v < p->plan->visit_count; v++) {
        const sl_visit *visit = &p->plan->visits[v];
        if (visit->object == object && play_is_there(visit, tick) &&
            !(crosses && play_begins(visit, tick)))
            return v;
    }
    return PLAY_NOT_HERE;
}

/* What crosses the entry of a loop is there at its end, by one visit or a pair; what crosses the
 * end crossed the entry. */
static inline void play_seam(play *p, const sl_residency_loop *loop)
{
    for (uint32_t o = 0; o < p->request->object_count; o++) {
        uint32_t at_entry = play_find(p, o, loop->first_tick, true);
        uint32_t at_end = play_find(p, o, loop->end_tick - 1, false);
        uint32_t behind = loop->end_tick % p->request->tick_count;
        uint32_t leaving = play_find(p, o, behind, true);
        if (at_entry != PLAY_NOT_HERE &&
            (at_end == PLAY_NOT_HERE || !play_goes_on(p, at_end, at_entry)))
            play_fail(p, "crosses the entry of a loop and not its end", o, loop->first_tick);
        if (leaving != PLAY_NOT_HERE && at_entry == PLAY_NOT_HERE)
            play_fail(p, "crosses the end of a loop and not its entry", o, loop->end_tick);
    }
}

static inline void play_pairs(play *p)
{
    for (uint32_t n = 0; n < p->plan->pair_count; n++) {
        const sl_visit_pair *pair = &p->plan->pairs[n];
        const sl_visit *entry = &p->plan->visits[pair->at_entry];
        const sl_visit *end = &p->plan->visits[pair->at_end];
        bool is_at_seam = false;
        for (uint32_t l = 0; l < p->request->loop_count; l++)
            is_at_seam = is_at_seam || (play_is_there(entry, p->request->loops[l].first_tick) &&
                                        play_is_there(end, p->request->loops[l].end_tick - 1));
        if (entry->object != end->object || pair->at_entry == pair->at_end || !is_at_seam)
            play_fail(p, "a pair that is none", entry->object, entry->first_tick);
    }
}

/* Plays the plan with so many repetitions of each loop. */
static inline const char *play_plan(const sl_residency_request *request, const sl_residency *plan,
                                    const uint32_t *repetitions, play *p)
{
    *p = (play){.request = request, .plan = plan};
    play_prologue(p);
    for (uint32_t l = 0; l < request->loop_count; l++)
        play_seam(p, &request->loops[l]);
    play_pairs(p);
    for (int iteration = 0; iteration < PLAY_ITERATIONS && !p->problem; iteration++)
        play_body(p, repetitions);
    return p->problem;
}

/* Plays it with 1, 2, 3 and 4 repetitions of all loops, and with mixtures. The text lives in *p. */
static inline const char *play_all(const sl_residency_request *request, const sl_residency *plan,
                                   play *p)
{
    for (uint32_t mixture = 0; mixture < 8; mixture++) {
        uint32_t repetitions[PLAY_LOOPS];
        for (uint32_t l = 0; l < PLAY_LOOPS; l++)
            repetitions[l] = mixture < 4 ? mixture + 1 : 1 + (mixture + l * (mixture - 3)) % 4;
        if (play_plan(request, plan, repetitions, p))
            return p->problem;
    }
    return NULL;
}

#endif
