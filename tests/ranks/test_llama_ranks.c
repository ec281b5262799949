/* Llama and Qwen 3 as they are built in, over ranks: tensor-parallel ones, sequence parallelism,
 * the Colossal layout, ZeRO 3 and stages, with a head of its own and a tied one.
 *
 * What could be wrong: a projection that ranks cut inside a head, a norm of heads of which one rank
 * keeps its gradient, o_proj gathered where it should be summed, a stage that takes an untied
 * head's table for the embedding's, or a tied one that two stages update differently. One rank
 * takes the same steps. Stages promise its bits; sums over ranks have another order: fp32_bound.
 *
 * Where key heads are fewer than ranks: a rank that takes another's key head, or keeps its own term
 * of a gradient; ranks with the same head that part from each other; a norm that counts a head
 * twice; a checkpoint that has it twice, or depends on the number of ranks; more bytes exchanged
 * than the program says.
 */
#define _GNU_SOURCE /* nftw */

#define RANK_THREADS_MAX 8
#define RANK_RUNS_LAYERS 3 /* uneven on two stages */
#define RANK_RUNS_CHOOSES_SHAPE
#include "rank_runs.h"

enum { STEPS = 2 };

typedef struct division {
    uint32_t tp, dp, pp;
    const char *setting;
} division;

static sl_model_shape choose_shape(sl_architecture_kind kind, bool is_untied)
{
    sl_model_shape chosen = {.layers = RANK_RUNS_LAYERS,
                             .width = 40,
                             .heads = 6,
                             .context = 24,
                             .vocab = 600,
                             .architecture = kind,
                             .kv_heads = 2,
                             .head = 10,
                             .ffn = 70,
                             .is_untied = is_untied};
    sl_model_shape_complete(&chosen);
    return chosen;
}

static ranks_run *open_division(const division *it)
{
    const char *const settings[] = {"policy=host", "precision=fp32", "accumulation=micro",
                                    it->setting, NULL};
    return open_stages(it->tp, it->dp, it->pp, settings, 4 / it->dp, NULL);
}

/* AdamW hides a wrong scale, so gradients are compared before it. */
static void check_gradients(const division *it)
{
    static const division alone = {1, 1, 1, NULL};
    const char *name = "";
    const double off = compare_runs(open_division(&alone), open_division(it), NULL, &name);
    print_message("%u x %u x %u %s: %s is off by %.2g\n", it->tp, it->dp, it->pp,
                  it->setting ? it->setting : "", name, off);
    assert_true(off <= fp32_bound);
}

static void check_bits(const division *it)
{
    static const division alone = {1, 1, 1, NULL};
    ranks_run *one = open_division(&alone), *many = open_division(it);
    for (int step = 0; step < STEPS; step++) {
        take_step(one);
        take_step(many);
        assert_true(many->rank[0].loss == one->rank[0].loss);
    }
    whole_model *a = read_model(one, SL_GROUP_PARAM), *b = read_model(many, SL_GROUP_PARAM);
    assert_true(is_same(a, b));
    free_model(a);
    free_model(b);
    close_run(one);
    close_run(many);
}

static void llama_when_divided_in_any_way_then_as_one_rank(void **state)
{
    (void)state;
    static const division divisions[] = {{2, 1, 1, NULL},
                                         {2, 1, 1, "sequence-parallel=true"},
                                         {2, 1, 1, "split-layout=colossal"},
                                         {1, 2, 1, "zero=3"},
                                         {1, 1, 2, NULL},
                                         {2, 1, 2, NULL}};
    uint32_t cases = 0;
    for (int model = 0; model < 3; model++) {
        shape = choose_shape(model == 0 ? SL_ARCHITECTURE_LLAMA : SL_ARCHITECTURE_QWEN3, model < 2);
        for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i++) {
            const bool is_exact = divisions[i].pp > 1 && divisions[i].tp == 1;
            if (is_in_share(&cases))
                (is_exact ? check_bits : check_gradients)(&divisions[i]);
        }
    }
}

/* The norms of all of q and k: each rank computes the whole attention. */
static void olmo2_when_divided_in_any_way_then_as_one_rank(void **state)
{
    (void)state;
    static const division divisions[] = {
        {2, 1, 1, NULL},     {6, 1, 1, NULL}, {2, 1, 1, "split-layout=colossal"},
        {2, 2, 1, "zero=3"}, {1, 1, 2, NULL}, {2, 1, 2, NULL}};
    shape = choose_shape(SL_ARCHITECTURE_OLMO2, true);
    for (size_t i = 0; i < sizeof divisions / sizeof divisions[0]; i += SANITIZER_SHARE)
        (divisions[i].pp > 1 && divisions[i].tp == 1 ? check_bits : check_gradients)(&divisions[i]);
}

