/* Frozen tensors (rule `none`): no gradient, no states, and the others learn as without them.
 *
 * What could be wrong: a backward op that somebody needs is left out, or its bits change; a frozen
 * tensor is updated, decayed, cleared with the padding of its chunk or overwritten by a write-back;
 * its states take memory. A step without clipping is the oracle: a gradient does not depend on
 * which other tensors are trained. So after one step each trained tensor must have, to the bit, the
 * parameters and moments of a run in which all tensors are trained, and each frozen one what it
 * began with. test_placement has more steps, and compares the placements of one frozen model.
 */
#define _GNU_SOURCE /* nftw */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "sanitizer_share.h"
#include "training_run.h"

enum { PLACEMENTS = 6 };

static const sl_group compared[] = {SL_GROUP_PARAM, SL_GROUP_MASTER, SL_GROUP_STATE1,
                                    SL_GROUP_STATE2};
enum { COMPARED = sizeof compared / sizeof *compared };

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

/* What defines the numbers of a case is made the same for all seeds. */
static plan_case choose(uint64_t seed, sl_type type, uint32_t micro_batches,
                        plan_case_frozen frozen)
{
    plan_case c = tiered_case_choose(seed);
    c.shape = (sl_model_shape){.layers = 3, .width = 66, .heads = 3, .context = 24, .vocab = 300};
    c.emit = (sl_model_options){.batch = 2, .seq = 21, .tp_size = 1, .type = type};
    c.step.micro_batch_count = micro_batches;
    c.frozen = frozen;
    c.chunk_elements = c.chunk_elements ? 20 * SL_BLOCK_ELEMENTS : 0;
    return c;
}

/* A run of one step, still open. */
typedef struct stepped {
    plan_case c;
    training_run run;
} stepped;

static void open_stepped(stepped *it, uint64_t seed)
{
    sl_plan *plan = NULL;
    sl_hash_stream *hash = NULL;
    const sl_engine_target target = {.worker_count = 1 + (uint32_t)(seed % 3)};
    it->c.request.workspace = sl_engine_workspace_bytes;
    it->c.request.workspace_context = &target;
    assert_ok(plan_case_build(&it->c), seed);
    assert_ok(plan_case_plan_tightly(&it->c, seed, &plan), seed);
    assert_ok(sl_plan_verify(&it->c.request, plan), seed);
    assert_ok(training_run_open(&it->c, plan, target.worker_count, true, &it->run), seed);
    it->run.clip = 0;
    assert_ok(sl_hash_open(&hash), seed);
    assert_ok(training_run_steps(&it->run, 1, hash), seed);
    sl_hash_close(hash);
}

static void close_stepped(stepped *it)
{
    training_run_close(&it->run);
    plan_case_close(&it->c);
}

/* ---- what is compared ---- */

/* What a tensor began with, as it is stored. */
static void make_initial(const plan_case *c, uint32_t tensor, float *data)
{
    const sl_tensor_spec *spec = &c->program->tensors[tensor];
    uint16_t *rounded = calloc(spec->element_count, sizeof *rounded);
    assert_non_null(rounded);
    for (uint64_t i = 0; i < spec->element_count; i++)
        data[i] = training_run_initial(spec, tensor, i);
    if (c->emit.type != SL_TYPE_FP32) {
        sl_elements_round(c->emit.type, data, spec->element_count, rounded);
        sl_elements_widen(c->emit.type, rounded, spec->element_count, data);
    }
    free(rounded);
}

static void compare_group(stepped *frozen, stepped *all, sl_group group, uint32_t tensor,
                          float *const data[2], uint64_t seed)
{
    const sl_tensor_spec *spec = &frozen->c.program->tensors[tensor];
    const bool is_frozen = spec->rule == SL_RULE_NONE;
    if (!all->c.program->has_state[group])
        return;
    assert_int_equal(training_run_stores(&frozen->run, group, tensor),
                     !is_frozen || group == SL_GROUP_PARAM);
    if (is_frozen && group != SL_GROUP_PARAM)
        return;
    assert_ok(training_run_visit(&frozen->run, group, tensor, data[0], false), seed);
    if (is_frozen)
        make_initial(&frozen->c, tensor, data[1]);
    else
        assert_ok(training_run_visit(&all->run, group, tensor, data[1], false), seed);
    if (memcmp(data[0], data[1], spec->element_count * sizeof *data[0]) != 0)
        fail_msg("seed %llu, frozen %d: %s of %s tensor %s differs", (unsigned long long)seed,
                 (int)frozen->c.frozen, sl_group_name(group), is_frozen ? "frozen" : "trained",
                 spec->name);
}

