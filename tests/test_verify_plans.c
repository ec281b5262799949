/* The verifier against plans that the planner makes of GPT-2 training steps: random shapes,
 * policies, budgets and orders. Every plan must be accepted. Then each fault of plan_faults.h is
 * planted in it, wherever it has a place, and must be rejected for its own reason.
 *
 * A fault that found no place in any plan would test nothing, so each must have been planted. The
 * seed is printed; SL_TEST_SEED repeats one plan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "plan_cases.h"
#include "plan_faults.h"

enum { QUICK_PLANS = 60, FULL_PLANS = 3000 };

/* A plan with a budget between the least that works and all that is wanted. */
static sl_status build_plan(uint64_t seed, plan_case *it, sl_plan **out_plan)
{
    sl_shortage shortage = {0};
    uint64_t counter = 1000;
    sl_status status = sl_plan_build(&it->request, out_plan, &shortage);
    if (status != SL_OK || plan_case_draw(seed, &counter, 3) == 0)
        return status;
    uint64_t most = (*out_plan)->peak_bytes[SL_TIER_DEVICE];
    sl_plan_close(*out_plan);
    *out_plan = NULL;
    it->request.budget_bytes[SL_TIER_DEVICE] = 0;
    status = sl_plan_build(&it->request, out_plan, &shortage);
    if (status != SL_ERROR_FIT)
        return status == SL_OK ? SL_ERROR_INTERNAL : status;
    uint64_t least = shortage.needed_bytes;
    uint64_t room = most > least ? most - least : 0;
    it->request.budget_bytes[SL_TIER_DEVICE] = least + plan_case_draw(seed, &counter, room + 1);
    status = sl_plan_build(&it->request, out_plan, &shortage);
    if (status != SL_ERROR_FIT)
        return status;
    it->request.budget_bytes[SL_TIER_DEVICE] = shortage.needed_bytes;
    return sl_plan_build(&it->request, out_plan, &shortage);
}

/* Plants each fault that has a place; counts those. */
static void plant_faults(uint64_t seed, const sl_plan_request *request, const sl_plan *plan,
                         uint32_t planted[PLAN_FAULT_COUNT])
{
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        sl_plan copy = edit_copy(plan);
        bool is_planted = plan_faults[i].plant(request, &copy);
        sl_status status = is_planted ? sl_plan_verify(request, &copy) : SL_OK;
        edit_close(&copy);
        planted[i] += is_planted;
        if (is_planted && status != SL_ERROR_INTERNAL)
            fail_msg("seed %llu: %s was accepted", (unsigned long long)seed, plan_faults[i].name);
        if (is_planted && !strstr(sl_status_message(), plan_faults[i].message))
            fail_msg("seed %llu: %s was rejected for another reason: %s", (unsigned long long)seed,
                     plan_faults[i].name, sl_status_message());
    }
}

/* Budgets are as tight as the plan allows: then a larger peak is over them. */
static void check_plan(uint64_t seed, uint32_t planted[PLAN_FAULT_COUNT])
{
    plan_case it;
    sl_plan *plan = NULL;
    if (plan_case_open(seed, &it) != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
    if (build_plan(seed, &it, &plan) != SL_OK)
        fail_msg("seed %llu: no plan: %s", (unsigned long long)seed, sl_status_message());
    memcpy(it.request.budget_bytes, plan->peak_bytes, sizeof plan->peak_bytes);
    if (sl_plan_verify(&it.request, plan) != SL_OK)
        fail_msg("seed %llu: a right plan was rejected: %s", (unsigned long long)seed,
                 sl_status_message());
    plant_faults(seed, &it.request, plan, planted);
    sl_plan_close(plan);
    plan_case_close(&it);
}

static void gpt2_plan_when_faulty_then_rejected_for_its_reason(void **state)
{
    (void)state;
    uint32_t planted[PLAN_FAULT_COUNT] = {0};
    uint32_t missing = 0, total = 0, count = getenv("SL_TEST_FULL") ? FULL_PLANS : QUICK_PLANS;
    const char *only = getenv("SL_TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (only ? 1 : count); seed++)
        check_plan(seed, planted);
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        total += planted[i];
        missing += planted[i] == 0;
        if (planted[i] == 0)
            print_message("never planted: %s\n", plan_faults[i].name);
    }
    print_message("%u faults planted in plans of seeds %llu to %llu\n", total,
                  (unsigned long long)first, (unsigned long long)(first + count - 1));
    if (!only)
        assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_plan_when_faulty_then_rejected_for_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
