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
#include "chunk/plan/prefetch.h"
#include "residency_loops.h"
#include "sanitizer_share.h"

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

/* `gap`: the ticks before, between and behind loops, at least. */
static void draw_loops(uint64_t seed, uint64_t *n, uint32_t gap, loop_case *c)
{
    uint32_t loop_count = draw(seed, n, LOOPS + 1), tick = gap;
    for (uint32_t l = 0; l < loop_count && tick + gap < c->request.tick_count; l++) {
        uint32_t left = c->request.tick_count - gap - tick;
        uint32_t first = tick + (draw(seed, n, 3) ? draw(seed, n, (left + 1) / 2) : 0);
        uint32_t end = first + 1 + draw(seed, n, c->request.tick_count - gap - first);
        c->loops[c->request.loop_count++] = (sl_residency_loop){first, end};
        tick = end + gap;
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

static void open_case(uint64_t seed, uint32_t most_objects, uint32_t most_ticks, uint32_t gap,
                      loop_case *c)
{
    uint64_t n = 0, total = 0;
    *c = (loop_case){.request = {.tick_count = 1 + draw(seed, &n, most_ticks),
                                 .uses = c->uses,
                                 .object_count = 1 + draw(seed, &n, most_objects),
                                 .object_bytes = c->bytes,
                                 .copy_bytes = c->bytes,
                                 .room_bytes = c->keep,
                                 .outlives = c->outlives,
                                 .loops = c->loops}};
    draw_loops(seed, &n, gap, c);
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

typedef struct tally {
    uint32_t pairs, early, ahead;
} tally;

static void play_case(uint64_t seed, tally *found)
{
    loop_case c;
    sl_residency plan = {0};
    open_case(seed, OBJECTS, TICKS, 0, &c);
    plan_case(&c, &plan);
    assert_plays(seed, &c, &plan, "planned");
    assert_true(weigh(&c, &plan) == plan.weighed_bytes);
    found->pairs += plan.pair_count;
    for (uint32_t v = 0; v < plan.visit_count; v++)
        found->early +=
            plan.visits[v].is_fetched && plan.visits[v].first_use != plan.visits[v].first_tick;
    plan_prefetch(seed, &c, &plan);
    assert_plays(seed, &c, &plan, "fetched ahead");
    for (uint32_t v = 0; v < plan.visit_count; v++)
        found->ahead +=
            plan.visits[v].is_fetched && plan.visits[v].first_use != plan.visits[v].first_tick;
    sl_residency_clear(&plan);
}

static void loops_when_random_then_right_for_any_number_of_repetitions(void **state)
{
    (void)state;
    static const uint64_t rare[] = {87405}; /* a visit that goes on, then not, then is dropped */
    uint32_t count = getenv("SL_TEST_FULL") ? 100000 : (uint32_t)sanitizer_share(4000);
    tally found = {0};
    printf("seed %llu\n", (unsigned long long)base_seed());
    for (uint32_t k = 0; k < sizeof rare / sizeof *rare; k++)
        play_case(rare[k], &found);
    for (uint64_t k = 0; k < count; k++)
        play_case(base_seed() + k, &found);
    printf("%u cases: %u pairs, %u visits begin in front of a loop, %u are fetched ahead\n", count,
           found.pairs, found.early, found.ahead);
    assert_true(found.pairs && found.early && found.ahead > found.early);
}

/* ---- exhaustive search ----
 *
 * Over all sets of objects that are absent, clean or dirty, at each tick, at each seam and over the
 * end of the body. It asks no more of a seam than that the same objects are here. So it may be
 * below what can be had, never above.
 */

enum { FEW = 3, STATES = 27 /* 3^FEW */, FEW_TICKS = 9 };
enum { ABSENT, CLEAN, DIRTY };
#define NO_WAY (UINT64_MAX / 4)

typedef struct edge {
    uint32_t tick;                 /* in front of this tick */
    const sl_residency_loop *loop; /* in which it lies, or at whose end; NULL: none */
} edge;

static uint32_t digit_of(uint32_t state, uint32_t object)
{
    static const uint32_t powers[FEW] = {1, 3, 9};
    return state / powers[object] % 3;
}

static uint64_t bytes_of(const loop_case *c, uint32_t state)
{
    uint64_t bytes = 0;
    for (uint32_t o = 0; o < c->request.object_count; o++)
        bytes += digit_of(state, o) == ABSENT ? 0 : c->bytes[o];
    return bytes;
}

static const sl_residency_use *next_use(const loop_case *c, uint32_t object, uint32_t first,
                                        uint32_t end)
{
    for (uint32_t u = 0; u < c->request.use_count; u++)
        if (c->uses[u].object == object && c->uses[u].tick >= first && c->uses[u].tick < end)
            return &c->uses[u];
    return NULL;
}

static bool is_live(const loop_case *c, uint32_t object, const edge *at)
{
    const sl_residency_loop *loop = at->loop;
    const sl_residency_use *next = next_use(c, object, at->tick, c->request.tick_count);
    bool is_read = next ? next->reads : !play_is_transient(&c->request, object);
    if (!loop || (next && next->tick < loop->end_tick))
        return is_read;
    const sl_residency_use *again = next_use(c, object, loop->first_tick, loop->end_tick);
    return is_read || (again && again->reads);
}

/* How often a write-back at the edge runs: what was written in a loop that ends there has no other
 * place than in it. */
static uint64_t weight_of(const loop_case *c, uint32_t object, const edge *at)
{
    if (at->loop)
        return SL_RESIDENCY_REPETITIONS;
    for (uint32_t l = 0; l < c->request.loop_count; l++)
        for (uint32_t u = 0; c->loops[l].end_tick == at->tick && u < c->request.use_count; u++)
            if (c->uses[u].object == object && c->uses[u].is_away && c->uses[u].writes &&
                c->uses[u].tick >= c->loops[l].first_tick && c->uses[u].tick < at->tick)
                return SL_RESIDENCY_REPETITIONS;
    return 1;
}

/* What it costs to evict and to clean at an edge. */
static uint64_t leave_cost(const loop_case *c, const edge *at, uint32_t from, uint32_t to)
{
    uint64_t cost = 0;
    for (uint32_t o = 0; o < c->request.object_count; o++) {
        uint32_t before = digit_of(from, o), after = digit_of(to, o);
        if (before == after)
            continue;
        if (before == ABSENT || after == DIRTY)
            return NO_WAY;
        if (before == DIRTY && (after == CLEAN || is_live(c, o, at)))
            cost += weight_of(c, o, at) * c->bytes[o];
    }
    return cost;
}

/* The same in front of a loop, where objects may also be fetched for its sake, and what is dirty at
 * the end of a repetition counts as dirty. */
static uint64_t enter_cost(const loop_case *c, const sl_residency_loop *loop, uint32_t from,
                           uint32_t to)
{
    edge at = {.tick = loop->first_tick};
    uint64_t cost = 0, fetched = 0;
    uint32_t before_tick = loop->first_tick - 1, kept = 0, power = 1;
    bool may_fetch = loop->first_tick > 0;
    for (uint32_t l = 0; l < c->request.loop_count; l++)
        may_fetch = may_fetch && c->loops[l].end_tick != loop->first_tick;
    for (uint32_t o = 0; o < c->request.object_count; o++, power *= 3) {
        uint32_t before = digit_of(from, o), after = digit_of(to, o);
        kept += power * (after == DIRTY && before == CLEAN ? CLEAN : after);
        if (before != ABSENT || after == ABSENT)
            continue;
        const sl_residency_use *use = next_use(c, o, loop->first_tick, loop->end_tick);
        if (!may_fetch || !use || next_use(c, o, before_tick, loop->first_tick))
            return NO_WAY;
        cost += use->reads ? c->bytes[o] : 0;
        fetched += c->bytes[o];
        kept -= power * after;
    }
    if (fetched && bytes_of(c, from) + fetched > c->keep[before_tick])
        return NO_WAY;
    return cost + leave_cost(c, &at, from, kept);
}

/* Plays the uses of a tick; writes the state behind them. */
static uint64_t use_cost(const loop_case *c, uint32_t tick, uint64_t weight, uint32_t *state)
{
    static const uint32_t powers[FEW] = {1, 3, 9};
    uint64_t cost = 0;
    for (uint32_t u = 0; u < c->request.use_count; u++) {
        const sl_residency_use *use = &c->uses[u];
        if (use->tick != tick)
            continue;
        uint32_t before = digit_of(*state, use->object), after = use->writes ? DIRTY : before;
        if (!use->is_away) {
            after = ABSENT;
            cost += before == DIRTY && use->reads ? weight * c->bytes[use->object] : 0;
        } else if (before == ABSENT) {
            after = use->writes ? DIRTY : CLEAN;
            cost += use->reads ? weight * c->bytes[use->object] : 0;
        }
        *state = *state - before * powers[use->object] + after * powers[use->object];
    }
    return bytes_of(c, *state) > c->keep[tick] ? NO_WAY : cost;
}

static void relax_uses(const loop_case *c, uint32_t tick, uint64_t weight, uint64_t costs[STATES])
{
    uint64_t after[STATES];
    for (uint32_t s = 0; s < STATES; s++)
        after[s] = NO_WAY;
    for (uint32_t s = 0; s < STATES; s++) {
        uint32_t reached = s;
        uint64_t cost = costs[s] < NO_WAY ? costs[s] + use_cost(c, tick, weight, &reached) : NO_WAY;
        after[reached] = cost < after[reached] ? cost : after[reached];
    }
    memcpy(costs, after, sizeof after);
}

static void relax_edge(const loop_case *c, const edge *at, uint64_t costs[STATES])
{
    uint64_t after[STATES];
    for (uint32_t to = 0; to < STATES; to++) {
        after[to] = NO_WAY;
        for (uint32_t from = 0; from < STATES; from++) {
            uint64_t cost =
                costs[from] < NO_WAY ? costs[from] + leave_cost(c, at, from, to) : NO_WAY;
            after[to] = cost < after[to] ? cost : after[to];
        }
    }
    memcpy(costs, after, sizeof after);
}

/* Whether a repetition that began with `seam` may end with `state`. */
static bool closes(uint32_t seam, uint32_t state)
{
    for (uint32_t o = 0; o < FEW; o++) {
        uint32_t at_entry = digit_of(seam, o), at_end = digit_of(state, o);
        if ((at_entry == ABSENT) != (at_end == ABSENT) || at_end > at_entry)
            return false;
    }
    return true;
}

/* Over a loop: for each state at its seam, the cheapest repetition back to it. */
static void relax_loop(const loop_case *c, const sl_residency_loop *loop, uint64_t costs[STATES])
{
    uint64_t after[STATES];
    for (uint32_t s = 0; s < STATES; s++)
        after[s] = NO_WAY;
    for (uint32_t seam = 0; seam < STATES; seam++) {
        uint64_t within[STATES], entry = NO_WAY;
        for (uint32_t from = 0; from < STATES; from++) {
            within[from] = NO_WAY;
            uint64_t cost =
                costs[from] < NO_WAY ? costs[from] + enter_cost(c, loop, from, seam) : NO_WAY;
            entry = cost < entry ? cost : entry;
        }
        if (entry >= NO_WAY)
            continue;
        within[seam] = entry;
        for (uint32_t tick = loop->first_tick; tick < loop->end_tick; tick++) {
            edge at = {tick + 1, loop};
            relax_uses(c, tick, SL_RESIDENCY_REPETITIONS, within);
            relax_edge(c, &at, within);
        }
        for (uint32_t s = 0; s < STATES; s++)
            if (closes(seam, s) && within[s] < after[s])
                after[s] = within[s];
    }
    memcpy(costs, after, sizeof after);
}

/* The cheapest end of the body with at least `carried` in place, all of it clean. */
static uint64_t close_cost(const loop_case *c, const uint64_t costs[STATES], uint32_t carried)
{
    uint64_t best = NO_WAY;
    edge at = {.tick = c->request.tick_count};
    for (uint32_t s = 0; s < STATES; s++) {
        uint64_t cost = costs[s];
        for (uint32_t o = 0; o < c->request.object_count; o++) {
            if (digit_of(carried, o) == CLEAN && digit_of(s, o) == ABSENT)
                cost = NO_WAY;
            if (digit_of(s, o) == DIRTY && !play_is_transient(&c->request, o))
                cost += weight_of(c, o, &at) * c->bytes[o];
        }
        best = cost < best ? cost : best;
    }
    return best;
}

static uint64_t search_from(const loop_case *c, uint32_t carried)
{
    uint64_t costs[STATES];
    for (uint32_t s = 0; s < STATES; s++)
        costs[s] = s == carried ? 0 : NO_WAY;
    uint32_t loop = 0;
    for (uint32_t tick = 0; tick < c->request.tick_count;) {
        if (loop < c->request.loop_count && c->loops[loop].first_tick == tick) {
            relax_loop(c, &c->loops[loop], costs);
            tick = c->loops[loop++].end_tick;
            continue;
        }
        edge at = {.tick = tick};
        relax_edge(c, &at, costs);
        relax_uses(c, tick++, 1, costs);
    }
    return close_cost(c, costs, carried);
}

/* The least weighed bytes over all clean sets that are carried over the end of the body. */
static uint64_t search_least(const loop_case *c)
{
    uint64_t best = NO_WAY;
    for (uint32_t carried = 0; carried < STATES; carried++) {
        bool is_allowed = true;
        for (uint32_t o = 0; o < FEW; o++) {
            bool is_here = digit_of(carried, o) != ABSENT;
            is_allowed =
                is_allowed && digit_of(carried, o) != DIRTY &&
                !(is_here && (o >= c->request.object_count || play_is_transient(&c->request, o)));
        }
        uint64_t cost = is_allowed ? search_from(c, carried) : NO_WAY;
        best = cost < best ? cost : best;
    }
    return best;
}

static double compare_small(uint32_t count)
{
    uint32_t with_loops = 0, worse = 0;
    uint64_t ours = 0, least = 0;
    for (uint64_t seed = base_seed(); seed < base_seed() + count; seed++) {
        loop_case c;
        sl_residency plan = {0};
        open_case(seed, FEW, FEW_TICKS, 1, &c);
        if (c.request.loop_count == 0)
            continue;
        plan_case(&c, &plan);
        uint64_t bound = search_least(&c);
        assert_true(plan.weighed_bytes >= bound);
        if (plan.weighed_bytes > bound && getenv("SL_TEST_VERBOSE"))
            fprintf(stderr, "seed %llu: %llu bytes, least %llu\n", (unsigned long long)seed,
                    (unsigned long long)plan.weighed_bytes, (unsigned long long)bound);
        with_loops++;
        worse += plan.weighed_bytes > bound;
        ours += plan.weighed_bytes;
        least += bound;
        sl_residency_clear(&plan);
    }
    printf("seed %llu, %u small cases: %llu bytes, least %llu, worse in %u\n",
           (unsigned long long)base_seed(), with_loops, (unsigned long long)ours,
           (unsigned long long)least, worse);
    return (double)ours / (double)least;
}

/* Loops as micro-batches leave them: ticks that run once before, between and behind. */
static void loops_when_small_then_move_little_more_than_the_least(void **state)
{
    (void)state;
    assert_true(compare_small(getenv("SL_TEST_FULL") ? 10000 : 500) <= 1.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_when_random_then_right_for_any_number_of_repetitions),
        cmocka_unit_test(loops_when_small_then_move_little_more_than_the_least),

    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
