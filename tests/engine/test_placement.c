/* Promise 1: placement never changes the numbers.
 *
 * What could be wrong: any choice of policy, homes, budget, chunk sizes, prefetch depth, thread
 * count, recomputation, activations away, accumulation order or type of stored gradients that
 * reaches the arithmetic, or a race that sometimes does. Random combinations train the same model
 * on the same tokens; every loss, every norm and every bit of parameters and moments must equal
 * those of the plainest run (everything on the device, one thread, no recomputation) in the same
 * compute type. With four and more micro-batches the plans have loops. 100 combinations quick, 600
 * full; SL_TEST_SEED repeats a run.
 */
#define _GNU_SOURCE /* nftw */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sanitizer_share.h"
#include "training_run.h"

enum { STEPS = 3 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 31337;
}

static uint64_t combination_count(void)
{
    return getenv("SL_TEST_FULL") ? 600 : SANITIZER_SHARE > 1 ? 30 : 100;
}

static void assert_ok(sl_status status, uint64_t seed)
{
    if (status != SL_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, sl_status_message());
}

/* What defines the numbers. */
typedef struct numbers {
    bool clips;
    sl_type type;
    bool is_odd; /* sizes of which no activation is a whole number of pages; else most are */
    uint32_t micro_batches;
    bool by_document;
    float dropout;
    plan_case_frozen frozen;
} numbers;

/* Everything that may not matter is left as drawn; what defines the numbers is fixed. */
static void fix_model(plan_case *c, numbers it)
{
    c->shape = (sl_model_shape){.layers = 3, .width = 66, .heads = 3, .context = 24, .vocab = 300};
    c->emit = (sl_model_options){.batch = 2,
                                 .seq = 21,
                                 .tp_size = 1,
                                 .mode = SL_MODEL_LOSS,
                                 .type = it.type,
                                 .grad_type = c->emit.grad_type,
                                 .by_document = it.by_document,
                                 .dropout = it.dropout};
    if (!it.is_odd) {
        c->shape.width = 64;
        c->shape.heads = 2;
        c->shape.context = c->emit.seq = 32;
    }
    c->frozen = it.frozen;
    c->step.micro_batch_count = it.micro_batches;
    c->step.update_early = c->step.update_early && !it.clips;
    bool may_round = it.micro_batches == 1 || c->step.accumulation == SL_ACCUMULATE_LAYER;
    c->emit.grad_type = may_round && c->emit.grad_type != SL_TYPE_FP32 ? it.type : SL_TYPE_FP32;
    if (c->chunk_elements) /* the largest tensor is mlp.c_fc.weight of 66 x 264 or a wte panel */
        c->chunk_elements += SL_BLOCK_ELEMENTS;
}

/* So that the test is known to reach the third tier, and chunks of unequal size. */
static struct {
    uint32_t reads, writes, disk_activations, host_activations, unequal_chunks;
} seen;

static void note_plan(const sl_layout *layout, const sl_plan *plan)
{
    seen.unequal_chunks +=
        layout->block_count * SL_BLOCK_ELEMENTS < layout->chunk_count * layout->chunk_elements;
    seen.reads += plan->moved_bytes[SL_LANE_READ] > 0;
    seen.writes += plan->moved_bytes[SL_LANE_WRITE] > 0;
    seen.disk_activations += plan->kind_bytes[SL_TIER_DISK][SL_MEMORY_ACTIVATION] > 0;
    seen.host_activations += plan->kind_bytes[SL_TIER_HOST][SL_MEMORY_ACTIVATION] > 0;
}

