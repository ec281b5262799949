/* Promise 1: placement never changes the numbers.
 *
 * What could be wrong: any choice of policy, budget, chunk size, prefetch depth, thread count,
 * recomputation or accumulation order that reaches the arithmetic, or a race that sometimes does.
 * Random combinations train the same model on the same tokens; every loss, every norm and every bit
 * of parameters and moments must equal those of the plainest run (everything on the device, one
 * thread, no recomputation). 30 combinations quick, 300 full; SL_TEST_SEED repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "training_run.h"

enum { STEPS = 3, MICRO_BATCHES = 3 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 31337;
}

static uint64_t combination_count(void)
{
    return getenv("SL_TEST_FULL") ? 300 : 30;
}

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

/* Everything that may not matter is left as drawn; what defines the numbers is fixed. */
static void fix_model(plan_case *c, bool clips)
{
    c->shape = (sl_gpt2_shape){.layers = 3, .width = 66, .heads = 3, .context = 24, .vocab = 300};
    c->emit = (sl_gpt2_emit_options){.batch = 2, .seq = 21, .tp_size = 1, .mode = SL_GPT2_LOSS};
    c->step.micro_batch_count = MICRO_BATCHES;
    c->step.update_early = c->step.update_early && !clips;
    if (c->chunk_elements) /* the largest tensor is mlp.c_fc.weight of 66 x 264 or a wte panel */
        c->chunk_elements += SL_BLOCK_ELEMENTS;
}

/* A device budget between the least that works and what is asked for without one. */
static sl_plan *plan_with_random_budget(plan_case *c, uint64_t seed)
{
    sl_plan *plan = NULL;
    sl_shortage shortage = {SL_TIER_DEVICE, 0, 0, 0};
    assert_ok(sl_plan_build(&c->request, &plan, &shortage), seed);
    uint64_t most = plan->peak_bytes[SL_TIER_DEVICE];
    sl_plan_close(plan);
    c->request.budget_bytes[SL_TIER_DEVICE] = 1;
    assert_int_equal(sl_plan_build(&c->request, &plan, &shortage), SL_ERROR_FIT);
    uint64_t least = shortage.needed_bytes < most ? shortage.needed_bytes : most;
    c->request.budget_bytes[SL_TIER_DEVICE] = least + sl_rng_below(seed, 2, 0, most - least + 1);
    assert_ok(sl_plan_build(&c->request, &plan, &shortage), seed);
    assert_ok(sl_plan_verify(&c->request, plan), seed);
    return plan;
}

static sl_hash_value train(plan_case *c, uint32_t worker_count, float clip, uint64_t seed)
{
    training_run run;
    sl_hash_stream *hash = NULL;
    c->request.workspace = sl_engine_workspace_bytes;
    c->request.workspace_context = &worker_count;
    assert_ok(plan_case_build(c), seed);
    sl_plan *plan = plan_with_random_budget(c, seed);
    assert_ok(training_run_open(c, plan, worker_count, false, &run), seed);
    run.clip = clip;
    assert_ok(sl_hash_open(&hash), seed);
    assert_ok(training_run_steps(&run, STEPS, hash), seed);
    assert_ok(training_run_hash_states(&run, hash), seed);
    sl_hash_value digest = sl_hash_digest(hash);
    sl_hash_close(hash);
    training_run_close(&run);
    plan_case_close(c);
    return digest;
}

static sl_hash_value train_plainly(bool clips)
{
    plan_case c = {.step = {.accumulation = SL_ACCUMULATE_MICRO, .recompute = SL_RECOMPUTE_NONE},
                   .policy = {.policy = SL_POLICY_DEVICE},
                   .request = {.prefetch = 0}};
    fix_model(&c, clips);
    return train(&c, 1, clips ? 0.25f : 0.0f, 0);
}

static void compare_combinations(bool clips, uint64_t first, uint64_t count)
{
    sl_hash_value expected = train_plainly(clips);
    for (uint64_t n = first; n < first + count; n++) {
        uint64_t seed = base_seed() + n;
        plan_case c = plan_case_choose(seed);
        fix_model(&c, clips);
        uint32_t worker_count = 1 + (uint32_t)(n % 3);
        sl_hash_value found = train(&c, worker_count, clips ? 0.25f : 0.0f, seed);
        if (found.high != expected.high || found.low != expected.low)
            fail_msg("seed %llu: policy %d, adam %d, accumulation %d, recompute %d, early %d, "
                     "%u workers: other bits",
                     (unsigned long long)seed, (int)c.policy.policy, (int)c.policy.adam,
                     (int)c.step.accumulation, (int)c.step.recompute, (int)c.step.update_early,
                     worker_count);
    }
}

static void bits_when_clipping_then_equal_for_every_placement(void **state)
{
    (void)state;
    printf("seed %llu, %llu combinations\n", (unsigned long long)base_seed(),
           (unsigned long long)combination_count());
    compare_combinations(true, 0, combination_count() / 2);
}

static void bits_when_not_clipping_then_equal_for_every_placement(void **state)
{
    (void)state;
    compare_combinations(false, combination_count() / 2, combination_count() / 2);
}

/* The test itself must see a difference where there is one. */
static void bits_when_clipping_differs_then_differ(void **state)
{
    (void)state;
    sl_hash_value clipped = train_plainly(true), free = train_plainly(false);
    assert_true(clipped.high != free.high || clipped.low != free.low);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_when_clipping_then_equal_for_every_placement),
        cmocka_unit_test(bits_when_not_clipping_then_equal_for_every_placement),
        cmocka_unit_test(bits_when_clipping_differs_then_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
