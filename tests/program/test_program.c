/* What could be wrong here: a gradient rule, the order of sums, a value that is used after it was
 * recomputed away or updated in place, a chunk that is normed too soon. The steps are run on a
 * plain double-precision interpreter: gradients are compared with finite differences of the loss,
 * and all schedules with each other, bit by bit. A walker checks the form of every step that is
 * run. */
#include "program_check.h"

/* ---- gradients ---- */

static void gradients_when_compared_with_differences_then_agree(void **state)
{
    (void)state;
    run_options options = tiny_options();
    check_gradients(&options, runs_full() ? UINT64_MAX : 64);
}

static void gradients_when_three_micro_batches_then_agree(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.step = (sl_step_options){3, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_FULL, false};
    check_gradients(&options, runs_full() ? 512 : 16);
}

static void gradients_when_head_has_row_groups_then_agree(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.range_rows = 5; /* 14 rows: 5, 5, 4 */
    options.step.recompute = SL_RECOMPUTE_FULL;
    check_gradients(&options, runs_full() ? 512 : 32);
}

static void gradients_when_model_is_odd_then_agree(void **state)
{
    (void)state;
    run_options options = odd_options();
    options.step = (sl_step_options){2, SL_ACCUMULATE_MICRO, SL_RECOMPUTE_FULL, false};
    check_gradients(&options, runs_full() ? UINT64_MAX : 64);
}

/* ---- bits ---- */

static void compare_schedules(run_options options, uint32_t micro_batch_count, float clip)
{
    options.step.micro_batch_count = micro_batch_count;
    options.clip = clip;
    options.iterations = 2;
    run reference;
    run_step(&options, &reference);
    for (int s = 1; s < 12; s++) {
        options.step.accumulation = (sl_accumulation)(s % 2);
        options.step.recompute = (sl_recompute)(s / 2 % 3);
        options.step.update_early = s / 6;
        if (options.step.update_early && (clip > 0.0f || options.masks))
            continue;
        run other;
        run_step(&options, &other);
        assert_same_bits(&reference, &other);
        run_free(&other);
    }
    run_free(&reference);
}

static void schedules_when_one_micro_batch_then_same_bits(void **state)
{
    (void)state;
    compare_schedules(tiny_options(), 1, 0.0f);
    compare_schedules(tiny_options(), 1, 0.01f);
}

/* With four and more the micro-batches between the first and the last are repetitions. */
static void schedules_when_micro_batches_repeat_then_same_bits(void **state)
{
    (void)state;
    compare_schedules(tiny_options(), 4, 0.0f);
    compare_schedules(tiny_options(), 5, 0.01f);
    run_options options = odd_options();
    compare_schedules(options, 17, 0.01f);
}

static void gradients_when_micro_batches_repeat_then_agree(void **state)
{
    (void)state;
    for (uint32_t count = 4; count <= 5; count++)
        for (int order = 0; order < 2; order++) {
            run_options options = tiny_options();
            options.step =
                (sl_step_options){count, (sl_accumulation)order, SL_RECOMPUTE_NONE, false};
            check_gradients(&options, 4);
        }
}

/* ---- masked targets ---- */

/* How many targets of a step are not masked. */
static double count_targets(const run_options *options)
{
    double count = 0;
    for (uint32_t m = 0; m < options->step.micro_batch_count; m++)
        for (uint64_t i = 0; i < (uint64_t)options->batch * options->seq; i++)
            count += !run_is_masked(m, i);
    return count;
}

/* The stored gradients are of the loss over all rows; `share` is what the updates multiply with. */
static void check_masked_control(const run_options *options)
{
    run r;
    run_step(options, &r);
    const double counted = count_targets(options),
                 rows = (double)options->batch * options->seq * options->step.micro_batch_count;
    double squares = 0;
    for (uint32_t t = 0; t < r.forward[0]->tensor_count; t++)
        for (uint64_t e = 0; e < r.forward[0]->tensors[t].element_count; e++) {
            const double g = it_state_tensor(&r.state[0], SL_GROUP_GRAD, t)[e];
            squares += g * g;
        }
    const double norm = sqrt(squares) * rows / counted;
    assert_true(counted > 0 && counted < rows && r.counted == counted);
    assert_true(fabs(r.control[0] / norm - 1) < 1e-9);
    const double factor = options->clip > 0 ? fmin(1, options->clip / (norm + 1e-6)) : 1;
    assert_true(fabs(r.control[1] / (factor * rows / counted) - 1) < 1e-9);
    run_free(&r);
}

