/* What could be wrong here: a size or a count, the first id of a panel, rows of the head that no
 * group handles, a part of a split model that is added twice or never. Counts are compared with the
 * published ones; two to four ranks with one, element by element; decoding with the loss. */
#include <stdio.h>

#include "program_run.h"

static const sl_model_shape tiny = {
    .layers = 2, .width = 12, .heads = 6, .context = 7, .vocab = 389};

/* Neither heads nor features of the MLP divide over three ranks, and the last has no id. */
static const sl_model_shape odd = {
    .layers = 1, .width = 10, .heads = 5, .context = 7, .vocab = 250};

/* ---- shapes ---- */

static void parameter_count_when_built_in_then_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t count;
    } rows[] = {{"gpt2", 124439808},
                {"gpt2-medium", 354823168},
                {"gpt2-large", 774030080},
                {"gpt2-xl", 1557611200}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sl_model_shape shape;
        assert_int_equal(sl_architecture_named(rows[i].name, &shape), SL_OK);
        assert_int_equal(sl_model_shape_parameters(&shape), rows[i].count);
    }
}

static void names_when_listed_then_each_is_known_and_larger(void **state)
{
    (void)state;
    uint64_t before = 0;
    sl_architecture_kind kind = SL_ARCHITECTURE_GPT2;
    for (const char *const *name = sl_architecture_names(); *name; name++) {
        sl_model_shape shape;
        assert_int_equal(sl_architecture_named(*name, &shape), SL_OK);
        assert_int_equal(sl_model_shape_check(&shape, 1), SL_OK);
        assert_true(shape.architecture != kind || sl_model_shape_parameters(&shape) > before);
        kind = shape.architecture;
        before = sl_model_shape_parameters(&shape);
    }
}

static void name_when_unknown_then_nearest_is_named(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"gpt2xl", "gpt2-xl"},
                                          {"gtp2", "gpt2"},
                                          {"gpt2-midium", "gpt2-medium"},
                                          {"gpt2-10B", "gpt2-10b"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sl_model_shape shape = {.layers = 99};
        char expected[64];
        snprintf(expected, sizeof expected, "did you mean %s?", rows[i][1]);
        assert_int_equal(sl_architecture_named(rows[i][0], &shape), SL_ERROR_USAGE);
        assert_non_null(strstr(sl_status_message(), expected));
        assert_int_equal(shape.layers, 99);
    }
}