/* ---- key heads that ranks share ---- */

/* Eight heads: each of 1, 2, 4 and 8 ranks has some. */
static sl_model_shape choose_shared(sl_architecture_kind kind, uint32_t kv_heads)
{
    sl_model_shape chosen = choose_shape(kind, kind == SL_ARCHITECTURE_QWEN2);
    chosen.heads = 8;
    chosen.kv_heads = kv_heads;
    return chosen;
}

static void llama_when_ranks_share_key_heads_then_as_one_rank(void **state)
{
    (void)state;
    static const struct {
        uint32_t kv_heads;
        division division;
    } cases[] = {{2, {4, 1, 1, NULL}},
                 {2, {8, 1, 1, NULL}},
                 {1, {2, 1, 1, NULL}},
                 {1, {4, 1, 1, "sequence-parallel=true"}},
                 {1, {4, 1, 1, "split-layout=colossal"}},
                 {2, {4, 2, 1, "zero=3"}},
                 {1, {2, 2, 2, "zero=2"}}};
    uint32_t drawn = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int kind = SL_ARCHITECTURE_LLAMA; kind <= SL_ARCHITECTURE_QWEN3; kind++) {
            if (!is_in_share(&drawn))
                continue;
            shape = choose_shared((sl_architecture_kind)kind, cases[i].kv_heads);
            check_gradients(&cases[i].division);
        }
}

/* Every rank sends what the program says: of k and v of each layer its part, once a step. */
static void exchanges_when_ranks_share_key_heads_then_take_the_bytes_of_the_program(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=device", "precision=fp32", NULL};
    uint64_t of_heads = 0, expected = sizeof(sl_norm_sum);
    shape = choose_shared(SL_ARCHITECTURE_LLAMA, 2);
    ranks_run *run = open_run(4, settings, NULL);
    const sl_program *program = run->rank[0].runtime->blueprint->programs[PLAN_STEP];
    for (uint32_t o = 0; o < program->op_count; o++) {
        const sl_op_attrs *attrs = &program->ops[o].attrs;
        if (program->ops[o].kind == SL_OP_ALL_REDUCE_TENSOR && attrs->batch == 2)
            of_heads += attrs->element_count * sizeof(float);
        if (program->ops[o].kind == SL_OP_ALL_REDUCE_STATS)
            expected += attrs->row_count * 4 * sizeof(float);
    }
    take_step(run);
    assert_int_equal(of_heads, 2ull * shape.layers * shape.width * shape.head * sizeof(float));
    for (uint32_t rank = 0; rank < 4; rank++)
        assert_int_equal(run->group.gathered_bytes[rank], expected + of_heads);
    check_peaks(run);
    close_run(run);
}

/* Each number of ranks loads what each other one saved, and saves the same bytes. */
static void checkpoints_when_ranks_share_key_heads_then_load_on_any_number(void **state)
{
    (void)state;
    static const division divisions[] = {
        {1, 1, 1, NULL}, {2, 1, 1, NULL}, {8, 1, 1, NULL}, {4, 2, 1, "zero=3"}, {4, 1, 1, NULL}};
    enum { COUNT = sizeof divisions / sizeof divisions[0] };
    uint32_t drawn = 0;
    shape = choose_shared(SL_ARCHITECTURE_QWEN2, 2);
    for (int from = 0; from < COUNT; from++) {
        scratch_path saved = scratch_open(), again = scratch_open();
        ranks_run *giver = open_division(&divisions[from]);
        take_step(giver);
        save_run(giver, saved.text);
        close_run(giver);
        for (int to = (from + 1) % 2; to < COUNT; to += 2) {
            if (!is_in_share(&drawn))
                continue;
            ranks_run *taker = open_division(&divisions[to]);
            load_run(taker, saved.text);
            save_run(taker, again.text);
            assert_true(are_files_equal(saved.text, again.text, 1));
            close_run(taker);
        }
        scratch_close(&saved);
        scratch_close(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_when_ranks_share_key_heads_then_as_one_rank),
        cmocka_unit_test(exchanges_when_ranks_share_key_heads_then_take_the_bytes_of_the_program),
        cmocka_unit_test(checkpoints_when_ranks_share_key_heads_then_load_on_any_number),
        cmocka_unit_test(llama_when_divided_in_any_way_then_as_one_rank),
        cmocka_unit_test(olmo2_when_divided_in_any_way_then_as_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
