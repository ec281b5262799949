/* Prefetch: what could be wrong is a fetch before the copy at home is current, more bytes at a tick
 * than there is room for, two visits of one object at once, a use without its visit; or the wrong
 * ones ahead: then lanes take turns instead of running beside each other. Random residencies are
 * walked tick by tick; a ring of equal objects on a slow link has one right answer.
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
#include "chunk/plan/prefetch.h"

enum { OBJECTS = 12, TICKS = 60, RING = 16, RING_ROOM = 4 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 90210;
}

static bool is_there(const sl_visit *visit, uint32_t tick)
{
    if (visit->first_tick > visit->last_tick)
        return tick >= visit->first_tick || tick <= visit->last_tick;
    return tick >= visit->first_tick && tick <= visit->last_tick;
}

/* ---- a ring: each object is used at one tick, one after the other ---- */

typedef struct ring {
    sl_residency_use uses[RING];
    uint64_t bytes[RING], room[RING];
    double seconds[RING];
    bool is_disk[RING];
    sl_residency_request request;
    sl_prefetch_request prefetch;
    sl_residency residency;
} ring;

/* Residency keeps one object at a time; the room is for RING_ROOM of them. */
static void open_ring(ring *r, bool writes)
{
    uint64_t keep[RING];
    uint32_t tick;
    uint64_t missing;
    *r = (ring){0};
    for (uint32_t t = 0; t < RING; t++) {
        r->uses[t] = (sl_residency_use){
            .tick = t, .object = t, .is_away = true, .reads = true, .writes = writes};
        r->bytes[t] = keep[t] = 100;
        r->room[t] = RING_ROOM * 100;
        r->seconds[t] = 1.0;
        r->is_disk[t] = true;
    }
    r->request = (sl_residency_request){.tick_count = RING,
                                        .uses = r->uses,
                                        .use_count = RING,
                                        .object_count = RING,
                                        .object_bytes = r->bytes,
                                        .copy_bytes = r->bytes,
                                        .room_bytes = keep};
    assert_int_equal(sl_residency_plan(&r->request, &r->residency, &tick, &missing), SL_OK);
    r->request.room_bytes = r->room;
    r->prefetch = (sl_prefetch_request){.residency = &r->request,
                                        .tick_seconds = r->seconds,
                                        .is_disk = r->is_disk,
                                        .fetch_rate = {1.0, 1.0},
                                        .write_back_rate = {1e9, 1e9},
                                        .most_ahead = UINT32_MAX};
}

/* A link that is late for all: each fetch starts when the one RING_ROOM before it leaves, and the
 * first ones do so at the end of the body. */
static void ring_when_the_link_is_slow_then_fetched_in_order_as_room_falls_free(void **state)
{
    (void)state;
    ring r;
    open_ring(&r, false);
    assert_int_equal(r.residency.visit_count, RING);
    assert_int_equal(sl_prefetch_plan(&r.prefetch, &r.residency), SL_OK);
    for (uint32_t v = 0; v < RING; v++) {
        const sl_visit *visit = &r.residency.visits[v];
        assert_int_equal(visit->first_tick, (v + RING - (RING_ROOM - 1)) % RING);
        assert_int_equal(visit->last_tick, v);
        assert_int_equal(visit->is_carried, v < RING_ROOM - 1);
    }
    sl_residency_clear(&r.residency);
}

/* Half a second a copy and as much of slack, and a second a tick: one tick ahead is enough. */
static void ring_when_the_link_is_fast_then_fetched_just_in_time(void **state)
{
    (void)state;
    ring r;
    open_ring(&r, false);
    r.prefetch.fetch_rate[1] = 200.0;
    assert_int_equal(sl_prefetch_plan(&r.prefetch, &r.residency), SL_OK);
    for (uint32_t v = 0; v < RING; v++)
        assert_int_equal(r.residency.visits[v].first_tick, (v + RING - 1) % RING);
    sl_residency_clear(&r.residency);
}

