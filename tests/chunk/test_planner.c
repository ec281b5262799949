/* Plans of random GPT-2 steps.
 *
 * What could be wrong: an arena above its budget, a chunk or value somewhere else than an op looks
 * for it, a missing wait, a stale copy, memory shared by two lives, a shortage that names a budget
 * which does not work. The independent verifier looks at every plan; budgets are squeezed from
 * "everything fits" down to the least that works and below.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "sanitizer_share.h"

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 424242;
}

static uint64_t case_count(void)
{
    return getenv("SL_TEST_FULL") ? 1000 : sanitizer_share(150);
}

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

/* Plans within a device budget of `budget`, checks, and returns the peak; 0: it does not fit. */
static uint64_t plan_within(plan_case *c, uint64_t seed, uint64_t budget, sl_shortage *shortage)
{
    sl_plan *plan = NULL;
    c->request.budget_bytes[SL_TIER_DEVICE] = budget;
    sl_status status = sl_plan_build(&c->request, &plan, shortage);
    if (status == SL_ERROR_FIT)
        return 0;
    assert_ok(status, seed);
    uint64_t peak = plan->peak_bytes[SL_TIER_DEVICE];
    assert_true(peak <= budget);
    assert_true(plan->live_peak_bytes[SL_TIER_DEVICE] <= peak);
    assert_ok(sl_plan_verify(&c->request, plan), seed);
    sl_plan_close(plan);
    return peak;
}

/* From unlimited down: halves the distance between what fits and nothing until it no longer fits.
 */
static void squeeze(plan_case *c, uint64_t seed)
{
    sl_shortage shortage = {SL_TIER_COUNT, 0, 0, 0};
    uint64_t peak = plan_within(c, seed, UINT64_MAX, &shortage);
    assert_true(peak > 0);
    uint64_t budget = peak;
    for (int step = 0; step < 6; step++) {
        budget -= budget / 5;
        if (plan_within(c, seed, budget, &shortage) == 0)
            break;
    }
    if (shortage.tier == SL_TIER_COUNT)
        return;
    assert_int_equal(shortage.tier, SL_TIER_DEVICE);
    assert_true(shortage.missing_bytes > 0);
    assert_true(shortage.needed_bytes > budget);
    assert_true(shortage.tick < c->program->op_count);
    assert_true(plan_within(c, seed, shortage.needed_bytes, &shortage) > 0);
}

static void plan_when_budgets_shrink_then_stays_right_until_it_is_refused(void **state)
{
    (void)state;
    printf("seed %llu, %llu cases\n", (unsigned long long)base_seed(),
           (unsigned long long)case_count());
    for (uint64_t n = 0; n < case_count(); n++) {
        plan_case c;
        assert_ok(plan_case_open(base_seed() + n, &c), base_seed() + n);
        squeeze(&c, base_seed() + n);
        plan_case_close(&c);
    }
}

static void plan_when_built_twice_then_equal(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        plan_case c;
        sl_shortage shortage;
        sl_plan *first = NULL, *second = NULL;
        assert_ok(plan_case_open(base_seed() + n, &c), n);
        assert_ok(sl_plan_build(&c.request, &first, &shortage), n);
        assert_ok(sl_plan_build(&c.request, &second, &shortage), n);
        assert_int_equal(first->body_count, second->body_count);
        assert_int_equal(first->wait_count, second->wait_count);
        assert_memory_equal(first->waits, second->waits, first->wait_count * sizeof(sl_wait));
        for (uint32_t i = 0; i < first->place_count; i++)
            assert_int_equal(first->places[i].offset, second->places[i].offset);
        sl_plan_close(first);
        sl_plan_close(second);
        plan_case_close(&c);
    }
}

/* With just enough work the plan is there and the same; with less it is refused, and nobody is told
 * a budget that would do. */
static void plan_when_work_is_bounded_then_ends_equally(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        plan_case c;
        sl_shortage shortage;
        sl_plan *free_plan = NULL, *bounded = NULL;
        uint64_t left = UINT64_MAX;
        assert_ok(plan_case_open(base_seed() + n, &c), n);
        c.request.work_left = &left;
        assert_ok(sl_plan_build(&c.request, &free_plan, &shortage), n);
        const uint64_t used = UINT64_MAX - left;
        assert_true(used >= c.program->op_count);
        left = used;
        assert_ok(sl_plan_build(&c.request, &bounded, &shortage), n);
        assert_int_equal(left, 0);
        assert_int_equal(free_plan->body_count, bounded->body_count);
        assert_memory_equal(free_plan->peak_bytes, bounded->peak_bytes, sizeof bounded->peak_bytes);
        sl_plan_close(free_plan);
        sl_plan_close(bounded);
        if (sl_plan_build(&c.request, &bounded, &shortage) != SL_ERROR_FIT)
            fail_msg("case %llu: %s", (unsigned long long)n, sl_status_message());
        assert_true(shortage.missing_bytes == 0 && shortage.needed_bytes == UINT64_MAX);
        plan_case_close(&c);
    }
}

/* Everything host-homed and a roomy link: fetches ahead may not add bytes, only time moves. */
static void prefetch_when_limited_then_moves_the_same_bytes(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 20; n++) {
        uint64_t moved[2];
        for (uint32_t ahead = 0; ahead < 2; ahead++) {
            plan_case c;
            sl_shortage shortage;
            sl_plan *plan = NULL;
            assert_ok(plan_case_open(base_seed() + n, &c), n);
            c.request.prefetch = ahead ? SL_PREFETCH_AUTO : 0;
            assert_ok(sl_plan_build(&c.request, &plan, &shortage), n);
            moved[ahead] = plan->moved_bytes[SL_LANE_H2D] + plan->moved_bytes[SL_LANE_D2H];
            sl_plan_close(plan);
            plan_case_close(&c);
        }
        assert_int_equal(moved[0], moved[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_when_budgets_shrink_then_stays_right_until_it_is_refused),
        cmocka_unit_test(plan_when_built_twice_then_equal),
        cmocka_unit_test(plan_when_work_is_bounded_then_ends_equally),
        cmocka_unit_test(prefetch_when_limited_then_moves_the_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
