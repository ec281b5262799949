/* Order within a launch by its definition: everything that happened is kept, with who it is ordered
 * before, and each access is held against all of it. Slow, and as simple as can be: the oracle of
 * races.c. For scenes (shadow_scene.h). */
#ifndef PTX_SHADOW_ORACLE_H
#define PTX_SHADOW_ORACLE_H

#include <stdlib.h>

#include "shadow_scene.h"

enum { ORACLE_THREADS = SCENE_SLOTS * SCENE_WARPS * PTX_LANES, ORACLE_EVENTS = 1 << 14 };

typedef enum event_kind { EVENT_READ, EVENT_WRITE, EVENT_ATOMIC, EVENT_CONSTANT } event_kind;

typedef struct event {
    event_kind kind;
    uint32_t thread; /* of all blocks */
    ptx_space space;
    uint64_t start, end;
} event;

/* A copy of one lane, in flight. */
typedef struct flight {
    uint32_t thread;
    bool reads;
    uint64_t from, to;
    uint32_t bytes;
} flight;

typedef struct oracle {
    event event[ORACLE_EVENTS];
    uint32_t event_count;
    /* known[u][t]: how many of all events, if they are t's, are ordered before what u does next */
    uint32_t known[ORACLE_THREADS][ORACLE_THREADS];
    flight flight[1024];
    uint32_t flight_count;
} oracle;

static inline uint32_t oracle_thread(const step *p, uint32_t lane)
{
    return (p->block * SCENE_WARPS + p->warp) * PTX_LANES + lane;
}

static inline uint32_t oracle_block(uint32_t thread)
{
    return thread / (SCENE_WARPS * PTX_LANES);
}

static inline bool overlap(uint64_t start, uint64_t end, uint64_t other_start, uint64_t other_end)
{
    return start < other_end && other_start < end;
}

/* Whether two kinds may go unordered. */
static inline bool may_mix(event_kind a, event_kind b)
{
    const bool reads_a = a == EVENT_READ || a == EVENT_CONSTANT;
    const bool reads_b = b == EVENT_READ || b == EVENT_CONSTANT;
    return (reads_a && reads_b) || (a == EVENT_ATOMIC && b == EVENT_ATOMIC);
}

static inline bool is_wrong_pair(const oracle *o, uint32_t index, const event *e)
{
    const event *past = &o->event[index];
    const bool is_same_place =
        past->space == e->space && overlap(past->start, past->end, e->start, e->end) &&
        (e->space == PTX_GLOBAL || oracle_block(past->thread) == oracle_block(e->thread));
    if (!is_same_place || may_mix(past->kind, e->kind))
        return false;
    if (past->kind == EVENT_CONSTANT || e->kind == EVENT_CONSTANT)
        return true;
    return past->thread != e->thread && index >= o->known[e->thread][past->thread];
}

/* Copies in flight own their target; nobody writes their source. */
static inline bool meets_flight(const oracle *o, const event *e)
{
    for (uint32_t i = 0; i < o->flight_count; i++) {
        const flight *f = &o->flight[i];
        const bool is_own_block = oracle_block(f->thread) == oracle_block(e->thread);
        if (e->space == PTX_SHARED && is_own_block &&
            overlap(f->to, f->to + f->bytes, e->start, e->end))
            return true;
        if (e->space == PTX_GLOBAL && f->reads && !may_mix(EVENT_READ, e->kind) &&
            overlap(f->from, f->from + f->bytes, e->start, e->end))
            return true;
    }
    return false;
}

/* False: it is not ordered after something that it has to be. */
static inline bool oracle_add(oracle *o, const event *e)
{
    if (meets_flight(o, e))
        return false;
    for (uint32_t i = 0; i < o->event_count; i++)
        if (is_wrong_pair(o, i, e))
            return false;
    assert_true(o->event_count < ORACLE_EVENTS);
    o->event[o->event_count++] = *e;
    return true;
}