static void ring_when_staged_then_one_arrives_ahead_at_a_tick(void **state)
{
    (void)state;
    for (uint32_t ahead = 0; ahead <= 1; ahead++) {
        ring r;
        uint32_t arrivals[RING] = {0}, moved = 0;
        open_ring(&r, false);
        r.prefetch.is_staged = true;
        r.prefetch.staged_ahead = ahead;
        assert_int_equal(sl_prefetch_plan(&r.prefetch, &r.residency), SL_OK);
        for (uint32_t v = 0; v < RING; v++) {
            const sl_visit *visit = &r.residency.visits[v];
            moved += visit->first_tick != visit->first_use;
            arrivals[visit->first_tick] += visit->first_tick != visit->first_use;
            assert_true(arrivals[visit->first_tick] <= ahead);
        }
        assert_true(ahead ? moved > RING / 2 : moved == 0);
        sl_residency_clear(&r.residency);
    }
}

/* A write-back takes a second and has as much slack: its visit stays 2 ticks more if there is
 * room for three, over the end of the body only where visits may trail; the prologue loads none. */
static void ring_when_written_back_then_stays_until_the_copy_is_over(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 4; n++) {
        const uint32_t room = n % 2 ? 3 : 1;
        const bool trails = n / 2;
        ring r;
        open_ring(&r, true);
        for (uint32_t t = 0; t < RING; t++)
            r.room[t] = 100 * room;
        r.prefetch.most_ahead = 0;
        r.prefetch.may_trail = trails;
        r.prefetch.write_back_rate[1] = 100.0;
        assert_int_equal(sl_prefetch_plan(&r.prefetch, &r.residency), SL_OK);
        uint32_t more = room - 1;
        for (uint32_t v = 0; v < RING; v++) {
            const uint32_t last_tick = v + more < RING || trails ? v + more : RING - 1;
            assert_int_equal(r.residency.visits[v].last_tick, last_tick % RING);
            assert_false(r.residency.visits[v].is_carried);
        }
        sl_residency_clear(&r.residency);
    }
}

/* ---- random residencies ---- */

typedef struct random_case {
    sl_residency_use uses[TICKS * 3];
    uint64_t bytes[OBJECTS], room[TICKS], keep[TICKS];
    double seconds[TICKS];
    bool is_disk[OBJECTS];
    sl_residency_request request;
} random_case;

static uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t bound)
{
    return (uint32_t)sl_rng_below(seed, 17, (*counter)++, bound);
}

static void open_case(uint64_t seed, random_case *c)
{
    uint64_t n = 0;
    *c = (random_case){.request = {.tick_count = TICKS,
                                   .uses = c->uses,
                                   .object_count = OBJECTS,
                                   .object_bytes = c->bytes,
                                   .copy_bytes = c->bytes,
                                   .room_bytes = c->keep}};
    for (uint32_t o = 0; o < OBJECTS; o++) {
        c->bytes[o] = 1 + draw(seed, &n, 3);
        c->is_disk[o] = draw(seed, &n, 2);
    }
    for (uint32_t t = 0; t < TICKS; t++) {
        c->seconds[t] = 0.1 * draw(seed, &n, 20);
        c->keep[t] = 6 + draw(seed, &n, 4);
        c->room[t] = c->keep[t] + draw(seed, &n, 12);
        for (uint32_t k = draw(seed, &n, 3), last = OBJECTS; k > 0; k--) {
            uint32_t o = draw(seed, &n, OBJECTS);
            if (o == last)
                continue;
            last = o;
            uint32_t kind = draw(seed, &n, 6);
            c->uses[c->request.use_count++] = (sl_residency_use){.tick = t,
                                                                 .object = o,
                                                                 .is_away = kind != 5,
                                                                 .reads = kind != 2,
                                                                 .writes = kind >= 2};
        }
    }
}

static void assert_room_holds(const random_case *c, const sl_residency *residency)
{
    for (uint32_t t = 0; t < TICKS; t++) {
        uint64_t held = 0;
        bool is_here[OBJECTS] = {false};
        for (uint32_t v = 0; v < residency->visit_count; v++) {
            const sl_visit *visit = &residency->visits[v];
            if (!is_there(visit, t))
                continue;
            assert_false(is_here[visit->object]);
            is_here[visit->object] = true;
            held += c->bytes[visit->object];
        }
        assert_true(held <= c->room[t]);
        for (uint32_t u = 0; u < c->request.use_count; u++)
            if (c->uses[u].tick == t)
                assert_int_equal(is_here[c->uses[u].object], c->uses[u].is_away);
    }
}

