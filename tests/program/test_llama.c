/* Llama, Qwen 2, Qwen 3 and OLMo 2 against transformers: logits, loss, every gradient; and their
 * sizes.
 *
 * What could be wrong here: the halves of a head that are turned, the scaling of rotary positions,
 * which key head a query head reads, gate and up in each other's place, an epsilon, a norm of heads
 * or a bias at the wrong place, a weight that lies straight where it should lie across, a tied
 * gradient of which one use is lost. The oracle is reference/llama: models with nothing even, run
 * by transformers in float64 (saved_model.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "saved_model.h"

/* ---- sizes ---- */

static void shapes_when_named_then_as_many_parameters_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
    } rows[] = {
        {"llama-3.2-1b", 1235814400}, {"llama-3.2-3b", 3212749824}, {"llama-3.1-8b", 8030261248},
        {"qwen2.5-0.5b", 494032768},  {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-3b", 3085938688},
        {"qwen2.5-7b", 7615616512},   {"qwen2.5-14b", 14770033664}, {"qwen3-0.6b", 596049920},
        {"qwen3-1.7b", 1720574976},   {"qwen3-4b", 4022468096},     {"qwen3-8b", 8190735360},
        {"qwen3-14b", 14768307200},   {"olmo2-1b", 1484916736},     {"olmo2-7b", 7298617344},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_model_shape shape;
        must_be_ok(sl_architecture_named(rows[i].name, &shape));
        must_be_ok(sl_model_shape_check(&shape, 1));
        if (sl_model_shape_parameters(&shape) != rows[i].parameters)
            fail_msg("%s has %llu parameters", rows[i].name,
                     (unsigned long long)sl_model_shape_parameters(&shape));
    }
}

/* The count of the shape is that of the program's tensors. */
static void shapes_when_emitted_then_the_same_count(void **state)
{
    (void)state;
    for (int kind = SL_ARCHITECTURE_LLAMA; kind <= SL_ARCHITECTURE_OLMO2; kind++) {
        const sl_model_options options = {.batch = 1, .seq = 3, .tp_size = 1};
        sl_model_shape shape = {.width = 20,
                                .heads = 6,
                                .context = 9,
                                .vocab = 130,
                                .architecture = (sl_architecture_kind)kind,
                                .kv_heads = 3,
                                .head = 8,
                                .ffn = 28,
                                .is_untied = kind == SL_ARCHITECTURE_QWEN3};
        sl_program *program;
        uint64_t count = 0;
        shape.layers = 101; /* names with numbers of three digits */
        sl_model_shape_complete(&shape);
        must_be_ok(sl_model_shape_emit(&shape, &options, &program));
        for (uint32_t t = 0; t < program->tensor_count; t++)
            count += program->tensors[t].valid_rows * program->tensors[t].shape[1];
        assert_int_equal(count, sl_model_shape_parameters(&shape));
        const uint64_t lookup = shape.is_untied ? 130 * 20 : 0; /* in no product */
        assert_true(sl_model_shape_token_flops(&shape, 100) ==
                    6.0 * ((double)(count - lookup) + 101 * 6 * 8 * 100));
        sl_program_close(program);
    }
}

static void shapes_when_wrong_then_told(void **state)
{
    (void)state;
    sl_model_shape good, shape;
    must_be_ok(sl_architecture_named("llama-3.1-8b", &good));
    struct {
        const char *told;
        uint32_t tp_size;
        sl_model_shape shape;
    } rows[] = {{"--kv-heads", 1, good}, {"even", 1, good},    {"on 8 key-value heads", 3, good},
                {"base", 1, good},       {"epsilon", 1, good}, {"factors", 1, good},
                {"positive", 1, good},   {"31 bits", 1, good}, {"epsilon", 1, good},
                {"at least 1", 1, good}};
    rows[0].shape.kv_heads = 5;
    rows[1].shape.head = 127;
    rows[3].shape.rope.base = 0;
    rows[4].shape.norm_epsilon = 0;
    rows[5].shape.rope.high_frequency_factor = 1;
    rows[6].shape.ffn = 0;
    rows[7].shape.head = 1u << 30;
    rows[8].shape.norm_epsilon = 1e-320; /* 0 in fp32 */
    rows[9].shape.rope.factor = 1e-320;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        shape = rows[i].shape;
        assert_int_equal(sl_model_shape_check(&shape, rows[i].tp_size), SL_ERROR_USAGE);
        if (!strstr(sl_status_message(), rows[i].told))
            fail_msg("case %zu: %s", i, sl_status_message());
    }
}

