/* What must be exact: the updates of rules to the bit on every instruction set and against their
 * definitions written out in scalars, with rates of their own for blocks; the block norm's tree;
 * the norm's sum, whatever the order, from subnormals to the largest floats, against an independent
 * big-number addition; the exponential to its promised unit in the last place. */
#include "kernel_case.h"

#include "kernels/cpu/norm_sum.h"

enum { SHAPES = 20, BLOCK = SL_BLOCK_ELEMENTS };

typedef struct adamw_case {
    kernel_case c;
    uint8_t *flags;
    uint64_t count;
} adamw_case;

static adamw_case draw_adamw(int round)
{
    adamw_case a = {.count = draw_between(1, round == 0 ? 150 : 6) * BLOCK};
    const uint64_t first_block = draw_below(5), blocks = a.count / BLOCK;
    a.c = (kernel_case){.kind = SL_OP_ADAMW,
                        .attrs = {.element_count = a.count, .first_block = first_block},
                        .scalars = {.learning_rate = 3e-4f,
                                    .weight_decay = 0.1f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.95f,
                                    .epsilon = 1e-8f,
                                    .bias1 = 0.271f,
                                    .bias2_root = 0.3776f}};
    sl_step_control *control = case_operand(&a.c, 0, sizeof *control);
    *control = (sl_step_control){.grad_norm = 2.0f, .clip_scale = round % 2 ? 0.37f : 1.0f};
    float *gradient = case_random(&a.c, 1, a.count, 1e-2f);
    case_random(&a.c, 2, a.count, 1e-3f);
    float *moment2 = case_random(&a.c, 3, a.count, 1e-4f);
    case_random(&a.c, 4, a.count, 1);
    for (uint64_t i = 0; i < a.count; i++)
        moment2[i] = fabsf(moment2[i]);
    gradient[0] = 0x1p-149f; /* subnormals and zeros are ordinary values */
    gradient[1] = moment2[1] = 0.0f;
    moment2[2] = 0x1p-140f;
    a.flags = malloc(first_block + blocks);
    assert_non_null(a.flags);
    for (uint64_t i = 0; i < first_block + blocks; i++)
        a.flags[i] = (uint8_t)draw_below(2);
    a.c.block_flags = a.flags;
    return a;
}

static void close_adamw(adamw_case *a)
{
    case_close(&a->c);
    free(a->flags);
}

/* One element of the definition; volatile keeps the compiler from fusing or reordering anything. */
static void update_element(const adamw_case *a, uint64_t i, float *m, float *v, float *p)
{
    const sl_step_scalars *s = &a->c.scalars;
    const sl_step_control *control = a->c.input[0];
    const uint8_t decays = a->flags[a->c.attrs.first_block + i / BLOCK];
    const float *const *input = (const float *const *)a->c.input;
    volatile float g = input[1][i] * control->clip_scale;
    volatile float rest1 = 1.0f - s->beta1, rest2 = 1.0f - s->beta2;
    volatile float scaled1 = rest1 * g, scaled2 = rest2 * g;
    volatile float square = scaled2 * g;
    volatile float root, decayed, decay = s->learning_rate * s->weight_decay;
    *m = fmaf(s->beta1, input[2][i], scaled1);
    *v = fmaf(s->beta2, input[3][i], square);
    root = sqrtf(*v);
    decay = decays ? 1.0f - decay : 1.0f;
    decayed = input[4][i] * decay;
    volatile float inverse_root = 1.0f / s->bias2_root, step = s->learning_rate / s->bias1;
    volatile float quotient = *m / fmaf(root, inverse_root, s->epsilon);
    *p = fmaf(-step, quotient, decayed);
}

static void adamw_when_run_equals_the_scalar_definition(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        adamw_case a = draw_adamw(round);
        float *m = allocate(a.count * 4), *v = allocate(a.count * 4), *p = allocate(a.count * 4);
        for (uint64_t i = 0; i < a.count; i++)
            update_element(&a, i, m + i, v + i, p + i);
        case_run(&a.c);
        case_compare_bits(&a.c, 2, m);
        case_compare_bits(&a.c, 3, v);
        case_compare_bits(&a.c, 4, p);
        case_expect_unchanged(&a.c, 0, 2);
        free(m);
        free(v);
        free(p);
        close_adamw(&a);
    }
}