static inline bool oracle_touch(oracle *o, const step *p)
{
    const event_kind kind = p->verb == STEP_WRITE      ? EVENT_WRITE
                            : p->verb == STEP_ATOMIC   ? EVENT_ATOMIC
                            : p->verb == STEP_CONSTANT ? EVENT_CONSTANT
                                                       : EVENT_READ;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        if (!(p->lanes >> lane & 1))
            continue;
        const uint64_t start = p->at + lane * p->stride;
        event e = {kind, oracle_thread(p, lane), p->space, start, start + p->bytes};
        for (uint32_t by = 0; by < (p->verb == STEP_MATRIX ? PTX_LANES : 1u); by++) {
            if (p->verb == STEP_MATRIX)
                e.thread = oracle_thread(p, by);
            if (!oracle_add(o, &e))
                return false;
        }
    }
    return true;
}

static inline bool oracle_copy(oracle *o, const step *p)
{
    for (int end = 0; end < 2; end++) /* all sources, then all targets */
        for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
            const uint64_t start = (end ? p->to : p->at) + lane * p->stride;
            const event e = {end ? EVENT_WRITE : EVENT_READ, oracle_thread(p, lane),
                             end ? PTX_SHARED : PTX_GLOBAL, start, start + p->bytes};
            if ((p->lanes >> lane & 1) && (end || p->verb == STEP_COPY) && !oracle_add(o, &e))
                return false;
        }
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        if (p->lanes >> lane & 1)
            o->flight[o->flight_count++] =
                (flight){oracle_thread(p, lane), p->verb == STEP_COPY, p->at + lane * p->stride,
                         p->to + lane * p->stride, p->bytes};
    return true;
}

/* What landed counts as read and written now, which nothing can be against. */
static inline void oracle_wait(oracle *o, const step *p)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->flight_count; i++) {
        const flight f = o->flight[i];
        const bool lands = f.thread / PTX_LANES == oracle_thread(p, 0) / PTX_LANES &&
                           (p->lanes >> f.thread % PTX_LANES & 1);
        if (!lands) {
            o->flight[kept++] = f;
            continue;
        }
        assert_true(o->event_count + 2 <= ORACLE_EVENTS);
        o->event[o->event_count++] =
            (event){EVENT_WRITE, f.thread, PTX_SHARED, f.to, f.to + f.bytes};
        if (f.reads)
            o->event[o->event_count++] =
                (event){EVENT_READ, f.thread, PTX_GLOBAL, f.from, f.from + f.bytes};
    }
    o->flight_count = kept;
}

/* Each of `count` threads gets to know what any of them knows, and all that they did. */
static inline void oracle_join(oracle *o, uint32_t first, uint32_t count)
{
    uint32_t joined[ORACLE_THREADS] = {0};
    for (uint32_t u = first; u < first + count; u++)
        for (uint32_t t = 0; t < ORACLE_THREADS; t++)
            joined[t] = o->known[u][t] > joined[t] ? o->known[u][t] : joined[t];
    for (uint32_t t = first; t < first + count; t++)
        joined[t] = o->event_count;
    for (uint32_t u = first; u < first + count; u++)
        memcpy(o->known[u], joined, sizeof joined);
}

/* As scene_step; of blocks 0 .. SCENE_SLOTS - 1. */
static inline bool oracle_step(oracle *o, const step *p)
{
    switch (p->verb) {
    case STEP_COPY:
    case STEP_COPY_ZERO:
        return oracle_copy(o, p);
    case STEP_WAIT:
        return oracle_wait(o, p), true;
    case STEP_JOIN_WARP:
        return oracle_join(o, oracle_thread(p, 0), PTX_LANES), true;
    case STEP_BARRIER:
        return oracle_join(o, p->block * SCENE_WARPS * PTX_LANES, SCENE_WARPS * PTX_LANES), true;
    default:
        return oracle_touch(o, p);
    }
}

#endif
