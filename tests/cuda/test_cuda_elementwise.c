/* What could be wrong: a last piece that is no whole sixteen bytes, a rounding that is not the
 * cpu's, elements left out or done twice. ADD, CLEAR, ROUND and DEQUANTIZE must give the cpu's
 * bits, every special number included; GELU, SwiGLU and their gradients come within their
 * roundings. */
#include "cuda_case.h"

/* Every sign and exponent, and what goes wrong first: zeros, subnormals, halves of a unit, the
 * largest, infinities, NaN. */
static double draw_special(void)
{
    static const float special[] = {
        0.0f,     -0.0f,       0x1p-149f,   -0x1p-149f,      0x1.fffffcp-127f, 0x1p-126f,
        0x1p-24f, 0x1.8p-24f,  0x1p-25f,    0x1.000002p-25f, 65504.0f,         65519.996f,
        65520.0f, 1.00390625f, 1.01171875f, 0x1.fffffep127f, 0x1.fep127f,      0x1.ffp127f,
        INFINITY, -INFINITY,   NAN};
    if (draw_below(2) == 0)
        return (double)special[draw_below(sizeof special / sizeof *special)];
    return (double)sl_bits_to_float((uint32_t)draw_below(UINT64_C(1) << 32));
}

static void fill_special(cuda_case *c, int operand)
{
    cuda_operand *o = &c->operand[operand];
    for (uint64_t i = 0; i < o->count; i += 1 + draw_below(3))
        case_store(o->element, o->input, i, draw_special());
}

/* One element, an odd one more than a block of threads does, and the sizes between. */
static uint64_t draw_count_of(cuda_case *c, int round)
{
    static const uint64_t more[] = {2047, 2048, 2049, 4099};
    c->attrs.element_count = round < 4 ? more[round] : case_size(round - 4);
    return c->attrs.element_count;
}

static void draw_gelu(cuda_case *c, int round)
{
    const uint64_t count = draw_count_of(c, round);
    case_random(c, 0, (int)c->type, count, 3.0f);
    case_room(c, 1, (int)c->type, count);
}

static void draw_gelu_backward(cuda_case *c, int round)
{
    const uint64_t count = draw_count_of(c, round);
    case_random(c, 0, (int)c->type, count, 3.0f);
    case_random(c, 1, (int)c->type, count, 1.0f);
}

static void draw_add(cuda_case *c, int round)
{
    const uint64_t count = draw_count_of(c, round);
    case_random(c, 0, (int)c->type, count, 1.0f);
    case_random(c, 1, (int)c->type, count, 1.0f);
    fill_special(c, 0);
    fill_special(c, 1);
}

static void draw_clear(cuda_case *c, int round)
{
    case_room(c, 0, (int)c->type, draw_count_of(c, round));
}

/* Of every length and at every place in a pack; sometimes more runs than one launch takes. */
static void draw_clear_padding(cuda_case *c, int round)
{
    enum { RUNS = 150 };
    static sl_padding runs[RUNS];
    const uint64_t count = round % 3 == 2 ? RUNS : 1 + (uint64_t)round % 3;
    uint64_t end = 0;
    for (uint64_t i = 0; i < count; i++) {
        runs[i] = (sl_padding){end + 1 + draw_below(40), 1 + draw_below(40)};
        end = runs[i].first + runs[i].count;
    }
    runs[count - 1].count += round == 0 ? 700000 : 0; /* more packs than threads */
    c->padding = runs;
    c->padding_count = count;
    c->attrs.element_count = runs[count - 1].first + runs[count - 1].count + 3;
    case_random(c, 0, (int)c->type, c->attrs.element_count, 1.0f);
}

static void draw_round(cuda_case *c, int round)
{
    const uint64_t count = draw_count_of(c, round);
    case_random(c, 0, SL_TYPE_FP32, count, 1.0f);
    fill_special(c, 0);
    case_room(c, 1, (int)c->type, count);
}

/* 2u has 4 roundings; they and the 2 units of exp's argument reduction reach the result times |2u|,
 * for d exp(-2u) / exp(-2u) = -d(2u). Then exp (2 units each side), a sum, a quotient: (4 |2u| + 4)
 * on each side. */
static double gelu_magnitude(const cuda_case *c, uint64_t i)
{
    const double x = case_input(c, 0, i), two_u = 1.5957691 * x * (1 + 0.044715 * x * x);
    return fabs(x / (1 + exp(-two_u))) * (1 + fabs(two_u));
}

/* As above, for s; x s (1 - s) 2u' + s cancels where x is below 0, so the sizes of both are added.
 */
static double slope_magnitude(const cuda_case *c, uint64_t i)
{
    const double x = case_input(c, 0, i), d = case_input(c, 1, i);
    const double two_u = 1.5957691 * x * (1 + 0.044715 * x * x), s = 1 / (1 + exp(-two_u));
    const double slope = 1.5957691 * (1 + 3 * 0.044715 * x * x);
    /* 1 - s is off by a unit of 1 where s is close to 1. */
    return fabs(d) * (s + fabs(x * slope) * s * ((1 - s) + 1)) * (1 + fabs(two_u));
}