/* The textbook update in double: relative to the size of what is added, a dozen roundings. */
static void adamw_when_run_is_close_to_the_textbook(void **state)
{
    (void)state;
    adamw_case a = draw_adamw(1);
    case_run(&a.c);
    const sl_step_scalars *s = &a.c.scalars;
    const float *const *input = (const float *const *)a.c.input;
    const double lr = (double)s->learning_rate;
    for (uint64_t i = 0; i < a.count; i++) {
        const double g =
            (double)input[1][i] * (double)((sl_step_control *)a.c.input[0])->clip_scale;
        const double m = (double)s->beta1 * (double)input[2][i] + (1 - (double)s->beta1) * g;
        const double v = (double)s->beta2 * (double)input[3][i] + (1 - (double)s->beta2) * g * g;
        const double decay =
            a.flags[a.c.attrs.first_block + i / BLOCK] ? 1 - lr * (double)s->weight_decay : 1;
        const double move =
            lr * (m / (double)s->bias1) / (sqrt(v) / (double)s->bias2_root + (double)s->epsilon);
        const double p = (double)input[4][i] * decay - move;
        const double m_size = fabs((double)input[2][i]) + fabs(g);
        const double bound = UNIT * (4 * fabs((double)input[4][i]) +
                                     16 * fabs(move) * (fabs(m) > 0 ? m_size / fabs(m) : 1)) +
                             0x1p-140;
        assert_true(fabs((double)((float *)a.c.result[4])[i] - p) <= bound);
    }
    close_adamw(&a);
}

static void adamw_when_told_to_skip_writes_nothing(void **state)
{
    (void)state;
    adamw_case a = draw_adamw(2);
    ((sl_step_control *)a.c.input[0])->skip = 1;
    case_run(&a.c);
    case_expect_unchanged(&a.c, 0, 5);
    close_adamw(&a);
}

/* ---- SGD and LION ---- */

static const sl_rate own_rates[] = {
    {1, 0}, {1, SL_RATE_DECAY_OF_STEP}, {0.37f, 0.3f}, {1.9f, 0}, {0, 2}};

/* An update with states of its own and blocks of all rates; `has_state`: SGD with momentum. */
static adamw_case draw_rule(sl_op_kind kind, bool has_state, int round)
{
    adamw_case a = {.count = draw_between(1, round == 0 ? 150 : 6) * BLOCK};
    const uint64_t first_block = draw_below(5), blocks = a.count / BLOCK;
    a.c = (kernel_case){.kind = kind,
                        .attrs = {.element_count = a.count, .first_block = first_block},
                        .rates = own_rates,
                        .rate_count = sizeof own_rates / sizeof *own_rates,
                        .scalars = {.learning_rate = 3e-3f,
                                    .weight_decay = 0.1f,
                                    .lion_beta1 = 0.9f,
                                    .lion_beta2 = 0.99f,
                                    .momentum = 0.85f,
                                    .is_nesterov = (uint32_t)round % 2}};
    sl_step_control *control = case_operand(&a.c, 0, sizeof *control);
    *control = (sl_step_control){.grad_norm = 2.0f, .clip_scale = round % 3 ? 0.37f : 1.0f};
    float *gradient = case_random(&a.c, 1, a.count, 1e-2f);
    float *state = has_state ? case_random(&a.c, 2, a.count, 1e-2f) : gradient;
    case_random(&a.c, 3, a.count, 1);
    gradient[0] = 0x1p-149f;
    gradient[1] = state[1] = 0.0f; /* lion: the sign of zero */
    state[2] = -0x1p-140f;
    a.flags = malloc(first_block + blocks);
    assert_non_null(a.flags);
    for (uint64_t i = 0; i < first_block + blocks; i++)
        a.flags[i] = (uint8_t)draw_below(sizeof own_rates / sizeof *own_rates);
    a.c.block_flags = a.flags;
    return a;
}

typedef struct element {
    float state, weight;
} element;

