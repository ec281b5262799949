/* What could be wrong here: a gradient rule, the order of sums, a value that is used after it was
 * recomputed away or updated in place, a chunk that is normed too soon. The steps are run on a
 * plain double-precision interpreter: gradients are compared with finite differences of the loss,
 * and all schedules with each other, bit by bit. A walker checks the form of every step that is
 * run. */
#include "program_odd.h"
#include "program_run.h"

static const sl_gpt2_shape tiny = {
    .layers = 2, .width = 12, .heads = 3, .context = 7, .vocab = 131};

static bool runs_full(void)
{
    return getenv("SL_TEST_FULL") != NULL;
}

static run_options tiny_options(void)
{
    run_options options = {.shape = tiny,
                           .batch = 2,
                           .seq = 7,
                           .tp_size = 1,
                           .step = {.micro_batch_count = 1},
                           .clip = 0.0f,
                           .iterations = 1};
    return options;
}

/* ---- gradients ---- */

/* Mean loss of all micro-batches, by the forward program. */
static double measure_loss(const run *r, const run_options *options)
{
    double sum = 0.0;
    for (uint32_t m = 0; m < options->step.micro_batch_count; m++) {
        it_machine machine = it_machine_make(r->forward[0], &r->state[0]);
        run_fill_inputs(&machine, options->shape.vocab, m);
        it_run(&machine, 1);
        sum += it_slot(&machine, SL_VALUE_OUTPUT, SL_OUTPUT_LOSS)[0];
        it_machine_free(&machine);
    }
    return sum / (options->batch * options->seq * options->step.micro_batch_count);
}

/* The central difference errs by h^2 / 6 times the third derivative (below 100 here: 2e-7 at most)
 * and by 1e-15 / h from rounding; 1e-6 covers both and is far below any missing term. */
static void check_element(run *r, const run_options *options, uint32_t tensor, uint64_t element)
{
    const double h = 1e-4;
    double *parameter = it_state_tensor(&r->state[0], SL_GROUP_PARAM, tensor) + element;
    double gradient = it_state_tensor(&r->state[0], SL_GROUP_GRAD, tensor)[element];
    double before = *parameter;
    *parameter = before + h;
    double above = measure_loss(r, options);
    *parameter = before - h;
    double below = measure_loss(r, options);
    *parameter = before;
    double expected = (above - below) / (2.0 * h);
    if (!(fabs(gradient - expected) <= 1e-6 + 1e-5 * fabs(expected)))
        fail_msg("%s[%llu]: gradient %.12g, difference %.12g", r->forward[0]->tensors[tensor].name,
                 (unsigned long long)element, gradient, expected);
}

static void check_gradients(const run_options *options, uint64_t samples)
{
    run r;
    run_step(options, &r);
    run_fill_parameters(r.forward[0], &r.state[0], 0); /* back to before the update */
    double loss = measure_loss(&r, options);
    double tokens = options->batch * options->seq * options->step.micro_batch_count;
    assert_true(fabs(loss - r.loss / tokens) < 1e-12 * loss);
    for (uint32_t t = 0; t < r.forward[0]->tensor_count; t++) {
        uint64_t count = r.forward[0]->tensors[t].element_count;
        for (uint64_t i = 0; i < (samples < count ? samples : count); i++)
            check_element(&r, options, t, samples < count ? run_mix(t * 1000 + i) % count : i);
    }
    run_free(&r);
}

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
    options.group_rows = 5; /* 14 rows: 5, 5, 4 */
    options.step.recompute = SL_RECOMPUTE_FULL;
    check_gradients(&options, runs_full() ? 512 : 32);
}

static run_options odd_options(void)
{
    run_options options = tiny_options();
    options.emit = odd_emit;
    options.shape.vocab = ODD_IDS;
    return options;
}

static void gradients_when_model_is_odd_then_agree(void **state)
{
    (void)state;
    run_options options = odd_options();
    options.step = (sl_step_options){2, SL_ACCUMULATE_MICRO, SL_RECOMPUTE_FULL, false};
    check_gradients(&options, runs_full() ? UINT64_MAX : 64);
}