static void gelu_when_run_is_close_to_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_GELU,
                             .run = sl_cuda_gelu,
                             .draw = draw_gelu,
                             .shapes = CASE_SHAPES + 4,
                             .bound = {[1] = {.terms = 8, .magnitude = gelu_magnitude}}});
}

static void gelu_backward_when_run_is_close_to_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_GELU_BACKWARD,
                             .run = sl_cuda_gelu_backward,
                             .draw = draw_gelu_backward,
                             .shapes = CASE_SHAPES + 4,
                             .bound = {[1] = {.terms = 10, .magnitude = slope_magnitude}}});
}

/* The two sides of the gate: operands 0 and 1. */
static void draw_gate_and_up(cuda_case *c, int round)
{
    const uint64_t count = draw_count_of(c, round);
    case_random(c, 0, (int)c->type, count, 3.0f);
    case_random(c, 1, (int)c->type, count, 1.0f);
    if (round % 4 == 0) /* exp(-gate) is infinite */
        case_store((int)c->type, c->operand[0].input, count / 2, -200);
}

static void draw_swiglu(cuda_case *c, int round)
{
    draw_gate_and_up(c, round);
    case_room(c, 2, (int)c->type, c->attrs.element_count);
}

static void draw_swiglu_backward(cuda_case *c, int round)
{
    draw_gate_and_up(c, round);
    case_random(c, 2, (int)c->type, c->attrs.element_count, 1.0f);
    case_room(c, 3, (int)c->type, c->attrs.element_count);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* exp(-gate) is off by as many units as -gate log2(e) has, and by 2 more on each side; a sum, a
 * quotient and a product or two. */
static double gated_magnitude(const cuda_case *c, uint64_t i)
{
    const double gate = case_input(c, 0, i);
    return fabs(gate * sigmoid(gate) * case_input(c, 1, i)) * (1 + fabs(gate));
}

static double gated_up_magnitude(const cuda_case *c, uint64_t i)
{
    const double gate = case_input(c, 0, i);
    return fabs(gate * sigmoid(gate) * case_input(c, 2, i)) * (1 + fabs(gate));
}

/* s + gate s (1 - s) cancels as GELU's slope does. */
static double gated_gate_magnitude(const cuda_case *c, uint64_t i)
{
    const double gate = case_input(c, 0, i), s = sigmoid(gate);
    const double slope = s + fabs(gate) * s * ((1 - s) + 1);
    return fabs(case_input(c, 1, i) * case_input(c, 2, i)) * slope * (1 + fabs(gate));
}

static void swiglu_when_run_is_close_to_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_SWIGLU,
                             .run = sl_cuda_swiglu,
                             .draw = draw_swiglu,
                             .shapes = CASE_SHAPES + 4,
                             .bound = {[2] = {.terms = 8, .magnitude = gated_magnitude}}});
}

static void swiglu_backward_when_run_is_close_to_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_SWIGLU_BACKWARD,
                             .run = sl_cuda_swiglu_backward,
                             .draw = draw_swiglu_backward,
                             .shapes = CASE_SHAPES + 4,
                             .bound = {[2] = {.terms = 10, .magnitude = gated_up_magnitude},
                                       [3] = {.terms = 10, .magnitude = gated_gate_magnitude}}});
}

static void draw_geglu(cuda_case *c, int round)
{
    draw_swiglu(c, round);
    c->attrs.is_gelu = 1;
}

static void draw_geglu_backward(cuda_case *c, int round)
{
    draw_swiglu_backward(c, round);
    c->attrs.is_gelu = 1;
}

/* As of GELU, with the other factor. */
static double geglu_magnitude(const cuda_case *c, uint64_t i)
{
    return gelu_magnitude(c, i) * fabs(case_input(c, 1, i));
}

static double geglu_up_magnitude(const cuda_case *c, uint64_t i)
{
    return gelu_magnitude(c, i) * fabs(case_input(c, 2, i));
}

static double geglu_gate_magnitude(const cuda_case *c, uint64_t i)
{
    return slope_magnitude(c, i) * fabs(case_input(c, 2, i)); /* its d is up */
}

static void geglu_when_run_is_close_to_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_SWIGLU,
                             .run = sl_cuda_swiglu,
                             .draw = draw_geglu,
                             .shapes = CASE_SHAPES + 4,
                             .bound = {[2] = {.terms = 10, .magnitude = geglu_magnitude}}});
    cuda_op_check(&(cuda_op){.kind = SL_OP_SWIGLU_BACKWARD,
                             .run = sl_cuda_swiglu_backward,
                             .draw = draw_geglu_backward,
                             .shapes = CASE_SHAPES + 4,
                             .bound = {[2] = {.terms = 10, .magnitude = geglu_up_magnitude},
                                       [3] = {.terms = 12, .magnitude = geglu_gate_magnitude}}});
}