/* The definition of one element; volatile keeps the compiler from fusing or reordering anything. */
static element define_element(const adamw_case *a, uint64_t i)
{
    const sl_step_scalars *s = &a->c.scalars;
    const sl_step_control *control = a->c.input[0];
    const float *const *input = (const float *const *)a->c.input;
    const sl_rate *rate = &own_rates[a->flags[a->c.attrs.first_block + i / BLOCK]];
    const float decay = rate->weight_decay < 0 ? s->weight_decay : rate->weight_decay;
    volatile float step = s->learning_rate * rate->factor, g = input[1][i] * control->clip_scale;
    const float state = input[2] ? input[2][i] : 0, weight = input[3][i];
    if (a->c.kind == SL_OP_LION) {
        volatile float rest1 = 1.0f - s->lion_beta1, rest2 = 1.0f - s->lion_beta2;
        volatile float scaled1 = rest1 * g, scaled2 = rest2 * g, lost = step * decay;
        volatile float kept = 1.0f - lost, decayed = weight * kept;
        const float mean = fmaf(s->lion_beta1, state, scaled1);
        const float sign = (float)((mean > 0) - (mean < 0));
        return (element){fmaf(s->lion_beta2, state, scaled2), decayed - step * sign};
    }
    volatile float whole = fmaf(decay, weight, g);
    if (input[2] == NULL)
        return (element){0, fmaf(-step, whole, weight)};
    volatile float sum = fmaf(s->momentum, state, whole);
    volatile float ahead = s->is_nesterov ? fmaf(s->momentum, sum, whole) : sum;
    return (element){sum, fmaf(-step, ahead, weight)};
}

static void compare_with_definition(sl_op_kind kind, bool has_state, int round)
{
    adamw_case a = draw_rule(kind, has_state, round);
    float *state = allocate(a.count * 4), *weights = allocate(a.count * 4);
    for (uint64_t i = 0; i < a.count; i++) {
        const element defined = define_element(&a, i);
        state[i] = defined.state;
        weights[i] = defined.weight;
    }
    case_run(&a.c);
    if (has_state)
        case_compare_bits(&a.c, 2, state);
    case_compare_bits(&a.c, 3, weights);
    case_expect_unchanged(&a.c, 0, 2);
    ((sl_step_control *)a.c.input[0])->skip = 1;
    case_run(&a.c);
    case_expect_unchanged(&a.c, 0, 4);
    free(state);
    free(weights);
    close_adamw(&a);
}

static void rules_when_run_equal_their_scalar_definitions(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        compare_with_definition(SL_OP_SGD, false, round);
        compare_with_definition(SL_OP_SGD, true, round);
        compare_with_definition(SL_OP_LION, true, round);
    }
}

/* The same rate given by a table, and by the learning rate and decay of the step. */
static void adamw_when_a_rate_is_of_a_table_then_is_that_of_a_step(void **state)
{
    (void)state;
    adamw_case a = draw_adamw(1);
    a.c.rates = own_rates;
    a.c.rate_count = sizeof own_rates / sizeof *own_rates;
    memset(a.flags, 2, a.c.attrs.first_block + a.count / BLOCK);
    case_run(&a.c);
    float *p = allocate(a.count * 4);
    memcpy(p, a.c.result[4], a.count * 4);
    memset(a.flags, 1, a.c.attrs.first_block + a.count / BLOCK);
    a.c.scalars.learning_rate *= own_rates[2].factor;
    a.c.scalars.weight_decay = own_rates[2].weight_decay;
    a.c.rates = NULL;
    case_run(&a.c);
    case_compare_bits(&a.c, 4, p);
    free(p);
    close_adamw(&a);
}

/* The tree in the words of its definition, element by element. */
static float sum_block(const float *gradient)
{
    volatile float lane[32];
    for (int l = 0; l < 32; l++)
        lane[l] = 0.0f;
    for (int i = 0; i < BLOCK; i++)
        lane[i % 32] = fmaf(gradient[i], gradient[i], lane[i % 32]);
    for (int width = 16; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] = lane[l] + lane[l + width];
    return lane[0];
}