static const sl_type half_types[][2] = {
    {SL_TYPE_BF16, SL_TYPE_FP32}, {SL_TYPE_BF16, SL_TYPE_BF16}, {SL_TYPE_FP16, SL_TYPE_FP16}};
enum { HALF_TYPES = sizeof half_types / sizeof *half_types };

/* The interpreter never rounds, so differences hold for half precision as they do for fp32. */
static void gradients_when_in_half_precision_then_agree(void **state)
{
    (void)state;
    for (int i = 0; i < HALF_TYPES; i++) {
        run_options options = tiny_options();
        options.type = half_types[i][0];
        options.grad_type = half_types[i][1];
        options.group_rows = 5;
        options.step = (sl_step_options){2, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_FULL, false};
        check_gradients(&options, runs_full() ? 512 : 8);
        options = odd_options();
        options.type = half_types[i][0];
        options.grad_type = half_types[i][1];
        options.step = (sl_step_options){2, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_NONE, false};
        check_gradients(&options, runs_full() ? 512 : 8);
    }
}

/* ---- bits ---- */

static void assert_same_bits(const run *a, const run *b)
{
    assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
    assert_memory_equal(a->control, b->control, sizeof a->control);
    size_t bytes = it_state_elements(&a->state[0]) * sizeof(double);
    for (int g = 0; g < SL_GROUP_COUNT; g++)
        assert_memory_equal(a->state[0].group[g], b->state[0].group[g], bytes);
}

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
        if (options.step.update_early && clip > 0.0f)
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
    options.group_rows = 4;
    compare_schedules(options, 2, 0.01f);
}

static void schedules_when_model_is_odd_then_same_bits(void **state)
{
    (void)state;
    compare_schedules(odd_options(), 1, 0.01f);
    compare_schedules(odd_options(), 3, 0.0f);
}

/* A step in half precision adds the same terms in the same order as one in fp32, whatever its
 * gradients are stored as: in doubles that are never rounded all bits are equal. */
static void compare_types(run_options options)
{
    options.clip = 0.01f;
    options.iterations = 2;
    for (int layer = 0; layer < 2; layer++) {
        options.step.accumulation = (sl_accumulation)layer;
        options.step.micro_batch_count = layer ? 3 : 1;
        options.type = options.grad_type = SL_TYPE_FP32;
        run reference;
        run_step(&options, &reference);
        for (int i = 0; i < HALF_TYPES; i++) {
            options.type = half_types[i][0];
            options.grad_type = half_types[i][1];
            run other;
            run_step(&options, &other);
            size_t bytes = it_state_elements(&other.state[0]) * sizeof(double);
            assert_memory_equal(other.state[0].group[SL_GROUP_MASTER],
                                other.state[0].group[SL_GROUP_PARAM], bytes);
            memset(other.state[0].group[SL_GROUP_MASTER], 0, bytes); /* fp32 has none */
            assert_same_bits(&reference, &other);
            run_free(&other);
        }
        run_free(&reference);
    }
}

static void types_when_compared_then_same_sums_in_the_same_order(void **state)
{
    (void)state;
    run_options options = tiny_options();
    options.group_rows = 5;
    compare_types(options);
    compare_types(odd_options());
}

/* ---- lives ---- */

/* First and last use of value v. */
static void find_life(const sl_program *step, uint32_t v, const sl_op **first, const sl_op **last)
{
    *first = *last = NULL;
    for (const sl_op *op = step->ops; op < step->ops + step->op_count; op++)
        for (int i = 0; i < SL_OPERAND_MAX; i++)
            if (op->operand[i] == v) {
                *first = *first ? *first : op;
                *last = op;
            }
}

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
        uint32_t stretches = 0;
        uint32_t before = SL_NONE;
        for (uint32_t o = 0; o < step->op_count; o++) {
            uint32_t segment = step->ops[o].segment;
            if (segment == SL_NONE)
                continue;
            stretches += segment == s && before != s;
            before = segment;
        }
        assert_int_equal(stretches, step->segments[s].is_terminal ? 1 : 2);
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

/* ---- half precision ---- */

static run_options half_options(sl_type grad_type)
{
    run_options options = tiny_options();
    options.type = SL_TYPE_BF16;
    options.grad_type = grad_type;
    options.group_rows = 5;
    options.step = (sl_step_options){3, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_NONE, false};
    return options;
}