static void draw_scale(cuda_case *c, int round)
{
    const uint64_t count = draw_count_of(c, round);
    case_random(c, 0, (int)c->type, count, 1.0f);
    fill_special(c, 0);
    case_room(c, 1, (int)c->type, count);
    c->attrs.scale = round % 2 ? -0.3f : 45.25f;
}

static void scale_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_SCALE, .run = sl_cuda_scale, .draw = draw_scale, .shapes = CASE_SHAPES + 4});
}

static void add_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_ADD, .run = sl_cuda_add, .draw = draw_add, .shapes = CASE_SHAPES + 4});
}

/* Rows whose ends are whole packs and others; with a residual and without. */
static void draw_dropout(cuda_case *c, int round)
{
    static const uint64_t widths[] = {8, 16, 3, 5, 24, 1, 12, 7};
    c->attrs.batch = 1 + (uint64_t)round % 3;
    c->attrs.seq = round == 0 ? 300 : 1 + (uint64_t)round * 7 % 40;
    c->attrs.in = widths[round % 8];
    c->attrs.dropout = 0.1f * (float)(1 + round % 9);
    c->attrs.dropout_site = (uint32_t)round;
    c->scalars.dropout_seed = draw_below(UINT64_MAX);
    c->scalars.first_row = draw_below(1000000);
    const uint64_t count = c->attrs.batch * c->attrs.seq * c->attrs.in;
    case_random(c, 0, (int)c->type, count, 1.0f);
    fill_special(c, 0);
    if ((round + round / 8) % 4 < 2) /* of each width with one and without */
        case_random(c, 1, (int)c->type, count, 1.0f);
    case_room(c, 2, (int)c->type, count);
}

static void dropout_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    enum { SHAPES = 40 }; /* of two kinds of rows */
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_DROPOUT, .run = sl_cuda_dropout, .draw = draw_dropout, .shapes = SHAPES});
}

static void clear_when_run_leaves_zeros(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_CLEAR, .run = sl_cuda_clear, .draw = draw_clear, .shapes = CASE_SHAPES + 4});
}

static void clear_padding_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_CLEAR_PADDING,
                             .run = sl_cuda_clear_padding,
                             .draw = draw_clear_padding,
                             .shapes = CASE_SHAPES + 4});
}

static void round_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){
        .kind = SL_OP_ROUND, .run = sl_cuda_round, .draw = draw_round, .shapes = CASE_SHAPES + 4});
}

/* Blocks of numbers of every size, zeros and numbers that no code can hold among them. */
static void draw_dequantize(cuda_case *c, int round)
{
    const uint64_t blocks = round < 2 ? 130 : (uint64_t)round / 2; /* each count of both types */
    const bool has_codes = round % 2 == 0;
    c->attrs.element_count = blocks * SL_BLOCK_ELEMENTS;
    c->attrs.frozen_type = has_codes ? SL_FROZEN_INT8 : SL_FROZEN_BF16;
    case_room(c, 1, (int)c->type, c->attrs.element_count);
    if (!has_codes) {
        case_random(c, 0, SL_TYPE_BF16, c->attrs.element_count, 1.0f);
        return;
    }
    const uint64_t block_bytes = sl_frozen_block_bytes(SL_FROZEN_INT8);
    uint8_t *stored = case_room(c, 0, CASE_BYTES, sl_chunk_bytes(blocks, block_bytes));
    for (uint64_t b = 0; b < blocks; b++, stored += block_bytes) {
        for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++)
            stored[i] = (uint8_t)draw_below(256);
        for (uint32_t g = 0; g < SL_BLOCK_ELEMENTS / 32; g++) {
            const uint16_t scale = (uint16_t)draw_below(g % 16 == 0 ? 0x7c01 : 0x5000);
            memcpy(stored + SL_BLOCK_ELEMENTS + 2 * g, &scale, sizeof scale);
        }
    }
}

static void dequantize_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_DEQUANTIZE,
                             .run = sl_cuda_dequantize,
                             .draw = draw_dequantize,
                             .shapes = 2 * CASE_SHAPES}); /* of each type as many */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gelu_when_run_is_close_to_the_cpu),
    cmocka_unit_test(gelu_backward_when_run_is_close_to_the_cpu),
    cmocka_unit_test(swiglu_when_run_is_close_to_the_cpu),
    cmocka_unit_test(swiglu_backward_when_run_is_close_to_the_cpu),
    cmocka_unit_test(geglu_when_run_is_close_to_the_cpu),
    cmocka_unit_test(scale_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(add_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(dropout_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(clear_when_run_leaves_zeros),
    cmocka_unit_test(clear_padding_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(round_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(dequantize_when_run_gives_the_bits_of_the_cpu),
};

CUDA_CASE_MAIN(tests)
