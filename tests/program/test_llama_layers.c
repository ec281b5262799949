/* The layers of Llama and Qwen, as a whole model: RMS norms of tokens and of heads, linears without
 * bias, rotary positions, attention of grouped heads with q, k and v apart, SwiGLU, an untied head;
 * and those that Gemma has instead: a scaled embedding, norms of 1 + weight, GeGLU; OLMo 2 as it is
 * built in, whose norms stand behind what they normalise, and whose attention each rank computes.
 *
 * What could be wrong: a gradient rule (a term left out, the turn back in the wrong direction, a
 * norm of heads whose gradient one rank keeps for itself), a head that reads another's keys, a
 * position that is that of the row and not that of the document or of the cache, a table filled by
 * another formula, two layers that do not share one, heads that ranks cannot divide. The plain
 * interpreter runs the programs in double precision, against differences of the loss, against other
 * divisions of the same model, and against itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "llama_model.h"
#include "program_check.h"

static run_options options_of(const llama_sizes *sizes)
{
    return (run_options){.shape = {.architecture = SL_ARCHITECTURE_OWN,
                                   .vocab = (uint32_t)sizes->ids,
                                   .build = llama_build,
                                   .user = sizes},
                         .batch = 2,
                         .seq = 7,
                         .tp_size = 1,
                         .step = {.micro_batch_count = 1},
                         .iterations = 1};
}

static run_options olmo2_options(void)
{
    run_options options = {.shape = {.layers = 2,
                                     .width = 10,
                                     .heads = 4,
                                     .context = 24,
                                     .vocab = 131,
                                     .architecture = SL_ARCHITECTURE_OLMO2,
                                     .kv_heads = 2,
                                     .head = 6,
                                     .ffn = 13,
                                     .is_untied = true},
                           .batch = 2,
                           .seq = 7,
                           .tp_size = 1,
                           .step = {.micro_batch_count = 2},
                           .iterations = 1};
    sl_model_shape_complete(&options.shape);
    return options;
}

/* ---- gradients ---- */

static void gradients_when_compared_with_differences_then_agree(void **state)
{
    (void)state;
    llama_sizes kinds[] = {llama_tiny, llama_tiny, llama_tiny, llama_tiny};
    kinds[1].has_head_norms = false;
    kinds[1].has_biases = true;
    kinds[1].is_tied = true;
    kinds[2].kv_heads = 4;
    kinds[2].has_no_rotary = true;
    kinds[3].is_gemma = kinds[3].is_tied = true;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int mode = 0; mode < 3; mode++) {
            run_options options = options_of(&kinds[k]);
            options.step.recompute = (sl_recompute)mode;
            options.step.micro_batch_count = 1 + (uint32_t)k;
            options.by_document = mode == 1;
            options.dropout = k == 0 && mode == 2 ? 0.3f : 0;
            check_gradients(&options, mode == 0 ? 12 : 3);
        }
}

static void olmo2_when_compared_with_differences_then_agrees(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        run_options options = olmo2_options();
        options.step.recompute = (sl_recompute)mode;
        options.dropout = mode == 1 ? 0.3f : 0;
        check_gradients(&options, mode == 0 ? 12 : 3);
    }
}

static void recompute_when_it_differs_then_bits_are_the_same(void **state)
{
    (void)state;
    run plain, other;
    run_options options = options_of(&llama_tiny);
    options.step.micro_batch_count = 3;
    run_step(&options, &plain);
    for (int mode = 1; mode < 3; mode++)
        for (int order = 0; order < 2; order++) {
            options.step.recompute = (sl_recompute)mode;
            options.step.accumulation = (sl_accumulation)order;
            run_step(&options, &other);
            assert_same_bits(&plain, &other);
            run_free(&other);
        }
    run_free(&plain);
}

/* ---- documents ---- */