static void gradients_when_targets_are_masked_then_agree(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 4; count += 3)
        for (int order = 0; order < 2; order++) {
            run_options options = tiny_options();
            options.masks = true;
            options.range_rows = 5;
            options.by_document = order == 1;
            options.step =
                (sl_step_options){count, (sl_accumulation)order, SL_RECOMPUTE_FULL, false};
            check_gradients(&options, 6);
            check_masked_control(&options);
            options.clip = 0.01f;
            check_masked_control(&options);
        }
}

static void schedules_when_targets_are_masked_then_same_bits(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.masks = true;
    compare_schedules(options, 1, 0.0f);
    compare_schedules(options, 5, 0.01f);
}

/* Documents, dropout, both. */
static run_options masked_options(int which)
{
    run_options options = tiny_options();
    options.by_document = which != 1;
    options.dropout = which != 0 ? 0.3f : 0.0f;
    return options;
}

static void gradients_when_documents_are_apart_or_elements_dropped_then_agree(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++)
        for (int order = 0; order < 2; order++) {
            run_options options = masked_options(which);
            options.step = (sl_step_options){2, (sl_accumulation)order, SL_RECOMPUTE_FULL, false};
            check_gradients(&options, 6);
        }
}

/* The same elements are dropped in recomputation and in either order. */
static void schedules_when_documents_are_apart_or_elements_dropped_then_same_bits(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        compare_schedules(masked_options(which), 2, 0.01f);
        compare_schedules(masked_options(which), 5, 0.0f);
    }
}

/* The embedding, and of each block the weights and both branches, each a place of its own. */
static void forward_when_elements_are_dropped_then_has_every_site_once(void **state)
{
    (void)state;
    uint32_t counts[2] = {0}, sites = 0;
    for (int which = 0; which < 2; which++) {
        run_options options = masked_options(which);
        run r;
        options.iterations = 1;
        run_step(&options, &r);
        const sl_program *forward = r.forward[0];
        for (uint32_t o = 0; o < forward->op_count; o++) {
            const sl_op *op = &forward->ops[o];
            counts[which] += op->kind == SL_OP_DROPOUT;
            if (op->attrs.dropout == 0)
                continue;
            assert_true(op->attrs.dropout_site < 32);
            assert_false(sites >> op->attrs.dropout_site & 1); /* each is another place */
            sites |= 1u << op->attrs.dropout_site;
        }
        run_free(&r);
    }
    assert_int_equal(counts[0], 0);
    assert_int_equal(counts[1], 1 + 2 * tiny.layers);
    assert_int_equal(sites, (1u << (1 + 3 * tiny.layers)) - 1);
}

/* However many micro-batches: a step is as large as that of three. */
static void step_when_micro_batches_repeat_then_does_not_grow(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        run_options options = tiny_options();
        run three, many;
        options.step = (sl_step_options){3, (sl_accumulation)order, SL_RECOMPUTE_NONE, false};
        options.batch = 1000; /* the order of the embedding depends on all tokens: many in both */
        options.iterations = 0;
        run_emit(&three, &options, 0);
        options.step.micro_batch_count = 4096;
        run_emit(&many, &options, 0);
        assert_int_equal(three.step[0]->op_count, many.step[0]->op_count);
        assert_int_equal(three.step[0]->value_count, many.step[0]->value_count);
        assert_int_equal(three.step[0]->section_count, many.step[0]->section_count);
        three.rank_count = many.rank_count = 1;
        run_free(&three);
        run_free(&many);
    }
}

/* Micro by micro nothing outlives its own micro-batch but sums; layer by layer the hidden states
 * do. */
static void families_when_derived_then_are_what_loops_hand_on(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        run_options options = tiny_options();
        options.step = (sl_step_options){6, (sl_accumulation)order, SL_RECOMPUTE_FULL, false};
        run r;
        run_step(&options, &r);
        uint32_t families = 0;
        for (uint32_t v = 0; v < r.step[0]->value_count; v++) {
            const sl_value *value = &r.step[0]->values[v];
            families += value->instances > 1;
            if (value->instances == 1)
                continue;
            assert_int_equal(value->instances, 4);
            assert_int_equal(value->micro_batch, 1);
        }
        /* The hidden states before and behind each block, and one gradient that they share in turn.
         */
        assert_int_equal(families, order == SL_ACCUMULATE_MICRO ? 0 : tiny.layers + 2);
        run_free(&r);
    }
}

static void schedules_when_three_micro_batches_then_same_bits(void **state)
{
    (void)state;
    compare_schedules(tiny_options(), 3, 0.0f);
    compare_schedules(tiny_options(), 3, 0.01f);
}

