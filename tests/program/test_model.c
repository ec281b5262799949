/* The builder of models (sluice/model.h): what is not GPT-2, and what it refuses.
 *
 * What could be wrong: a layer knows GPT-2's sizes; ranks or stages of another model do not add up
 * to it; an error of a layer is lost, or a later one is reported; a tensor crosses the border of
 * two stages unnoticed; a message names another layer; a stage lacks the table of its positions.
 * That GPT-2 is the same as ever is the matter of test_golden_steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "chunk/chunk.h"
#include "llama_model.h"
#include "model/architecture.h"

enum { IDS = 300, WIDTH = 48, BLOCKS = 5 };

static const sl_embedding bytes = {.name = "bytes", .ids = IDS, .width = WIDTH, .deviation = 0.1f};

static sl_tensor mlp(sl_model *model, sl_tensor x, uint64_t inner)
{
    sl_tensor y = sl_norm(model, "norm", x);
    y = sl_linear(model, "up", y, &(sl_linear_spec){.out = inner, .parallel = SL_COLUMNS});
    y = sl_gelu(model, "gelu", y);
    y = sl_linear(model, "down", y, &(sl_linear_spec){.out = WIDTH, .parallel = SL_ROWS});
    return sl_drop_add(model, "drop", y, x);
}

/* Without positions, and blocks of different widths. */
static sl_status build_mlp(sl_model *model, const void *user)
{
    sl_tensor x = sl_embed(model, &bytes);
    (void)user;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        sl_block(model, "block", b);
        x = mlp(model, x, 64 + 16 * b);
        sl_block_end(model);
    }
    sl_head(model, "bytes", sl_norm(model, "last", x));
    return SL_OK;
}

static uint64_t count_parameters(void)
{
    uint64_t count = (uint64_t)IDS * WIDTH + 2 * WIDTH;
    for (uint64_t b = 0; b < BLOCKS; b++)
        count += 3 * WIDTH + (2 * WIDTH + 1) * (64 + 16 * b);
    return count;
}

static sl_model_options choose(uint32_t tp_size, uint32_t stage_count)
{
    return (sl_model_options){
        .batch = 3, .seq = 16, .tp_size = tp_size, .stage_count = stage_count};
}

/* ---- ranks and stages ---- */

/* Of llama_tiny: tables, blocks of seven matrices and four norms, the last norm. */
static uint64_t count_llama(void)
{
    const llama_sizes *it = &llama_tiny;
    const uint64_t q = it->heads * it->head, k = it->kv_heads * it->head, w = it->width;
    const uint64_t block = 2 * w * (q + k) + 3 * w * it->inner + 2 * w + 2 * it->head;
    return 2 * it->ids * w + it->layers * block + w;
}

/* Elements without padding that a rank and stage has and no other one counts. */
static uint64_t count_own(const sl_program *program)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        const bool is_copy = spec->is_tied && program->stage_index > 0;
        const bool is_split_columns = spec->split == SL_SPLIT_COLUMNS;
        const uint64_t rows =
            is_split_columns && spec->dim_count == 1 ? spec->valid_columns : spec->valid_rows;
        const uint64_t columns = spec->dim_count == 1 ? 1
                                 : is_split_columns   ? spec->valid_columns
                                                      : spec->shape[1];
        if (!is_copy && (spec->split != SL_SPLIT_NONE || program->tp_rank == 0))
            count += rows * columns;
    }
    return count;
}

static void check_step(const sl_program *forward)
{
    sl_layout *layout = NULL;
    sl_program *step = NULL;
    const sl_step_options options = {
        .micro_batch_count = 4, .schedule = SL_SCHEDULE_1F1B, .recompute = SL_RECOMPUTE_FULL};
    assert_int_equal(sl_layout_build(forward, 0, &layout), SL_OK);
    const sl_chunk_map map = sl_layout_chunk_map(layout);
    if (sl_program_derive_step(forward, &map, &options, &step) != SL_OK)
        fail_msg("%s", sl_status_message());
    sl_program_close(step);
    sl_layout_close(layout);
}