/* Documents are of 3 tokens: two in a row are two rows of their own. */
static void documents_when_kept_apart_are_as_alone(void **state)
{
    (void)state;
    run together, alone;
    run_options options = options_of(&llama_tiny);
    options.batch = 1;
    options.seq = 6;
    options.by_document = true;
    run_step(&options, &together);
    options.by_document = false;
    options.batch = 2;
    options.seq = 3;
    run_step(&options, &alone);
    assert_true(fabs(together.loss / alone.loss - 1) < 1e-13);
    assert_true(fabs(together.control[0] / alone.control[0] - 1) < 1e-11);
    options.batch = 1; /* the order of the tokens matters at all */
    options.seq = 6;
    run_free(&alone);
    run_step(&options, &alone);
    assert_true(fabs(together.loss / alone.loss - 1) > 1e-6);
    run_free(&alone);
    run_free(&together);
}

/* ---- ranks ---- */

/* The element of `whole` at these coordinates of a tensor or panel of that name. */
static double find_element(const run *whole, const char *name, uint64_t row, uint64_t column)
{
    const sl_program *forward = whole->forward[0];
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        const sl_tensor_spec *spec = &forward->tensors[t];
        if (strcmp(spec->name, name) == 0 && row >= spec->first_row &&
            row < spec->first_row + spec->shape[0])
            return it_state_tensor(&whole->state[0], SL_GROUP_GRAD,
                                   t)[(row - spec->first_row) * spec->shape[1] + column];
    }
    fail_msg("no tensor %s has row %llu", name, (unsigned long long)row);
    return 0;
}

static void compare_rank(const run *whole, const run *many, uint32_t rank)
{
    const sl_program *forward = many->forward[rank];
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        const sl_tensor_spec *spec = &forward->tensors[t];
        const double *gradient = it_state_tensor(&many->state[rank], SL_GROUP_GRAD, t);
        for (uint64_t e = 0; e < spec->element_count; e++) {
            uint64_t row, column;
            run_coordinates(spec, rank, e, &row, &column);
            const double want =
                run_is_padding(spec, rank, e) ? 0 : find_element(whole, spec->name, row, column);
            if (!(fabs(gradient[e] - want) <= 1e-12 + 1e-10 * fabs(want)))
                fail_msg("rank %u: %s, row %llu, column %llu: gradient %.12g, of one rank %.12g",
                         rank, spec->name, (unsigned long long)row, (unsigned long long)column,
                         gradient[e], want);
        }
    }
}

static void ranks_when_two_then_gradients_are_those_of_one(void **state)
{
    (void)state;
    llama_sizes kinds[] = {llama_tiny, llama_tiny, llama_tiny, llama_tiny};
    kinds[1].has_head_norms = false;
    kinds[1].has_biases = true;
    kinds[1].is_tied = true;
    kinds[2].heads = kinds[2].kv_heads = 3; /* rank 1 has one head, and a head of zeros */
    kinds[3].is_gemma = kinds[3].is_tied = true;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        run whole, many;
        run_options options = options_of(&kinds[k]);
        run_step(&options, &whole);
        options.tp_size = 2;
        for (int way = 0; way < 3; way++) {
            options.sequence_parallel = way == 1;
            options.step.recompute = way == 2 ? SL_RECOMPUTE_FULL : SL_RECOMPUTE_NONE;
            run_step(&options, &many);
            assert_true(fabs(many.loss / whole.loss - 1) < 1e-12);
            assert_true(fabs(many.control[0] / whole.control[0] - 1) < 1e-10);
            for (uint32_t rank = 0; rank < 2; rank++)
                compare_rank(&whole, &many, rank);
            run_free(&many);
        }
        run_free(&whole);
    }
}

/* All ranks drop the same elements of the attention that each of them computes. */
static void olmo2_when_on_ranks_then_gradients_are_those_of_one(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        run whole, many;
        run_options options = olmo2_options();
        options.dropout = way % 2 ? 0.3f : 0;
        run_step(&options, &whole);
        options.tp_size = way == 2 ? 4 : 2; /* more than key heads */
        options.split_layout = way == 3 ? SL_SPLIT_COLOSSAL : SL_SPLIT_MEGATRON;
        options.step.recompute = way == 1 ? SL_RECOMPUTE_FULL : SL_RECOMPUTE_NONE;
        run_step(&options, &many);
        assert_true(fabs(many.loss / whole.loss - 1) < 1e-12);
        assert_true(fabs(many.control[0] / whole.control[0] - 1) < 1e-10);
        for (uint32_t rank = 0; rank < options.tp_size; rank++)
            compare_rank(&whole, &many, rank);
        run_free(&many);
        run_free(&whole);
    }
}