/* Between the start of a fetch and its first use nobody uses the object. */
static void assert_fetches_are_current(const random_case *c, const sl_residency *residency)
{
    for (uint32_t v = 0; v < residency->visit_count; v++) {
        const sl_visit *visit = &residency->visits[v];
        for (uint32_t t = visit->first_tick; visit->is_fetched && t != visit->first_use;
             t = (t + 1) % TICKS)
            for (uint32_t u = 0; u < c->request.use_count; u++)
                assert_false(c->uses[u].tick == t && c->uses[u].object == visit->object);
    }
}

/* No tick has more visits ahead of their use, or more arrivals by way of the stage, than it may. */
static void assert_crowds_hold(const random_case *c, const sl_prefetch_request *prefetch,
                               const sl_residency *residency)
{
    uint32_t ahead[TICKS] = {0}, staged[TICKS] = {0};
    for (uint32_t v = 0; v < residency->visit_count; v++) {
        const sl_visit *visit = &residency->visits[v];
        if (!visit->is_fetched || visit->first_tick == visit->first_use)
            continue;
        staged[visit->first_tick] += c->is_disk[visit->object];
        for (uint32_t t = visit->first_tick; t != visit->first_use; t = (t + 1) % TICKS)
            ahead[t]++;
    }
    for (uint32_t t = 0; t < TICKS; t++) {
        assert_true(ahead[t] <= prefetch->most_ahead);
        assert_true(!prefetch->is_staged || staged[t] <= prefetch->staged_ahead);
    }
}

static void prefetch_when_residency_is_random_then_room_and_content_hold(void **state)
{
    (void)state;
    uint32_t count = getenv("SL_TEST_FULL") ? 20000 : 1000, earlier = 0, carried = 0, longer = 0;
    uint32_t trailing = 0;
    printf("seed %llu\n", (unsigned long long)base_seed());
    for (uint32_t k = 0; k < count; k++) {
        random_case c;
        sl_residency residency = {0};
        uint32_t tick;
        uint64_t missing;
        open_case(base_seed() + k, &c);
        assert_int_equal(sl_residency_plan(&c.request, &residency, &tick, &missing), SL_OK);
        uint64_t n = 5000;
        sl_prefetch_request prefetch = {
            .residency = &c.request,
            .tick_seconds = c.seconds,
            .is_disk = c.is_disk,
            .fetch_rate = {0.5 + draw(base_seed() + k, &n, 20), 0.5},
            .write_back_rate = {0.5 + draw(base_seed() + k, &n, 20), 0.5},
            .most_ahead = draw(base_seed() + k, &n, 3) ? UINT32_MAX : draw(base_seed() + k, &n, 4),
            .is_staged = draw(base_seed() + k, &n, 2),
            .staged_ahead = draw(base_seed() + k, &n, 2),
            .may_trail = k % 2};
        uint32_t last_ticks = 0;
        for (uint32_t v = 0; v < residency.visit_count; v++)
            last_ticks += residency.visits[v].last_tick;
        c.request.room_bytes = c.room;
        assert_int_equal(sl_prefetch_plan(&prefetch, &residency), SL_OK);
        assert_room_holds(&c, &residency);
        assert_fetches_are_current(&c, &residency);
        assert_crowds_hold(&c, &prefetch, &residency);
        for (uint32_t v = 0; v < residency.visit_count; v++) {
            last_ticks -= residency.visits[v].last_tick;
            earlier += residency.visits[v].first_tick != residency.visits[v].first_use;
            carried += residency.visits[v].is_carried;
            const bool wraps = residency.visits[v].first_tick > residency.visits[v].last_tick;
            trailing += wraps && !residency.visits[v].is_carried;
            assert_true(!wraps || residency.visits[v].is_carried || prefetch.may_trail);
        }
        longer += last_ticks != 0;
        sl_residency_clear(&residency);
    }
    printf("%u visits earlier, %u carried, %u trailing; longer ones in %u cases\n", earlier,
           carried, trailing, longer);
    assert_true(earlier && carried && longer && trailing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_when_the_link_is_slow_then_fetched_in_order_as_room_falls_free),
        cmocka_unit_test(ring_when_the_link_is_fast_then_fetched_just_in_time),
        cmocka_unit_test(ring_when_staged_then_one_arrives_ahead_at_a_tick),
        cmocka_unit_test(ring_when_written_back_then_stays_until_the_copy_is_over),
        cmocka_unit_test(prefetch_when_residency_is_random_then_room_and_content_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