static void schedules_when_head_has_row_groups_then_same_bits(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.range_rows = 4;
    compare_schedules(options, 2, 0.01f);
}

static void schedules_when_model_is_odd_then_same_bits(void **state)
{
    (void)state;
    compare_schedules(odd_options(), 1, 0.01f);
    compare_schedules(odd_options(), 3, 0.0f);
}

/* ---- lives ---- */

/* True if all ops from the first to the last use of value v belong to one segment and micro-batch.
 * Clears and norms of whole chunks may stand between. */
static bool stays_in_one_pass(const sl_program *step, uint32_t v)
{
    const sl_op *first, *last;
    find_life(step, v, &first, &last);
    for (const sl_op *op = first; op <= last; op++)
        if (op->segment != SL_NONE &&
            (op->segment != first->segment || op->micro_batch != first->micro_batch))
            return false;
    return true;
}

/* The value of a block that later blocks see: what its last op writes. */
static bool leaves_block(const sl_program *step, const sl_op *op, uint32_t v)
{
    return op->kind == SL_OP_LINEAR && strstr(step->values[v].name, "mlp.c_proj") != NULL;
}

static uint32_t check_full_lives(const sl_program *step)
{
    uint32_t checked = 0;
    for (uint32_t o = 0; o < step->op_count; o++) {
        const sl_op *op = &step->ops[o];
        if (op->segment == SL_NONE || !step->segments[op->segment].is_block)
            continue;
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            bool is_made =
                op->phase != SL_PHASE_BACKWARD && op->operand[i] != SL_NONE && sl_op_writes(op, i);
            if (!is_made || leaves_block(step, op, op->operand[i]))
                continue;
            if (!stays_in_one_pass(step, op->operand[i]))
                fail_msg("%s outlives its pass", step->values[op->operand[i]].name);
            checked++;
        }
    }
    return checked;
}

static void full_recompute_when_derived_then_blocks_leave_nothing_inside(void **state)
{
    (void)state;
    for (int accumulation = 0; accumulation < 2; accumulation++) {
        run_options options = tiny_options();
        options.step =
            (sl_step_options){2, (sl_accumulation)accumulation, SL_RECOMPUTE_FULL, false};
        run r;
        run_step(&options, &r);
        /* A block makes 11 values forward (10 inside) and 10 again: 2 blocks, 2 micro-batches. */
        assert_int_equal(check_full_lives(r.step[0]), 2 * 2 * (10 + 10));
        run_free(&r);
    }
}

static uint32_t count_ops(const sl_program *program, sl_op_kind kind, sl_phase phase)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < program->op_count; o++)
        count += program->ops[o].kind == kind && program->ops[o].phase == phase;
    return count;
}

static void recompute_when_selective_then_only_cheap_ops_repeat(void **state)
{
    (void)state;
    static const struct {
        sl_op_kind kind;
        uint32_t none, selective, full;
    } rows[] = {{SL_OP_LAYERNORM, 0, 4, 4},
                {SL_OP_LINEAR, 0, 0, 6},
                {SL_OP_ATTENTION, 0, 2, 2},
                {SL_OP_GELU, 0, 2, 2},
                {SL_OP_HEAD_LOGITS, 0, 0, 0}};
    for (int mode = 0; mode < 3; mode++) {
        run_options options = tiny_options();
        options.step.recompute = (sl_recompute)mode;
        run r;
        run_step(&options, &r);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            assert_int_equal(count_ops(r.step[0], rows[i].kind, SL_PHASE_RECOMPUTE),
                             (&rows[i].none)[mode]);
        run_free(&r);
    }
}

/* In layer order, once an op of another segment has run, the parameters of a block are done with
 * for this direction. */
static void layer_order_when_many_micro_batches_then_blocks_are_contiguous(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.step = (sl_step_options){3, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_FULL, false};
    run r;
    run_step(&options, &r);
    const sl_program *step = r.step[0];
    for (uint32_t s = 0; s < step->segment_count; s++) {
        uint32_t ranges = 0;
        uint32_t before = SL_NONE;
        for (uint32_t o = 0; o < step->op_count; o++) {
            uint32_t segment = step->ops[o].segment;
            if (segment == SL_NONE)
                continue;
            ranges += segment == s && before != s;
            before = segment;
        }
        if (step->segments[s].is_block)
            assert_int_equal(ranges, 2);
    }
    run_free(&r);
}

