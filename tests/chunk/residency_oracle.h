/* The least that any plan of residency can move, and whether a plan is one: for small cases with
 * objects of any sizes.
 *
 * An object is absent, clean or dirty, so there are 3^n states of n objects. A steady iteration
 * starts from some clean set and ends with at least that set in place; for each such set the
 * cheapest way through the ticks is found by dynamic programming over the states (Bellman 1957).
 * Before a tick, objects may be given up or written home, each for its own cost, so that step goes
 * object by object; the tick itself does to a state what its uses say.
 */
#ifndef SL_TESTS_RESIDENCY_ORACLE_H
#define SL_TESTS_RESIDENCY_ORACLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "chunk/plan/residency.h"

enum { ORACLE_OBJECTS = 5, ORACLE_TICKS = 10, ORACLE_STATES = 243 /* 3^ORACLE_OBJECTS */ };
enum { ORACLE_ABSENT, ORACLE_CLEAN, ORACLE_DIRTY };

#define ORACLE_NO_WAY (UINT32_C(1) << 30)

typedef struct oracle_case {
    uint32_t tick_count, object_count, use_count;
    sl_residency_use uses[ORACLE_TICKS * ORACLE_OBJECTS]; /* by tick */
    uint64_t bytes[ORACLE_OBJECTS];
    uint64_t room[ORACLE_TICKS];
    bool outlives[ORACLE_OBJECTS];
} oracle_case;

static inline sl_residency_request oracle_request(const oracle_case *c)
{
    return (sl_residency_request){.tick_count = c->tick_count,
                                  .uses = c->uses,
                                  .use_count = c->use_count,
                                  .object_count = c->object_count,
                                  .object_bytes = c->bytes,
                                  .copy_bytes = c->bytes,
                                  .room_bytes = c->room,
                                  .outlives = c->outlives};
}

/* ---- what is needed ---- */

/* Holds nothing from one iteration to the next. */
static inline bool oracle_is_transient(const oracle_case *c, uint32_t object)
{
    for (uint32_t u = 0; u < c->use_count; u++)
        if (c->uses[u].object == object)
            return c->uses[u].writes && !c->uses[u].reads && !c->outlives[object];
    return false;
}

/* Whether content that is dirty before `tick` is read again before it is written whole. */
static inline bool oracle_is_live(const oracle_case *c, uint32_t object, uint32_t tick)
{
    for (uint32_t u = 0; u < c->use_count; u++)
        if (c->uses[u].object == object && c->uses[u].tick >= tick)
            return c->uses[u].reads;
    return !oracle_is_transient(c, object);
}

/* ---- the least ---- */

static inline void oracle_relax(uint32_t *costs, uint32_t state, uint32_t cost)
{
    costs[state] = cost < costs[state] ? cost : costs[state];
}

/* 3^object: what one step of its digit is worth. */
static inline uint32_t oracle_unit(uint32_t object)
{
    uint32_t unit = 1;
    while (object-- > 0)
        unit *= 3;
    return unit;
}

/* Before tick t: dirty ones may be written home, and any may be given up. */
static inline void oracle_give_up(const oracle_case *c, uint32_t t, uint32_t *costs)
{
    for (uint32_t o = 0; o < c->object_count; o++) {
        const uint32_t unit = oracle_unit(o), bytes = (uint32_t)c->bytes[o];
        const uint32_t loss = oracle_is_live(c, o, t) ? bytes : 0;
        for (uint32_t s = ORACLE_STATES; s-- > 0;) {
            const uint32_t digit = s / unit % 3;
            if (digit == ORACLE_DIRTY) {
                oracle_relax(costs, s - unit, costs[s] + bytes);
                oracle_relax(costs, s - 2 * unit, costs[s] + loss);
            } else if (digit == ORACLE_CLEAN) {
                oracle_relax(costs, s - unit, costs[s]);
            }
        }
    }
}

