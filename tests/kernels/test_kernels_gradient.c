/* Every backward kernel against its own forward kernel by finite differences: with L = sum of w
 * f(x) and a step d, L(x + d) - L(x - d) must be twice the gradient along d. This needs no formula
 * of the gradient, so it also catches an error that reference and kernel share. The references of
 * the other tests are checked the same way, in double.
 *
 * The step is half along the gradient that the kernel claims, so that the difference is large, and
 * half random, so that entries it forgot count. Half the step gives a second estimate; the third
 * order term is a quarter there, so the difference of the two bounds it. Rounding: each output is
 * off by `terms` roundings of its size. */
#include "kernel_case.h"
#include "kernel_reference.h"

enum { SHAPES = 20 };

static const double STEP = 0.05; /* length of d */

typedef struct slope_case {
    kernel_case forward;
    int input, output; /* operands of the forward op */
    uint64_t input_count, output_count;
    float *weights; /* [output_count]: dL / d output */
    double terms;   /* roundings of an output, with a margin for its inner functions */
    double noise;   /* of the last loss */
} slope_case;

static float *random_floats(uint64_t count)
{
    float *values = allocate(count * sizeof *values);
    const uint64_t stream = 5000 + draw_count++;
    for (uint64_t i = 0; i < count; i++)
        values[i] = sl_rng_normal(test_seed, stream, i);
    return values;
}

static double find_loss(slope_case *s)
{
    case_run_once(&s->forward, pools[1]);
    const float *y = s->forward.result[s->output];
    double loss = 0;
    s->noise = 0;
    for (uint64_t i = 0; i < s->output_count; i++) {
        loss += (double)s->weights[i] * (double)y[i];
        s->noise += fabs((double)s->weights[i]) * (1 + fabs((double)y[i])) * s->terms * UNIT;
    }
    return loss;
}

/* L(x + d) - L(x - d), and what `gradient` makes of it, with the d that fp32 really gave. */
static double find_difference(slope_case *s, const double *step, double size, const float *gradient,
                              double *out_claimed)
{
    float *x = s->forward.input[s->input], *middle = allocate(s->input_count * sizeof *x);
    double loss[2];
    *out_claimed = 0;
    memcpy(middle, x, s->input_count * sizeof *x);
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; i < s->input_count; i++) {
            x[i] = (float)((double)middle[i] + (side ? -size : size) * step[i]);
            *out_claimed += (side ? -1 : 1) * (double)gradient[i] * (double)x[i];
        }
        loss[side] = find_loss(s);
    }
    memcpy(x, middle, s->input_count * sizeof *x);
    free(middle);
    return loss[0] - loss[1];
}

static double *choose_step(const float *gradient, uint64_t count)
{
    double *step = calloc(count, sizeof *step), length = 0, random_length = 0;
    float *noise = random_floats(count);
    for (uint64_t i = 0; i < count; i++) {
        length += (double)gradient[i] * (double)gradient[i];
        random_length += (double)noise[i] * (double)noise[i];
    }
    for (uint64_t i = 0; i < count; i++)
        step[i] = STEP * ((double)gradient[i] / sqrt(length + 1e-30) +
                          (double)noise[i] / sqrt(random_length));
    free(noise);
    return step;
}

static void expect_slope(slope_case *s, const float *gradient)
{
    double *step = choose_step(gradient, s->input_count), claimed, claimed_half, length = 0;
    const double whole = find_difference(s, step, 1, gradient, &claimed);
    const double half = find_difference(s, step, 0.5, gradient, &claimed_half);
    const double curvature = fabs(whole - claimed - 2 * (half - claimed_half));
    const double bound = curvature / 2 + 2 * s->noise;
    for (uint64_t i = 0; i < s->input_count; i++)
        length += (double)gradient[i] * (double)gradient[i];
    free(step);
    if (!(fabs(half - claimed_half) <= bound))
        fail_msg("%s: op %d, operand %d: the loss moves by %g, the gradient says %g, within %g",
                 sl_simd_current()->isa, (int)s->forward.kind, s->input, half, claimed_half, bound);
    /* A bound as large as the effect itself would test nothing. */
    if (length > 1e-6 && bound > 0.1 * STEP * sqrt(length) + 4 * s->noise)
        fail_msg("op %d, operand %d: the bound %g says nothing", (int)s->forward.kind, s->input,
                 bound);
}