static void check_when_shape_is_impossible_then_usage_error(void **state)
{
    (void)state;
    static const struct {
        sl_model_shape shape;
        uint32_t tp_size;
    } rows[] = {
        {{0, 12, 3, 7, 131}, 1},           {{2, 0, 3, 7, 131}, 1}, {{2, 12, 0, 7, 131}, 1},
        {{2, 12, 3, 0, 131}, 1},           {{2, 12, 3, 7, 0}, 1},  {{2, 12, 3, 7, 131}, 0},
        {{2, 13, 3, 7, 131}, 1},         /* 13 features over 3 heads */
        {{2, 12, 3, 7, 131}, 4},         /* 3 heads over 4 ranks */
        {{2, 12, 3, 7, UINT32_MAX}, 1},  /* ids beyond int32 */
        {{1, UINT32_MAX, 1, 7, 131}, 1}, /* 12 width^2 beyond 64 bits */
        {{60000, 1u << 30, 1, 7, 131}, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(sl_model_shape_check(&rows[i].shape, rows[i].tp_size), SL_ERROR_USAGE);
}

static sl_program *emit(const sl_model_shape *shape, const sl_model_options *options)
{
    sl_program *program = NULL;
    if (sl_model_shape_emit(shape, options, &program) != SL_OK)
        fail_msg("%s", sl_status_message());
    return program;
}

static void emit_when_options_are_wrong_then_usage_error(void **state)
{
    (void)state;
    static const sl_model_options rows[] = {
        {.batch = 0, .seq = 7, .tp_size = 1},
        {.batch = 1, .seq = 0, .tp_size = 1},
        {.batch = 1, .seq = 8, .tp_size = 1}, /* context 7 */
        {.batch = 1, .seq = 7, .tp_size = 2, .tp_rank = 2},
        {.batch = 1, .seq = 7, .tp_size = 1, .mode = SL_MODEL_CACHED, .cache_rows = 6},
        {.batch = 1, .seq = 7, .tp_size = 1, .mode = SL_MODEL_CACHED, .cache_rows = 8},
        {.batch = 1, .seq = 7, .tp_size = 1, .grad_type = SL_TYPE_BF16},
        {.batch = 1, .seq = 7, .tp_size = 1, .type = SL_TYPE_FP16, .grad_type = SL_TYPE_BF16},
        {.batch = 1, .seq = 7, .tp_size = 1, .type = SL_TYPE_COUNT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sl_program *program = NULL;
        assert_int_equal(sl_model_shape_emit(&tiny, &rows[i], &program), SL_ERROR_USAGE);
        assert_null(program);
    }
}

/* ---- parameters ---- */

/* Elements outside: padding rows are not counted. */
static uint64_t count_outside(const sl_program *program)
{
    uint64_t count = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        count += program->tensors[t].valid_rows * program->tensors[t].shape[1];
    return count;
}

static void specs_when_emitted_then_they_add_up_to_the_model(void **state)
{
    (void)state;
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named("gpt2", &shape), SL_OK);
    sl_program *program = emit(&shape, &(sl_model_options){.batch = 4, .seq = 1024, .tp_size = 1});
    assert_int_equal(count_outside(program), 124439808);
    assert_string_equal(program->tensors[0].name, "wte.weight");
    uint64_t next_id = 0;
    uint32_t panels = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        assert_int_equal(spec->decay, spec->dim_count == 2);
        assert_int_equal(spec->split, SL_SPLIT_NONE);
        if (strcmp(spec->name, "wte.weight") != 0)
            continue;
        assert_int_equal(spec->first_row, next_id);
        next_id += spec->shape[0];
        panels++;
    }
    assert_int_equal(next_id, 50304);
    assert_int_equal(panels, 17); /* 16 of 3072 rows and one of 1152 */
    assert_int_equal(program->tensor_count, 1 + 17 + 12 * 12 + 2);
    sl_program_close(program);
}

static const sl_tensor_spec *find_spec(const sl_program *program, const char *name)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (strcmp(program->tensors[t].name, name) == 0)
            return &program->tensors[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void specs_when_emitted_then_start_as_gpt2_does(void **state)
{
    (void)state;
    sl_program *program = emit(&tiny, &(sl_model_options){.batch = 1, .seq = 7, .tp_size = 1});
    static const struct {
        const char *name;
        float mean, deviation;
    } rows[] = {{"wte.weight", 0.0f, 0.02f},
                {"h.1.ln_1.weight", 1.0f, 0.0f},
                {"h.1.ln_1.bias", 0.0f, 0.0f},
                {"h.0.attn.c_attn.weight", 0.0f, 0.02f},
                {"h.0.attn.c_attn.bias", 0.0f, 0.0f},
                {"h.0.attn.c_proj.weight", 0.0f, 0.01f}, /* 0.02 / sqrt(2 * 2) */
                {"h.1.mlp.c_fc.weight", 0.0f, 0.02f},
                {"h.1.mlp.c_proj.weight", 0.0f, 0.01f},
                {"ln_f.weight", 1.0f, 0.0f}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const sl_tensor_spec *spec = find_spec(program, rows[i].name);
        assert_true(spec->init_mean == rows[i].mean);
        assert_true(spec->init_deviation == rows[i].deviation);
    }
    sl_program_close(program);
}

/* ---- the head ---- */

/* Of `batch` times 1024 rows, `group_count` groups of `rows` each, but the last. */
static void check_groups(uint64_t head_logits, uint32_t batch, uint64_t rows, uint32_t group_count)
{
    const uint64_t all = UINT64_C(1024) * batch;
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named("gpt2", &shape), SL_OK);
    sl_program *program = emit(
        &shape,
        &(sl_model_options){.batch = batch, .seq = 1024, .tp_size = 1, .head_logits = head_logits});
    uint64_t next_row = 0;
    uint32_t group = 0;
    for (uint32_t s = 0; s < program->segment_count; s++) {
        const sl_segment *segment = &program->segments[s];
        if (!segment->is_terminal)
            continue;
        const sl_op_attrs *attrs = &program->ops[segment->first_op].attrs;
        assert_int_equal(attrs->first_row, next_row);
        assert_int_equal(attrs->row_count, group + 1 < group_count ? rows : all - next_row);
        assert_int_equal(segment->op_count, 2 * 17 + 1);
        const sl_op *last = &program->ops[segment->first_op + segment->op_count - 1];
        assert_int_equal(last->kind, SL_OP_HEAD_LOSS);
        assert_int_equal(last->attrs.adds_output, group > 0);
        next_row += attrs->row_count;
        group++;
    }
    assert_int_equal(group, group_count);
    assert_int_equal(next_row, all);
    sl_program_close(program);
}

/* 32 Mi are 667 rows of 50304 logits, rounded down 640; 512 Mi are 10672, of which 10624; 256 Mi
 * are 5336, of which 5248. */
static void head_when_many_rows_then_groups_cover_each_row_once(void **state)
{
    (void)state;
    check_groups(0, 4, 640, 7);
    check_groups(sl_model_gpu_head_logits(SL_TYPE_BF16), 16, 10624, 2);
    check_groups(sl_model_gpu_head_logits(SL_TYPE_FP32), 16, 5248, 4);
    check_groups(1, 4, 128, 32);
}

/* Planning takes time and memory by op: neither many rows nor a narrow model with many ids may make
 * a program long. Of each piece of the head there are 2 ops, of each panel one more. */
static void program_when_rows_or_ids_are_many_then_stays_short(void **state)
{
    (void)state;
    static const struct {
        sl_model_shape shape;
        uint32_t batch;
    } rows[] = {
        {{12, 768, 12, 1024, 50257}, 500}, {{12, 768, 12, 1024, 50257}, 10000},
        {{12, 768, 12, 8192, 50257}, 64},  {{2, 3, 3, 1000, 1000003}, 4},
        {{2, 3, 3, 1000, 1000003}, 1000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const sl_model_options options = {
            .batch = rows[i].batch, .seq = rows[i].shape.context, .tp_size = 1};
        sl_program *program;
        assert_int_equal(sl_model_shape_emit(&rows[i].shape, &options, &program), SL_OK);
        print_message("case %zu: %u ops\n", i, program->op_count);
        assert_true(program->op_count < 20000);
        sl_program_close(program);
    }
}

static void step_when_derived_for_gpt2_then_well_formed(void **state)
{
    (void)state;
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named("gpt2", &shape), SL_OK);
    sl_program *program = emit(&shape, &(sl_model_options){.batch = 4, .seq = 1024, .tp_size = 1});
    it_layout layout = it_layout_make(program, 4ull << 20);
    for (int s = 0; s < 12; s++) {
        sl_step_options options = {3, (sl_accumulation)(s % 2), (sl_recompute)(s / 2 % 3), s / 6};
        sl_program *step;
        assert_int_equal(sl_program_derive_step(program, &layout.map, &options, &step), SL_OK);
        walk_step(step, &layout.map);
        sl_program_close(step);
    }
    it_layout_free(&layout);
    sl_program_close(program);
}

/* The same, in half precision: every type and size is the walker's to judge. */
static void step_when_derived_in_half_precision_then_well_formed(void **state)
{
    (void)state;
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named("gpt2", &shape), SL_OK);
    for (int s = 0; s < 12; s++) {
        bool is_layer = s % 2 == 0, is_half = s % 3 == 0;
        sl_program *step,
            *program = emit(&shape, &(sl_model_options){.batch = 1,
                                                        .seq = 1024,
                                                        .tp_size = 1,
                                                        .type = s < 6 ? SL_TYPE_BF16 : SL_TYPE_FP16,
                                                        .grad_type = SL_TYPE_FP32});
        program->grad_type = is_half ? program->type : SL_TYPE_FP32;
        it_layout layout = it_layout_make(program, 4ull << 20);
        sl_step_options options = {is_layer || !is_half ? 3 : 1, (sl_accumulation)is_layer,
                                   (sl_recompute)(s / 2 % 3), s / 6};
        assert_int_equal(sl_program_derive_step(program, &layout.map, &options, &step), SL_OK);
        walk_step(step, &layout.map);
        assert_true(step->has_state[SL_GROUP_MASTER]);
        sl_program_close(step);
        it_layout_free(&layout);
        sl_program_close(program);
    }
}