/* ---- decoding ---- */

static it_machine make_decoder(const sl_program *program, const it_state *state)
{
    it_machine machine = it_machine_make(program, state);
    assert_int_equal(program->constant_count, 1);
    return machine;
}

static void read_tokens(it_machine *machine, const double *tokens, uint32_t position,
                        uint32_t count)
{
    machine->scalars.position = position;
    memcpy(it_slot(machine, SL_VALUE_INPUT, SL_INPUT_TOKENS), tokens + position,
           count * sizeof *tokens);
    it_run(machine, 1);
}

/* Token by token with a cache, and all at once. */
static void decoding_when_cached_equals_the_whole_pass(void **state)
{
    (void)state;
    enum { TOKENS = 6 };
    const double tokens[TOKENS] = {3, 130, 17, 17, 0, 99};
    const run_options options = options_of(&llama_tiny);
    sl_program *programs[2];
    for (int i = 0; i < 2; i++) {
        const sl_model_options emit = {
            .batch = 1, .seq = i ? TOKENS : 1, .tp_size = 1, .mode = SL_MODEL_CACHED};
        assert_int_equal(sl_model_shape_emit(&options.shape, &emit, &programs[i]), SL_OK);
    }
    it_layout layout = it_layout_make(programs[0], RUN_CHUNK_ELEMENTS);
    it_state parameters = it_state_make(&layout);
    run_fill_parameters(programs[0], &parameters, 0);
    it_machine one = make_decoder(programs[0], &parameters);
    it_machine all = make_decoder(programs[1], &parameters);
    for (uint32_t t = 0; t < TOKENS; t++)
        read_tokens(&one, tokens, t, 1);
    read_tokens(&all, tokens, 0, TOKENS);
    const double *a = it_slot(&one, SL_VALUE_OUTPUT, 0), *b = it_slot(&all, SL_VALUE_OUTPUT, 0);
    for (uint64_t i = 0; i < 64; i++)
        assert_true(fabs(a[i] - b[i]) < 1e-12);
    read_tokens(&one, tokens, TOKENS - 2, 1); /* another token at another position */
    assert_true(fabs(a[0] - b[0]) > 1e-6);
    it_machine_free(&one);
    it_machine_free(&all);
    it_state_free(&parameters);
    it_layout_free(&layout);
    for (int i = 0; i < 2; i++)
        sl_program_close(programs[i]);
}

/* ---- tables ---- */

/* As Hugging Face computes frequencies, from wavelengths. */
static double find_frequency(const sl_rotary_spec *spec, double width, double pair)
{
    const double plain = 1 / pow(spec->base, 2 * pair / width), wavelength = 2 * M_PI / plain;
    const double original = (double)spec->original_context;
    if (spec->scaling == SL_ROTARY_LINEAR)
        return plain / spec->factor;
    if (spec->scaling != SL_ROTARY_LLAMA3 || wavelength < original / spec->high_frequency_factor)
        return plain;
    if (wavelength > original / spec->low_frequency_factor)
        return plain / spec->factor;
    const double smooth = (original / wavelength - spec->low_frequency_factor) /
                          (spec->high_frequency_factor - spec->low_frequency_factor);
    return (1 - smooth) * plain / spec->factor + smooth * plain;
}