static void set_slope(slope_case *s, int input, uint64_t input_count)
{
    s->input = input;
    s->input_count = input_count;
}

static void *zero_operand(kernel_case *c, int index, uint64_t bytes)
{
    return memset(case_operand(c, index, bytes), 0, bytes);
}

static void linear_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 9), in = draw_between(1, 20),
                       out = draw_between(1, 20);
        const sl_op_attrs attrs = {.row_count = rows, .in = in, .out = out};
        slope_case s = {.forward = {.kind = SL_OP_LINEAR, .attrs = attrs},
                        .output = 4,
                        .output_count = rows * out,
                        .terms = (double)in + 4};
        float *x = case_random(&s.forward, 0, rows * in, 1);
        float *weight = case_random(&s.forward, 1, in * out, 1);
        case_random(&s.forward, 2, out, 1);
        case_operand(&s.forward, 4, rows * out * sizeof(float));
        s.weights = random_floats(rows * out);
        kernel_case to_x = {.kind = SL_OP_LINEAR_INPUT_BACKWARD, .attrs = attrs};
        copy_operand(&to_x, 0, s.weights, rows * out * sizeof(float));
        copy_operand(&to_x, 1, weight, in * out * sizeof(float));
        case_operand(&to_x, 2, rows * in * sizeof(float));
        case_run_once(&to_x, pools[1]);
        set_slope(&s, 0, rows * in);
        expect_slope(&s, to_x.result[2]);
        kernel_case to_weight = {.kind = SL_OP_LINEAR_WEIGHT_BACKWARD, .attrs = attrs};
        copy_operand(&to_weight, 0, x, rows * in * sizeof(float));
        copy_operand(&to_weight, 1, s.weights, rows * out * sizeof(float));
        zero_operand(&to_weight, 2, in * out * sizeof(float));
        zero_operand(&to_weight, 3, out * sizeof(float));
        case_run_once(&to_weight, pools[1]);
        set_slope(&s, 1, in * out);
        expect_slope(&s, to_weight.result[2]);
        set_slope(&s, 2, out);
        expect_slope(&s, to_weight.result[3]);
        case_close(&to_x);
        case_close(&to_weight);
        case_close(&s.forward);
        free(s.weights);
    }
}

static void head_logits_when_differentiated_match(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 9), in = draw_between(1, 20),
                       ids = draw_between(1, 20);
        const sl_op_attrs attrs = {.row_count = rows, .in = in, .id_count = ids};
        slope_case s = {.forward = {.kind = SL_OP_HEAD_LOGITS, .attrs = attrs},
                        .output = 2,
                        .output_count = rows * ids,
                        .terms = (double)in + 4};
        float *x = case_random(&s.forward, 0, rows * in, 1);
        float *panel = case_random(&s.forward, 1, ids * in, 1);
        case_operand(&s.forward, 2, rows * ids * sizeof(float));
        s.weights = random_floats(rows * ids);
        kernel_case to_x = {.kind = SL_OP_HEAD_INPUT_BACKWARD, .attrs = attrs};
        copy_operand(&to_x, 0, s.weights, rows * ids * sizeof(float));
        copy_operand(&to_x, 1, panel, ids * in * sizeof(float));
        case_operand(&to_x, 2, rows * in * sizeof(float));
        case_run_once(&to_x, pools[1]);
        set_slope(&s, 0, rows * in);
        expect_slope(&s, to_x.result[2]);
        kernel_case to_panel = {.kind = SL_OP_HEAD_WEIGHT_BACKWARD, .attrs = attrs};
        copy_operand(&to_panel, 0, x, rows * in * sizeof(float));
        copy_operand(&to_panel, 1, s.weights, rows * ids * sizeof(float));
        zero_operand(&to_panel, 2, ids * in * sizeof(float));
        case_run_once(&to_panel, pools[1]);
        set_slope(&s, 1, ids * in);
        expect_slope(&s, to_panel.result[2]);
        case_close(&to_x);
        case_close(&to_panel);
        case_close(&s.forward);
        free(s.weights);
    }
}