/* All ranks and stages of a division. */
static void check_division(sl_build build, const void *user, sl_model_options options,
                           uint64_t expected)
{
    uint64_t count = 0;
    for (options.stage_index = 0; options.stage_index < options.stage_count; options.stage_index++)
        for (options.tp_rank = 0; options.tp_rank < options.tp_size; options.tp_rank++) {
            sl_program *forward = NULL;
            if (sl_model_emit(build, user, &options, &forward) != SL_OK)
                fail_msg("%s", sl_status_message());
            count += count_own(forward);
            check_step(forward);
            sl_program_close(forward);
        }
    if (count != expected)
        fail_msg("tp %u, pp %u, layout %d: %llu parameters, not %llu", options.tp_size,
                 options.stage_count, (int)options.split_layout, (unsigned long long)count,
                 (unsigned long long)expected);
}

static void model_when_divided_then_its_parts_add_up(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{1, 1}, {2, 1}, {3, 1}, {1, 2}, {1, 5}, {2, 3}, {4, 4}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int layout = SL_SPLIT_MEGATRON; layout <= SL_SPLIT_COLOSSAL; layout++) {
            sl_model_options options = choose(sizes[i][0], sizes[i][1]);
            options.split_layout = (sl_split_layout)layout;
            check_division(build_mlp, NULL, options, count_parameters());
            options.sequence_parallel = sizes[i][0] == 2;
            if (sizes[i][0] <= 2 && sizes[i][1] <= 2 && layout == SL_SPLIT_MEGATRON)
                check_division(llama_build, &llama_tiny, options, count_llama());
        }
}

static void names_when_emitted_then_those_of_checkpoints(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "bytes.weight",    "block.0.norm.weight", "block.0.norm.bias", "block.0.up.weight",
        "block.0.up.bias", "block.0.down.weight", "block.0.down.bias", "block.1.norm.weight"};
    sl_program *forward = NULL;
    const sl_model_options options = choose(1, 1);
    assert_int_equal(sl_model_emit(build_mlp, NULL, &options, &forward), SL_OK);
    uint32_t panels = 0;
    while (strcmp(forward->tensors[panels + 1].name, expected[0]) == 0)
        panels++;
    for (size_t t = 0; t < sizeof expected / sizeof expected[0]; t++)
        assert_string_equal(forward->tensors[panels + t].name, expected[t]);
    assert_string_equal(forward->tensors[forward->tensor_count - 1].name, "last.bias");
    sl_program_close(forward);
}

/* ---- what is refused ---- */

typedef enum mistake {
    LONG_NAME,
    OTHER_WIDTH,
    NO_SUCH_TABLE,
    TWO_HEADS,
    NO_HEAD,
    BLOCK_LEFT_OPEN,
    BLOCK_TWICE,
    BLOCK_IN_BLOCK,
    LAYER_BETWEEN,
    ODD_HEADS,
    TWO_CROSS,
    OWN_ERROR,
    LATE_EMBEDDING,
    NO_FEATURES,
    STRANGE_HANDLE,
    ROW_TOO_LONG,
    SECOND_EMBEDDING,
    SAME_TABLE,
    NOTHING_READS,
    SUM_OF_NO_PRODUCT,
    SUM_OF_READ,
    READ_BEHIND_SUM,
    SUM_WITH_ITSELF,
    MISTAKE_COUNT
} mistake;

