/* Residency and prefetch with loops inside the body.
 *
 * What could be wrong: a plan that is right for one number of repetitions only; an object that is
 * here at the end of a repetition and not at the next one's start; content lost because a
 * write-back stands outside the loop that dirties it; a fetch over the edge of a loop. Random plans
 * are played with every loop unrolled 1 to 4 times; small ones are compared with an exhaustive
 * search; and plans with one thing broken must be noticed.
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
#include "chunk/prefetch.h"
#include "residency_loops.h"

enum { OBJECTS = 12, TICKS = 60, LOOPS = 3 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 271828;
}

static uint32_t draw(uint64_t seed, uint64_t *counter, uint32_t bound)
{
    return (uint32_t)sl_rng_below(seed, 23, (*counter)++, bound);
}

/* ---- random cases ---- */

typedef struct loop_case {
    sl_residency_use uses[TICKS * 3];
    uint64_t bytes[OBJECTS], room[TICKS], keep[TICKS];
    bool outlives[OBJECTS], is_disk[OBJECTS];
    double seconds[TICKS];
    sl_residency_loop loops[LOOPS];
    sl_residency_request request;
} loop_case;

static void draw_loops(uint64_t seed, uint64_t *n, loop_case *c)
{
    uint32_t loop_count = draw(seed, n, LOOPS + 1), tick = 0;
    for (uint32_t l = 0; l < loop_count && tick < c->request.tick_count; l++) {
        uint32_t left = c->request.tick_count - tick;
        uint32_t first = tick + (draw(seed, n, 3) ? draw(seed, n, (left + 1) / 2) : 0);
        uint32_t end = first + 1 + draw(seed, n, c->request.tick_count - first);
        c->loops[c->request.loop_count++] = (sl_residency_loop){first, end};
        tick = end;
    }
}

static uint64_t draw_bytes(uint64_t seed, uint64_t *n, uint32_t sizes)
{
    static const uint64_t odd[] = {1, 3, 7, 10};
    uint32_t choice = draw(seed, n, 4);
    return sizes == 0 ? 1 : sizes == 1 ? 1 + choice % 2 : odd[choice];
}

/* Uses of tick t; returns the bytes of those away. */
static uint64_t draw_uses(uint64_t seed, uint64_t *n, loop_case *c, uint32_t t, uint32_t kinds)
{
    bool used[OBJECTS] = {false};
    uint64_t needed = 0;
    for (uint32_t k = draw(seed, n, 3); k > 0; k--) {
        uint32_t o = draw(seed, n, c->request.object_count), kind = draw(seed, n, kinds);
        if (used[o])
            continue;
        used[o] = true;
        sl_residency_use use = {.tick = t, .object = o, .is_away = kind != 5};
        use.reads = kind != 2 && !(kind == 5 && draw(seed, n, 4) == 0);
        use.writes = kind >= 2 && (use.is_away || !use.reads || draw(seed, n, 2));
        needed += use.is_away ? c->bytes[o] : 0;
        c->uses[c->request.use_count++] = use;
    }
    return needed;
}

static void open_case(uint64_t seed, uint32_t most_objects, uint32_t most_ticks, loop_case *c)
{
    uint64_t n = 0, total = 0;
    *c = (loop_case){.request = {.tick_count = 1 + draw(seed, &n, most_ticks),
                                 .uses = c->uses,
                                 .object_count = 1 + draw(seed, &n, most_objects),
                                 .object_bytes = c->bytes,
                                 .room_bytes = c->keep,
                                 .outlives = c->outlives,
                                 .loops = c->loops}};
    draw_loops(seed, &n, c);
    uint32_t sizes = draw(seed, &n, 3), kinds = draw(seed, &n, 4) ? 6 : 2;
    for (uint32_t o = 0; o < c->request.object_count; o++) {
        c->bytes[o] = draw_bytes(seed, &n, sizes);
        c->outlives[o] = draw(seed, &n, 8) == 0;
        c->is_disk[o] = draw(seed, &n, 2);
        total += c->bytes[o];
    }
    uint64_t most = draw(seed, &n, (uint32_t)total + 2);
    for (uint32_t t = 0; t < c->request.tick_count; t++) {
        uint64_t needed = draw_uses(seed, &n, c, t, kinds);
        uint64_t room = draw(seed, &n, 4) ? most : draw(seed, &n, (uint32_t)most + 1);
        c->keep[t] = room > needed ? room : needed;
        c->room[t] = c->keep[t] + draw(seed, &n, (uint32_t)total / 2 + 1);
        c->seconds[t] = 0.1 * draw(seed, &n, 20);
    }
}

