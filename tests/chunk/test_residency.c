/* Residency against brute force.
 *
 * What could be wrong: a use finds its object absent or stale, a tick holds more than its room,
 * dirty content is lost, or the plan moves more than it must. A walker replays each plan; an
 * exhaustive search over all resident sets (objects absent, clean or dirty) of small cases gives
 * the least bytes that any plan of a steady iteration can move.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "chunk/plan/residency.h"

enum { OBJECTS = 4, TICKS = 8, STATES = 81 /* 3^OBJECTS */ };
enum { ABSENT, CLEAN, DIRTY };
static const uint32_t INFINITE_COST = 1u << 20;

typedef struct small_case {
    sl_residency_use uses[TICKS * OBJECTS];
    uint32_t use_count, tick_count, object_count;
    uint64_t room[TICKS];
    uint64_t bytes[OBJECTS];
} small_case;

/* ---- random cases ---- */

static uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t bound)
{
    return (uint32_t)sl_rng_below(seed, 7, (*counter)++, bound);
}

static small_case random_case(uint64_t seed, bool is_clean)
{
    uint64_t counter = 0;
    small_case c = {.tick_count = 3 + draw(seed, &counter, TICKS - 2),
                    .object_count = 2 + draw(seed, &counter, OBJECTS - 1)};
    uint32_t slots = 1 + draw(seed, &counter, c.object_count > 1 ? c.object_count - 1 : 1);
    for (uint32_t o = 0; o < OBJECTS; o++)
        c.bytes[o] = 1;
    for (uint32_t t = 0; t < c.tick_count; t++) {
        uint32_t wanted = draw(seed, &counter, 8) == 0 ? 2 : 1;
        bool used[OBJECTS] = {false};
        c.room[t] = slots;
        for (uint32_t n = 0; n < wanted && n < slots; n++) {
            uint32_t o = draw(seed, &counter, c.object_count);
            uint32_t kind = draw(seed, &counter, 6);
            if (used[o])
                continue;
            used[o] = true;
            sl_residency_use use = {.tick = t, .object = o, .is_away = true, .reads = true};
            if (!is_clean) {
                use.is_away = kind != 5;
                use.writes = kind >= 2;
                use.reads = kind != 2;
            }
            c.uses[c.use_count++] = use;
        }
    }
    return c;
}

/* ---- brute force ---- */

static void decode(uint32_t state, uint32_t digit[OBJECTS])
{
    for (uint32_t o = 0; o < OBJECTS; o++, state /= 3)
        digit[o] = state % 3;
}

static uint32_t encode(const uint32_t digit[OBJECTS])
{
    uint32_t state = 0;
    for (uint32_t o = OBJECTS; o-- > 0;)
        state = 3 * state + digit[o];
    return state;
}

static bool is_transient(const small_case *c, uint32_t object)
{
    for (uint32_t u = 0; u < c->use_count; u++)
        if (c->uses[u].object == object)
            return c->uses[u].writes && !c->uses[u].reads;
    return false;
}

/* Whether content dirty after `tick` is read again before it is written whole. */
static bool is_live_after(const small_case *c, uint32_t object, uint32_t tick)
{
    for (uint32_t u = 0; u < c->use_count; u++)
        if (c->uses[u].object == object && c->uses[u].tick > tick)
            return c->uses[u].reads;
    return !is_transient(c, object);
}

/* Cost of turning `from` into `next` just before tick `t`, when only evictions and cleanings are
 * allowed; INFINITE_COST where `next` holds something that `from` does not. */
static uint32_t eviction_cost(const small_case *c, uint32_t t, const uint32_t *from,
                              const uint32_t *next)
{
    uint32_t cost = 0;
    for (uint32_t o = 0; o < c->object_count; o++) {
        if (from[o] == next[o])
            continue;
        if (from[o] == ABSENT || next[o] == DIRTY)
            return INFINITE_COST;
        bool is_live = t == 0 ? !is_transient(c, o) : is_live_after(c, o, t - 1);
        if (from[o] == DIRTY && (is_live || next[o] == CLEAN))
            cost++;
    }
    return cost;
}

/* Applies the uses of tick t to `digit`; returns the moves, INFINITE_COST when it does not fit. */
static uint32_t apply_tick(const small_case *c, uint32_t t, uint32_t digit[OBJECTS])
{
    uint32_t cost = 0;
    for (uint32_t u = 0; u < c->use_count; u++) {
        const sl_residency_use *use = &c->uses[u];
        if (use->tick != t)
            continue;
        if (!use->is_away) {
            if (digit[use->object] == DIRTY && use->reads)
                cost++;
            digit[use->object] = ABSENT;
            continue;
        }
        if (digit[use->object] == ABSENT) {
            cost += use->reads;
            digit[use->object] = CLEAN;
        }
        if (use->writes)
            digit[use->object] = DIRTY;
    }
    uint32_t held = 0;
    for (uint32_t o = 0; o < c->object_count; o++)
        held += digit[o] != ABSENT;
    return held > c->room[t] ? INFINITE_COST : cost;
}