/* An independent exact sum: one byte a bit of 2^-149, carried by hand. */
static void add_bits(uint8_t *bits, float value)
{
    uint32_t raw;
    memcpy(&raw, &value, sizeof raw);
    const uint32_t exponent = raw >> 23;
    const uint32_t mantissa = (raw & 0x7fffff) | (exponent ? 0x800000 : 0);
    uint32_t at = exponent ? exponent - 1 : 0, carry = 0;
    for (uint32_t i = 0; at < 384 && (i < 24 || carry); i++, at++) {
        uint32_t digit = bits[at] + carry + (i < 24 ? mantissa >> i & 1 : 0);
        bits[at] = digit & 1;
        carry = digit >> 1;
    }
}

static void expect_bits(const sl_norm_sum *sum, const uint8_t *bits)
{
    for (int i = 0; i < 384; i++)
        assert_int_equal(sum->word[i / 64] >> (i % 64) & 1, bits[i]);
    assert_int_equal(sum->nonfinite, 0);
}

static void block_norm_when_run_adds_exactly(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t blocks = draw_between(1, round == 0 ? 150 : 9);
        kernel_case c = {.kind = SL_OP_BLOCK_NORM,
                         .attrs = {.element_count = blocks * BLOCK, .adds_output = round % 2}};
        const float scale = ldexpf(1.0f, (int)draw_below(100) - 70);
        float *gradient = case_random(&c, 0, blocks * BLOCK, scale);
        sl_norm_sum *norm = case_operand(&c, 1, sizeof *norm);
        memset(norm, 0, sizeof *norm);
        uint8_t bits[384] = {0};
        if (round % 2) {
            sl_norm_sum_add(norm, 12.75f);
            add_bits(bits, 12.75f);
        }
        for (uint64_t block = 0; block < blocks; block++)
            add_bits(bits, sum_block(gradient + block * BLOCK));
        case_run(&c);
        expect_bits(c.result[1], bits);
        case_expect_unchanged(&c, 0, 1);
        case_close(&c);
    }
}

static void block_norm_when_not_finite_says_so(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN, 1e30f /* its square is infinite */};
    for (int i = 0; i < 4; i++) {
        kernel_case c = {.kind = SL_OP_BLOCK_NORM, .attrs = {.element_count = 3 * BLOCK}};
        float *gradient = case_random(&c, 0, 3 * BLOCK, 1);
        gradient[BLOCK + draw_below(BLOCK)] = bad[i];
        case_operand(&c, 1, sizeof(sl_norm_sum));
        case_run(&c);
        assert_int_equal(((sl_norm_sum *)c.result[1])->nonfinite, 1);
        case_close(&c);
    }
}

static float draw_positive_float(void)
{
    static const float special[] = {0.0f,      0x1p-149f, 0x1.fffffcp-127f,
                                    0x1p-126f, 1.0f,      0x1.fffffep127f};
    if (draw_below(4) == 0)
        return special[draw_below(6)];
    uint32_t raw = (uint32_t)draw_below(0x7f800000);
    float value;
    memcpy(&value, &raw, sizeof value);
    return value;
}

static void norm_sum_when_added_in_any_order_is_exact(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    for (int round = 0; round < rounds(SHAPES); round++) {
        float values[COUNT];
        uint8_t bits[384] = {0};
        sl_norm_sum forward = {{0}}, halves[2] = {{{0}}, {{0}}};
        for (int i = 0; i < COUNT; i++) {
            values[i] = draw_positive_float();
            add_bits(bits, values[i]);
            sl_norm_sum_add(&forward, values[i]);
        }
        for (int i = COUNT - 1; i >= 0; i--)
            sl_norm_sum_add(&halves[draw_below(2)], values[i]);
        sl_norm_sum_merge(&halves[0], &halves[1]);
        expect_bits(&forward, bits);
        expect_bits(&halves[0], bits);
        /* The value, rounded once: long double keeps the upper 64 bits, so it is off by less than
         * 2^-62 and the nearest double is one of its neighbours. */
        long double value = 0;
        for (int i = 383; i >= 0; i--)
            value += bits[i] ? ldexpl(1.0L, i - 149) : 0.0L;
        const double got = sl_norm_sum_value(&forward);
        assert_true(fabsl((long double)got - value) <= value * (0x1p-53L + 0x1p-60L));
    }
}