/* Rounds of a tensor's sum into the grad group, and of activations. */
static void count_rounds(const sl_program *step, uint32_t *rounds_of_tensor, uint32_t *others)
{
    *others = 0;
    for (uint32_t o = 0; o < step->op_count; o++) {
        const sl_op *op = &step->ops[o];
        if (op->kind != SL_OP_ROUND)
            continue;
        const sl_value *to = &step->values[op->operand[1]];
        if (to->kind == SL_VALUE_TENSOR)
            rounds_of_tensor[to->index]++;
        else
            (*others)++;
    }
}

/* The head's dx is rounded once a micro-batch, for all its row groups and panels. */
static void half_gradients_when_derived_then_each_tensor_is_rounded_once(void **state)
{
    (void)state;
    for (int is_half = 0; is_half < 2; is_half++) {
        run_options options = half_options(is_half ? SL_TYPE_BF16 : SL_TYPE_FP32);
        run r;
        run_step(&options, &r);
        uint32_t *rounds = calloc(r.step[0]->tensor_count, sizeof *rounds), others;
        count_rounds(r.step[0], rounds, &others);
        assert_int_equal(others, 3);
        for (uint32_t t = 0; t < r.step[0]->tensor_count; t++)
            assert_int_equal(rounds[t], is_half);
        free(rounds);
        run_free(&r);
    }
}

/* A sum lives from its clearing to its rounding: in a block, within the block's backward; of a tied
 * tensor, from the head to the embedding. */
static void half_gradients_when_derived_then_sums_die_when_rounded(void **state)
{
    (void)state;
    run_options options = half_options(SL_TYPE_BF16);
    run r;
    run_step(&options, &r);
    const sl_program *step = r.step[0];
    const sl_op *first, *last;
    uint32_t sums = 0;
    for (uint32_t v = 0; v < step->value_count; v++) {
        if (strncmp(step->values[v].name, "d+ ", 3) != 0 || step->values[v].micro_batch != 0)
            continue;
        find_life(step, v, &first, &last);
        assert_int_equal(last->kind, SL_OP_ROUND);
        if (step->values[last->operand[1]].kind != SL_VALUE_TENSOR)
            continue;
        assert_int_equal(step->values[v].type, SL_TYPE_FP32);
        assert_int_equal(first->kind, SL_OP_CLEAR);
        bool is_tied = strstr(step->values[v].name, "wte") != NULL;
        assert_int_equal(last->segment == 0, is_tied || strstr(step->values[v].name, "wpe"));
        if (!is_tied)
            assert_int_equal(first->segment, last->segment);
        sums++;
    }
    assert_int_equal(sums, step->tensor_count);
    run_free(&r);
}

static void half_gradients_when_micro_batches_come_whole_then_usage_error(void **state)
{
    (void)state;
    run_options options = half_options(SL_TYPE_BF16);
    run r;
    run_step(&options, &r);
    sl_program *step = NULL;
    sl_step_options micro = {.micro_batch_count = 2, .accumulation = SL_ACCUMULATE_MICRO};
    assert_int_equal(sl_program_derive_step(r.forward[0], &r.layout[0].map, &micro, &step),
                     SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "keep gradients in fp32"));
    assert_null(step);
    micro.micro_batch_count = 1;
    assert_int_equal(sl_program_derive_step(r.forward[0], &r.layout[0].map, &micro, &step), SL_OK);
    sl_program_close(step);
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
    const sl_op_attrs attention = {.batch = 2, .seq = 8, .in = 6, .heads = 3};
    assert_int_equal(sl_op_operand_bytes(SL_OP_ATTENTION, &attention, 0), 2 * 8 * 18 * 4);
    assert_int_equal(sl_op_operand_bytes(SL_OP_ATTENTION, &attention, 2), 2 * 3 * 8 * 4);
    assert_int_equal(sl_op_flops(SL_OP_ATTENTION, &attention), 4 * 2 * 8 * 8 * 6 / 2);
    assert_int_equal(sl_op_flops(SL_OP_ATTENTION_BACKWARD, &attention), 10 * 2 * 8 * 8 * 6 / 2);
    const sl_op_attrs chunk = {.element_count = 4096};
    assert_int_equal(sl_op_traffic_bytes(SL_OP_ADAMW, &chunk), 4 * 4096 * 7 + 16);
    assert_int_equal(sl_op_traffic_bytes(SL_OP_CLEAR, &chunk), 4 * 4096);
    assert_int_equal(sl_op_flops(SL_OP_ADAMW, &chunk), 0);
    assert_int_equal(sl_op_operand_bytes(SL_OP_BLOCK_NORM, &chunk, 1), sizeof(sl_norm_sum));
    const sl_op_attrs stream = {.batch = 2, .seq = 8, .in = 6};
    assert_int_equal(sl_op_operand_bytes(SL_OP_EMBED_POSITION, &stream, 0), 0); /* open */
    assert_int_equal(sl_op_operand_bytes(SL_OP_EMBED_POSITION, &stream, 1), 2 * 8 * 6 * 4);
}