static void build_mistaken_block(sl_model *model, mistake which, sl_tensor first, sl_tensor *x)
{
    const sl_linear_spec qkv = {.out = 3 * WIDTH, .parallel = SL_QKV, .heads = 5};
    const sl_linear_spec same = {.out = WIDTH, .parallel = SL_ROWS};
    *x = mlp(model, *x, 64);
    if (which == OTHER_WIDTH)
        *x = sl_drop_add(model, "wider", *x,
                         sl_linear(model, "w", *x, &(sl_linear_spec){.out = 2 * WIDTH}));
    if (which == ODD_HEADS)
        *x = sl_attention(model, "attn", sl_linear(model, "qkv", *x, &qkv), 5);
    if (which == TWO_CROSS)
        *x = sl_drop_add(model, "skip", sl_linear(model, "w", *x, &same), first);
    if (which == NO_FEATURES)
        *x = sl_linear(model, "none", *x, &(sl_linear_spec){.out = 0});
    if (which == STRANGE_HANDLE)
        *x = sl_norm(model, "strange", (sl_tensor){1000});
    if (which == BLOCK_IN_BLOCK)
        sl_block(model, "inner", 1);
    if (which == LATE_EMBEDDING)
        *x = sl_embed(model, &bytes);
}

/* Mistakes with what layers make, behind the first block. */
static sl_tensor make_mistaken_sum(sl_model *model, mistake which, sl_tensor x)
{
    const sl_linear_spec same = {.out = WIDTH, .parallel = SL_ROWS};
    const sl_tensor product = sl_linear(model, "product", x, &same);
    const sl_tensor gelu = sl_gelu(model, "sum_gelu", x);
    if (which == NOTHING_READS)
        return x;
    if (which == SUM_OF_NO_PRODUCT)
        return sl_drop_add(model, "sum", gelu, product);
    if (which == SUM_WITH_ITSELF)
        return sl_drop_add(model, "sum", product, product);
    if (which == SUM_OF_READ)
        x = sl_norm(model, "other", product);
    x = sl_drop_add(model, "sum", product, x);
    return which == READ_BEHIND_SUM ? sl_norm(model, "other", product) : x;
}

static sl_status build_mistaken(sl_model *model, const void *user)
{
    const mistake which = *(const mistake *)user;
    const sl_embedding short_context = {
        .name = "bytes", .ids = IDS, .width = WIDTH, .positions = "p", .context = 15};
    sl_tensor x = sl_embed(model, which == ROW_TOO_LONG ? &short_context : &bytes), first = x;
    if (which == SECOND_EMBEDDING || which == SAME_TABLE)
        sl_embed(model, &(sl_embedding){.name = which == SAME_TABLE ? "bytes" : "words",
                                        .ids = IDS,
                                        .width = WIDTH});
    if (which == LONG_NAME)
        x = sl_norm(model, "a name that is much too long for a tensor of a checkpoint", x);
    for (uint32_t b = 0; b < 4; b++) {
        sl_block(model, "block", which == BLOCK_TWICE ? b / 2 : b);
        build_mistaken_block(model, which, first, &x);
        if (which != BLOCK_LEFT_OPEN)
            sl_block_end(model);
        if (which == LAYER_BETWEEN)
            x = sl_norm(model, "between", x);
    }
    if (which == OWN_ERROR)
        return SL_ERROR_FIT;
    if (which >= NOTHING_READS)
        x = make_mistaken_sum(model, which, x);
    for (int head = 0; which != NO_HEAD && head < 1 + (which == TWO_HEADS); head++)
        sl_head(model, which == NO_SUCH_TABLE ? "words" : "bytes", x);
    return SL_OK;
}