/* ---- tensor parallelism ---- */

static uint32_t count_collectives(const sl_program *program)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < program->op_count; o++)
        count += sl_op_info_of(program->ops[o].kind)->is_collective;
    return count;
}

static void emit_when_two_ranks_then_sizes_are_halved(void **state)
{
    (void)state;
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named("gpt2", &shape), SL_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        sl_program *program = emit(
            &shape, &(sl_model_options){.batch = 1, .seq = 1024, .tp_size = 2, .tp_rank = rank});
        /* embedding, two a block, the statistics of two row ranges */
        assert_int_equal(count_collectives(program), 1 + 2 * 12 + 2);
        assert_int_equal(find_spec(program, "h.3.attn.c_attn.weight")->shape[1], 3 * 384);
        assert_int_equal(find_spec(program, "h.3.attn.c_proj.weight")->shape[0], 384);
        assert_int_equal(find_spec(program, "h.3.attn.c_proj.weight")->first_row, 384 * rank);
        assert_int_equal(find_spec(program, "h.3.mlp.c_fc.weight")->shape[1], 2 * 768);
        assert_int_equal(find_spec(program, "h.3.mlp.c_fc.bias")->shape[0], 2 * 768);
        assert_int_equal(find_spec(program, "h.3.mlp.c_proj.bias")->shape[0], 768);
        assert_int_equal(find_spec(program, "h.3.mlp.c_proj.bias")->split, SL_SPLIT_NONE);
        assert_int_equal(find_spec(program, "h.3.mlp.c_proj.bias")->first_row, 0);
        assert_int_equal(find_spec(program, "h.3.attn.c_attn.bias")->split, SL_SPLIT_QKV);
        assert_int_equal(find_spec(program, "wte.weight")->shape[0], 1536);
        assert_int_equal(find_spec(program, "wte.weight")->first_row, rank * 25216);
        sl_program_close(program);
    }
    sl_program *single = emit(&shape, &(sl_model_options){.batch = 1, .seq = 9, .tp_size = 1});
    assert_int_equal(count_collectives(single), 0);
    sl_program_close(single);
}