static void relax_tick(const small_case *c, uint32_t t, const uint32_t *before, uint32_t *after)
{
    for (uint32_t s = 0; s < STATES; s++)
        after[s] = INFINITE_COST;
    for (uint32_t s = 0; s < STATES; s++) {
        if (before[s] >= INFINITE_COST)
            continue;
        for (uint32_t n = 0; n < STATES; n++) {
            uint32_t from[OBJECTS], next[OBJECTS];
            decode(s, from);
            decode(n, next);
            uint32_t cost = before[s] + eviction_cost(c, t, from, next);
            if (cost >= INFINITE_COST)
                continue;
            cost += apply_tick(c, t, next);
            uint32_t reached = encode(next);
            if (cost < after[reached])
                after[reached] = cost;
        }
    }
}

/* The cheapest end of the body with at least `carried` in place, all of it clean. */
static uint32_t close_cost(const small_case *c, const uint32_t *costs, const uint32_t *carried)
{
    uint32_t best = INFINITE_COST;
    for (uint32_t s = 0; s < STATES; s++) {
        uint32_t digit[OBJECTS], cost = costs[s];
        decode(s, digit);
        for (uint32_t o = 0; o < c->object_count; o++) {
            if (carried[o] == CLEAN && digit[o] == ABSENT)
                cost = INFINITE_COST;
            if (digit[o] == DIRTY && !is_transient(c, o))
                cost++;
        }
        best = cost < best ? cost : best;
    }
    return best;
}

/* Least moves of a steady iteration over all clean carried sets. */
static uint32_t brute_force(const small_case *c)
{
    uint32_t best = INFINITE_COST;
    for (uint32_t set = 0; set < 1u << c->object_count; set++) {
        uint32_t costs[STATES], next[STATES], carried[OBJECTS] = {0};
        bool is_allowed = true;
        for (uint32_t o = 0; o < c->object_count; o++) {
            carried[o] = set >> o & 1 ? CLEAN : ABSENT;
            is_allowed = is_allowed && !(carried[o] && is_transient(c, o));
        }
        if (!is_allowed)
            continue;
        for (uint32_t s = 0; s < STATES; s++)
            costs[s] = INFINITE_COST;
        costs[encode(carried)] = 0;
        for (uint32_t t = 0; t < c->tick_count; t++) {
            relax_tick(c, t, costs, next);
            memcpy(costs, next, sizeof costs);
        }
        uint32_t cost = close_cost(c, costs, carried);
        best = cost < best ? cost : best;
    }
    return best;
}

/* ---- replay ---- */

static bool is_there(const sl_visit *visit, uint32_t tick)
{
    if (visit->first_tick > visit->last_tick)
        return tick >= visit->first_tick || tick <= visit->last_tick;
    return tick >= visit->first_tick && tick <= visit->last_tick;
}

static void assert_plan_is_valid(const small_case *c, const sl_residency *plan)
{
    for (uint32_t t = 0; t < c->tick_count; t++) {
        uint64_t held = 0;
        for (uint32_t v = 0; v < plan->visit_count; v++)
            held += is_there(&plan->visits[v], t) ? c->bytes[plan->visits[v].object] : 0;
        assert_true(held <= c->room[t]);
    }
    for (uint32_t u = 0; u < c->use_count; u++) {
        uint32_t here = 0;
        for (uint32_t v = 0; v < plan->visit_count; v++)
            here += plan->visits[v].object == c->uses[u].object &&
                    is_there(&plan->visits[v], c->uses[u].tick);
        if (c->uses[u].is_away)
            assert_int_equal(here, 1);
        else
            assert_int_equal(here, 0);
    }
}

/* The visit of an object at a tick, or NULL. */
static const sl_visit *find_visit(const sl_residency *plan, uint32_t object, uint32_t tick)
{
    for (uint32_t v = 0; v < plan->visit_count; v++)
        if (plan->visits[v].object == object && is_there(&plan->visits[v], tick))
            return &plan->visits[v];
    return NULL;
}

typedef struct replay {
    uint32_t newest[OBJECTS], home[OBJECTS], away[OBJECTS]; /* versions */
} replay;

static void replay_use(const sl_residency_use *use, replay *r)
{
    uint32_t *version = use->is_away ? &r->away[use->object] : &r->home[use->object];
    if (use->reads)
        assert_int_equal(*version, r->newest[use->object]);
    if (use->writes)
        *version = ++r->newest[use->object];
}

