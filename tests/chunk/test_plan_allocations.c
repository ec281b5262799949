/* What could be wrong with memory that planner and simulator take: a refused allocation that is
 * reported as a plan that does not fit, that makes another plan, that leaks or crashes. This
 * program puts functions before the C library's allocator and refuses each allocation of
 * sl_plan_build and sl_plan_simulate in turn: that one alone, and that one with all later ones. Not
 * under sanitizers, which have allocators of their own. */
#define _GNU_SOURCE /* qsort_r */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan_cases.h"
#include "refused_allocations.h"

#if !SL_ALLOCATIONS_ARE_REFUSED
int main(void)
{
    puts("skipped: the sanitizer has an allocator of its own");
    return 77;
}
#else

enum { POINTS_MAX = 250 };

static int64_t call_count;
static int64_t first_refused = INT64_MAX, last_refused; /* calls, from 0 */
static bool is_sorting; /* qsort does without memory where none is to be had */

static bool is_refused(void)
{
    if (is_sorting)
        return false;
    int64_t call = call_count++;
    return call >= first_refused && call <= last_refused;
}

typedef struct comparison {
    int (*compare)(const void *a, const void *b);
} comparison;

static int compare_by(const void *a, const void *b, void *user)
{
    return ((const comparison *)user)->compare(a, b);
}

void qsort(void *elements, size_t count, size_t bytes, int (*compare)(const void *, const void *))
{
    comparison by = {compare};
    is_sorting = true;
    qsort_r(elements, count, bytes, compare_by, &by);
    is_sorting = false;
}

/* Plans with allocations first to last refused; returns how many were made. */
static int64_t plan_refused(const plan_case *c, int64_t first, int64_t last, sl_status expected)
{
    sl_plan *plan = NULL;
    sl_shortage shortage = {0};
    int64_t live_before = live_count;
    call_count = 0;
    first_refused = first;
    last_refused = last;
    sl_status status = sl_plan_build(&c->request, &plan, &shortage);
    first_refused = INT64_MAX;
    int64_t calls = call_count;
    sl_plan_close(plan);
    if (status != expected)
        fail_msg("allocations %lld to %lld refused: status %d, not %d: %s", (long long)first,
                 (long long)last, status, expected, sl_status_message());
    if (live_count != live_before)
        fail_msg("allocation %lld refused: %lld leaked", (long long)first,
                 (long long)(live_count - live_before));
    return calls;
}

/* Refuses at every allocation, or at POINTS_MAX of them and the last ones. */
static void refuse_everywhere(const plan_case *c, sl_status status)
{
    int64_t calls = plan_refused(c, INT64_MAX, 0, status);
    int64_t stride = calls / POINTS_MAX + 1;
    print_message("%lld allocations\n", (long long)calls);
    assert_true(calls > 100);
    for (int64_t n = 0; n < calls; n += n + 2 * stride < calls ? stride : 1) {
        plan_refused(c, n, n, SL_ERROR_SYSTEM);
        plan_refused(c, n, INT64_MAX, SL_ERROR_SYSTEM);
    }
}

/* Three tiers, budgets a little above the least: plans are tried again and again. */
static void open_tight_case(plan_case *c)
{
    for (uint64_t seed = 0;; seed++) {
        sl_plan *plan = NULL;
        assert_int_equal(tiered_case_open(seed, c), SL_OK);
        assert_int_equal(plan_case_plan_tightly(c, seed, &plan), SL_OK);
        bool moves = plan->moved_bytes[SL_LANE_READ] > 0 && plan->moved_bytes[SL_LANE_H2D] > 0;
        sl_plan_close(plan);
        if (moves && c->program->op_count < 100)
            return;
        plan_case_close(c);
    }
}

static void plan_when_memory_is_refused_says_so(void **state)
{
    (void)state;
    plan_case c;
    open_tight_case(&c);
    refuse_everywhere(&c, SL_OK);
    plan_case_close(&c);
}

/* What does not fit is planned up to the budget that works, and that may run out of memory too. */
static void refusal_when_memory_is_refused_is_none(void **state)
{
    (void)state;
    plan_case c;
    open_tight_case(&c);
    for (int tier = SL_TIER_DEVICE; tier <= SL_TIER_HOST; tier++) {
        uint64_t budget = c.request.budget_bytes[tier];
        c.request.budget_bytes[tier] = 0;
        refuse_everywhere(&c, SL_ERROR_FIT);
        c.request.budget_bytes[tier] = budget;
    }
    plan_case_close(&c);
}

/* Simulates with allocations first to last refused; returns how many were made. */
static int64_t simulate_refused(const plan_case *c, const sl_plan *plan, int64_t first,
                                int64_t last, sl_status expected)
{
    const sl_machine machine = sl_machine_default(2);
    sl_simulation simulation;
    int64_t live_before = live_count;
    call_count = 0;
    first_refused = first;
    last_refused = last;
    sl_status status = sl_plan_simulate(c->program, plan, &machine, &simulation);
    first_refused = INT64_MAX;
    int64_t calls = call_count;
    if (status != expected)
        fail_msg("allocations %lld to %lld refused: status %d, not %d: %s", (long long)first,
                 (long long)last, status, expected, sl_status_message());
    assert_int_equal(live_count, live_before);
    return calls;
}

static void simulation_when_memory_is_refused_says_so(void **state)
{
    (void)state;
    plan_case c;
    sl_plan *plan = NULL;
    sl_shortage shortage;
    open_tight_case(&c);
    assert_int_equal(sl_plan_build(&c.request, &plan, &shortage), SL_OK);
    int64_t calls = simulate_refused(&c, plan, INT64_MAX, 0, SL_OK);
    assert_true(calls >= 6);
    for (int64_t n = 0; n < calls; n++) {
        simulate_refused(&c, plan, n, n, SL_ERROR_SYSTEM);
        simulate_refused(&c, plan, n, INT64_MAX, SL_ERROR_SYSTEM);
    }
    sl_plan_close(plan);
    plan_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulation_when_memory_is_refused_says_so),
        cmocka_unit_test(plan_when_memory_is_refused_says_so),
        cmocka_unit_test(refusal_when_memory_is_refused_is_none),
    };
    return cmocka_run_group_tests_name("plan, allocations", tests, NULL, NULL);
}

#endif