/* The first table of the model that has these angles. */
static sl_constant table_of(const sl_rotary_spec *spec, uint64_t width, uint64_t positions)
{
    llama_sizes sizes = llama_tiny;
    sizes.head = width;
    sizes.rotary = *spec;
    sizes.context = positions;
    const sl_model_options emit = {.batch = 1, .seq = (uint32_t)positions, .tp_size = 1};
    sl_program *forward;
    if (sl_model_emit(llama_build, &sizes, &emit, &forward) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(forward->constant_count, 1);
    const sl_constant table = forward->constants[0];
    sl_program_close(forward);
    return table;
}

/* All three bands of Llama 3.1's numbers occur in a head of 128. */
static void table_when_filled_has_the_angles_of_the_definition(void **state)
{
    (void)state;
    enum { WIDTH = 128, FIRST = 8190, ROWS = 3 };
    static const sl_rotary_spec specs[] = {
        {.base = 10000},
        {.base = 10000, .scaling = SL_ROTARY_LINEAR, .factor = 4},
        {.base = 500000,
         .scaling = SL_ROTARY_LLAMA3,
         .factor = 8,
         .low_frequency_factor = 1,
         .high_frequency_factor = 4,
         .original_context = 8192}};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        float rows[ROWS * WIDTH];
        const sl_constant table = table_of(&specs[s], WIDTH, 10000);
        assert_int_equal(table.positions, 10000);
        assert_int_equal(table.width, WIDTH);
        sl_constant_fill(&table, FIRST, ROWS, rows);
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < WIDTH / 2; i++) {
                const double angle = (FIRST + row) * find_frequency(&specs[s], WIDTH, i);
                assert_true(fabs((double)rows[row * WIDTH + i] - cos(angle)) < 1e-7);
                assert_true(fabs((double)rows[row * WIDTH + WIDTH / 2 + i] - sin(angle)) < 1e-7);
            }
    }
}

/* Two attentions; the second one turns by other angles. */
static sl_status build_two_tables(sl_model *model, const void *user)
{
    const sl_linear_spec narrow = {.out = 8, .parallel = SL_COLUMNS, .column_heads = 2};
    const sl_linear_spec back = {.out = 8, .parallel = SL_ROWS};
    const sl_attention_spec heads = {2, 2};
    sl_tensor x = sl_embed(model, &(sl_embedding){.name = "wte", .ids = 131, .width = 8});
    (void)user;
    for (uint32_t b = 0; b < 2; b++) {
        const sl_rotary_spec angles = {.heads = 2, .context = 16, .base = b == 0 ? 100 : 200};
        sl_block(model, "h", b);
        const sl_tensor q =
            sl_rotary(model, "q_rotary", sl_linear(model, "q", x, &narrow), &angles);
        const sl_tensor k =
            sl_rotary(model, "k_rotary", sl_linear(model, "k", x, &narrow), &angles);
        const sl_tensor v = sl_linear(model, "v", x, &narrow);
        const sl_tensor y = sl_attend(model, "attn", q, k, v, &heads);
        x = sl_drop_add(model, "add", sl_linear(model, "back", y, &back), x);
        sl_block_end(model);
    }
    sl_head(model, "wte", x);
    return SL_OK;
}

/* Each rotary reads the table of its own block, whose slot no cache and no other table has. */
static void tables_when_angles_differ_are_two(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        const sl_model_options emit = {.batch = 2,
                                       .seq = 1 + 6 * (mode == 0),
                                       .tp_size = 1,
                                       .cache_rows = 16,
                                       .mode = mode ? SL_MODEL_CACHED : SL_MODEL_LOSS};
        sl_program *forward;
        uint32_t turns = 0;
        if (sl_model_emit(build_two_tables, NULL, &emit, &forward) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_int_equal(forward->constant_count, 2);
        assert_int_not_equal(forward->constants[0].slot, forward->constants[1].slot);
        for (uint32_t o = 0; o < forward->op_count; o++) {
            const sl_op *op = &forward->ops[o];
            if (op->kind == SL_OP_ROTARY) {
                const uint32_t block = turns++ / 2;
                assert_true(forward->constants[block].base == (block == 0 ? 100 : 200));
                assert_int_equal(forward->values[op->operand[1]].index,
                                 forward->constants[block].slot);
            }
            for (int c = 0; op->kind == SL_OP_ATTENTION_CACHED && c < 2; c++)
                for (int i = 0; i < SL_OPERAND_MAX; i++)
                    if (op->operand[i] != SL_NONE &&
                        forward->values[op->operand[i]].kind == SL_VALUE_PERSISTENT)
                        assert_int_not_equal(forward->values[op->operand[i]].index,
                                             forward->constants[c].slot);
        }
        assert_int_equal(turns, 4);
        sl_program_close(forward);
    }
}