static void compare_tensors(stepped *frozen, stepped *all, uint64_t seed)
{
    const uint64_t largest = training_run_largest(all->c.program);
    float *data[2] = {calloc(largest, sizeof(float)), calloc(largest, sizeof(float))};
    assert_true(data[0] && data[1]);
    for (uint32_t t = 0; t < all->c.program->tensor_count; t++)
        for (uint32_t g = 0; g < COMPARED; g++)
            compare_group(frozen, all, compared[g], t, data, seed);
    free(data[0]);
    free(data[1]);
}

/* ---- tests ---- */

static void compare_with_all(sl_type type, uint32_t micro_batches)
{
    stepped all = {.c = choose(0, type, micro_batches, PLAN_CASE_FROZEN_NONE)};
    all.c.policy.policy = SL_POLICY_DEVICE;
    open_stepped(&all, 0);
    for (int which = 1; which < PLAN_CASE_FROZEN_COUNT; which++)
        for (uint64_t n = 0; n < sanitizer_share(PLACEMENTS); n++) {
            const uint64_t seed = 1000 * (uint64_t)which + n;
            stepped frozen = {.c = choose(seed, type, micro_batches, (plan_case_frozen)which)};
            open_stepped(&frozen, seed);
            compare_tensors(&frozen, &all, seed);
            close_stepped(&frozen);
        }
    close_stepped(&all);
}

static void step_when_tensors_are_frozen_then_the_others_have_the_same_bits(void **state)
{
    (void)state;
    compare_with_all(SL_TYPE_FP32, 1);
    compare_with_all(SL_TYPE_FP32, 5);
    compare_with_all(SL_TYPE_BF16, 3);
    compare_with_all(SL_TYPE_FP16, 1);
}

static uint32_t count_ops(const sl_program *program, sl_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < program->op_count; o++)
        count += program->ops[o].kind == kind;
    return count;
}

/* No backward that nobody needs. */
static void derive_when_the_first_blocks_are_frozen_then_they_have_no_backward(void **state)
{
    (void)state;
    plan_case c = choose(0, SL_TYPE_FP32, 1, PLAN_CASE_FROZEN_FIRST);
    assert_int_equal(plan_case_build(&c), SL_OK);
    const sl_program *step = c.program;
    assert_int_equal(count_ops(step, SL_OP_ATTENTION_BACKWARD), 2);
    assert_int_equal(count_ops(step, SL_OP_LINEAR_WEIGHT_BACKWARD), 8);
    assert_int_equal(count_ops(step, SL_OP_LINEAR_INPUT_BACKWARD), 8);
    assert_int_equal(count_ops(step, SL_OP_HEAD_WEIGHT_BACKWARD), 0);
    assert_int_equal(count_ops(step, SL_OP_EMBED_TOKENS_BACKWARD), 0);
    assert_int_equal(count_ops(step, SL_OP_EMBED_POSITION_BACKWARD), 0);
    uint32_t without_dx = 0; /* nobody needs the gradient of what block 1 is given */
    for (uint32_t o = 0; o < step->op_count; o++)
        without_dx +=
            step->ops[o].kind == SL_OP_LAYERNORM_BACKWARD && step->ops[o].operand[4] == SL_NONE;
    assert_int_equal(without_dx, 1);
    plan_case_close(&c);
}

static void derive_when_all_is_frozen_then_usage_error(void **state)
{
    (void)state;
    sl_program *step = NULL;
    plan_case c = choose(0, SL_TYPE_FP32, 1, PLAN_CASE_FROZEN_NONE);
    assert_int_equal(sl_model_shape_emit(&c.shape, &c.emit, &c.forward), SL_OK);
    for (uint32_t t = 0; t < c.forward->tensor_count; t++)
        c.forward->tensors[t].rule = SL_RULE_NONE;
    assert_int_equal(sl_layout_build(c.forward, 0, &c.layout), SL_OK);
    const sl_chunk_map map = sl_layout_chunk_map(c.layout);
    assert_int_equal(sl_program_derive_step(c.forward, &map, &c.step, &step), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "all are frozen"));
    plan_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_tensors_are_frozen_then_the_others_have_the_same_bits),
        cmocka_unit_test(derive_when_the_first_blocks_are_frozen_then_they_have_no_backward),
        cmocka_unit_test(derive_when_all_is_frozen_then_usage_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
