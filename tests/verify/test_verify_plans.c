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
#include "chunk/plan_cases.h"
#include "plan_faults.h"
#include "sanitizer_share.h"

enum { QUICK_PLANS = 120, FULL_PLANS = 3000 };

static uint32_t planted[PLAN_FAULT_COUNT]; /* over all tests */

/* Of two plans in three, budgets are near the least; what lives on disk comes back from there only
 * if the host has no room to keep it. */
static sl_status build_plan(uint64_t seed, plan_case *it, sl_plan **out_plan)
{
    sl_shortage shortage = {0};
    uint64_t counter = 1000;
    SL_TRY(sl_plan_build(&it->request, out_plan, &shortage));
    bool is_tiered = it->homes->fixed_bytes[SL_TIER_DISK] > 0;
    if (plan_case_draw(seed, &counter, 3) > 0)
        SL_TRY(plan_case_squeeze(it, seed, SL_TIER_DEVICE, out_plan));
    if (is_tiered && plan_case_draw(seed, &counter, 4) > 0)
        SL_TRY(plan_case_squeeze(it, seed, SL_TIER_HOST, out_plan));
    return SL_OK;
}

/* In a loop what lives at one end of a repetition lives at the other: a fault of one of the two is
 * seen there first. */
static bool is_half_of_a_pair(const sl_plan *plan)
{
    return edit_has_loops(plan) && strstr(sl_status_message(), "without being at its");
}

/* Plants each fault that has a place; counts those. */
static void plant_faults(uint64_t seed, const sl_plan_request *request, const sl_plan *plan)
{
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        sl_plan copy = edit_copy(plan);
        bool is_planted = plan_faults[i].plant(request, &copy);
        sl_status status = is_planted ? sl_plan_verify(request, &copy) : SL_OK;
        edit_close(&copy);
        planted[i] += is_planted;
        if (is_planted && status != SL_ERROR_INTERNAL)
            fail_msg("seed %llu: %s was accepted", (unsigned long long)seed, plan_faults[i].name);
        if (is_planted && !strstr(sl_status_message(), plan_faults[i].message) &&
            !is_half_of_a_pair(plan))
            fail_msg("seed %llu: %s was rejected for another reason: %s", (unsigned long long)seed,
                     plan_faults[i].name, sl_status_message());
    }
}

/* Budgets are as tight as the plan allows: then a larger peak is over them. */
static void check_plan(uint64_t seed)
{
    plan_case it;
    sl_plan *plan = NULL;
    bool is_tiered = seed % 2 == 0;
    if ((is_tiered ? tiered_case_open(seed, &it) : plan_case_open(seed, &it)) != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
    if (build_plan(seed, &it, &plan) != SL_OK)
        fail_msg("seed %llu: no plan: %s", (unsigned long long)seed, sl_status_message());
    memcpy(it.request.budget_bytes, plan->peak_bytes, sizeof plan->peak_bytes);
    if (sl_plan_verify(&it.request, plan) != SL_OK)
        fail_msg("seed %llu: a right plan was rejected: %s", (unsigned long long)seed,
                 sl_status_message());
    plant_faults(seed, &it.request, plan);
    sl_plan_close(plan);
    plan_case_close(&it);
}

static void gpt2_plan_when_faulty_then_rejected_for_its_reason(void **state)
{
    (void)state;
    const char *only = getenv("SL_TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    uint64_t count = getenv("SL_TEST_FULL") ? FULL_PLANS : sanitizer_share(QUICK_PLANS);
    uint64_t last = only ? first : first + count - 1;
    print_message("seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)last);
    for (uint64_t seed = first; seed <= last; seed++)
        check_plan(seed);
}

/* One forward program as it is: decoding, the loss or what it is made of, whole or a half of two
 * ranks. */
static void check_forward(sl_gpt2_mode mode, uint32_t tp_size, sl_policy policy)
{
    plan_case it = {.shape = {3, 64, 4, 32, 300}, .policy = {.policy = policy}};
    sl_shortage shortage;
    sl_plan *plan = NULL;
    bool is_cached = mode == SL_GPT2_CACHED;
    it.emit = (sl_gpt2_emit_options){.batch = is_cached ? 3 : 1,
                                     .seq = is_cached ? 1 : 16,
                                     .tp_size = tp_size,
                                     .mode = mode,
                                     .cache_rows = is_cached ? 20 : 0};
    it.policy.host_fraction[SL_GROUP_PARAM] = 0.5;
    assert_int_equal(sl_gpt2_emit(&it.shape, &it.emit, &it.forward), SL_OK);
    assert_int_equal(sl_layout_build(it.forward, 0, &it.layout), SL_OK);
    assert_int_equal(sl_homes_build(it.forward, it.layout, &it.policy, &it.homes), SL_OK);
    it.machine = sl_machine_default(2);
    it.request = (sl_plan_request){.program = it.forward,
                                   .layout = it.layout,
                                   .homes = it.homes,
                                   .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                   .prefetch = SL_PREFETCH_AUTO,
                                   .workspace = plan_case_workspace,
                                   .machine = &it.machine};
    assert_int_equal(sl_plan_build(&it.request, &plan, &shortage), SL_OK);
    if (sl_plan_verify(&it.request, plan) != SL_OK)
        fail_msg("a right plan was rejected: %s", sl_status_message());
    plant_faults(0, &it.request, plan);
    sl_plan_close(plan);
    plan_case_close(&it);
}

/* Persistent caches, and collectives. */
static void forward_plan_when_faulty_then_rejected_for_its_reason(void **state)
{
    (void)state;
    for (int policy = SL_POLICY_DEVICE; policy <= SL_POLICY_STATIC; policy++)
        for (uint32_t tp_size = 1; tp_size <= 2; tp_size++) {
            check_forward(SL_GPT2_CACHED, tp_size, (sl_policy)policy);
            check_forward(SL_GPT2_LOSS, tp_size, (sl_policy)policy);
            check_forward(SL_GPT2_STATS, tp_size, (sl_policy)policy);
        }
}

static void faults_when_all_plans_are_done_then_each_was_planted(void **state)
{
    (void)state;
    uint32_t missing = 0, total = 0;
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        total += planted[i];
        missing += planted[i] == 0;
        if (planted[i] == 0)
            print_message("never planted: %s\n", plan_faults[i].name);
    }
    print_message("%u faults planted\n", total);
    if (!getenv("SL_TEST_SEED"))
        assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_plan_when_faulty_then_rejected_for_its_reason),
        cmocka_unit_test(forward_plan_when_faulty_then_rejected_for_its_reason),
        cmocka_unit_test(faults_when_all_plans_are_done_then_each_was_planted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