/* What each rank holds, padding counted: published numbers of Megatron-LM, and derived ones. */
static void ranks_when_counted_hold_as_many_parameters_as_published(void **state)
{
    (void)state;
    static const struct {
        sl_model_shape shape;
        uint32_t tp_size;
        uint64_t count;
    } rows[] = {{{24, 1024, 16, 1024, 50257}, 1, 354871296},
                {{24, 1024, 16, 1024, 50257}, 2, 178100224},
                {{24, 1024, 16, 1024, 50257}, 4, 89714688},
                {{24, 1024, 16, 1024, 50257}, 8, 45521920},
                {{72, 3072, 24, 1024, 50257}, 8, 1043549184}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t rank = 0; rank < rows[i].tp_size; rank++) {
            uint64_t count = 0;
            sl_program *program =
                emit(&rows[i].shape,
                     &(sl_model_options){
                         .batch = 1, .seq = 16, .tp_size = rows[i].tp_size, .tp_rank = rank});
            for (uint32_t t = 0; t < program->tensor_count; t++)
                count += program->tensors[t].element_count;
            assert_int_equal(count, rows[i].count);
            sl_program_close(program);
        }
}

static double find_whole(const run *r, sl_group group, const char *name, uint64_t row,
                         uint64_t column)
{
    for (uint32_t t = 0; t < r->forward[0]->tensor_count; t++) {
        const sl_tensor_spec *spec = &r->forward[0]->tensors[t];
        bool is_here = strcmp(spec->name, name) == 0 && row >= spec->first_row &&
                       row < spec->first_row + spec->shape[0];
        if (is_here)
            return it_state_tensor(&r->state[0], group,
                                   t)[(row - spec->first_row) * spec->shape[1] + column];
    }
    return 0.0; /* padding that one rank does not have */
}