/* The embedding's own accumulators are as large as the panels of wte. */
static void layer_order_when_tensor_is_tied_then_one_accumulator_lives_at_a_time(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.step = (sl_step_options){3, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_NONE, false};
    run r;
    run_step(&options, &r);
    const sl_op *first, *last, *last_before = NULL;
    uint32_t count = 0;
    for (uint32_t v = 0; v < r.step[0]->value_count; v++) {
        if (strcmp(r.step[0]->values[v].name, "d' wte.weight") != 0)
            continue;
        find_life(r.step[0], v, &first, &last);
        assert_true(last_before == NULL || first > last_before);
        assert_int_equal(last->kind, SL_OP_ADD);
        last_before = last;
        count++;
    }
    assert_int_equal(count, 2); /* panels */
    run_free(&r);
}

/* ---- the op table ---- */

static void op_table_when_asked_then_counts_by_hand_agree(void **state)
{
    (void)state;
    const sl_op_attrs linear = {.row_count = 6, .in = 4, .out = 5};
    static const uint64_t linear_bytes[] = {6 * 4 * 4, 4 * 5 * 4, 5 * 4, 6 * 5 * 4, 6 * 5 * 4};
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(sl_op_operand_bytes(SL_OP_LINEAR, &linear, i), linear_bytes[i]);
    assert_int_equal(sl_op_flops(SL_OP_LINEAR, &linear), 2 * 6 * 4 * 5);
    assert_int_equal(sl_op_traffic_bytes(SL_OP_LINEAR, &linear), 4 * (24 + 20 + 30));
    const sl_op_attrs attention = {.batch = 2, .seq = 8, .in = 6, .out = 2, .heads = 3};
    assert_int_equal(sl_op_operand_bytes(SL_OP_ATTENTION, &attention, 0), 2 * 8 * 10 * 4);
    assert_int_equal(sl_op_operand_bytes(SL_OP_ATTENTION, &attention, 2), 2 * 3 * 8 * 4);
    assert_int_equal(sl_op_flops(SL_OP_ATTENTION, &attention), 4 * 2 * 8 * 8 * 6 / 2);
    assert_int_equal(sl_op_flops(SL_OP_ATTENTION_BACKWARD, &attention), 10 * 2 * 8 * 8 * 6 / 2);
    const sl_op_attrs chunk = {.element_count = 4096};
    assert_int_equal(sl_op_traffic_bytes(SL_OP_ADAMW, &chunk), 4 * 4096 * 7 + 16);
    const sl_op_attrs bf16 = {
        .element_count = 4096, .type = SL_TYPE_BF16, .grad_type = SL_TYPE_BF16};
    sl_op_attrs low = bf16; /* beside low halves the parameters are read, too */
    low.master_type = SL_MASTER_LOW;
    assert_int_equal(sl_op_traffic_bytes(SL_OP_SGD, &bf16), 4096 * (2 + 2 + 2 * 4) + 16);
    assert_int_equal(sl_op_traffic_bytes(SL_OP_SGD, &low), 4096 * (2 + 2 * 2 + 2 * 2) + 16);
    assert_int_equal(sl_op_traffic_bytes(SL_OP_CLEAR, &chunk), 4 * 4096);
    assert_int_equal(sl_op_flops(SL_OP_ADAMW, &chunk), 0);
    assert_int_equal(sl_op_operand_bytes(SL_OP_BLOCK_NORM, &chunk, 1), sizeof(sl_norm_sum));
    sl_op_attrs rows = {.batch = 1, .seq = 8, .in = 6, .id_count = 100}; /* the panel is made */
    assert_int_equal(sl_op_traffic_bytes(SL_OP_EMBED_TOKENS_BACKWARD, &rows), 4 * (8 + 48 + 600));
    rows.adds_output = 1; /* rows of the tokens alone are read and written */
    assert_int_equal(sl_op_traffic_bytes(SL_OP_EMBED_TOKENS_BACKWARD, &rows), 4 * (8 + 3 * 48));
    const sl_op_attrs attrs = {.batch = 2, .seq = 8, .in = 6};
    assert_int_equal(sl_op_operand_bytes(SL_OP_EMBED_POSITION, &attrs, 0), 0); /* open */
    assert_int_equal(sl_op_operand_bytes(SL_OP_EMBED_POSITION, &attrs, 1), 2 * 8 * 6 * 4);
}