static void layernorm_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 9), in = draw_between(4, 40);
        const sl_op_attrs attrs = {.row_count = rows, .in = in};
        slope_case s = {.forward = {.kind = SL_OP_LAYERNORM, .attrs = attrs},
                        .output = 3,
                        .output_count = rows * in,
                        .terms = 4 * ((double)in + 8)};
        float *x = case_random(&s.forward, 0, rows * in, 2);
        float *gamma = case_random(&s.forward, 1, in, 1);
        case_random(&s.forward, 2, in, 1);
        case_operand(&s.forward, 3, rows * in * sizeof(float));
        case_operand(&s.forward, 4, rows * 2 * sizeof(float));
        s.weights = random_floats(rows * in);
        find_loss(&s);
        kernel_case back = {.kind = SL_OP_LAYERNORM_BACKWARD, .attrs = attrs};
        copy_operand(&back, 0, x, rows * in * sizeof(float));
        copy_operand(&back, 1, gamma, in * sizeof(float));
        copy_operand(&back, 2, s.forward.result[4], rows * 2 * sizeof(float));
        copy_operand(&back, 3, s.weights, rows * in * sizeof(float));
        case_operand(&back, 4, rows * in * sizeof(float));
        zero_operand(&back, 5, in * sizeof(float));
        zero_operand(&back, 6, in * sizeof(float));
        case_run_once(&back, pools[1]);
        set_slope(&s, 0, rows * in);
        expect_slope(&s, back.result[4]);
        set_slope(&s, 1, in);
        expect_slope(&s, back.result[5]);
        set_slope(&s, 2, in);
        expect_slope(&s, back.result[6]);
        case_close(&back);
        case_close(&s.forward);
        free(s.weights);
    }
}

static void rmsnorm_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 9), in = draw_between(4, 40);
        const sl_op_attrs attrs = {.row_count = rows,
                                   .in = in,
                                   .epsilon = round % 2 ? 1e-6f : 0.5f,
                                   .gamma_offset = round / 2 % 2 ? 1.0f : 0.0f};
        slope_case s = {.forward = {.kind = SL_OP_RMSNORM, .attrs = attrs},
                        .output = 2,
                        .output_count = rows * in,
                        .terms = 2 * ((double)in + 8)};
        float *x = case_random(&s.forward, 0, rows * in, 2);
        float *gamma = case_random(&s.forward, 1, in, 1);
        case_operand(&s.forward, 2, rows * in * sizeof(float));
        case_operand(&s.forward, 3, rows * sizeof(float));
        s.weights = random_floats(rows * in);
        find_loss(&s);
        kernel_case back = {.kind = SL_OP_RMSNORM_BACKWARD, .attrs = attrs};
        copy_operand(&back, 0, x, rows * in * sizeof(float));
        copy_operand(&back, 1, gamma, in * sizeof(float));
        copy_operand(&back, 2, s.forward.result[3], rows * sizeof(float));
        copy_operand(&back, 3, s.weights, rows * in * sizeof(float));
        case_operand(&back, 4, rows * in * sizeof(float));
        case_operand(&back, 5, in * sizeof(float));
        case_run_once(&back, pools[1]);
        set_slope(&s, 0, rows * in);
        expect_slope(&s, back.result[4]);
        set_slope(&s, 1, in);
        expect_slope(&s, back.result[5]);
        case_close(&back);
        case_close(&s.forward);
        free(s.weights);
    }
}

