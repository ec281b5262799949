/* Promise 1: placement never changes the numbers.
 *
 * What could be wrong: any choice of policy, homes, budget, chunk sizes, prefetch depth, thread
 * count, recomputation, activations away, accumulation order or type of stored gradients that
 * reaches the arithmetic, or a race that sometimes does. Random combinations train the same model
 * on the same tokens; every loss, every norm and every bit of parameters and moments must equal
 * those of the plainest run (everything on the device, one thread, no recomputation) in the same
 * compute type, of the same update rules and types of states. With four and more micro-batches the
 * plans have loops. 100 combinations quick, 600 full; under sanitizers 30 (threads: 6), without
 * the plainest run. SL_TEST_SEED repeats a run.
 */
#define _GNU_SOURCE /* nftw */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cpu/simd.h"
#include "program/llama_model.h"
#include "sanitizer_share.h"
#include "skip.h"
#include "training_run.h"

enum { STEPS = 3 };

static uint64_t base_seed(void)
{
    const char *text = getenv("SL_TEST_SEED");
    return text ? strtoull(text, NULL, 10) : 31337;
}

static uint64_t combination_count(void)
{
    if (getenv("SL_TEST_FULL"))
        return 600;
    return SANITIZES_THREADS ? 6 : SANITIZER_SHARE > 1 ? 30 : 100;
}

/* Sanitizers see what the placed runs touch; another build compares their numbers. */
static bool compares_numbers(void)
{
    return SANITIZER_SHARE == 1 || getenv("SL_TEST_FULL");
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
    bool masks;
    float dropout;
    plan_case_frozen frozen;
    sl_frozen small;  /* how the matrices among them are stored */
    bool mixes_rules; /* adamw, lion and both of sgd, beside what is frozen */
    bool has_muon;    /* half of GPT-2's matrices are of muon */
    sl_states states; /* fp32 with muon */
    sl_master master; /* low halves in bf16 alone */
    bool is_llama;    /* the layers of Llama and Qwen instead of GPT-2's */
} numbers;

#define SIZES_HERE                                                                                 \
    .layers = 3, .width = 40, .heads = 6, .kv_heads = 2, .head = 10, .inner = 70, .context = 33,   \
    .ids = 300, .has_head_norms = true, .rotary = {.base = 100}

/* In bf16 with what Gemma has instead. */
static const llama_sizes llama_sizes_here = {SIZES_HERE};
static const llama_sizes gemma_sizes_here = {SIZES_HERE, .is_gemma = true};

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
                                 .masks = it.masks,
                                 .dropout = it.dropout};
    if (!it.is_odd) {
        c->shape.width = 64;
        c->shape.heads = 2;
        c->shape.context = c->emit.seq = 32;
    }
    if (it.is_llama)
        c->shape = (sl_model_shape){.architecture = SL_ARCHITECTURE_OWN,
                                    .vocab = (uint32_t)llama_sizes_here.ids,
                                    .build = llama_build,
                                    .user = it.type == SL_TYPE_BF16 ? &gemma_sizes_here
                                                                    : &llama_sizes_here};
    c->frozen = it.frozen;
    c->small = it.small;
    c->mixes_rules = it.mixes_rules;
    c->has_muon = it.has_muon;
    c->states = it.states;
    c->master = it.master;
    c->step.micro_batch_count = it.micro_batches;
    c->step.update_early = c->step.update_early && !it.clips && !it.masks;
    bool may_round = it.micro_batches == 1 || c->step.accumulation == SL_ACCUMULATE_LAYER;
    c->emit.grad_type = may_round && c->emit.grad_type != SL_TYPE_FP32 ? it.type : SL_TYPE_FP32;
    if (c->chunk_elements) /* the largest tensor is mlp.c_fc.weight of 66 x 264 or a wte panel */
        c->chunk_elements += SL_BLOCK_ELEMENTS;
}

/* So that the test is known to reach the third tier, and chunks of several rules of which those of
 * one rule are of unequal size. */
static struct {
    uint32_t reads, writes, disk_activations, host_activations, unequal_chunks;
} seen;

static bool has_unequal_chunks_of_rules(const sl_layout *layout)
{
    bool is_unequal = false, has_rules = false;
    for (uint32_t c = 1; c < layout->chunk_count; c++) {
        const sl_chunk *chunk = &layout->chunks[c], *before = &layout->chunks[c - 1];
        has_rules = has_rules || chunk->rule != before->rule;
        is_unequal =
            is_unequal || (chunk->rule == before->rule && chunk->elements != before->elements);
    }
    return is_unequal && has_rules;
}