/* Splitting changes the order of sums of at most some hundred terms near 1: 1e-12 is generous in
 * double precision, and any part that is missing or doubled is off by far more. */
static void compare_ranks(const run *whole, const run *split, sl_group group, uint32_t rank)
{
    const sl_program *program = split->forward[rank];
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        const double *part = it_state_tensor(&split->state[rank], group, t);
        for (uint64_t e = 0; e < spec->element_count; e++) {
            uint64_t row, column;
            run_coordinates(spec, rank, e, &row, &column);
            double expected = run_is_padding(spec, rank, e)
                                  ? 0.0
                                  : find_whole(whole, group, spec->name, row, column);
            if (!(fabs(part[e] - expected) < 1e-12))
                fail_msg("rank %u: %s[%llu, %llu] is %g, not %g", rank, spec->name,
                         (unsigned long long)row, (unsigned long long)column, part[e], expected);
        }
    }
}

/* What ranks share besides tensors; COLUMNS: ColossalAI's layout. */
typedef enum sharing { NOTHING, ROWS, COLUMNS } sharing;

static void compare_tensor_parallel(uint32_t tp_size, const sl_model_shape *shape,
                                    sl_recompute recompute, sl_type type, sharing how)
{
    run_options options = {.shape = *shape,
                           .batch = how == NOTHING ? 2 : tp_size,
                           .sequence_parallel = how == ROWS,
                           .split_layout = how == COLUMNS ? SL_SPLIT_COLOSSAL : SL_SPLIT_MEGATRON,
                           .by_document = how != NOTHING && type == SL_TYPE_FP32,
                           .seq = 7,
                           .tp_size = 1,
                           .step = {2, SL_ACCUMULATE_LAYER, recompute, false,
                                    how == NOTHING && 14 * shape->width % tp_size == 0},
                           .type = type,
                           .grad_type = type,
                           .dropout = recompute == SL_RECOMPUTE_SELECTIVE ? 0.3f : 0.0f,
                           .iterations = 1};
    run whole, split;
    run_step(&options, &whole);
    options.tp_size = tp_size;
    run_step(&options, &split);
    assert_true(fabs(whole.loss - split.loss) < 1e-10);
    assert_true(fabs(whole.control[0] - split.control[0]) < 1e-9); /* blocks end elsewhere */
    for (uint32_t rank = 0; rank < tp_size; rank++)
        compare_ranks(&whole, &split, SL_GROUP_GRAD, rank);
    run_free(&whole);
    run_free(&split);
}