static void swiglu_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t count = draw_between(1, 200);
        const sl_op_attrs attrs = {.element_count = count, .is_gelu = (uint32_t)round % 2};
        slope_case s = {.forward = {.kind = SL_OP_SWIGLU, .attrs = attrs},
                        .output = 2,
                        .output_count = count,
                        .terms = 32};
        float *gate = case_random(&s.forward, 0, count, 2);
        float *up = case_random(&s.forward, 1, count, 1);
        case_operand(&s.forward, 2, count * sizeof(float));
        s.weights = random_floats(count);
        kernel_case back = {.kind = SL_OP_SWIGLU_BACKWARD, .attrs = attrs};
        copy_operand(&back, 0, gate, count * sizeof(float));
        copy_operand(&back, 1, up, count * sizeof(float));
        copy_operand(&back, 2, s.weights, count * sizeof(float));
        case_operand(&back, 3, count * sizeof(float));
        case_run_once(&back, pools[1]);
        set_slope(&s, 0, count);
        expect_slope(&s, back.result[3]);
        set_slope(&s, 1, count);
        expect_slope(&s, back.result[2]);
        case_close(&back);
        case_close(&s.forward);
        free(s.weights);
    }
}

static void gelu_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t count = draw_between(1, 200);
        const sl_op_attrs attrs = {.element_count = count};
        slope_case s = {.forward = {.kind = SL_OP_GELU, .attrs = attrs},
                        .output = 1,
                        .output_count = count,
                        .terms = 32};
        float *x = case_random(&s.forward, 0, count, 2);
        case_operand(&s.forward, 1, count * sizeof(float));
        s.weights = random_floats(count);
        kernel_case back = {.kind = SL_OP_GELU_BACKWARD, .attrs = attrs};
        copy_operand(&back, 0, x, count * sizeof(float));
        copy_operand(&back, 1, s.weights, count * sizeof(float));
        case_run_once(&back, pools[1]);
        set_slope(&s, 0, count);
        expect_slope(&s, back.result[1]);
        case_close(&back);
        case_close(&s.forward);
        free(s.weights);
    }
}

/* Documents of a few tokens. */
static void fill_positions(kernel_case *forward, kernel_case *back)
{
    const uint64_t seq = forward->attrs.seq, length = draw_between(1, 9);
    const uint64_t bytes = forward->attrs.batch * seq * sizeof(int32_t);
    int32_t *positions = case_operand(forward, 3, bytes);
    for (uint64_t i = 0; i < bytes / sizeof *positions; i++)
        positions[i] = (int32_t)(i % seq % length);
    copy_operand(back, 5, positions, bytes);
}

static void attention_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t batch = draw_between(1, 2), seq = round % 5 ? draw_between(1, 12) : 70;
        const uint64_t heads = draw_between(1, 2), in = heads * draw_between(1, 9);
        const uint64_t rows = batch * seq;
        const sl_op_attrs attrs = {.batch = batch,
                                   .seq = seq,
                                   .heads = heads,
                                   .in = in,
                                   .out = in,
                                   .dropout = round % 4 >= 2 ? 0.3f : 0.0f};
        slope_case s = {.forward = {.kind = SL_OP_ATTENTION, .attrs = attrs},
                        .output = 1,
                        .output_count = rows * in,
                        .terms = (double)(seq + 60)};
        float *qkv = case_random(&s.forward, 0, rows * 3 * in, 1);
        case_operand(&s.forward, 1, rows * in * sizeof(float));
        case_operand(&s.forward, 2, rows * heads * sizeof(float));
        kernel_case back = {.kind = SL_OP_ATTENTION_BACKWARD, .attrs = attrs};
        if (round % 2)
            fill_positions(&s.forward, &back);
        s.weights = random_floats(rows * in);
        find_loss(&s);
        copy_operand(&back, 0, qkv, rows * 3 * in * sizeof(float));
        copy_operand(&back, 1, s.forward.result[1], rows * in * sizeof(float));
        copy_operand(&back, 2, s.forward.result[2], rows * heads * sizeof(float));
        copy_operand(&back, 3, s.weights, rows * in * sizeof(float));
        case_operand(&back, 4, rows * 3 * in * sizeof(float));
        case_run_once(&back, pools[1]);
        set_slope(&s, 0, rows * 3 * in);
        expect_slope(&s, back.result[4]);
        case_close(&back);
        case_close(&s.forward);
        free(s.weights);
    }
}