static void op_table_when_walked_then_every_op_is_there(void **state)
{
    (void)state;
    static const char *const names[] = {
#define X(NAME, name, ...) #name,
        SL_OP_LIST(X)
#undef X
    };
    for (int kind = 0; kind < SL_OP_COUNT; kind++) {
        const sl_op_info *info = sl_op_info_of((sl_op_kind)kind);
        assert_string_equal(info->name, names[kind]);
        assert_in_range(info->operand_count, 1, SL_OPERAND_MAX);
        for (uint32_t i = 0; i < info->operand_count; i++)
            assert_non_null(info->operand[i].name);
    }
}

static void op_reads_when_mode_accumulates_then_depends_on_attrs(void **state)
{
    (void)state;
    sl_op op = {.kind = SL_OP_LINEAR_INPUT_BACKWARD};
    assert_false(sl_op_reads(&op, 2));
    assert_true(sl_op_writes(&op, 2));
    op.attrs.adds_output = 1;
    assert_true(sl_op_reads(&op, 2));
    assert_false(sl_op_writes(&op, 0));
    /* Parameters follow from a master in fp32, and are one number with low halves. */
    sl_op update = {.kind = SL_OP_APPLY, .attrs = {.type = SL_TYPE_BF16}};
    assert_false(sl_op_reads(&update, 2));
    update.attrs.master_type = SL_MASTER_LOW;
    assert_true(sl_op_reads(&update, 2));
    /* A later row range writes its rows only: the others must last. */
    sl_op later = {.kind = SL_OP_HEAD_INPUT_BACKWARD, .attrs = {.first_row = 128}};
    assert_true(sl_op_reads(&later, 2));
    later.attrs.first_row = 0;
    assert_false(sl_op_reads(&later, 2));
}

static void op_rows_when_it_has_a_range_then_those_of_the_range(void **state)
{
    (void)state;
    sl_op op = {.kind = SL_OP_HEAD_INPUT_BACKWARD,
                .attrs = {.batch = 4, .seq = 8, .first_row = 8, .row_count = 16}};
    uint64_t first, end;
    sl_op_find_rows(&op, 2, &first, &end);
    assert_true(first == 8 && end == 24);
    sl_op_find_rows(&op, 0, &first, &end); /* logits of these rows alone: all that it has */
    assert_true(first == 0 && end == UINT64_MAX);
    op.attrs.row_count = 24;
    sl_op_find_rows(&op, 2, &first, &end);
    assert_true(first == 8 && end == UINT64_MAX);
}

/* ---- errors ---- */

/* Of 4 * 8 rows of 6 features, by a range of ROWS from `first` on. */
static sl_status add_row_range(uint64_t first, uint64_t rows)
{
    const sl_op_attrs attrs = {
        .batch = 4, .seq = 8, .in = 6, .id_count = 128, .first_row = first, .row_count = rows};
    const uint64_t bytes[] = {4 * rows * 128, 4 * 128 * 6, 4 * 32 * 6};
    sl_program *program;
    uint32_t operands[3];
    assert_int_equal(sl_program_open(&program), SL_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const sl_value value = {.kind = SL_VALUE_ACTIVATION, .bytes = bytes[i]};
        assert_int_equal(sl_program_add_value(program, &value, &operands[i]), SL_OK);
    }
    const sl_status status =
        sl_program_add_op(program, SL_OP_HEAD_INPUT_BACKWARD, &attrs, operands, 3);
    sl_program_close(program);
    return status;
}

static void add_op_when_its_rows_lie_outside_then_names_them(void **state)
{
    (void)state;
    assert_int_equal(add_row_range(0, 32), SL_OK);
    assert_int_equal(add_row_range(20, 12), SL_OK);
    static const uint64_t outside[] = {21, 32, 33, UINT64_MAX - 12, UINT64_MAX - 11, UINT64_MAX};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_int_equal(add_row_range(outside[i], 12), SL_ERROR_INTERNAL);
        assert_non_null(strstr(sl_status_message(), "head_input_backward: operand dx has 32 rows"));
    }
}

/* One token, one head of two features; k and v are operands only if q, k and v are apart. */
static sl_status add_attention(bool is_separate, bool has_k_and_v)
{
    const sl_op_attrs attrs = {
        .batch = 1, .seq = 1, .in = 2, .out = 2, .heads = 1, .is_separate = is_separate};
    const uint64_t bytes[] = {is_separate ? 8 : 24, 8, 4, 0, 8, 8};
    sl_program *program;
    uint32_t operands[6];
    assert_int_equal(sl_program_open(&program), SL_OK);
    for (uint32_t i = 0; i < 6; i++) {
        const sl_value value = {.kind = SL_VALUE_ACTIVATION, .name = "x", .bytes = bytes[i]};
        operands[i] = SL_NONE;
        if (bytes[i] > 0 && (i < 4 || has_k_and_v))
            assert_int_equal(sl_program_add_value(program, &value, &operands[i]), SL_OK);
    }
    const sl_status status = sl_program_add_op(program, SL_OP_ATTENTION, &attrs, operands, 6);
    sl_program_close(program);
    return status;
}