static void norm_sum_when_bad_values_come_is_nonfinite(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, NAN, -1.0f, -INFINITY};
    for (int i = 0; i < 4; i++) {
        sl_norm_sum sum = {{0}}, other = {{0}};
        sl_norm_sum_add(&sum, bad[i]);
        assert_int_equal(sum.nonfinite, 1);
        sl_norm_sum_merge(&other, &sum);
        assert_true(other.nonfinite == 1 && isnan(sl_norm_sum_value(&other)));
    }
    sl_norm_sum sum = {{0}};
    sl_norm_sum_add(&sum, -0.0f);
    assert_true(sum.nonfinite == 0 && sl_norm_sum_value(&sum) == 0.0);
}

static sl_step_control finish(const sl_norm_sum *sum, float clip, float loss_scale)
{
    kernel_case c = {.kind = SL_OP_NORM_FINISH,
                     .scalars = {.clip = clip, .loss_scale = loss_scale}};
    memcpy(case_operand(&c, 0, sizeof *sum), sum, sizeof *sum);
    case_operand(&c, 1, sizeof(sl_step_control));
    case_run(&c);
    sl_step_control control = *(sl_step_control *)c.result[1];
    case_close(&c);
    return control;
}

static sl_step_control finish_counted(const sl_norm_sum *sum, float clip, uint64_t rows,
                                      double counted)
{
    kernel_case c = {.kind = SL_OP_NORM_FINISH,
                     .attrs = {.row_count = rows},
                     .scalars = {.clip = clip, .loss_scale = 2.0f}};
    memcpy(case_operand(&c, 0, sizeof *sum), sum, sizeof *sum);
    case_operand(&c, 1, sizeof(sl_step_control));
    *(double *)case_operand(&c, 2, sizeof counted) = counted;
    case_run(&c);
    sl_step_control control = *(sl_step_control *)c.result[1];
    case_close(&c);
    return control;
}

/* If every row counts, the bits are those without masks. */
static void norm_finish_when_some_rows_count_is_of_their_mean(void **state)
{
    (void)state;
    sl_norm_sum sum = {{0}};
    sl_norm_sum_add(&sum, 9.0f);
    sl_norm_sum_add(&sum, 16.0f);
    sl_step_control control = finish_counted(&sum, 1.0f, 24, 6); /* 5 / 2 * 24 / 6 */
    assert_true(control.grad_norm == 10.0f && control.skip == 0);
    assert_true(control.clip_scale == (float)(1.0 / (10.0 + 1e-6) * 4 / 2));
    control = finish_counted(&sum, 0.0f, 24, 6);
    assert_true(control.clip_scale == 2.0f);
    control = finish_counted(&sum, 1.0f, 24, 0);
    assert_true(control.skip == 1 && control.grad_norm == 0.0f);
    sl_norm_sum_add(&sum, 0.3f);
    const sl_step_control all = finish_counted(&sum, 1.0f, 24, 24),
                          plain = finish(&sum, 1.0f, 2.0f);
    assert_memory_equal(&all, &plain, sizeof all);
}

static void norm_finish_when_run_clips_and_unscales(void **state)
{
    (void)state;
    sl_norm_sum sum = {{0}};
    sl_norm_sum_add(&sum, 9.0f);
    sl_norm_sum_add(&sum, 16.0f);
    sl_step_control control = finish(&sum, 1.0f, 1.0f);
    assert_true(control.grad_norm == 5.0f && control.skip == 0);
    assert_true(control.clip_scale == (float)(1.0 / (5.0 + 1e-6)));
    control = finish(&sum, 0.0f, 1.0f);
    assert_true(control.clip_scale == 1.0f);
    control = finish(&sum, 10.0f, 1.0f);
    assert_true(control.clip_scale == 1.0f);
    control = finish(&sum, 1.0f, 2.0f);
    assert_true(control.grad_norm == 2.5f);
    assert_true(control.clip_scale == (float)(1.0 / (2.5 + 1e-6) / 2.0));
    sl_norm_sum_add(&sum, NAN);
    control = finish(&sum, 1.0f, 1.0f);
    assert_true(isnan(control.grad_norm) && control.skip == 1);
}

