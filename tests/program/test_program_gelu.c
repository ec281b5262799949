/* What could be wrong where the gradient of a linear layer's input passes the GELU before it: it
 * passes one whose output or input others use too, so that a gradient is scaled that should not be,
 * or a part of it is lost; one in another segment, whose input may be forgotten there; one whose
 * output's gradient is still a part of a sum over ranks; or it passes none at all.
 *
 * One block per reason, each run on the interpreter: gradients against differences of the loss in
 * every recomputation, and the ops counted. */
#include "program_check.h"

typedef enum use {
    ALONE, /* linear(gelu(linear(x))): the one that is passed */
    OUTPUT_TWICE /* the GELU's output feeds two layers */,
    INPUT_TWICE, /* its input feeds another layer too */
    ADDED_TO,    /* its output is added to in place before the layer reads it */
    ELSEWHERE,   /* the layer stands in the next segment */
    SPLIT,       /* ranks hold columns of the layer's weight */
    FROM_OUTSIDE /* its input comes from another segment, of which it is the last use */,
    USES
} use;

static use current;

/* All weights are [width, width]. */
static uint32_t emit_uses(odd *o, uint32_t x, const uint32_t *w)
{
    const uint64_t C = o->width;
    odd_segment(o, true, false);
    uint32_t a = odd_linear(o, x, w[0], C, SL_NONE);
    if (current == FROM_OUTSIDE)
        odd_segment(o, true, false);
    uint32_t g = odd_gelu(o, a);
    if (current == ADDED_TO)
        odd_add(o, x, g);
    if (current == ELSEWHERE)
        odd_segment(o, true, false);
    uint32_t y = odd_linear(o, g, w[1], C, x);
    if (current == OUTPUT_TWICE || current == INPUT_TWICE)
        odd_add(o, odd_linear(o, current == INPUT_TWICE ? a : g, w[2], C, SL_NONE), y);
    return y;
}

static sl_program *emit(const run_options *options)
{
    odd o = {.batch = options->batch, .seq = options->seq, .width = options->shape.width};
    assert_int_equal(sl_program_open(&o.program), SL_OK);
    o.program->type = options->type;
    o.program->grad_type = options->grad_type;
    const uint64_t rows = o.batch * o.seq, C = o.width;
    uint32_t tokens = odd_value(&o, SL_VALUE_INPUT, 0, rows);
    uint32_t targets = odd_value(&o, SL_VALUE_INPUT, 1, rows);
    uint32_t wpe = odd_tensor(&o, "wpe", o.seq, C), table = odd_tensor(&o, "wte", ODD_IDS, C);
    uint32_t w[3] = {odd_tensor(&o, "w0", C, C), odd_tensor(&o, "w1", C, C)};
    if (current == SPLIT)
        o.program->tensors[o.program->values[w[1]].index].split = SL_SPLIT_COLUMNS;
    if (current == OUTPUT_TWICE || current == INPUT_TWICE)
        w[2] = odd_tensor(&o, "w2", C, C);
    uint32_t x = odd_rows(&o, C);
    const sl_op_attrs stream = {.batch = o.batch, .seq = o.seq, .in = C, .id_count = ODD_IDS};
    odd_segment(&o, false, false);
    odd_op(&o, SL_OP_EMBED_POSITION, stream, (uint32_t[]){wpe, x});
    odd_op(&o, SL_OP_EMBED_TOKENS, stream, (uint32_t[]){tokens, table, x});
    odd_head(&o, emit_uses(&o, x, w), table, targets);
    return o.program;
}

/* Gradients of layers that pass a GELU, and of GELUs by themselves. */
static void count_passes(const sl_program *step, uint32_t *out_passed, uint32_t *out_apart)
{
    enum { GELU_X = 3 };
    *out_passed = *out_apart = 0;
    for (const sl_op *op = step->ops; op < step->ops + step->op_count; op++) {
        *out_passed += op->kind == SL_OP_LINEAR_INPUT_BACKWARD && op->operand[GELU_X] != SL_NONE;
        *out_apart += op->kind == SL_OP_GELU_BACKWARD;
    }
}

static void gelu_when_others_use_it_is_not_passed(void **state)
{
    (void)state;
    for (current = ALONE; current < USES; current++)
        for (int recompute = 0; recompute < 3; recompute++) {
            run_options options = odd_options();
            options.emit = emit;
            options.step =
                (sl_step_options){2, SL_ACCUMULATE_LAYER, (sl_recompute)recompute, false};
            check_gradients(&options, 24);
            run r;
            uint32_t passed, apart;
            run_step(&options, &r);
            count_passes(r.step[0], &passed, &apart);
            const bool is_passed = current == ALONE || current == FROM_OUTSIDE;
            assert_int_equal(passed, is_passed ? 2 : 0); /* micro-batches */
            assert_int_equal(apart, is_passed ? 0 : 2);
            run_free(&r);
        }
}

/* Of GPT-2 all, whatever is recomputed and however it is split over ranks. */
static void gelus_when_of_gpt2_are_passed(void **state)
{
    (void)state;
    for (int recompute = 0; recompute < 3; recompute++)
        for (uint32_t ranks = 1; ranks < 4; ranks += 2) {
            run_options options = tiny_options();
            options.tp_size = ranks;
            options.step =
                (sl_step_options){3, SL_ACCUMULATE_MICRO, (sl_recompute)recompute, false};
            run r;
            uint32_t passed, apart;
            run_step(&options, &r);
            count_passes(r.step[0], &passed, &apart);
            assert_int_equal(passed, 3 * tiny.layers);
            assert_int_equal(apart, 0);
            run_free(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_when_others_use_it_is_not_passed),
        cmocka_unit_test(gelus_when_of_gpt2_are_passed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