/* q and k have different numbers of heads, and turn by the same angles. */
static void tables_when_angles_are_the_same_are_one(void **state)
{
    (void)state;
    const sl_model_options emit = {.batch = 2, .seq = 7, .tp_size = 1};
    const run_options options = options_of(&llama_tiny);
    sl_program *forward;
    uint32_t ops = 0;
    assert_int_equal(sl_model_shape_emit(&options.shape, &emit, &forward), SL_OK);
    assert_int_equal(forward->constant_count, 1);
    const uint32_t slot = forward->constants[0].slot;
    for (uint32_t o = 0; o < forward->op_count; o++) {
        const sl_op *op = &forward->ops[o];
        if (op->kind != SL_OP_ROTARY)
            continue;
        const sl_value *table = &forward->values[op->operand[1]];
        assert_int_equal(table->kind, SL_VALUE_PERSISTENT);
        assert_int_equal(table->index, slot);
        assert_int_equal(table->bytes, sl_constant_bytes(&forward->constants[0]));
        ops++;
    }
    assert_int_equal(ops, 2 * llama_tiny.layers);
    sl_program_close(forward);
}

/* ---- what is refused ---- */

/* A factor of 0 would leave nothing to train; an offset that is no number is no offset. */
static sl_status build_scaled(sl_model *model, const void *user)
{
    const float *numbers = user;
    const sl_rms_spec norm = {.epsilon = 1e-5f, .weight_offset = numbers[1]};
    sl_tensor x = sl_embed(model, &(sl_embedding){.name = "wte", .ids = 131, .width = 8});
    x = sl_rms_norm(model, "norm", sl_scale(model, "scale", x, numbers[0]), &norm);
    sl_head(model, "wte", x);
    return SL_OK;
}

static void factors_when_they_are_no_numbers_are_refused(void **state)
{
    (void)state;
    static const struct {
        float numbers[2];
        const char *words;
    } rows[] = {{{2, 1}, NULL},
                {{0, 0}, "scale: a factor of 0"},
                {{INFINITY, 0}, "scale: a factor of inf"},
                {{1, NAN}, "norm: a weight_offset of nan"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const sl_model_options emit = {.batch = 2, .seq = 7, .tp_size = 1};
        sl_program *forward = NULL;
        const sl_status status = sl_model_emit(build_scaled, rows[i].numbers, &emit, &forward);
        assert_int_equal(status, rows[i].words ? SL_ERROR_USAGE : SL_OK);
        if (rows[i].words && !strstr(sl_status_message(), rows[i].words))
            fail_msg("\"%s\": not \"%s\"", sl_status_message(), rows[i].words);
        if (status == SL_OK)
            sl_program_close(forward);
    }
}

static void expect_refused(const llama_sizes *sizes, uint32_t tp_size, const char *words)
{
    const sl_model_options emit = {.batch = 2, .seq = 7, .tp_size = tp_size};
    const run_options options = options_of(sizes);
    sl_program *forward = NULL;
    const sl_status status = sl_model_emit(llama_build, options.shape.user, &emit, &forward);
    if (status != SL_ERROR_USAGE || strstr(sl_status_message(), words) == NULL)
        fail_msg("status %d, \"%s\": not \"%s\"", (int)status, sl_status_message(), words);
}

/* A linear of two heads that ranks share, and a layer that does not compute head by head. */
static sl_status build_shared(sl_model *model, const void *user)
{
    const sl_linear_spec shared = {
        .out = 12, .parallel = SL_COLUMNS, .column_heads = 2, .shares_heads = 1};
    const sl_tensor x = sl_embed(model, &(sl_embedding){.name = "wte", .ids = 131, .width = 8});
    (void)user;
    sl_head(model, "wte", sl_gelu(model, "gelu", sl_linear(model, "k", x, &shared)));
    return SL_OK;
}

static void heads_when_ranks_share_them_are_read_by_heads_alone(void **state)
{
    (void)state;
    sl_model_options emit = {.batch = 2, .seq = 7, .tp_size = 3};
    sl_program *forward = NULL;
    assert_int_equal(sl_model_emit(build_shared, NULL, &emit, &forward), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "3 tensor-parallel ranks cannot share 2 heads"));
    emit.tp_size = 4;
    assert_int_equal(sl_model_emit(build_shared, NULL, &emit, &forward), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "the heads of k are fewer than the 4"));
}