/* Positions and tokens are linear: the gradient of the table is the sum of what was read from it.
 */
static void embeddings_when_differentiated_match(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t batch = draw_between(1, 3), seq = draw_between(1, 9),
                       in = draw_between(1, 20);
        const uint64_t ids = draw_between(1, 9), rows = batch * seq;
        const sl_op_attrs attrs = {
            .batch = batch, .seq = seq, .in = in, .id_count = ids, .valid_id_count = ids};
        slope_case s = {.forward = {.kind = SL_OP_EMBED_POSITION, .attrs = attrs},
                        .output = 1,
                        .output_count = rows * in,
                        .terms = 2};
        case_random(&s.forward, 0, seq * in, 1);
        case_operand(&s.forward, 1, rows * in * sizeof(float));
        s.weights = random_floats(rows * in);
        kernel_case back = {.kind = SL_OP_EMBED_POSITION_BACKWARD, .attrs = attrs};
        copy_operand(&back, 0, s.weights, rows * in * sizeof(float));
        zero_operand(&back, 1, seq * in * sizeof(float));
        case_run_once(&back, pools[1]);
        set_slope(&s, 0, seq * in);
        expect_slope(&s, back.result[1]);
        case_close(&back);
        case_close(&s.forward);

        s.forward = (kernel_case){.kind = SL_OP_EMBED_TOKENS, .attrs = attrs};
        s.output = 2;
        int32_t *tokens = case_operand(&s.forward, 0, rows * sizeof *tokens);
        for (uint64_t i = 0; i < rows; i++)
            tokens[i] = (int32_t)draw_below(ids);
        case_random(&s.forward, 1, ids * in, 1);
        case_random(&s.forward, 2, rows * in, 1);
        kernel_case tokens_back = {.kind = SL_OP_EMBED_TOKENS_BACKWARD, .attrs = attrs};
        copy_operand(&tokens_back, 0, tokens, rows * sizeof *tokens);
        copy_operand(&tokens_back, 1, s.weights, rows * in * sizeof(float));
        case_operand(&tokens_back, 2, ids * in * sizeof(float));
        case_run_once(&tokens_back, pools[1]);
        set_slope(&s, 1, ids * in);
        expect_slope(&s, tokens_back.result[2]);
        case_close(&tokens_back);
        case_close(&s.forward);
        free(s.weights);
    }
}

/* The loss of one panel, as a function of its logits, through HEAD_STATS and HEAD_LOSS. */
static double find_head_loss(const kernel_case *logits_case, const float *logits)
{
    const sl_op_attrs *attrs = &logits_case->attrs;
    kernel_case stats = {.kind = SL_OP_HEAD_STATS, .attrs = *attrs};
    copy_operand(&stats, 0, logits, attrs->row_count * attrs->id_count * sizeof(float));
    copy_operand(&stats, 1, logits_case->input[0], attrs->row_count * sizeof(int32_t));
    case_operand(&stats, 2, attrs->row_count * 4 * sizeof(float));
    case_run_once(&stats, pools[1]);
    kernel_case loss = {.kind = SL_OP_HEAD_LOSS, .attrs = *attrs};
    copy_operand(&loss, 0, stats.result[2], attrs->row_count * 4 * sizeof(float));
    case_operand(&loss, 1, sizeof(double));
    case_run_once(&loss, pools[1]);
    memcpy(logits_case->input[1], stats.result[2], attrs->row_count * 4 * sizeof(float));
    const double result = *(double *)loss.result[1];
    case_close(&stats);
    case_close(&loss);
    return result;
}

/* The loss is one number with little noise, so every logit is moved alone. The third derivative of
 * log-sum-exp is below 1/6, so a step of 2^-6 is off by less than 2^-18 / 36 * 2; a row's lse is
 * rounded a few dozen times. */