static void plan_case(const loop_case *c, sl_residency *plan)
{
    uint32_t tick;
    uint64_t missing;
    assert_int_equal(sl_residency_plan(&c->request, plan, &tick, &missing), SL_OK);
}

static void plan_prefetch(uint64_t seed, loop_case *c, sl_residency *plan)
{
    uint64_t n = 5000;
    sl_prefetch_request prefetch = {.residency = &c->request,
                                    .tick_seconds = c->seconds,
                                    .is_disk = c->is_disk,
                                    .fetch_rate = {0.5 + draw(seed, &n, 20), 0.5},
                                    .write_back_rate = {0.5 + draw(seed, &n, 20), 0.5},
                                    .most_ahead =
                                        draw(seed, &n, 3) ? UINT32_MAX : draw(seed, &n, 4),
                                    .is_staged = draw(seed, &n, 2),
                                    .staged_ahead = draw(seed, &n, 2)};
    c->request.room_bytes = c->room;
    assert_int_equal(sl_prefetch_plan(&prefetch, plan), SL_OK);
}

static void assert_plays(uint64_t seed, const loop_case *c, const sl_residency *plan,
                         const char *when)
{
    play p;
    if (play_all(&c->request, plan, &p))
        fail_msg("seed %llu, %s: %s", (unsigned long long)seed, when, p.text);
}

static uint64_t weigh(const loop_case *c, const sl_residency *plan)
{
    play p;
    uint32_t once[PLAY_LOOPS] = {1, 1, 1, 1}, often[PLAY_LOOPS];
    for (uint32_t l = 0; l < PLAY_LOOPS; l++)
        often[l] = SL_RESIDENCY_REPETITIONS;
    assert_null(play_plan(&c->request, plan, once, &p));
    assert_true(p.moved_bytes == PLAY_ITERATIONS * plan->moved_bytes);
    assert_null(play_plan(&c->request, plan, often, &p));
    return p.moved_bytes / PLAY_ITERATIONS;
}

static void loops_when_random_then_right_for_any_number_of_repetitions(void **state)
{
    (void)state;
    uint32_t count = getenv("SL_TEST_FULL") ? 100000 : 4000, pairs = 0, early = 0, moved = 0;
    printf("seed %llu\n", (unsigned long long)base_seed());
    for (uint64_t k = 0; k < count; k++) {
        loop_case c;
        sl_residency plan = {0};
        open_case(base_seed() + k, OBJECTS, TICKS, &c);
        plan_case(&c, &plan);
        assert_plays(base_seed() + k, &c, &plan, "planned");
        assert_true(weigh(&c, &plan) == plan.weighed_bytes);
        pairs += plan.pair_count;
        for (uint32_t v = 0; v < plan.visit_count; v++)
            early +=
                plan.visits[v].is_fetched && plan.visits[v].first_use != plan.visits[v].first_tick;
        plan_prefetch(base_seed() + k, &c, &plan);
        assert_plays(base_seed() + k, &c, &plan, "fetched ahead");
        for (uint32_t v = 0; v < plan.visit_count; v++)
            moved +=
                plan.visits[v].is_fetched && plan.visits[v].first_use != plan.visits[v].first_tick;
        sl_residency_clear(&plan);
    }
    printf("%u cases: %u pairs, %u visits begin in front of a loop, %u are fetched ahead\n", count,
           pairs, early, moved);
    assert_true(pairs && early && moved > early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_when_random_then_right_for_any_number_of_repetitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
