/* What could be wrong with patterns of --freeze: they are not tried in order, or `!`, commas, `?`
 * or ranges are read as text; a pattern of a part of a name matches; one that matches nothing is
 * taken in silence, or a run begins that trains nothing; panels or the ranks that a tensor is split
 * over change the number of trained parameters; the FLOPs of a token are not those of an unfrozen
 * model, or of what is left of them; a pipeline stage believes that nothing before it is trained
 * and sends no gradient. What must come out is written by hand, or counted from the shape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/freeze.h"
#include "model/architecture.h"
#include "program/llama_model.h"

enum { LAYERS = 12, WIDTH = 6, CONTEXT = 8, VOCAB = 300, SEQ = 7, WORDS = 8 };

/* Two panels of wte. */
static const sl_model_shape shape = {
    .layers = LAYERS, .width = WIDTH, .heads = 2, .context = CONTEXT, .vocab = VOCAB};

static const uint64_t block_elements = 12 * WIDTH * WIDTH + 13 * WIDTH;
static const uint64_t wte_elements = VOCAB * WIDTH, wpe_elements = CONTEXT * WIDTH;
static const uint64_t norm_elements = 2 * WIDTH;

static sl_program *emit(const sl_model_options *options)
{
    sl_program *program = NULL;
    sl_model_options all = *options;
    all.batch = 1;
    all.seq = SEQ;
    if (all.tp_size == 0)
        all.tp_size = 1;
    if (sl_model_shape_emit(&shape, &all, &program) != SL_OK)
        fail_msg("%s", sl_status_message());
    return program;
}

/* Words of a command line, the first NULL or empty place behind them. */
typedef struct words {
    const char *text[WORDS];
} words;

static sl_config_list list_of(const words *from)
{
    sl_config_list list = {.items = (char **)from->text};
    while (list.count < WORDS && from->text[list.count])
        list.count++;
    return list;
}

static sl_program *emit_frozen(const words *patterns, const sl_model_options *options)
{
    sl_program *program = emit(options);
    const sl_config_list list = list_of(patterns);
    sl_freeze_apply(&list, program);
    return program;
}

static sl_status check(const words *patterns)
{
    sl_program *program = emit_frozen(patterns, &(sl_model_options){0});
    const sl_config_list list = list_of(patterns);
    const sl_status status = sl_freeze_check(&list, program);
    sl_program_close(program);
    return status;
}

static void assert_message_has(const char *part)
{
    if (!strstr(sl_status_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, sl_status_message());
}

/* ---- which tensors ---- */

/* 'x': frozen; one for wte, wpe, each layer and ln_f. A layer with some frozen tensors is 'p'. */
enum { LETTERS = LAYERS + 3 };

static int find_letter(const char *name)
{
    unsigned layer;
    if (sscanf(name, "h.%u.", &layer) == 1)
        return 2 + (int)layer;
    return strncmp(name, "wte", 3) == 0 ? 0 : strncmp(name, "wpe", 3) == 0 ? 1 : LETTERS - 1;
}

static void describe(const sl_program *program, char text[LETTERS + 1])
{
    memset(text, 0, LETTERS + 1);
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        char *letter = &text[find_letter(program->tensors[t].name)];
        const char found = program->tensors[t].rule == SL_RULE_NONE ? 'x' : '.';
        *letter = *letter == '\0' || *letter == found ? found : 'p';
    }
}