/* One use of an object whose digit is *digit; returns the bytes that it moves. */
static inline uint32_t oracle_use(const oracle_case *c, const sl_residency_use *use,
                                  uint32_t *digit)
{
    const uint32_t bytes = (uint32_t)c->bytes[use->object];
    uint32_t moved = 0;
    if (!use->is_away) {
        moved = *digit == ORACLE_DIRTY && use->reads ? bytes : 0;
        *digit = ORACLE_ABSENT;
        return moved;
    }
    if (*digit == ORACLE_ABSENT) {
        moved = use->reads ? bytes : 0;
        *digit = ORACLE_CLEAN;
    }
    if (use->writes)
        *digit = ORACLE_DIRTY;
    return moved;
}

/* What the uses [first, last) of one tick make of state s. */
static inline void oracle_step(const oracle_case *c, uint32_t first, uint32_t last, uint32_t s,
                               uint32_t cost, uint32_t *after)
{
    const uint64_t room = c->room[c->uses[first].tick];
    uint32_t digits[ORACLE_OBJECTS], reached = 0;
    uint64_t held = 0;
    for (uint32_t o = 0; o < ORACLE_OBJECTS; o++, s /= 3)
        digits[o] = s % 3;
    for (uint32_t u = first; u < last; u++)
        cost += oracle_use(c, &c->uses[u], &digits[c->uses[u].object]);
    for (uint32_t o = c->object_count; o-- > 0;) {
        reached = 3 * reached + digits[o];
        held += digits[o] != ORACLE_ABSENT ? c->bytes[o] : 0;
    }
    if (held <= room)
        oracle_relax(after, reached, cost);
}

/* States of a tick without uses stay as they are, where they fit. */
static inline void oracle_drop_large(const oracle_case *c, uint32_t t, uint32_t *costs)
{
    for (uint32_t s = 0; s < ORACLE_STATES; s++) {
        uint64_t held = 0;
        uint32_t rest = s;
        for (uint32_t o = 0; o < c->object_count; o++, rest /= 3)
            held += rest % 3 != ORACLE_ABSENT ? c->bytes[o] : 0;
        if (held > c->room[t])
            costs[s] = ORACLE_NO_WAY;
    }
}

static inline void oracle_walk_ticks(const oracle_case *c, uint32_t *costs)
{
    uint32_t first = 0, after[ORACLE_STATES];
    for (uint32_t t = 0; t < c->tick_count; t++) {
        uint32_t last = first;
        while (last < c->use_count && c->uses[last].tick == t)
            last++;
        oracle_give_up(c, t, costs);
        if (first == last) {
            oracle_drop_large(c, t, costs);
            continue;
        }
        for (uint32_t s = 0; s < ORACLE_STATES; s++)
            after[s] = ORACLE_NO_WAY;
        for (uint32_t s = 0; s < ORACLE_STATES; s++)
            if (costs[s] < ORACLE_NO_WAY)
                oracle_step(c, first, last, s, costs[s], after);
        memcpy(costs, after, sizeof after);
        first = last;
    }
}

/* The cheapest end with the carried set in place, all of it clean. */
static inline uint32_t oracle_close(const oracle_case *c, const uint32_t *costs, uint32_t carried)
{
    uint32_t least = ORACLE_NO_WAY;
    for (uint32_t s = 0; s < ORACLE_STATES; s++) {
        uint32_t cost = costs[s], rest = s;
        for (uint32_t o = 0; o < c->object_count; o++, rest /= 3) {
            if ((carried >> o & 1) && rest % 3 == ORACLE_ABSENT)
                cost = ORACLE_NO_WAY;
            if (rest % 3 == ORACLE_DIRTY && !oracle_is_transient(c, o))
                cost += (uint32_t)c->bytes[o];
        }
        least = cost < least ? cost : least;
    }
    return least;
}

/* The fewest bytes that a steady iteration moves, over all clean carried sets. */
static inline uint64_t oracle_least(const oracle_case *c)
{
    uint32_t least = ORACLE_NO_WAY;
    for (uint32_t set = 0; set < 1u << c->object_count; set++) {
        uint32_t costs[ORACLE_STATES], start = 0;
        bool is_allowed = true;
        for (uint32_t o = 0; o < c->object_count; o++) {
            const bool is_carried = set >> o & 1;
            start += is_carried ? ORACLE_CLEAN * oracle_unit(o) : 0;
            is_allowed = is_allowed && !(is_carried && oracle_is_transient(c, o));
        }
        if (!is_allowed)
            continue;
        for (uint32_t s = 0; s < ORACLE_STATES; s++)
            costs[s] = ORACLE_NO_WAY;
        costs[start] = 0;
        oracle_walk_ticks(c, costs);
        const uint32_t cost = oracle_close(c, costs, set);
        least = cost < least ? cost : least;
    }
    return least;
}