/* Of the emission and the derived step alone, in the interpreter. */
static void gradients_when_split_over_ranks_then_agree_with_one(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        compare_tensor_parallel(2, &tiny, (sl_recompute)mode, SL_TYPE_FP32, NOTHING);
        compare_tensor_parallel(3, &tiny, (sl_recompute)mode, SL_TYPE_FP32, NOTHING);
        compare_tensor_parallel(2, &tiny, (sl_recompute)mode, SL_TYPE_BF16, NOTHING);
        compare_tensor_parallel(4, &tiny, (sl_recompute)mode, SL_TYPE_FP32,
                                NOTHING); /* one has no head */
        compare_tensor_parallel(3, &odd, (sl_recompute)mode, SL_TYPE_FP32, NOTHING);
    }
}

static void gradients_when_ranks_share_rows_then_agree_with_one(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        compare_tensor_parallel(2, &tiny, (sl_recompute)mode, SL_TYPE_FP32, ROWS);
        compare_tensor_parallel(3, &odd, (sl_recompute)mode, SL_TYPE_BF16, ROWS);
        compare_tensor_parallel(4, &tiny, (sl_recompute)mode, SL_TYPE_BF16, ROWS);
    }
}

static void gradients_when_split_by_columns_then_agree_with_one(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        compare_tensor_parallel(2, &tiny, (sl_recompute)mode, SL_TYPE_FP32, COLUMNS);
        compare_tensor_parallel(3, &odd, (sl_recompute)mode, SL_TYPE_BF16, COLUMNS);
        compare_tensor_parallel(4, &tiny, (sl_recompute)mode, SL_TYPE_BF16, COLUMNS);
    }
}

/* Of GPT-2 124M in ColossalAI's layout, padding not counted; of its vocabulary it pads none. */
static void ranks_when_split_by_columns_hold_as_many_parameters_as_derived(void **state)
{
    (void)state;
    static const uint64_t counts[][2] = {{2, 62243712}, {4, 31145664}};
    sl_model_shape shape;
    assert_int_equal(sl_architecture_named("gpt2", &shape), SL_OK);
    for (size_t i = 0; i < 2; i++)
        for (uint32_t rank = 0; rank < counts[i][0]; rank++) {
            uint64_t count = 0;
            sl_program *program =
                emit(&shape, &(sl_model_options){.batch = 1,
                                                 .seq = 16,
                                                 .tp_size = (uint32_t)counts[i][0],
                                                 .tp_rank = rank,
                                                 .split_layout = SL_SPLIT_COLOSSAL});
            for (uint32_t t = 0; t < program->tensor_count; t++)
                for (uint64_t e = 0; e < program->tensors[t].element_count;
                     e += program->tensors[t].shape[1])
                    count += run_is_padding(&program->tensors[t], rank, e)
                                 ? 0
                                 : program->tensors[t].shape[1];
            assert_int_equal(count, counts[i][1]);
            sl_program_close(program);
        }
}

/* ---- decoding ---- */

static double run_loss(const sl_program *loss, const it_state *params)
{
    it_machine machine = it_machine_make(loss, params);
    run_fill_inputs(&machine, tiny.vocab, 0);
    it_run(&machine, 1);
    double result = it_slot(&machine, SL_VALUE_OUTPUT, SL_OUTPUT_LOSS)[0];
    it_machine_free(&machine);
    return result;
}

/* -log p(target) from the logits of all panels. */
static double last_token_loss(const it_machine *machine, uint32_t target)
{
    double sum = 0.0, chosen = 0.0;
    uint32_t first_id = 0;
    for (uint32_t p = 0; it_slot(machine, SL_VALUE_OUTPUT, p); p++) {
        const double *logits = it_slot(machine, SL_VALUE_OUTPUT, p);
        uint32_t ids = 128; /* 4 * 12 rounded up; 512 padded ids make whole panels */
        for (uint32_t i = 0; i < ids && first_id + i < tiny.vocab; i++) {
            sum += exp(logits[i]);
            chosen = first_id + i == target ? logits[i] : chosen;
        }
        first_id += ids;
    }
    assert_int_equal(first_id, 512);
    return log(sum) - chosen;
}