static void apply_when_patterns_are_given_then_freezes_what_they_match(void **state)
{
    (void)state;
    static const struct {
        words patterns;
        const char *frozen; /* wte wpe, layers 0 to 11, ln_f */
    } rows[] = {
        {{{NULL}}, ".. ............ ."},
        {{{""}}, ".. ............ ."},
        {{{"wte.*"}}, "x. ............ ."},
        {{{"w?e.weight"}}, "xx ............ ."},
        {{{"h.[0-8].*"}}, ".. xxxxxxxxx... ."},
        {{{"h.?.*"}}, ".. xxxxxxxxxx.. ."},
        {{{"h.1*"}}, ".. .x........xx ."},
        {{{"h.1.*"}}, ".. .x.......... ."},
        {{{"h.[!3].*"}}, ".. xxx.xxxxxx.. ."},
        {{{"*.ln_1.bias"}}, ".. pppppppppppp ."},
        {{{"h"}}, ".. ............ ."},
        {{{"n_f.bias"}}, ".. ............ ."},
        {{{"ln_f"}}, ".. ............ ."},
        /* several, as words and with commas */
        {{{"wte.*", "wpe.*", "h.3.*"}}, "xx ...x........ ."},
        {{{"wte.*,wpe.*,h.3.*"}}, "xx ...x........ ."},
        {{{"wte.*,wpe.*", "h.3.*,ln_f.*"}}, "xx ...x........ x"},
        {{{",wte.*,,wpe.*,", ",", "h.3.*"}}, "xx ...x........ ."},
        /* the last one that matches decides */
        {{{"*", "!h.11.*"}}, "xx xxxxxxxxxxx. x"},
        {{{"*,!h.11.*"}}, "xx xxxxxxxxxxx. x"},
        {{{"!h.11.*", "*"}}, "xx xxxxxxxxxxxx x"},
        {{{"*,!h.*", "h.5.*"}}, "xx .....x...... x"},
        {{{"*,!h.*,h.5.*,!h.5.mlp.*"}}, "xx .....p...... x"},
        {{{"!wte.*"}}, ".. ............ ."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[LETTERS + 1] = "", found[LETTERS + 1];
        for (const char *at = rows[i].frozen; *at; at++)
            if (*at != ' ')
                strncat(expected, at, 1);
        sl_program *program = emit_frozen(&rows[i].patterns, &(sl_model_options){0});
        describe(program, found);
        if (strcmp(found, expected) != 0)
            fail_msg("row %zu: %s, not %s", i, found, expected);
        sl_program_close(program);
    }
}

static void check_when_a_pattern_matches_nothing_then_is_named(void **state)
{
    (void)state;
    static const struct {
        words patterns;
        const char *named;
    } rows[] = {
        {{{"h.12.*"}}, "\"h.12.*\" matches no tensor"},
        {{{"wte"}}, "\"wte\" matches no tensor"},
        {{{"wte.*,h.[a-c].*"}}, "\"h.[a-c].*\" matches no tensor"},
        {{{"wte.*", "*", "!h.99.*"}}, "\"!h.99.*\" matches no tensor"},
        {{{"transformer.wte.weight"}}, "\"transformer.wte.weight\" matches no tensor"},
        {{{"wte.* "}}, "\"wte.* \" matches no tensor"},
        {{{"h.[0-8.*"}}, "\"h.[0-8.*\" matches no tensor"},
        {{{"!"}}, "\"!\" matches no tensor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (check(&rows[i].patterns) != SL_ERROR_USAGE)
            fail_msg("row %zu was accepted", i);
        assert_message_has(rows[i].named);
        assert_message_has("names are like wte.weight, ");
        assert_message_has("and ln_f.bias, ");
    }
}

/* The examples of messages are of the model at hand. */
static void check_when_of_a_llama_then_its_names_are_shown(void **state)
{
    (void)state;
    static const words none = {{"h.0.*"}}, all = {{"*"}};
    const words *const rows[] = {&none, &all};
    static const char *const named[] = {"'layers.[0-8].*'", "--freeze '*' '!layers.2.*'"};
    sl_model_shape llama = {.layers = 3,
                            .width = 8,
                            .heads = 2,
                            .context = CONTEXT,
                            .vocab = VOCAB,
                            .architecture = SL_ARCHITECTURE_LLAMA};
    const sl_model_options options = {.batch = 1, .seq = SEQ, .tp_size = 1};
    sl_model_shape_complete(&llama);
    for (int i = 0; i < 2; i++) {
        sl_program *program = NULL;
        const sl_config_list list = list_of(rows[i]);
        assert_int_equal(sl_model_shape_emit(&llama, &options, &program), SL_OK);
        sl_freeze_apply(&list, program);
        assert_int_equal(sl_freeze_check(&list, program), SL_ERROR_USAGE);
        assert_message_has(named[i]);
        sl_program_close(program);
    }
}

/* Longer than any name: it is cut, and must not match by what is left. */
static void check_when_a_pattern_is_very_long_then_is_refused(void **state)
{
    (void)state;
    char name[512] = "wte.weight";
    memset(name + strlen(name), 'x', sizeof name - 1 - strlen(name));
    assert_int_equal(check(&(words){{name}}), SL_ERROR_USAGE);
    assert_message_has("\"wte.weightxxx");
}

static void check_when_nothing_is_left_to_train_then_is_refused(void **state)
{
    (void)state;
    static const words rows[] = {
        {{"*"}}, {{"!h.0.*", "*"}}, {{"wte.*,wpe.*,h.*,ln_f.*"}}, {{"*.weight", "*.bias"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(check(&rows[i]), SL_ERROR_USAGE);
        assert_message_has("all tensors are frozen");
    }
}

static void check_when_something_is_trained_then_is_accepted(void **state)
{
    (void)state;
    static const words rows[] = {{{NULL}},
                                 {{""}},
                                 {{",wte.*,", ","}},
                                 {{"!wte.*"}},
                                 {{"*", "!ln_f.bias"}},
                                 {{"wte.*,wpe.*", "h.[0-8].*", "ln_f.*"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(check(&rows[i]), SL_OK);
}

/* ---- counts ---- */

static void count_trained_when_split_in_any_way_then_is_that_of_whole_tensors(void **state)
{
    (void)state;
    const struct {
        words patterns;
        uint64_t trained;
    } rows[] = {
        {{{NULL}}, wte_elements + wpe_elements + LAYERS * block_elements + norm_elements},
        {{{"*", "!wte.*"}}, wte_elements},
        {{{"wte.*"}}, wpe_elements + LAYERS * block_elements + norm_elements},
        {{{"*", "!h.11.*"}}, block_elements},
        {{{"*", "!*.attn.c_attn.*"}}, LAYERS * (3 * WIDTH * WIDTH + 3 * WIDTH)},
        {{{"*", "!ln_f.bias"}}, WIDTH},
    };
    static const sl_model_options splits[] = {
        {.tp_size = 1},
        {.tp_size = 2, .tp_rank = 0},
        {.tp_size = 2, .tp_rank = 1},
        {.tp_size = 2, .tp_rank = 1, .split_layout = SL_SPLIT_COLOSSAL},
        {.tp_size = 1, .type = SL_TYPE_BF16}};
    assert_int_equal(rows[0].trained, sl_model_shape_parameters(&shape));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof splits / sizeof *splits; k++) {
            sl_program *program = emit_frozen(&rows[i].patterns, &splits[k]);
            const uint64_t count = sl_freeze_count_trained(program);
            if (count != rows[i].trained)
                fail_msg("row %zu, split %zu: %llu trained, not %llu", i, k,
                         (unsigned long long)count, (unsigned long long)rows[i].trained);
            sl_program_close(program);
        }
}

static double count_flops(const words *patterns, const sl_model_options *options)
{
    sl_program *program = emit_frozen(patterns, options);
    const double flops = sl_freeze_token_flops(program, SEQ);
    sl_program_close(program);
    return flops;
}

/* Sums of integers, exact in a double. */
static void token_flops_when_nothing_is_frozen_then_are_those_of_the_model(void **state)
{
    (void)state;
    const double expected = sl_model_shape_token_flops(&shape, SEQ);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_true(count_flops(&(words){{NULL}},
                                &(sl_model_options){.tp_size = 2, .tp_rank = rank}) == expected);
    assert_true(count_flops(&(words){{NULL}}, &(sl_model_options){0}) == expected);
    assert_true(count_flops(&(words){{"!wte.*"}}, &(sl_model_options){0}) == expected);
}

static void token_flops_when_tensors_are_frozen_then_are_what_is_left(void **state)
{
    (void)state;
    const double attention = LAYERS * WIDTH * SEQ, all = sl_model_shape_token_flops(&shape, SEQ);
    const double blocks = LAYERS * block_elements, before = wte_elements + wpe_elements;
    const struct {
        words patterns;
        double flops;
    } rows[] = {
        /* the last three blocks: 2 of all, 2 for the head's and the norm's way back */
        {{{"wte.*", "wpe.*", "h.[0-8].*", "ln_f.*"}},
         2 * (before + blocks + norm_elements + attention) + 2 * (wte_elements + norm_elements) +
             4 * 3 * (block_elements + attention / LAYERS)},
        /* the first tensor alone: all of the way back, and one gradient */
        {{{"*", "!wte.*"}},
         4 * (before + blocks + norm_elements) + 6 * attention + 2 * wte_elements},
        /* the first ones alone */
        {{{"wte.*", "wpe.*"}}, all - 2 * before - 2 * wpe_elements},
        /* the last one alone: the way back is that of the head */
        {{{"*", "!ln_f.bias"}},
         2 * (before + blocks + norm_elements + attention) + 2 * wte_elements + 4 * WIDTH},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double flops = count_flops(&rows[i].patterns, &(sl_model_options){0});
        if (flops != rows[i].flops)
            fail_msg("row %zu: %.0f FLOPs a token, not %.0f", i, flops, rows[i].flops);
    }
}

/* ---- another model: names, heads and head are not GPT-2's ---- */

enum { OWN_BLOCKS = 3 };

static sl_status build_own(sl_model *model, const void *user)
{
    const sl_linear_spec mix = {.out = 3 * WIDTH, .parallel = SL_QKV, .heads = 3};
    const sl_linear_spec back = {.out = WIDTH, .parallel = SL_ROWS};
    sl_tensor x = sl_embed(model, &(sl_embedding){.name = "bytes", .ids = 257, .width = WIDTH});
    (void)user;
    for (uint32_t b = 0; b < OWN_BLOCKS; b++) {
        sl_block(model, "b", b);
        sl_tensor y = sl_linear(model, "mix", sl_norm(model, "n", x), &mix);
        y = sl_linear(model, "back", sl_attention(model, "look", y, 3), &back);
        x = sl_drop_add(model, "add", y, x);
        sl_block_end(model);
    }
    sl_head_untied(model, "classes", x, 300, 0);
    return SL_OK;
}

static void token_flops_when_of_an_own_model_then_count_its_attention_and_head(void **state)
{
    (void)state;
    const double attention = WIDTH * SEQ, head = 300 * WIDTH; /* bytes.* are only looked up */
    const double block = 2 * WIDTH + (3 * WIDTH + 1.0) * WIDTH + 2 * WIDTH + (WIDTH + 1.0) * WIDTH;
    const struct {
        words patterns;
        double flops;
    } rows[] = {
        {{{NULL}}, 6 * (OWN_BLOCKS * (block + attention) + head)},
        {{{"bytes.*", "b.0.*"}}, 2 * (block + attention) + 6 * (2 * (block + attention) + head)},
        {{{"*", "!classes.*"}}, 2 * (OWN_BLOCKS * (block + attention)) + 6 * head},
    };
    sl_model_shape own;
    assert_int_equal(sl_model_shape_survey(build_own, NULL, &own), SL_OK);
    assert_true(sl_model_shape_token_flops(&own, SEQ) == rows[0].flops);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t tp_size = 1; tp_size <= 2; tp_size++) {
            const sl_model_options options = {.batch = 1, .seq = SEQ, .tp_size = tp_size};
            const sl_config_list list = list_of(&rows[i].patterns);
            sl_program *program = NULL;
            assert_int_equal(sl_model_shape_emit(&own, &options, &program), SL_OK);
            sl_freeze_apply(&list, program);
            const double flops = sl_freeze_token_flops(program, SEQ);
            if (flops != rows[i].flops)
                fail_msg("row %zu, tp %u: %.0f FLOPs a token, not %.0f", i, tp_size, flops,
                         rows[i].flops);
            sl_program_close(program);
        }
}

/* Three heads on two ranks: the second rank has a head of padding, which is no work of the model.
 */
static void token_flops_when_heads_are_padded_then_count_without_padding(void **state)
{
    (void)state;
    llama_sizes sizes = llama_tiny;
    sl_model_shape own;
    sizes.heads = sizes.kv_heads = 3;
    assert_int_equal(sl_model_shape_survey(llama_build, &sizes, &own), SL_OK);
    for (uint32_t tp_size = 1; tp_size <= 2; tp_size++) {
        const sl_model_options options = {.batch = 1, .seq = 8, .tp_size = tp_size};
        sl_program *program = NULL;
        assert_int_equal(sl_model_shape_emit(&own, &options, &program), SL_OK);
        assert_true(sl_freeze_token_flops(program, 8) == sl_model_shape_token_flops(&own, 8));
        sl_program_close(program);
    }
}

/* ---- stages ---- */

static bool is_before(const words *patterns, uint32_t stage_count, uint32_t stage_index)
{
    sl_program *whole = emit_frozen(patterns, &(sl_model_options){0});
    sl_program *stage = emit_frozen(
        patterns, &(sl_model_options){.stage_count = stage_count, .stage_index = stage_index});
    const bool answer = sl_freeze_is_before(whole, stage);
    sl_program_close(whole);
    sl_program_close(stage);
    return answer;
}

/* Of the stages behind the first one, '1' where all stages before are frozen. 12 layers: 6 and 6,
 * or 3 for each of four. */
static void is_before_when_of_a_stage_then_looks_at_all_stages_before(void **state)
{
    (void)state;
    static const struct {
        words patterns;
        const char *of_two, *of_four;
    } rows[] = {
        {{{NULL}}, "0", "000"},
        {{{"wte.*", "wpe.*"}}, "0", "000"},
        {{{"wte.*", "wpe.*", "h.[0-2].*"}}, "0", "100"},
        {{{"wte.*", "wpe.*", "h.[0-5].*"}}, "1", "110"},
        {{{"wte.*", "wpe.*", "h.[0-4].*"}}, "0", "100"},
        {{{"*", "!h.11.*"}}, "1", "111"},
        {{{"*", "!ln_f.bias"}}, "1", "111"},
        {{{"*", "!h.4.mlp.c_fc.bias"}}, "0", "100"},
        {{{"*", "!h.2.mlp.c_proj.bias"}}, "0", "000"},
        {{{"*", "!h.3.ln_1.weight"}}, "0", "100"},
        {{{"*", "!wpe.*"}}, "0", "000"},
        {{{"*", "!wte.*"}}, "0", "000"}, /* also of the first stage, not of the last alone */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t count = 2; count <= 4; count += 2)
            for (uint32_t stage = 1; stage < count; stage++) {
                const char *expected = count == 2 ? rows[i].of_two : rows[i].of_four;
                if (is_before(&rows[i].patterns, count, stage) != (expected[stage - 1] == '1'))
                    fail_msg("row %zu, stage %u of %u: not %c", i, stage, count,
                             expected[stage - 1]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(apply_when_patterns_are_given_then_freezes_what_they_match),
        cmocka_unit_test(check_when_a_pattern_matches_nothing_then_is_named),
        cmocka_unit_test(check_when_of_a_llama_then_its_names_are_shown),
        cmocka_unit_test(check_when_a_pattern_is_very_long_then_is_refused),
        cmocka_unit_test(check_when_nothing_is_left_to_train_then_is_refused),
        cmocka_unit_test(check_when_something_is_trained_then_is_accepted),
        cmocka_unit_test(count_trained_when_split_in_any_way_then_is_that_of_whole_tensors),
        cmocka_unit_test(token_flops_when_nothing_is_frozen_then_are_those_of_the_model),
        cmocka_unit_test(token_flops_when_tensors_are_frozen_then_are_what_is_left),
        cmocka_unit_test(token_flops_when_of_an_own_model_then_count_its_attention_and_head),
        cmocka_unit_test(token_flops_when_heads_are_padded_then_count_without_padding),
        cmocka_unit_test(is_before_when_of_a_stage_then_looks_at_all_stages_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