static sl_hash_value train(plan_case *c, uint32_t worker_count, float clip, uint64_t seed)
{
    training_run run;
    sl_hash_stream *hash = NULL;
    c->request.workspace = sl_engine_workspace_bytes;
    const sl_engine_target target = {.worker_count = worker_count};
    c->request.workspace_context = &target;
    assert_ok(plan_case_build(c), seed);
    sl_plan *plan = NULL;
    assert_ok(plan_case_plan_tightly(c, seed, &plan), seed);
    assert_ok(sl_plan_verify(&c->request, plan), seed);
    note_plan(c->layout, plan);
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

static sl_hash_value train_plainly(numbers it)
{
    plan_case c = {.step = {.accumulation = SL_ACCUMULATE_MICRO, .recompute = SL_RECOMPUTE_NONE},
                   .policy = {.policy = SL_POLICY_DEVICE},
                   .request = {.prefetch = 0}};
    fix_model(&c, it);
    return train(&c, 1, it.clips ? 0.25f : 0.0f, 0);
}

static void compare(numbers it, sl_hash_value expected, uint64_t seed, uint32_t worker_count)
{
    plan_case c = seed % 3 == 0 ? plan_case_choose(seed) : tiered_case_choose(seed);
    fix_model(&c, it);
    c.has_unequal_chunks = seed % 2 == 0;
    sl_hash_value found = train(&c, worker_count, it.clips ? 0.25f : 0.0f, seed);
    if (found.high != expected.high || found.low != expected.low)
        fail_msg("seed %llu: policy %d, adam %d, accumulation %d, recompute %d, early %d, types %d "
                 "and %d, %u workers: other bits",
                 (unsigned long long)seed, (int)c.policy.policy, (int)c.policy.update,
                 (int)c.step.accumulation, (int)c.step.recompute, (int)c.step.update_early,
                 (int)it.type, (int)c.emit.grad_type, worker_count);
}

/* Types, sizes and numbers of micro-batches in turn, each with the plainest run of its own. With
 * one micro-batch most gradients are rounded by the op that computes them. */
static void compare_combinations(bool clips, uint64_t first, uint64_t count)
{
    enum { KINDS = 4 * SL_TYPE_COUNT };
    static const uint32_t micro_batches[2][KINDS / 2] = {{4, 17, 1, 5, 3, 2}, {1, 3, 2, 17, 5, 4}};
    sl_hash_value expected[KINDS];
    numbers kinds[KINDS];
    for (uint32_t i = 0; i < KINDS; i++) {
        kinds[i] = (numbers){.clips = clips,
                             .type = (sl_type)(i / 4),
                             .is_odd = i % 2,
                             .micro_batches = micro_batches[clips][i / 2],
                             .by_document = i % 3 == 1,
                             .frozen = (plan_case_frozen)(i % 3 == 2 ? 1 + i / 3 : 0),
                             .dropout = i % 4 / 2 ? 0.2f : 0.0f};
        expected[i] = train_plainly(kinds[i]);
    }
    memset(&seen, 0, sizeof seen);
    for (uint64_t n = first; n < first + count; n++)
        compare(kinds[n % KINDS], expected[n % KINDS], base_seed() + n, 1 + (uint32_t)(n / 2 % 3));
    printf("with reads %u, writes %u, activations on disk %u, on the host %u, unequal chunks %u\n",
           seen.reads, seen.writes, seen.disk_activations, seen.host_activations,
           seen.unequal_chunks);
    assert_true(seen.reads && seen.writes && seen.disk_activations && seen.host_activations &&
                seen.unequal_chunks);
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
static void bits_when_numbers_differ_then_differ(void **state)
{
    (void)state;
    const numbers others[] = {{.clips = true, .micro_batches = 3},
                              {.by_document = true, .micro_batches = 3},
                              {.dropout = 0.2f, .micro_batches = 3}};
    const sl_hash_value plain = train_plainly((numbers){.micro_batches = 3});
    for (int i = 0; i < 3; i++) {
        const sl_hash_value other = train_plainly(others[i]);
        assert_true(other.high != plain.high || other.low != plain.low);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_when_clipping_then_equal_for_every_placement),
        cmocka_unit_test(bits_when_not_clipping_then_equal_for_every_placement),
        cmocka_unit_test(bits_when_numbers_differ_then_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