static void build_when_mistaken_then_the_first_error_is_named(void **state)
{
    (void)state;
    static const char *const words[MISTAKE_COUNT] = {
        [LONG_NAME] = "has more than",
        [OTHER_WIDTH] = "wider: drop has 48 features, the residual 96",
        [NO_SUCH_TABLE] = "no embedding is called words",
        [TWO_HEADS] = "a second one",
        [NO_HEAD] = "without a head",
        [BLOCK_LEFT_OPEN] = "in another one",
        [BLOCK_TWICE] = "block block.0 begins behind 1 blocks",
        [BLOCK_IN_BLOCK] = "in another one",
        [LAYER_BETWEEN] = "there are layers between blocks 0 and 1",
        [ODD_HEADS] = "qkv: 144 features are not q, k and v of 5 heads",
        [TWO_CROSS] = "cross the border between two pipeline stages",
        [LATE_EMBEDDING] = "an embedding behind the first block",
        [NO_FEATURES] = "none: a linear of 0 features",
        [STRANGE_HANDLE] = "reads tensor 1000",
        [ROW_TOO_LONG] = "rows of 16 tokens: the model has positions for 15",
        [SECOND_EMBEDDING] = "words: no layer reads what this layer makes",
        [SAME_TABLE] = "two tables are called bytes",
        [NOTHING_READS] = "product: no layer reads what this layer makes",
        [SUM_OF_NO_PRODUCT] =
            "sum: sum_gelu is made by neither sl_linear nor a norm: the sum takes "
            "its memory (are the two inputs swapped?)",
        [SUM_OF_READ] = "sum: another layer reads product",
        [READ_BEHIND_SUM] = "product is read behind the sl_drop_add",
        [SUM_WITH_ITSELF] = "sum: product is added to itself",
    };
    for (int which = 0; which < MISTAKE_COUNT; which++)
        for (uint32_t stages = which == TWO_CROSS ? 2 : 1; stages <= (which == LONG_NAME ? 1 : 2);
             stages++) { /* of a layer of the first stage */
            sl_program *forward = NULL;
            const mistake it = (mistake)which;
            sl_model_options options = choose(1, stages);
            const sl_status expected = which == OWN_ERROR ? SL_ERROR_FIT : SL_ERROR_USAGE;
            options.stage_index = stages - 1;
            const sl_status status = sl_model_emit(build_mistaken, &it, &options, &forward);
            if (status != expected)
                fail_msg("mistake %d of %u stages: status %d, %s", which, stages, (int)status,
                         sl_status_message());
            if (words[which] != NULL && strstr(sl_status_message(), words[which]) == NULL)
                fail_msg("mistake %d of %u stages: %s", which, stages, sl_status_message());
        }
}

static sl_status build_twice(sl_model *model, const void *user)
{
    const sl_linear_spec same = {.out = WIDTH, .parallel = SL_ROWS};
    sl_tensor x = sl_embed(model, &bytes);
    (void)user;
    x = sl_linear(model, "l", x, &same);
    x = sl_gelu(model, "g", x);
    x = sl_linear(model, "l", x, &same);
    sl_head(model, "bytes", x);
    return SL_OK;
}

static void survey_when_two_layers_have_one_name_then_it_is_named(void **state)
{
    (void)state;
    sl_model_shape shape = {0};
    assert_int_equal(sl_model_shape_survey(build_twice, NULL, &shape), SL_ERROR_USAGE);
    assert_string_equal(sl_status_message(), "two layers have a parameter called l.bias");
    assert_int_equal(sl_model_shape_survey(build_mlp, NULL, &shape), SL_OK);
    assert_int_equal(shape.parameters, count_parameters());
}

/* ---- structs of programs that know more or fewer fields ---- */

/* What a later header may have made of sl_linear_spec. */
typedef struct later_linear {
    sl_linear_spec known;
    uint64_t added;
} later_linear;

typedef struct later_embedding {
    sl_embedding known;
    uint64_t added;
} later_embedding;

/* Sizes of the structs that the build function passes, and values of the fields that only it knows.
 */
typedef struct sized {
    size_t embedding, linear;
    uint64_t of_embedding, of_linear;
} sized;

static sl_status build_sized(sl_model *model, const void *user)
{
    const sized *it = user;
    const later_embedding table = {
        {.name = "t", .ids = IDS, .width = WIDTH, .positions = "p", .context = 16},
        it->of_embedding};
    const later_linear linear = {{.out = WIDTH, .parallel = SL_ROWS, .deviation = 0.5f},
                                 it->of_linear};
    sl_tensor x = sl_embed_sized(model, &table.known, it->embedding);
    x = sl_linear_sized(model, "linear", x, &linear.known, it->linear);
    sl_head(model, "t", x);
    return SL_OK;
}