/* What a gathered linear makes has the rows of all ranks, the residual those of one. */
static sl_status build_gathered(sl_model *model, const void *user)
{
    const sl_linear_spec gathered = {.out = 8, .parallel = SL_GATHERED};
    const sl_tensor x = sl_embed(model, &(sl_embedding){.name = "wte", .ids = 131, .width = 8});
    const sl_tensor y = sl_linear(model, "y", x, &gathered);
    sl_head(model, "wte", user ? sl_drop(model, "drop", y) : sl_drop_add(model, "sum", y, x));
    return SL_OK;
}

static void rows_when_ranks_share_them_are_not_mixed_with_those_of_all(void **state)
{
    (void)state;
    sl_model_options emit = {.batch = 2, .seq = 7, .tp_size = 2, .sequence_parallel = true};
    const run_options olmo2 = olmo2_options();
    sl_program *forward = NULL;
    assert_int_equal(sl_model_emit(build_gathered, NULL, &emit, &forward), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "sum: y has the rows of all ranks"));
    emit.dropout = 0.1f;
    assert_int_equal(sl_model_emit(build_gathered, &emit, &emit, &forward), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "drop: y has the rows of all ranks"));
    assert_int_equal(sl_model_shape_emit(&olmo2.shape, &emit, &forward), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "leave out --sequence-parallel"));
}

static void sizes_when_they_do_not_fit_are_refused(void **state)
{
    (void)state;
    llama_sizes sizes = llama_tiny;
    expect_refused(&sizes, 4, "cannot be divided among 4 tensor-parallel ranks");
    sizes.kv_heads = 3;
    expect_refused(&sizes, 1, "3 key heads do not divide 4 heads");
    sizes = llama_tiny;
    sizes.head = 5;
    expect_refused(&sizes, 1, "are not 4 heads of an even width");
    sizes = llama_tiny;
    sizes.context = 6;
    expect_refused(&sizes, 1, "rotary has 6 positions, the run asks for 7");
    sizes = llama_tiny;
    sizes.rotary.base = 0;
    expect_refused(&sizes, 1, "rotary of base 0");
    sizes = llama_tiny;
    sizes.rotary.scaling = SL_ROTARY_LINEAR;
    expect_refused(&sizes, 1, "scaled by 0");
    sizes.rotary.factor = 1e-320; /* its reciprocal is infinite */
    expect_refused(&sizes, 1, "below 1");
    sizes.rotary.scaling = SL_ROTARY_LLAMA3;
    sizes.rotary.factor = 8;
    expect_refused(&sizes, 1, "frequency factors of 0 and 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_compared_with_differences_then_agree),
        cmocka_unit_test(olmo2_when_compared_with_differences_then_agrees),
        cmocka_unit_test(olmo2_when_on_ranks_then_gradients_are_those_of_one),
        cmocka_unit_test(rows_when_ranks_share_them_are_not_mixed_with_those_of_all),
        cmocka_unit_test(recompute_when_it_differs_then_bits_are_the_same),
        cmocka_unit_test(documents_when_kept_apart_are_as_alone),
        cmocka_unit_test(ranks_when_two_then_gradients_are_those_of_one),
        cmocka_unit_test(decoding_when_cached_equals_the_whole_pass),
        cmocka_unit_test(table_when_filled_has_the_angles_of_the_definition),
        cmocka_unit_test(tables_when_angles_are_the_same_are_one),
        cmocka_unit_test(tables_when_angles_differ_are_two),
        cmocka_unit_test(heads_when_ranks_share_them_are_read_by_heads_alone),
        cmocka_unit_test(sizes_when_they_do_not_fit_are_refused),
        cmocka_unit_test(factors_when_they_are_no_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