/* ---- whether a plan holds ---- */

static inline bool oracle_is_there(const sl_visit *visit, uint32_t tick)
{
    const bool from = tick >= visit->first_tick, to = tick <= visit->last_tick;
    return visit->first_tick > visit->last_tick ? from || to : from && to;
}

/* Visits fit their room; an away use finds its object, a home use does not. */
static inline void oracle_check_visits(const oracle_case *c, const sl_residency *plan)
{
    for (uint32_t t = 0; t < c->tick_count; t++) {
        uint64_t held = 0;
        for (uint32_t v = 0; v < plan->visit_count; v++)
            held += oracle_is_there(&plan->visits[v], t) ? c->bytes[plan->visits[v].object] : 0;
        assert_true(held <= c->room[t]);
    }
    for (uint32_t u = 0; u < c->use_count; u++) {
        uint32_t here = 0;
        for (uint32_t v = 0; v < plan->visit_count; v++)
            here += plan->visits[v].object == c->uses[u].object &&
                    oracle_is_there(&plan->visits[v], c->uses[u].tick);
        assert_int_equal(here, c->uses[u].is_away);
    }
}

/* Versions of an object's content: the newest, and what is at home and away. */
typedef struct oracle_versions {
    uint32_t newest[ORACLE_OBJECTS], home[ORACLE_OBJECTS], away[ORACLE_OBJECTS];
} oracle_versions;

static inline void oracle_play_use(const sl_residency_use *use, oracle_versions *v)
{
    uint32_t *version = use->is_away ? &v->away[use->object] : &v->home[use->object];
    if (use->reads)
        assert_int_equal(*version, v->newest[use->object]);
    if (use->writes)
        *version = ++v->newest[use->object];
}

static inline void oracle_play(const oracle_case *c, const sl_residency *plan, oracle_versions *v)
{
    for (uint32_t t = 0; t < c->tick_count; t++) {
        for (uint32_t i = 0; i < plan->visit_count; i++)
            if (plan->visits[i].is_fetched && plan->visits[i].first_tick == t)
                v->away[plan->visits[i].object] = v->home[plan->visits[i].object];
        for (uint32_t u = 0; u < c->use_count; u++)
            if (c->uses[u].tick == t)
                oracle_play_use(&c->uses[u], v);
        for (uint32_t b = 0; b < plan->write_back_count; b++) {
            const sl_visit *visit = &plan->visits[plan->write_backs[b].visit];
            if (plan->write_backs[b].after_tick != t)
                continue;
            assert_true(oracle_is_there(visit, t));
            v->home[visit->object] = v->away[visit->object];
        }
    }
    for (uint32_t o = 0; o < c->object_count; o++)
        if (!oracle_is_transient(c, o))
            assert_int_equal(v->home[o], v->newest[o]);
}

/* Fails unless the plan's visits fit, every read finds the newest content, every home has it after
 * each iteration, and what the plan says to move is what its fetches and write-backs move. */
static inline void oracle_check_plan(const oracle_case *c, const sl_residency *plan)
{
    oracle_versions versions = {{0}, {0}, {0}};
    uint64_t moved = 0;
    oracle_check_visits(c, plan);
    for (int iteration = 0; iteration < 3; iteration++)
        oracle_play(c, plan, &versions);
    for (uint32_t v = 0; v < plan->visit_count; v++)
        moved += plan->visits[v].is_fetched ? c->bytes[plan->visits[v].object] : 0;
    for (uint32_t b = 0; b < plan->write_back_count; b++)
        moved += c->bytes[plan->visits[plan->write_backs[b].visit].object];
    assert_int_equal(plan->moved_bytes, moved);
}

#endif