static void replay_body(const small_case *c, const sl_residency *plan, replay *r)
{
    for (uint32_t t = 0; t < c->tick_count; t++) {
        for (uint32_t v = 0; v < plan->visit_count; v++)
            if (plan->visits[v].is_fetched && plan->visits[v].first_tick == t)
                r->away[plan->visits[v].object] = r->home[plan->visits[v].object];
        for (uint32_t u = 0; u < c->use_count; u++)
            if (c->uses[u].tick == t)
                replay_use(&c->uses[u], r);
        for (uint32_t b = 0; b < plan->write_back_count; b++) {
            const sl_visit *visit = &plan->visits[plan->write_backs[b].visit];
            if (plan->write_backs[b].after_tick != t)
                continue;
            assert_ptr_equal(find_visit(plan, visit->object, t), visit);
            r->home[visit->object] = r->away[visit->object];
        }
    }
    for (uint32_t o = 0; o < c->object_count; o++)
        if (!is_transient(c, o))
            assert_int_equal(r->home[o], r->newest[o]);
}

/* Every read finds the newest version, and after the body every home holds it. */
static void assert_content_is_right(const small_case *c, const sl_residency *plan)
{
    replay r = {{0}, {0}, {0}};
    for (int iteration = 0; iteration < 3; iteration++)
        replay_body(c, plan, &r);
}

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 20261120;
}

typedef struct tally {
    uint32_t cases, worse;
    uint64_t ours, least;
} tally;

static tally compare_cases(bool is_clean, uint32_t case_count)
{
    tally result = {0};
    for (uint32_t n = 0; n < case_count; n++) {
        small_case c = random_case(base_seed() + n, is_clean);
        sl_residency_request request = {.tick_count = c.tick_count,
                                        .uses = c.uses,
                                        .use_count = c.use_count,
                                        .object_count = c.object_count,
                                        .object_bytes = c.bytes,
                                        .copy_bytes = c.bytes,
                                        .room_bytes = c.room};
        sl_residency plan = {0};
        uint32_t tick = 0;
        uint64_t missing = 0;
        assert_int_equal(sl_residency_plan(&request, &plan, &tick, &missing), SL_OK);
        assert_plan_is_valid(&c, &plan);
        assert_content_is_right(&c, &plan);
        uint32_t least = brute_force(&c);
        assert_true(plan.moved_bytes >= least);
        if (plan.moved_bytes > least && getenv("SL_TEST_VERBOSE"))
            fprintf(stderr, "seed %llu: %llu moves, least %u\n",
                    (unsigned long long)(base_seed() + n), (unsigned long long)plan.moved_bytes,
                    least);
        result.cases++;
        result.worse += plan.moved_bytes > least;
        result.ours += plan.moved_bytes;
        result.least += least;
        sl_residency_clear(&plan);
    }
    printf("seed %llu, %u %s cases: %llu moves, least %llu, worse in %u\n",
           (unsigned long long)base_seed(), result.cases, is_clean ? "clean" : "dirty",
           (unsigned long long)result.ours, (unsigned long long)result.least, result.worse);
    return result;
}

static uint32_t full_count(void)
{
    return getenv("SL_TEST_FULL") ? 1000 : 500;
}

static void residency_when_objects_are_clean_then_moves_the_least(void **state)
{
    (void)state;
    tally result = compare_cases(true, full_count());
    assert_int_equal(result.worse, 0);
}

static void residency_when_objects_are_dirty_then_moves_at_most_a_tenth_more(void **state)
{
    (void)state;
    tally result = compare_cases(false, full_count());
    assert_true(10 * result.ours <= 11 * result.least);
}

static void residency_when_one_tick_needs_too_much_then_says_how_much(void **state)
{
    (void)state;
    sl_residency_use uses[2] = {{.tick = 1, .object = 0, .is_away = true, .reads = true},
                                {.tick = 1, .object = 1, .is_away = true, .reads = true}};
    uint64_t bytes[2] = {100, 50}, room[3] = {1000, 120, 1000};
    sl_residency_request request = {.tick_count = 3,
                                    .uses = uses,
                                    .use_count = 2,
                                    .object_count = 2,
                                    .object_bytes = bytes,
                                    .copy_bytes = bytes,
                                    .room_bytes = room};
    sl_residency plan = {0};
    uint32_t tick = 0;
    uint64_t missing = 0;
    assert_int_equal(sl_residency_plan(&request, &plan, &tick, &missing), SL_ERROR_FIT);
    assert_int_equal(tick, 1);
    assert_int_equal(missing, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residency_when_objects_are_clean_then_moves_the_least),
        cmocka_unit_test(residency_when_objects_are_dirty_then_moves_at_most_a_tenth_more),
        cmocka_unit_test(residency_when_one_tick_needs_too_much_then_says_how_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