static void add_op_when_k_and_v_do_not_fit_the_attributes_then_fails(void **state)
{
    (void)state;
    assert_int_equal(add_attention(false, false), SL_OK);
    assert_int_equal(add_attention(true, true), SL_OK);
    assert_int_equal(add_attention(false, true), SL_ERROR_INTERNAL);
    assert_int_equal(add_attention(true, false), SL_ERROR_INTERNAL);
}

static void add_op_when_bytes_differ_then_names_op_and_operand(void **state)
{
    (void)state;
    sl_program *program;
    assert_int_equal(sl_program_open(&program), SL_OK);
    uint32_t operands[2];
    sl_value value = {.kind = SL_VALUE_ACTIVATION, .bytes = 40, .name = "ten"};
    assert_int_equal(sl_program_add_value(program, &value, &operands[0]), SL_OK);
    value.bytes = 44;
    assert_int_equal(sl_program_add_value(program, &value, &operands[1]), SL_OK);
    sl_op_attrs attrs = {.element_count = 10};
    assert_int_equal(sl_program_add_op(program, SL_OP_GELU, &attrs, operands, 2),
                     SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "gelu: operand y"));
    assert_int_equal(sl_program_add_op(program, SL_OP_GELU, &attrs, operands, 1),
                     SL_ERROR_INTERNAL);
    operands[1] = 7;
    assert_int_equal(sl_program_add_op(program, SL_OP_GELU, &attrs, operands, 2),
                     SL_ERROR_INTERNAL);
    attrs.element_count = UINT64_MAX / 2; /* 4 bytes each: overflows */
    operands[1] = 0;
    assert_int_equal(sl_program_add_op(program, SL_OP_GELU, &attrs, operands, 2),
                     SL_ERROR_INTERNAL);
    assert_int_equal(program->op_count, 0);
    sl_program_close(program);
}

static void derive_when_no_micro_batch_then_usage_error(void **state)
{
    (void)state;
    run_options options = tiny_options();
    run r;
    run_step(&options, &r);
    sl_program *step = NULL;
    sl_step_options none = {.micro_batch_count = 0};
    assert_int_equal(sl_program_derive_step(r.forward[0], &r.layout[0].map, &none, &step),
                     SL_ERROR_USAGE);
    assert_null(step);
    run_free(&r);
}

/* Whether the segments stand beside each other or not. */
static void derive_when_segments_share_a_site_then_only_terminal_ones_may(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.range_rows = 5;
    run r;
    run_step(&options, &r);
    sl_program *forward = r.forward[0], *step = NULL;
    const sl_step_options once = {.micro_batch_count = 1};
    uint32_t last = forward->segment_count - 1;
    assert_true(last >= 4 && forward->segments[last].is_terminal);
    assert_false(forward->segments[0].is_terminal || forward->segments[2].is_terminal);
    assert_int_equal(forward->segments[last].site, forward->segments[last - 1].site);
    const uint32_t pairs[][2] = {{0, 1}, {0, 2}, {0, last}, {last, 1}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        uint32_t *site = &forward->segments[pairs[i][0]].site, kept = *site;
        *site = forward->segments[pairs[i][1]].site;
        assert_int_equal(sl_program_derive_step(forward, &r.layout[0].map, &once, &step),
                         SL_ERROR_INTERNAL);
        assert_non_null(strstr(sl_status_message(), "share a site"));
        *site = kept;
    }
    assert_int_equal(sl_program_derive_step(forward, &r.layout[0].map, &once, &step), SL_OK);
    sl_program_close(step);
    run_free(&r);
}

/* ---- forward programs that have no step ---- */

/* What differs from the odd model. */
typedef enum oddity {
    PARAMETER_ADDED,      /* an op reads a parameter that its backward rule has no gradient for */
    LOGITS_READ_TWICE,    /* the gradient of the logits would be two */
    TERMINAL_IN_BETWEEN,  /* a segment stands behind one that ends in the loss */
    TAKEN_UNREAD,         /* nothing reads what another stage gives */
    TWO_WAY_EXCHANGE,     /* of the forward pass: its backward is none */
    SPLIT_AND_REPLICATED, /* of two uses of a parameter, one is of some rows only */
    ROWS_LEFT_OUT,        /* the head has two row ranges, and a row between them */
    ROWS_TWICE,           /* a row that both have */
    ROWS_MISSING,         /* a row behind them */
    ODDITY_COUNT
} oddity;