static void head_loss_when_differentiated_matches(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 4), ids = draw_between(2, 25);
        kernel_case back = {.kind = SL_OP_HEAD_LOGITS_BACKWARD,
                            .attrs = {.batch = 1,
                                      .seq = rows,
                                      .row_count = rows,
                                      .id_count = ids,
                                      .valid_id_count = draw_between(1, ids),
                                      .scale = 1.0f},
                            .scalars = {.loss_scale = 1.0f}};
        int32_t *targets = case_operand(&back, 0, rows * sizeof *targets);
        for (uint64_t i = 0; i < rows; i++)
            targets[i] = (int32_t)draw_below(back.attrs.valid_id_count);
        case_operand(&back, 1, rows * 4 * sizeof(float));
        float *logits = case_random(&back, 2, rows * ids, 1);
        const double noise = (double)(rows * 40) * 4 * UNIT / 0x1p-6 + 0x1p-22;
        double *slope = calloc(rows * ids, sizeof *slope),
               *bound = calloc(rows * ids, sizeof *bound);
        for (uint64_t i = 0; i < rows * ids; i++) {
            const float middle = logits[i], up = middle + 0x1p-6f, down = middle - 0x1p-6f;
            logits[i] = up;
            slope[i] = find_head_loss(&back, logits);
            logits[i] = down;
            slope[i] -= find_head_loss(&back, logits);
            slope[i] /= (double)up - (double)down;
            logits[i] = middle;
            bound[i] = noise;
        }
        find_head_loss(&back, logits); /* leaves the statistics of the middle */
        case_run_once(&back, pools[1]);
        case_compare(&back, 2, slope, bound);
        free(slope);
        free(bound);
        case_close(&back);
    }
}

/* The references themselves, in double: steps of 1e-4 leave 1e-8 of truncation and 1e-12 of
 * rounding, times third derivatives of a few tens. */
static void references_when_differentiated_match(void **state)
{
    (void)state;
    enum { WIDTH = 7 };
    const double step = 1e-4;
    for (int round = 0; round < rounds(SHAPES); round++) {
        double x[WIDTH], gamma[WIDTH], dy[WIDTH], y[WIDTH], stats[2];
        double dx[WIDTH] = {0}, dgamma[WIDTH] = {0}, dbeta[WIDTH] = {0};
        for (int i = 0; i < WIDTH; i++) {
            x[i] = (double)sl_rng_normal(test_seed, 900 + (uint64_t)round, (uint64_t)i);
            gamma[i] = (double)sl_rng_normal(test_seed, 901 + (uint64_t)round, 50 + (uint64_t)i);
            dy[i] = (double)sl_rng_normal(test_seed, 902 + (uint64_t)round, 90 + (uint64_t)i);
            const double slope = (reference_gelu(x[i] + step) - reference_gelu(x[i] - step)) / 2e-4;
            assert_true(fabs(slope - reference_gelu_slope(x[i])) < 1e-7);
        }
        reference_norm_backward(x, gamma, dy, WIDTH, dx, dgamma, dbeta);
        for (int i = 0; i < WIDTH; i++) {
            double loss[2] = {0}, middle = x[i];
            for (int side = 0; side < 2; side++) {
                x[i] = middle + (side ? -step : step);
                reference_norm(x, gamma, gamma, WIDTH, y, stats);
                for (int j = 0; j < WIDTH; j++)
                    loss[side] += dy[j] * y[j];
            }
            x[i] = middle;
            const double slope = (loss[0] - loss[1]) / (2 * step);
            assert_true(fabs(slope - dx[i]) < 1e-5 * (1 + fabs(dx[i])) * pow(stats[1] + 1, 3));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_when_differentiated_matches),
        cmocka_unit_test(head_logits_when_differentiated_match),
        cmocka_unit_test(layernorm_when_differentiated_matches),
        cmocka_unit_test(rmsnorm_when_differentiated_matches),
        cmocka_unit_test(swiglu_when_differentiated_matches),
        cmocka_unit_test(gelu_when_differentiated_matches),
        cmocka_unit_test(attention_when_differentiated_matches),
        cmocka_unit_test(embeddings_when_differentiated_match),
        cmocka_unit_test(head_loss_when_differentiated_matches),
        cmocka_unit_test(references_when_differentiated_match),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