/* Runs `count` tokens from `position` on and returns the loss of the last one. */
static double decode_tokens(it_machine *machine, uint32_t position, uint32_t count)
{
    machine->scalars.position = position;
    for (uint32_t t = 0; t < count; t++)
        it_slot(machine, SL_VALUE_INPUT, 0)[t] = run_token(tiny.vocab, 0, position + t);
    it_run(machine, 1);
    return last_token_loss(machine, (uint32_t)run_token(tiny.vocab, 0, position + count));
}

static sl_program *emit_decoder(uint32_t seq, sl_type type)
{
    return emit(&tiny,
                &(sl_model_options){
                    .batch = 1, .seq = seq, .tp_size = 1, .mode = SL_MODEL_CACHED, .type = type});
}

/* One token after the other, each against the cache of those before: the losses add up to those of
 * the whole row at once. */
static void decoding_when_token_by_token_then_agrees_with_the_loss(void **state)
{
    (void)state;
    sl_program *loss = emit(&tiny, &(sl_model_options){.batch = 1, .seq = 7, .tp_size = 1});
    sl_program *one = emit_decoder(1, SL_TYPE_FP32), *four = emit_decoder(4, SL_TYPE_FP16);
    it_layout layout = it_layout_make(loss, RUN_CHUNK_ELEMENTS);
    it_state params = it_state_make(&layout);
    run_fill_parameters(loss, &params, 0);
    assert_int_equal(loss->tensor_count, one->tensor_count);
    assert_memory_equal(loss->tensors, one->tensors, loss->tensor_count * sizeof *loss->tensors);
    it_machine stepping = it_machine_make(one, &params), prefill = it_machine_make(four, &params);
    double losses[7], sum = 0.0;
    for (uint32_t t = 0; t < 7; t++)
        sum += losses[t] = decode_tokens(&stepping, t, 1);
    assert_true(fabs(sum - run_loss(loss, &params)) < 1e-10);
    assert_true(fabs(decode_tokens(&prefill, 0, 4) - losses[3]) < 1e-12);
    it_machine_free(&stepping);
    it_machine_free(&prefill);
    it_state_free(&params);
    it_layout_free(&layout);
    sl_program_close(loss);
    sl_program_close(one);
    sl_program_close(four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_count_when_built_in_then_as_published),
        cmocka_unit_test(names_when_listed_then_each_is_known_and_larger),
        cmocka_unit_test(name_when_unknown_then_nearest_is_named),
        cmocka_unit_test(check_when_shape_is_impossible_then_usage_error),
        cmocka_unit_test(emit_when_options_are_wrong_then_usage_error),
        cmocka_unit_test(specs_when_emitted_then_they_add_up_to_the_model),
        cmocka_unit_test(specs_when_emitted_then_start_as_gpt2_does),
        cmocka_unit_test(head_when_many_rows_then_groups_cover_each_row_once),
        cmocka_unit_test(program_when_rows_or_ids_are_many_then_stays_short),
        cmocka_unit_test(step_when_derived_for_gpt2_then_well_formed),
        cmocka_unit_test(step_when_derived_in_half_precision_then_well_formed),
        cmocka_unit_test(emit_when_two_ranks_then_sizes_are_halved),
        cmocka_unit_test(ranks_when_counted_hold_as_many_parameters_as_published),
        cmocka_unit_test(gradients_when_split_over_ranks_then_agree_with_one),
        cmocka_unit_test(gradients_when_ranks_share_rows_then_agree_with_one),
        cmocka_unit_test(gradients_when_split_by_columns_then_agree_with_one),
        cmocka_unit_test(ranks_when_split_by_columns_hold_as_many_parameters_as_derived),
        cmocka_unit_test(decoding_when_token_by_token_then_agrees_with_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