static void odd_exchange(odd *o, uint32_t given, uint32_t taken)
{
    const sl_op_attrs attrs = {.row_count = o->batch * o->seq, .in = o->width};
    odd_op(o, SL_OP_EXCHANGE, attrs, (uint32_t[]){given, taken});
}

/* Of `parts` tensor-parallel ranks, each has a part of the rows. */
static uint32_t odd_norm(odd *o, uint32_t x, const uint32_t *affine, uint64_t parts)
{
    const uint32_t y = odd_rows(o, o->width), stats = odd_statistics(o, 2);
    const sl_op_attrs attrs = {
        .batch = parts * o->batch, .seq = o->seq, .row_count = o->batch * o->seq, .in = o->width};
    odd_op(o, SL_OP_LAYERNORM, attrs, (uint32_t[]){x, affine[0], affine[1], y, stats});
    return y;
}

static sl_program *emit_oddity(const run_options *options, oddity which)
{
    odd o = {.batch = options->batch, .seq = options->seq, .width = options->shape.width};
    assert_int_equal(sl_program_open(&o.program), SL_OK);
    const uint64_t rows = o.batch * o.seq;
    const uint32_t targets = odd_value(&o, SL_VALUE_INPUT, 1, rows);
    const uint32_t wpe = odd_tensor(&o, "wpe", o.seq, o.width);
    const uint32_t table = odd_tensor(&o, "wte", ODD_IDS, o.width);
    const uint32_t bias = odd_tensor(&o, "rows", rows, o.width);
    uint32_t x = odd_rows(&o, o.width);
    const sl_op_attrs stream = {.batch = o.batch, .seq = o.seq, .in = o.width};
    odd_segment(&o, false, false);
    if (which == TAKEN_UNREAD)
        odd_exchange(&o, SL_NONE, odd_rows(&o, o.width));
    odd_op(&o, SL_OP_EMBED_POSITION, stream, (uint32_t[]){wpe, x});
    if (which == TWO_WAY_EXCHANGE)
        odd_exchange(&o, x, odd_rows(&o, o.width));
    if (which == PARAMETER_ADDED)
        odd_add(&o, bias, x);
    if (which == SPLIT_AND_REPLICATED) {
        const uint32_t affine[] = {odd_tensor(&o, "gamma", o.width, 1),
                                   odd_tensor(&o, "beta", o.width, 1)};
        x = odd_norm(&o, odd_norm(&o, x, affine, 1), affine, 2);
    }
    if (which == ROWS_LEFT_OUT || which == ROWS_TWICE || which == ROWS_MISSING) {
        const uint32_t loss = odd_value(&o, SL_VALUE_OUTPUT, SL_OUTPUT_LOSS, 2);
        const uint64_t second = which == ROWS_LEFT_OUT ? 6 : which == ROWS_TWICE ? 4 : 5;
        odd_head_rows(&o, x, table, targets, loss, 0, 5);
        odd_head_rows(&o, x, table, targets, loss, second, rows - second - (which == ROWS_MISSING));
        return o.program;
    }
    odd_head(&o, x, table, targets);
    const uint32_t logits = o.program->ops[o.program->op_count - 3].operand[2];
    if (which == LOGITS_READ_TWICE)
        odd_op(&o, SL_OP_HEAD_STATS,
               (sl_op_attrs){.batch = o.batch,
                             .seq = o.seq,
                             .row_count = rows,
                             .id_count = ODD_IDS,
                             .valid_id_count = ODD_IDS},
               (uint32_t[]){logits, targets, odd_statistics(&o, 4)});
    if (which == TERMINAL_IN_BETWEEN) {
        odd_segment(&o, false, false);
        odd_linear(&o, x, odd_tensor(&o, "w", o.width, o.width), o.width, SL_NONE);
    }
    return o.program;
}