static const sl_tensor_spec *find_spec(const sl_program *program, const char *name)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (strcmp(program->tensors[t].name, name) == 0)
            return &program->tensors[t];
    return NULL;
}

static sl_program *emit_sized(sized it)
{
    sl_program *forward = NULL;
    const sl_model_options options = choose(1, 1);
    if (sl_model_emit(build_sized, &it, &options, &forward) != SL_OK)
        fail_msg("%s", sl_status_message());
    return forward;
}

static void structs_when_older_then_missing_fields_are_zero(void **state)
{
    (void)state;
    sl_program *forward = emit_sized(
        (sized){offsetof(sl_embedding, positions), offsetof(sl_linear_spec, deviation), 1, 1});
    assert_non_null(find_spec(forward, "t.weight"));
    assert_null(find_spec(forward, "p.weight"));
    assert_true(find_spec(forward, "linear.weight")->init_deviation == 0.02f);
    sl_program_close(forward);
}

/* A program of before no_bias: the bytes behind `deviation` are padding, which it never writes, and
 * heads of a linear that is not split by SL_QKV are not read. */
static sl_status build_old_linear(sl_model *model, const void *user)
{
    enum { OLD_BYTES = 32 };
    sl_linear_spec linear;
    (void)user;
    memset(&linear, 0xff, sizeof linear);
    linear.out = WIDTH;
    linear.parallel = SL_COLUMNS;
    linear.heads = WIDTH + 1;
    linear.deviation = 0.5f;
    sl_tensor x = sl_embed(model, &(sl_embedding){.name = "t", .ids = IDS, .width = WIDTH});
    x = sl_linear_sized(model, "linear", x, &linear, OLD_BYTES);
    sl_head(model, "t", x);
    return SL_OK;
}

static void structs_when_of_an_old_program_then_its_padding_is_not_read(void **state)
{
    (void)state;
    sl_program *forward = NULL;
    const sl_model_options options = choose(1, 1);
    if (sl_model_emit(build_old_linear, NULL, &options, &forward) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_non_null(find_spec(forward, "linear.bias"));
    sl_program_close(forward);
}

static void structs_when_later_and_unset_then_as_today(void **state)
{
    (void)state;
    sl_program *forward = emit_sized((sized){sizeof(later_embedding), sizeof(later_linear), 0, 0});
    assert_non_null(find_spec(forward, "p.weight"));
    assert_true(find_spec(forward, "linear.weight")->init_deviation == 0.5f);
    sl_program_close(forward);
}

static void structs_when_an_unknown_field_is_set_then_refused(void **state)
{
    (void)state;
    static const struct {
        sized it;
        const char *words;
    } cases[] = {
        {{sizeof(later_embedding), sizeof(later_linear), 1, 0}, "sl_embedding: the program sets"},
        {{sizeof(later_embedding), sizeof(later_linear), 0, 1ull << 56},
         "sl_linear_spec: the program sets"},
        {{0, sizeof(sl_linear_spec), 0, 0}, "an embedding without a name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_program *forward = NULL;
        const sl_model_options options = choose(1, 1);
        assert_int_equal(sl_model_emit(build_sized, &cases[i].it, &options, &forward),
                         SL_ERROR_USAGE);
        if (strstr(sl_status_message(), cases[i].words) == NULL)
            fail_msg("%s", sl_status_message());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_when_divided_then_its_parts_add_up),
        cmocka_unit_test(names_when_emitted_then_those_of_checkpoints),
        cmocka_unit_test(build_when_mistaken_then_the_first_error_is_named),
        cmocka_unit_test(survey_when_two_layers_have_one_name_then_it_is_named),
        cmocka_unit_test(structs_when_older_then_missing_fields_are_zero),
        cmocka_unit_test(structs_when_of_an_old_program_then_its_padding_is_not_read),
        cmocka_unit_test(structs_when_later_and_unset_then_as_today),
        cmocka_unit_test(structs_when_an_unknown_field_is_set_then_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
