/* What could be wrong here: a sum that is rounded too early, twice or never, or that adds in
 * another order than in fp32; an element size taken for granted. The interpreter never rounds, so
 * steps of all types must give the same bits, and gradients must agree with differences of the
 * loss; where rounding stands and how long sums live is read off the ops. */
#include "program_check.h"

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
        options.range_rows = 5;
        options.step = (sl_step_options){2, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_FULL, false};
        check_gradients(&options, runs_full() ? 512 : 8);
        options = odd_options();
        options.type = half_types[i][0];
        options.grad_type = half_types[i][1];
        options.step = (sl_step_options){2, SL_ACCUMULATE_LAYER, SL_RECOMPUTE_NONE, false};
        check_gradients(&options, runs_full() ? 512 : 8);
    }
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
    options.range_rows = 5;
    compare_types(options);
    compare_types(odd_options());
}

/* ---- where rounding stands ---- */

static run_options half_options(sl_type grad_type)
{
    run_options options = tiny_options();
    options.type = SL_TYPE_BF16;
    options.grad_type = grad_type;
    options.range_rows = 5;
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

/* The head's dx is rounded once a micro-batch, for all its row ranges and panels. */
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

/* Those of the step that a name begins. */
static uint32_t count_values(const sl_program *step, const char *prefix)
{
    uint32_t count = 0;
    for (uint32_t v = 0; v < step->value_count; v++)
        count += strncmp(step->values[v].name, prefix, strlen(prefix)) == 0;
    return count;
}

/* With one micro-batch the op that computes a gradient rounds it: only the panels of wte, which the
 * head and the embedding share, and wpe, of which the op adds, have sums. */
static void half_gradients_when_of_one_micro_batch_need_no_sums(void **state)
{
    (void)state;
    enum { PANELS = 2, ROUNDED_DX = 1 };
    for (int accumulation = 0; accumulation < 2; accumulation++) {
        run_options options = half_options(SL_TYPE_BF16);
        options.step.micro_batch_count = 1;
        options.step.accumulation = (sl_accumulation)accumulation;
        run r;
        run_step(&options, &r);
        assert_int_equal(count_values(r.step[0], "d+ "), PANELS + 1 + ROUNDED_DX);
        assert_int_equal(count_values(r.step[0], "d+ wte"), PANELS);
        assert_int_equal(count_values(r.step[0], "d+ wpe"), 1);
        run_free(&r);
    }
}

/* A sum lives from its first part to its rounding: in a block, within the block's backward; of a
 * tied tensor, from the head to the embedding. */
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
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            assert_false(first->operand[i] == v && sl_op_reads(first, i));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_in_half_precision_then_agree),
        cmocka_unit_test(types_when_compared_then_same_sums_in_the_same_order),
        cmocka_unit_test(half_gradients_when_derived_then_each_tensor_is_rounded_once),
        cmocka_unit_test(half_gradients_when_derived_then_sums_die_when_rounded),
        cmocka_unit_test(half_gradients_when_of_one_micro_batch_need_no_sums),
        cmocka_unit_test(half_gradients_when_micro_batches_come_whole_then_usage_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