static void op_table_when_walked_then_every_op_is_there(void **state)
{
    (void)state;
    static const char *const names[] = {
#define X(NAME, name) #name,
        SL_OP_LIST(X)
#undef X
    };
    for (int kind = 0; kind < SL_OP_COUNT; kind++) {
        const sl_op_info *info = sl_op_info_of((sl_op_kind)kind);
        assert_string_equal(info->name, names[kind]);
        assert_in_range(info->operand_count, 1, SL_OPERAND_MAX);
        for (uint32_t i = 0; i < info->operand_count; i++)
            assert_non_null(info->operand_name[i]);
    }
}

static void op_reads_when_mode_accumulates_then_depends_on_attrs(void **state)
{
    (void)state;
    sl_op op = {.kind = SL_OP_LINEAR_INPUT_BACKWARD};
    assert_false(sl_op_reads(&op, 2));
    assert_true(sl_op_writes(&op, 2));
    op.attrs.accumulate = 1;
    assert_true(sl_op_reads(&op, 2));
    assert_false(sl_op_writes(&op, 0));
    /* A later row group writes its rows only: the others must last. */
    sl_op piece = {.kind = SL_OP_HEAD_INPUT_BACKWARD, .attrs = {.first_row = 128}};
    assert_true(sl_op_reads(&piece, 2));
    piece.attrs.first_row = 0;
    assert_false(sl_op_reads(&piece, 2));
}

/* ---- errors ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_compared_with_differences_then_agree),
        cmocka_unit_test(gradients_when_three_micro_batches_then_agree),
        cmocka_unit_test(gradients_when_head_has_row_groups_then_agree),
        cmocka_unit_test(gradients_when_model_is_odd_then_agree),
        cmocka_unit_test(gradients_when_in_half_precision_then_agree),
        cmocka_unit_test(types_when_compared_then_same_sums_in_the_same_order),
        cmocka_unit_test(half_gradients_when_derived_then_each_tensor_is_rounded_once),
        cmocka_unit_test(half_gradients_when_derived_then_sums_die_when_rounded),
        cmocka_unit_test(half_gradients_when_micro_batches_come_whole_then_usage_error),
        cmocka_unit_test(schedules_when_model_is_odd_then_same_bits),
        cmocka_unit_test(layer_order_when_tensor_is_tied_then_one_accumulator_lives_at_a_time),
        cmocka_unit_test(op_table_when_asked_then_counts_by_hand_agree),
        cmocka_unit_test(op_table_when_walked_then_every_op_is_there),
        cmocka_unit_test(op_reads_when_mode_accumulates_then_depends_on_attrs),
        cmocka_unit_test(schedules_when_one_micro_batch_then_same_bits),
        cmocka_unit_test(schedules_when_three_micro_batches_then_same_bits),
        cmocka_unit_test(schedules_when_head_has_row_groups_then_same_bits),
        cmocka_unit_test(full_recompute_when_derived_then_blocks_leave_nothing_inside),
        cmocka_unit_test(recompute_when_selective_then_only_cheap_ops_repeat),
        cmocka_unit_test(layer_order_when_many_micro_batches_then_blocks_are_contiguous),
        cmocka_unit_test(add_op_when_bytes_differ_then_names_op_and_operand),
        cmocka_unit_test(derive_when_no_micro_batch_then_usage_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