/* The vector exponential against the C library's in double: half a unit of rounding, and less than
 * half a unit of error before it; subnormal results are off by one of the least float at most. */
static void exp_when_called_is_within_a_unit(void **state)
{
    (void)state;
    enum { COUNT = 4099 };
    static float x[COUNT], y[COUNT];
    for (int round = 0; round < rounds(40); round++) {
        for (int i = 0; i < COUNT; i++)
            x[i] =
                (float)(sl_rng_uniform(test_seed, 50 + (uint64_t)round, (uint64_t)i) * 195 - 106);
        sl_simd_current()->exp(x, y, COUNT);
        for (int i = 0; i < COUNT; i++) {
            const double want = exp((double)x[i]);
            const double unit = fmax(ldexp(1, ilogb(want) - 23), 0x1p-149);
            const bool overflows = want > 0x1.fffffefp127;
            if (overflows ? y[i] != INFINITY : !(fabs((double)y[i] - want) <= 1.25 * unit))
                fail_msg("%s: exp(%a): got %a, want %a", sl_simd_current()->isa, (double)x[i],
                         (double)y[i], want);
        }
    }
    const float edge[] = {0.0f, -INFINITY, INFINITY, NAN, -200.0f, 1e30f};
    float out[6];
    sl_simd_current()->exp(edge, out, 6);
    assert_true(out[0] == 1.0f && out[1] == 0.0f && out[2] == INFINITY && isnan(out[3]));
    assert_true(out[4] == 0.0f && out[5] == INFINITY);
}

/* Lines up what every instruction set makes of the same chunk. */
static void exact_kernels_when_dispatched_agree_in_every_bit(void **state)
{
    (void)state;
    const sl_simd *before = sl_simd_current();
    adamw_case a = draw_adamw(1);
    sl_simd_choose(sl_simd_usable(0));
    case_run(&a.c);
    void *first = allocate(a.c.bytes[4]);
    memcpy(first, a.c.result[4], a.c.bytes[4]);
    float norms[2][8];
    const uint64_t blocks = a.count / BLOCK < 8 ? a.count / BLOCK : 8;
    const sl_gradient_blocks gradient = {a.c.input[1], SL_TYPE_FP32, SL_TYPE_FP32};
    sl_simd_usable(0)->block_norm(&gradient, blocks, norms[0]);
    for (uint32_t i = 1; i < sl_simd_usable_count(); i++) {
        sl_simd_choose(sl_simd_usable(i));
        case_run(&a.c);
        case_compare_bits(&a.c, 4, first);
        sl_simd_usable(i)->block_norm(&gradient, blocks, norms[1]);
        assert_memory_equal(norms[0], norms[1], blocks * sizeof(float));
    }
    sl_simd_choose(before);
    free(first);
    close_adamw(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_when_run_equals_the_scalar_definition),
        cmocka_unit_test(adamw_when_run_is_close_to_the_textbook),
        cmocka_unit_test(adamw_when_told_to_skip_writes_nothing),
        cmocka_unit_test(adamw_when_a_rate_is_of_a_table_then_is_that_of_a_step),
        cmocka_unit_test(rules_when_run_equal_their_scalar_definitions),
        cmocka_unit_test(block_norm_when_run_adds_exactly),
        cmocka_unit_test(block_norm_when_not_finite_says_so),
        cmocka_unit_test(norm_sum_when_added_in_any_order_is_exact),
        cmocka_unit_test(norm_sum_when_bad_values_come_is_nonfinite),
        cmocka_unit_test(norm_finish_when_run_clips_and_unscales),
        cmocka_unit_test(norm_finish_when_some_rows_count_is_of_their_mean),
        cmocka_unit_test(exp_when_called_is_within_a_unit),
        cmocka_unit_test(exact_kernels_when_dispatched_agree_in_every_bit),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