static void derive_when_a_gradient_would_be_lost_then_internal_error(void **state)
{
    (void)state;
    static const char *const words[ODDITY_COUNT] = {
        [PARAMETER_ADDED] = "add: no gradient of parameter rows",
        [LOGITS_READ_TWICE] = "has a gradient already",
        [TERMINAL_IN_BETWEEN] = "stands behind one that ends in the loss",
        [TAKEN_UNREAD] = "no gradient to send",
        [TWO_WAY_EXCHANGE] = "gives and takes",
        [SPLIT_AND_REPLICATED] = "is used by both split and replicated ops",
        [ROWS_LEFT_OUT] = "are left out or written twice: from row 6 on, behind the first 5",
        [ROWS_TWICE] = "are left out or written twice: from row 4 on, behind the first 5",
        [ROWS_MISSING] = "has its first 13 rows alone",
    };
    const run_options options = tiny_options();
    const sl_step_options once = {.micro_batch_count = 1};
    for (int which = 0; which < ODDITY_COUNT; which++) {
        sl_program *forward = emit_oddity(&options, (oddity)which), *step = NULL;
        it_layout layout = it_layout_make(forward, RUN_CHUNK_ELEMENTS);
        const sl_status status = sl_program_derive_step(forward, &layout.map, &once, &step);
        sl_program_close(step);
        if (status != SL_ERROR_INTERNAL || strstr(sl_status_message(), words[which]) == NULL)
            fail_msg("oddity %d: status %d, %s", which, (int)status, sl_status_message());
        it_layout_free(&layout);
        sl_program_close(forward);
    }
}

static void derive_when_the_pipeline_lacks_the_stage_then_internal_error(void **state)
{
    (void)state;
    const run_options options = tiny_options();
    const sl_step_options once = {.micro_batch_count = 1};
    sl_program *forward = emit_oddity(&options, ODDITY_COUNT), *step = NULL;
    it_layout layout = it_layout_make(forward, RUN_CHUNK_ELEMENTS);
    forward->stage_count = forward->stage_index = 2;
    assert_int_equal(sl_program_derive_step(forward, &layout.map, &once, &step), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "there is no stage 2 of 2"));
    it_layout_free(&layout);
    sl_program_close(forward);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_compared_with_differences_then_agree),
        cmocka_unit_test(gradients_when_three_micro_batches_then_agree),
        cmocka_unit_test(gradients_when_targets_are_masked_then_agree),
        cmocka_unit_test(schedules_when_targets_are_masked_then_same_bits),
        cmocka_unit_test(gradients_when_head_has_row_groups_then_agree),
        cmocka_unit_test(gradients_when_model_is_odd_then_agree),
        cmocka_unit_test(schedules_when_model_is_odd_then_same_bits),
        cmocka_unit_test(layer_order_when_tensor_is_tied_then_one_accumulator_lives_at_a_time),
        cmocka_unit_test(op_table_when_asked_then_counts_by_hand_agree),
        cmocka_unit_test(op_table_when_walked_then_every_op_is_there),
        cmocka_unit_test(op_reads_when_mode_accumulates_then_depends_on_attrs),
        cmocka_unit_test(schedules_when_one_micro_batch_then_same_bits),
        cmocka_unit_test(schedules_when_three_micro_batches_then_same_bits),
        cmocka_unit_test(schedules_when_micro_batches_repeat_then_same_bits),
        cmocka_unit_test(gradients_when_micro_batches_repeat_then_agree),
        cmocka_unit_test(gradients_when_documents_are_apart_or_elements_dropped_then_agree),
        cmocka_unit_test(schedules_when_documents_are_apart_or_elements_dropped_then_same_bits),
        cmocka_unit_test(forward_when_elements_are_dropped_then_has_every_site_once),
        cmocka_unit_test(step_when_micro_batches_repeat_then_does_not_grow),
        cmocka_unit_test(families_when_derived_then_are_what_loops_hand_on),
        cmocka_unit_test(schedules_when_head_has_row_groups_then_same_bits),
        cmocka_unit_test(full_recompute_when_derived_then_blocks_leave_nothing_inside),
        cmocka_unit_test(recompute_when_selective_then_only_cheap_ops_repeat),
        cmocka_unit_test(layer_order_when_many_micro_batches_then_blocks_are_contiguous),
        cmocka_unit_test(add_op_when_bytes_differ_then_names_op_and_operand),
        cmocka_unit_test(add_op_when_k_and_v_do_not_fit_the_attributes_then_fails),
        cmocka_unit_test(add_op_when_its_rows_lie_outside_then_names_them),
        cmocka_unit_test(op_rows_when_it_has_a_range_then_those_of_the_range),
        cmocka_unit_test(derive_when_no_micro_batch_then_usage_error),
        cmocka_unit_test(derive_when_segments_share_a_site_then_only_terminal_ones_may),
        cmocka_unit_test(derive_when_a_gradient_would_be_lost_then_internal_error),
        cmocka_unit_test(derive_when_the_pipeline_lacks_the_stage_then_internal_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
