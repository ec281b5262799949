/* The rule of docs/add-a-rule.md, on the engine: try_page.sh applies the page's patch to a copy of
 * the tree, and builds and runs this there. In this tree there is no SL_RULE_SIGN.
 *
 * What could be wrong: the page is out of date; states or master copies of AdamW are taken for
 * granted somewhere; a chunk without states has no place for its update. The oracle is AdamW:
 * after its first step a first moment is (1 - beta1) times the gradient.
 */
#define _GNU_SOURCE /* nftw */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/training_run.h"

enum { PLACEMENTS = 12, STEPS = 3 };

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

static plan_case choose(uint64_t seed, sl_type type, sl_rule_id rule, plan_case_frozen frozen)
{
    plan_case c = tiered_case_choose(seed);
    c.shape = (sl_model_shape){.layers = 3, .width = 66, .heads = 3, .context = 24, .vocab = 300};
    c.emit = (sl_model_options){.batch = 2, .seq = 21, .tp_size = 1, .type = type};
    c.step.micro_batch_count = 4;
    c.chunk_elements = c.chunk_elements ? 20 * SL_BLOCK_ELEMENTS : 0;
    c.rule = rule;
    c.frozen = frozen;
    return c;
}

static void open_run(plan_case *c, uint64_t seed, training_run *run)
{
    sl_plan *plan = NULL;
    const sl_engine_target target = {.worker_count = 1 + (uint32_t)(seed % 3)};
    c->request.workspace = sl_engine_workspace_bytes;
    c->request.workspace_context = &target;
    assert_ok(plan_case_build(c), seed);
    assert_ok(plan_case_plan_tightly(c, seed, &plan), seed);
    assert_ok(sl_plan_verify(&c->request, plan), seed);
    assert_ok(training_run_open(c, plan, target.worker_count, true, run), seed);
    run->clip = 0;
}

static sl_hash_value take_steps(training_run *run, uint32_t count)
{
    sl_hash_stream *hash = NULL;
    assert_ok(sl_hash_open(&hash), 0);
    assert_ok(training_run_steps(run, count, hash), 0);
    assert_ok(training_run_hash_states(run, hash), 0);
    const sl_hash_value digest = sl_hash_digest(hash);
    sl_hash_close(hash);
    return digest;
}

/* param = initial * decay - rate * sign of the gradient, which is the moment's. */
static void compare_tensor(training_run *by_sign, training_run *adamw, uint32_t tensor)
{
    const sl_step_scalars scalars = training_run_scalars(0, 1);
    const sl_tensor_spec *spec = &by_sign->c->program->tensors[tensor];
    const float decay = spec->decay ? 1.0f - scalars.learning_rate * scalars.weight_decay : 1.0f;
    const uint64_t count = spec->element_count;
    float *found = calloc(2 * count, sizeof *found), *moment = found + count;
    assert_non_null(found);
    assert_ok(training_run_visit(by_sign, SL_GROUP_PARAM, tensor, found, false), 0);
    assert_ok(training_run_visit(adamw, SL_GROUP_STATE1, tensor, moment, false), 0);
    for (uint64_t i = 0; i < count; i++) {
        const float sign = (float)((moment[i] > 0) - (moment[i] < 0));
        const float expected =
            training_run_initial(spec, tensor, i) * decay - scalars.learning_rate * sign;
        assert_true(fabsf(found[i] - expected) <= 1e-6f + 1e-5f * fabsf(expected));
    }
    free(found);
}

static void sign_when_stepped_then_follows_the_gradient(void **state)
{
    (void)state;
    plan_case c[2] = {choose(1, SL_TYPE_FP32, SL_RULE_SIGN, PLAN_CASE_FROZEN_NONE),
                      choose(1, SL_TYPE_FP32, SL_RULE_ADAMW, PLAN_CASE_FROZEN_NONE)};
    training_run runs[2];
    for (int i = 0; i < 2; i++) {
        open_run(&c[i], 1, &runs[i]);
        (void)take_steps(&runs[i], 1);
    }
    assert_false(c[0].program->has_state[SL_GROUP_STATE1]);
    for (uint32_t t = 0; t < c[0].program->tensor_count; t++)
        compare_tensor(&runs[0], &runs[1], t);
    for (int i = 0; i < 2; i++) {
        training_run_close(&runs[i]);
        plan_case_close(&c[i]);
    }
}

static sl_hash_value train(uint64_t seed, sl_type type, plan_case_frozen frozen)
{
    plan_case c = choose(seed, type, SL_RULE_SIGN, frozen);
    training_run run;
    open_run(&c, seed, &run);
    const sl_hash_value digest = take_steps(&run, STEPS);
    training_run_close(&run);
    plan_case_close(&c);
    return digest;
}

static void sign_when_placed_anywhere_then_has_the_same_bits(void **state)
{
    (void)state;
    static const plan_case_frozen frozen[] = {PLAN_CASE_FROZEN_NONE, PLAN_CASE_FROZEN_HALF};
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int f = 0; f < 2; f++) {
            const sl_hash_value first = train(0, (sl_type)type, frozen[f]);
            for (uint64_t seed = 1; seed < PLACEMENTS; seed++) {
                const sl_hash_value other = train(seed, (sl_type)type, frozen[f]);
                assert_true(first.low == other.low && first.high == other.high);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign_when_stepped_then_follows_the_gradient),
        cmocka_unit_test(sign_when_placed_anywhere_then_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