static void note_plan(const sl_layout *layout, const sl_plan *plan)
{
    seen.unequal_chunks += has_unequal_chunks_of_rules(layout);
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
    c.gathers = (sl_gather_options){.most = (uint32_t)(seed / 2 % 4), .idle_most = seed % 2};
    sl_hash_value found = train(&c, worker_count, it.clips ? 0.25f : 0.0f, seed);
    if (compares_numbers() && (found.high != expected.high || found.low != expected.low))
        fail_msg("seed %llu: policy %d, adam %d, accumulation %d, recompute %d, early %d, types %d "
                 "and %d, states %d, master %d, %u workers: other bits",
                 (unsigned long long)seed, (int)c.policy.policy, (int)c.policy.update,
                 (int)c.step.accumulation, (int)c.step.recompute, (int)c.step.update_early,
                 (int)it.type, (int)c.emit.grad_type, (int)it.states, (int)it.master, worker_count);
}

/* Types, sizes and numbers of micro-batches in turn, each with the plainest run of its own. With
 * one micro-batch most gradients are rounded by the op that computes them. */
static void compare_combinations(bool clips, uint64_t first, uint64_t count)
{
    enum { KINDS = 4 * SL_TYPE_COUNT };
    static const uint32_t micro_batches[2][KINDS / 2] = {{4, 17, 1, 5, 3, 2}, {1, 3, 2, 17, 5, 4}};
    sl_hash_value expected[KINDS] = {0};
    numbers kinds[KINDS];
    static const sl_frozen small[KINDS] = {
        [2] = SL_FROZEN_BF16, [5] = SL_FROZEN_INT8, [11] = SL_FROZEN_INT8};
    for (uint32_t i = 0; i < KINDS; i++) {
        const bool has_muon = i % 3 == 0;
        kinds[i] =
            (numbers){.clips = clips,
                      .type = (sl_type)(i / 4),
                      .is_odd = i % 2,
                      .micro_batches = micro_batches[clips][i / 2],
                      .by_document = i % 3 == 1,
                      .masks = i % 4 == 3,
                      .frozen = (plan_case_frozen)(i % 3 == 2 ? 1 + i / 3 : 0),
                      .small = small[i],
                      .mixes_rules = i % 5 > 2,
                      .has_muon = has_muon,
                      .states = has_muon ? SL_STATES_FP32
                                         : (sl_states)((i + i / 3 + clips) % SL_STATES_COUNT),
                      .master = (sl_master)(i % 2 != clips),
                      .dropout = i % 4 / 2 ? 0.2f : 0.0f,
                      .is_llama = i % 4 == (i / 4 + 1) % 4};
        if (compares_numbers())
            expected[i] = train_plainly(kinds[i]);
    }
    memset(&seen, 0, sizeof seen);
    for (uint64_t n = first; n < first + count; n++)
        compare(kinds[n % KINDS], expected[n % KINDS], base_seed() + n, 1 + (uint32_t)(n / 2 % 3));
    printf("with reads %u, writes %u, activations on disk %u, on the host %u, unequal chunks %u\n",
           seen.reads, seen.writes, seen.disk_activations, seen.host_activations,
           seen.unequal_chunks);
    assert_true(SANITIZES_THREADS || /* too few to have all */
                (seen.reads && seen.writes && seen.disk_activations && seen.host_activations &&
                 seen.unequal_chunks));
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
    const numbers others[] = {
        {.clips = true, .micro_batches = 3},
        {.by_document = true, .micro_batches = 3},
        {.dropout = 0.2f, .micro_batches = 3},
        {.mixes_rules = true, .micro_batches = 3},
        {.has_muon = true, .micro_batches = 3},
        {.is_llama = true, .micro_batches = 3},
        {.frozen = PLAN_CASE_FROZEN_FIRST, .small = SL_FROZEN_INT8, .micro_batches = 3},
        {.states = SL_STATES_BF16, .micro_batches = 3},
        {.states = SL_STATES_INT8, .micro_batches = 3},
        {.type = SL_TYPE_BF16, .micro_batches = 3},
        {.type = SL_TYPE_BF16, .master = SL_MASTER_LOW, .micro_batches = 3}};
    if (!compares_numbers()) {
        skip_because("sanitizers compare no numbers");
    }
    const sl_hash_value plain = train_plainly((numbers){.micro_batches = 3});
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const sl_hash_value other = train_plainly(others[i]);
        assert_true(other.high != plain.high || other.low != plain.low);
    }
}

int main(void)
{
    if (SANITIZES_THREADS) /* it sees the plain loops alone */
        sl_simd_choose(sl_simd_usable(sl_simd_usable_count() - 1));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_when_clipping_then_equal_for_every_placement),
        cmocka_unit_test(bits_when_not_clipping_then_equal_for_every_placement),
        cmocka_unit_test(bits_when_numbers_differ_then_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