/* Llama 3.1 8B: 32 heads on 8. Ranks divide the key heads, or share each equally. */
static void shapes_when_ranks_are_more_than_key_heads_then_share_them(void **state)
{
    (void)state;
    static const uint32_t good[] = {1, 2, 4, 8, 16, 32}, bad[] = {3, 5, 12, 24, 64};
    sl_model_shape shape;
    must_be_ok(sl_architecture_named("llama-3.1-8b", &shape));
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        must_be_ok(sl_model_shape_check(&shape, good[i]));
        assert_true(sl_model_shape_may_split(&shape, good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sl_model_shape_check(&shape, bad[i]), SL_ERROR_USAGE);
        assert_false(sl_model_shape_may_split(&shape, bad[i]));
    }
}

static void shapes_when_they_differ_then_the_first_size_is_named(void **state)
{
    (void)state;
    sl_model_shape named;
    must_be_ok(sl_architecture_named("llama-3.1-8b", &named));
    struct {
        const char *told;
        sl_model_shape shape;
    } rows[] = {{"", named},
                {"kv_heads 8 and 4", named},
                {"head_size 128 and 64", named},
                {"ffn 14336 and 1", named},
                {"norm_epsilon 1e-05 and 1e-06", named},
                {"rope_base 500000 and 10000", named},
                {"rope_factor 8 and 32", named},
                {"rope_original_context 8192 and 1", named},
                {"untied true and false", named},
                {"architecture llama and qwen3", named}};
    rows[1].shape.kv_heads = 4;
    rows[1].shape.ffn = 1; /* behind the first one */
    rows[2].shape.head = 64;
    rows[3].shape.ffn = 1;
    rows[4].shape.norm_epsilon = 1e-6;
    rows[5].shape.rope.base = 1e4;
    rows[6].shape.rope.factor = 32;
    rows[7].shape.rope.original_context = 1;
    rows[8].shape.is_untied = false;
    rows[9].shape.architecture = SL_ARCHITECTURE_QWEN3;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const sl_model_shape *shape = &rows[i].shape;
        assert_string_equal(sl_model_shape_difference(&named, shape).text, rows[i].told);
        assert_int_equal(sl_model_shape_is_same(&named, shape), i == 0);
    }
}

/* ---- numbers ---- */

/* Llama 3's scaling, three query heads a key head, a head wider than width / heads, untied. */
static void llama_when_run_then_as_transformers(void **state)
{
    (void)state;
    check_all("llama");
}

/* Biases of q, k and v, one key head, linear scaling, tied. */
static void qwen2_when_run_then_as_transformers(void **state)
{
    (void)state;
    check_all("qwen2");
}

/* Norms of heads, a head narrower than width / heads, tied. */
static void qwen3_when_run_then_as_transformers(void **state)
{
    (void)state;
    check_all("qwen3");
}

/* Norms of all of q and of all of k, and behind attention and MLP, untied. */
static void olmo2_when_run_then_as_transformers(void **state)
{
    (void)state;
    check_all("olmo2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_when_named_then_as_many_parameters_as_published),
        cmocka_unit_test(shapes_when_emitted_then_the_same_count),
        cmocka_unit_test(shapes_when_wrong_then_told),
        cmocka_unit_test(shapes_when_ranks_are_more_than_key_heads_then_share_them),
        cmocka_unit_test(shapes_when_they_differ_then_the_first_size_is_named),
        cmocka_unit_test(llama_when_run_then_as_transformers),
        cmocka_unit_test(qwen2_when_run_then_as_transformers),
        cmocka_unit_test(qwen3_when_run_then_as_transformers),
        cmocka_unit_test(olmo2_when_run_then_as_transformers),
    };
    return cmocka_run_group_tests_name("llama", tests, NULL, NULL);
}
