/* What could be wrong in a kernel: an edge of a tile, a shape that no register width divides, a sum
 * that depends on the number of workers or on what the workspace held, an operand read as the wrong
 * layout, an id outside the vocabulary. Every op is compared with a plain double version of itself
 * over random shapes, odd ones included, in every instruction set, with bounds derived from the
 * number of roundings; case_run compares worker counts bit by bit. The gradients are checked
 * against finite differences in test_kernels_gradient.c, the exact ops in test_kernels_exact.c, the
 * matrix products in test_kernels_product.c. */
#include "kernel_case.h"
#include "kernel_reference.h"
#include "program/program.h"

enum { SHAPES = 20 };

static double *zeros(uint64_t count)
{
    double *values = calloc(count ? count : 1, sizeof *values);
    assert_non_null(values);
    return values;
}

static double *widen(const float *values, uint64_t count)
{
    double *wide = zeros(count);
    for (uint64_t i = 0; i < count; i++)
        wide[i] = (double)values[i];
    return wide;
}

/* want starts as `old` (or 0), bound as |old|. */
static void start_from(const float *old, uint64_t count, double **want, double **magnitude)
{
    *want = old ? widen(old, count) : zeros(count);
    *magnitude = zeros(count);
    for (uint64_t i = 0; i < count; i++)
        (*magnitude)[i] = fabs((*want)[i]);
}

static void check_sums(const kernel_case *c, int index, double *want, double *magnitude,
                       double terms)
{
    for (uint64_t i = 0; i < c->bytes[index] / sizeof(float); i++)
        magnitude[i] *= terms * UNIT;
    case_compare(c, index, want, magnitude);
    free(want);
    free(magnitude);
}

static uint64_t draw_size(int round)
{
    static const uint64_t odd[] = {1, 2, 3, 5, 16, 17, 31, 33, 64, 65, 96, 100, 127, 129, 200};
    return round % 7 == 6 ? draw_between(200, 420) : odd[draw_below(sizeof odd / sizeof *odd)];
}

static void layernorm_when_run_equals_the_definition(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t rows = draw_size(round), in = draw_size(round);
        kernel_case c = {.kind = SL_OP_LAYERNORM, .attrs = {.row_count = rows, .in = in}};
        double *x = widen(case_random(&c, 0, rows * in, 2), rows * in);
        double *gamma = widen(case_random(&c, 1, in, 1), in);
        double *beta = widen(case_random(&c, 2, in, 1), in);
        case_operand(&c, 3, rows * in * sizeof(float));
        case_operand(&c, 4, rows * 2 * sizeof(float));
        case_run(&c);
        double *y = zeros(rows * in), *y_bound = zeros(rows * in);
        double *stats = zeros(rows * 2), *stats_bound = zeros(rows * 2);
        for (uint64_t row = 0; row < rows; row++) {
            reference_norm(x + row * in, gamma, beta, in, y + row * in, stats + row * 2);
            /* The mean is off by in * UNIT * average |x|; that shifts every x - mean, and the
             * deviation by as much relative to itself. */
            double average = 0, inverse = stats[row * 2 + 1], terms = (double)in + 16;
            for (uint64_t i = 0; i < in; i++)
                average += fabs(x[row * in + i]) / (double)in;
            stats_bound[row * 2] = terms * UNIT * average;
            stats_bound[row * 2 + 1] = 2 * terms * UNIT * inverse * (1 + average * inverse);
            for (uint64_t i = 0; i < in; i++) {
                double size = (fabs(x[row * in + i]) + average) * inverse;
                y_bound[row * in + i] =
                    4 * terms * UNIT *
                    (fabs(gamma[i]) * size * (1 + average * inverse) + fabs(beta[i]));
            }
        }
        case_compare(&c, 3, y, y_bound);
        case_compare(&c, 4, stats, stats_bound);
        case_expect_unchanged(&c, 0, 3);
        void *all[] = {x, gamma, beta, y, y_bound, stats, stats_bound};
        for (int i = 0; i < 7; i++)
            free(all[i]);
        case_close(&c);
    }
}

static void layernorm_backward_when_run_equals_the_derivative(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t rows = draw_size(round), in = draw_between(2, 300);
        kernel_case c = {.kind = SL_OP_LAYERNORM_BACKWARD, .attrs = {.row_count = rows, .in = in}};
        c.attrs.adds_output = round % 2;
        double *x = widen(case_random(&c, 0, rows * in, 1), rows * in);
        double *gamma = widen(case_random(&c, 1, in, 1), in);
        float *stats = case_operand(&c, 2, rows * 2 * sizeof(float));
        double *dy = widen(case_random(&c, 3, rows * in, 1), rows * in);
        float *dx_old = case_random(&c, 4, rows * in, 1);
        c.attrs.adds_gradient = round / 2 % 2;
        float *dgamma_old = case_random(&c, 5, in, 1), *dbeta_old = case_random(&c, 6, in, 1);
        double *dx, *dx_bound, *dgamma, *dgamma_bound, *dbeta, *dbeta_bound, *y = zeros(in);
        start_from(round % 2 ? dx_old : NULL, rows * in, &dx, &dx_bound);
        start_from(c.attrs.adds_gradient ? dgamma_old : NULL, in, &dgamma, &dgamma_bound);
        start_from(c.attrs.adds_gradient ? dbeta_old : NULL, in, &dbeta, &dbeta_bound);
        for (uint64_t row = 0; row < rows; row++) {
            double s[2], size = 0;
            reference_norm(x + row * in, gamma, gamma, in, y, s);
            stats[row * 2] = (float)s[0];
            stats[row * 2 + 1] = (float)s[1];
            reference_norm_backward(x + row * in, gamma, dy + row * in, in, dx + row * in, dgamma,
                                    dbeta);
            for (uint64_t i = 0; i < in; i++) /* of either mean, both times the normal x */
                size += fabs(dy[row * in + i] * gamma[i]) / (double)in;
            for (uint64_t i = 0; i < in; i++) {
                double normal = (fabs(x[row * in + i]) + fabs(s[0])) * s[1];
                dx_bound[row * in + i] +=
                    4 * s[1] * (fabs(dy[row * in + i] * gamma[i]) + size + 4 * normal * size);
                dgamma_bound[i] += 4 * fabs(dy[row * in + i]) * normal;
                dbeta_bound[i] += fabs(dy[row * in + i]);
            }
        }
        case_run(&c);
        check_sums(&c, 4, dx, dx_bound, (double)in + 16);
        check_sums(&c, 5, dgamma, dgamma_bound, (double)rows + 8);
        check_sums(&c, 6, dbeta, dbeta_bound, (double)rows + 8);
        case_expect_unchanged(&c, 0, 4);
        case_check_norm_without(&c);
        free(x);
        free(gamma);
        free(dy);
        free(y);
        case_close(&c);
    }
}

/* In one round of two the factors are 1 + gamma: a sum that is rounded once. */
static void offset_gamma(kernel_case *c, int round, double *gamma)
{
    c->attrs.gamma_offset = round / 2 % 2 ? 1.0f : 0.0f;
    for (uint64_t i = 0; i < c->attrs.in; i++)
        gamma[i] += (double)c->attrs.gamma_offset;
}

static void rmsnorm_when_run_equals_the_definition(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t rows = draw_size(round), in = draw_size(round + 1);
        kernel_case c = {.kind = SL_OP_RMSNORM,
                         .attrs = {.row_count = rows, .in = in, .epsilon = round % 2 ? 1e-6f : 1}};
        double *x = widen(case_random(&c, 0, rows * in, 2), rows * in);
        double *gamma = widen(case_random(&c, 1, in, 1), in);
        offset_gamma(&c, round, gamma);
        case_operand(&c, 2, rows * in * sizeof(float));
        case_operand(&c, 3, rows * sizeof(float));
        case_run(&c);
        double *y = zeros(rows * in), *y_bound = zeros(rows * in);
        double *stats = zeros(rows), *stats_bound = zeros(rows);
        /* All terms of the mean are positive, so its error is relative to itself. */
        for (uint64_t row = 0; row < rows; row++) {
            reference_rms(x + row * in, gamma, in, (double)c.attrs.epsilon, y + row * in,
                          stats + row);
            stats_bound[row] = ((double)in + 8) * UNIT * stats[row];
        }
        for (uint64_t i = 0; i < rows * in; i++)
            y_bound[i] = ((double)in + 12) * UNIT * fabs(y[i]) +
                         UNIT * fabs(x[i] * stats[i / in]) * (double)c.attrs.gamma_offset * 2;
        case_compare(&c, 2, y, y_bound);
        case_compare(&c, 3, stats, stats_bound);
        case_expect_unchanged(&c, 0, 2);
        void *all[] = {x, gamma, y, y_bound, stats, stats_bound};
        for (int i = 0; i < 6; i++)
            free(all[i]);
        case_close(&c);
    }
}

static void rmsnorm_backward_when_run_equals_the_derivative(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t rows = draw_size(round), in = draw_between(2, 300);
        kernel_case c = {.kind = SL_OP_RMSNORM_BACKWARD, .attrs = {.row_count = rows, .in = in}};
        c.attrs.adds_output = round % 2;
        c.attrs.adds_gradient = round / 2 % 2;
        double *x = widen(case_random(&c, 0, rows * in, 1), rows * in);
        double *gamma = widen(case_random(&c, 1, in, 1), in);
        offset_gamma(&c, round, gamma);
        float *stats = case_operand(&c, 2, rows * sizeof(float));
        double *dy = widen(case_random(&c, 3, rows * in, 1), rows * in);
        float *dx_old = case_random(&c, 4, rows * in, 1), *dgamma_old = case_random(&c, 5, in, 1);
        double *dx, *dx_bound, *dgamma, *dgamma_bound, *y = zeros(in);
        start_from(round % 2 ? dx_old : NULL, rows * in, &dx, &dx_bound);
        start_from(c.attrs.adds_gradient ? dgamma_old : NULL, in, &dgamma, &dgamma_bound);
        for (uint64_t row = 0; row < rows; row++) {
            const double *of_x = x + row * in, *of_dy = dy + row * in;
            double inverse, size = 0;
            reference_rms(of_x, gamma, in, 1e-6, y, &inverse);
            stats[row] = (float)inverse;
            reference_rms_backward(of_x, gamma, inverse, of_dy, in, dx + row * in, dgamma);
            for (uint64_t i = 0; i < in; i++)
                size += fabs(of_dy[i] * of_x[i]) * (fabs(gamma[i]) + (double)c.attrs.gamma_offset) *
                        inverse / (double)in;
            for (uint64_t i = 0; i < in; i++) {
                const double normal = fabs(of_x[i]) * inverse;
                dx_bound[row * in + i] +=
                    4 * inverse *
                    (fabs(of_dy[i]) * (fabs(gamma[i]) + (double)c.attrs.gamma_offset) +
                     4 * normal * size);
                dgamma_bound[i] += 4 * fabs(of_dy[i]) * normal;
            }
        }
        case_run(&c);
        check_sums(&c, 4, dx, dx_bound, (double)in + 16);
        check_sums(&c, 5, dgamma, dgamma_bound, (double)rows + 8);
        case_expect_unchanged(&c, 0, 4);
        case_check_without(c, 1 << 4, case_run);
        case_check_without(c, 1 << 5, case_run);
        void *all[] = {x, gamma, dy, y};
        for (int i = 0; i < 4; i++)
            free(all[i]);
        case_close(&c);
    }
}

/* 2u of the tanh form: the exponential's argument, whose rounding errors are relative to it. */
static double exponent_of(double x)
{
    return fabs(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}

/* A gate's value and slope, and the rounding of its exponential: 2 + its argument. */
typedef struct gate_case {
    double value, slope, argument, sigmoid;
} gate_case;

/* Slopes in a form that does not cancel far below 0, unlike 1 + tanh. */
static gate_case gate_of(double g, bool is_gelu)
{
    const double u = exponent_of(g), inner = 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * g * g);
    const double s = reference_sigmoid(is_gelu ? copysign(u, g) : g);
    const double slope = s + g * s * (1 - s) * (is_gelu ? inner : 1);
    if (is_gelu)
        assert_true(fabs(slope - reference_gelu_slope(g)) <= 1e-14);
    return (gate_case){g * s, slope, is_gelu ? 2 * u : fabs(g), s};
}

static void gated_when_run_equals_the_definition(bool is_gelu)
{
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t count = round == 0 ? 70000 : draw_between(1, 2000);
        kernel_case c = {.kind = SL_OP_SWIGLU,
                         .attrs = {.element_count = count, .is_gelu = is_gelu}};
        float *gate = case_random(&c, 0, count, round % 2 && !is_gelu ? 30 : 2);
        float *up = case_random(&c, 1, count, 1);
        case_operand(&c, 2, count * sizeof(float));
        case_run(&c);
        double *want = zeros(count), *bound = zeros(count);
        for (uint64_t i = 0; i < count; i++) {
            const gate_case at = gate_of((double)gate[i], is_gelu);
            want[i] = at.value * (double)up[i];
            /* Where the exponential overflows, less than 128 * 2^-128 is lost of each up. */
            bound[i] = (8 + 2 * at.argument) * UNIT * fabs(want[i]) + 0x1p-118;
        }
        case_compare(&c, 2, want, bound);
        case_expect_unchanged(&c, 0, 2);
        free(want);
        free(bound);
        case_close(&c);
    }
}

static void gated_backward_when_run_equals_the_derivative(bool is_gelu)
{
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t count = round == 0 ? 70000 : draw_between(1, 2000);
        kernel_case c = {.kind = SL_OP_SWIGLU_BACKWARD,
                         .attrs = {.element_count = count, .is_gelu = is_gelu}};
        float *gate = case_random(&c, 0, count, round % 2 && !is_gelu ? 30 : 2);
        float *up = case_random(&c, 1, count, 1), *d = case_random(&c, 2, count, 1);
        case_operand(&c, 3, count * sizeof(float));
        double *want[2] = {zeros(count), zeros(count)}, *bound[2] = {zeros(count), zeros(count)};
        for (uint64_t i = 0; i < count; i++) {
            const double g = (double)gate[i], dy = (double)d[i];
            const gate_case at = gate_of(g, is_gelu);
            const double relative = (8 + 2 * at.argument) * UNIT;
            /* Slope of the exponential's argument, with its own roundings; 1 without GELU. */
            const double inner = is_gelu ? 2 * (1 + g * g) : 1;
            want[0][i] = dy * at.value;
            bound[0][i] = relative * fabs(want[0][i]) + 0x1p-118;
            want[1][i] = dy * (double)up[i] * at.slope;
            /* Two terms that may cancel; 1 - s is off by UNIT. */
            bound[1][i] = fabs(dy * (double)up[i]) *
                              (relative * at.sigmoid * (1 + fabs(g) * inner * (1 - at.sigmoid)) +
                               fabs(g) * inner * at.sigmoid * 4 * UNIT) +
                          0x1p-118;
        }
        case_run(&c);
        case_expect_unchanged(&c, 0, 2);
        for (int i = 0; i < 2; i++) {
            case_compare(&c, 2 + i, want[i], bound[i]);
            free(want[i]);
            free(bound[i]);
        }
        case_close(&c);
    }
}

static void swiglu_when_run_equals_the_definition(void **state)
{
    (void)state;
    gated_when_run_equals_the_definition(false);
    gated_backward_when_run_equals_the_derivative(false);
}

static void geglu_when_run_equals_the_definition(void **state)
{
    (void)state;
    gated_when_run_equals_the_definition(true);
    gated_backward_when_run_equals_the_derivative(true);
}

/* One product, rounded once. */
static void scale_when_run_multiplies(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t count = round == 0 ? 70000 : draw_between(1, 2000);
        kernel_case c = {.kind = SL_OP_SCALE,
                         .attrs = {.element_count = count, .scale = round % 2 ? -0.3f : 45.25f}};
        const float *x = case_random(&c, 0, count, 2);
        case_operand(&c, 1, count * sizeof(float));
        case_run(&c);
        for (uint64_t i = 0; i < count; i++)
            assert_true(((const float *)c.result[1])[i] == x[i] * c.attrs.scale);
        case_expect_unchanged(&c, 0, 1);
        case_close(&c);
    }
}

/* Two products and a sum. */
static void rotary_when_run_turns_the_pairs(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t batch = draw_between(1, 3), seq = round == 0 ? 700 : draw_between(1, 40);
        const uint64_t heads = draw_between(1, 4), n = 2 * draw_between(1, 70), in = heads * n;
        const uint64_t first = round % 3 ? 0 : draw_below(9), rows = first + seq + draw_below(3);
        kernel_case c = {.kind = SL_OP_ROTARY,
                         .attrs = {.batch = batch,
                                   .seq = seq,
                                   .in = in,
                                   .out = n,
                                   .heads = heads,
                                   .cache_rows = rows,
                                   .negates = round % 2},
                         .scalars = {.position = (uint32_t)first}};
        const uint64_t count = batch * seq * in;
        float *x = case_random(&c, 0, count, 1), *table = case_random(&c, 1, rows * n, 1);
        case_operand(&c, 2, count * sizeof(float));
        int32_t *positions = NULL;
        if (round % 4 >= 2)
            positions = case_operand(&c, 3, batch * seq * sizeof *positions);
        for (uint64_t t = 0; positions != NULL && t < batch * seq; t++)
            positions[t] = (int32_t)draw_below(rows);
        case_run(&c);
        double *want = zeros(count), *bound = zeros(count);
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t t = i / in, pair = i % n % (n / 2);
            const uint64_t position = positions ? (uint64_t)positions[t] : first + t % seq;
            const bool is_low = i % n < n / 2;
            const double own = (double)x[i] * (double)table[position * n + pair];
            double other = (double)x[is_low ? i + n / 2 : i - n / 2] *
                           (double)table[position * n + n / 2 + pair];
            other = is_low == (c.attrs.negates != 0) ? other : -other;
            want[i] = own + other;
            bound[i] = 2 * UNIT * (fabs(own) + fabs(other));
        }
        case_compare(&c, 2, want, bound);
        case_expect_unchanged(&c, 0, 2);
        free(want);
        free(bound);
        case_close(&c);
    }
}

static void rotary_when_positions_are_beyond_the_table_fails(void **state)
{
    (void)state;
    float some[64] = {0};
    const sl_op_attrs attrs = {
        .batch = 1, .seq = 3, .in = 4, .out = 4, .heads = 1, .cache_rows = 5};
    sl_kernel_call call = {.attrs = &attrs, .workers = pools[0], .operand = {some, some, some}};
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ROTARY].run(&call), SL_OK);
    call.scalars.position = 3;
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ROTARY].run(&call), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "a table of 5"));
}

static void gelu_when_run_equals_the_definition(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t count = round == 0 ? 70000 : draw_between(1, 2000);
        kernel_case c = {.kind = SL_OP_GELU, .attrs = {.element_count = count}};
        float *x = case_random(&c, 0, count, 3);
        case_operand(&c, 1, count * sizeof(float));
        case_run(&c);
        double *want = zeros(count), *bound = zeros(count);
        for (uint64_t i = 0; i < count; i++) {
            double v = (double)x[i];
            /* x / (1 + exp(-2u)) does not cancel, unlike 1 + tanh in double far below 0 */
            want[i] = v / (1 + exp(-2 * sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
            assert_true(fabs(want[i] - reference_gelu(v)) <= 1e-14);
            /* Where the exponential overflows, the result is 0 and less than 16 * 2^-128 is lost.
             */
            bound[i] = (8 + 4 * exponent_of(v)) * UNIT * fabs(want[i]) + 0x1p-124;
        }
        case_compare(&c, 1, want, bound);
        free(want);
        free(bound);
        case_close(&c);
    }
}

static void gelu_backward_when_run_equals_the_derivative(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t count = round == 0 ? 70000 : draw_between(1, 2000);
        kernel_case c = {.kind = SL_OP_GELU_BACKWARD, .attrs = {.element_count = count}};
        float *x = case_random(&c, 0, count, 3), *d = case_random(&c, 1, count, 1);
        case_run(&c);
        double *want = zeros(count), *bound = zeros(count);
        for (uint64_t i = 0; i < count; i++) {
            double v = (double)x[i];
            want[i] = (double)d[i] * reference_gelu_slope(v);
            /* Two terms of opposite sign, each at most max(1, |v| * 1.3). */
            bound[i] =
                (16 + 8 * exponent_of(v)) * UNIT * fabs((double)d[i]) * fmin(1 + fabs(v), 2.0);
        }
        case_compare(&c, 1, want, bound);
        free(want);
        free(bound);
        case_close(&c);
    }
}

static void elementwise_ops_when_run_are_exact(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        uint64_t count = round == 0 ? 70000 : draw_between(1, 3000);
        kernel_case add = {.kind = SL_OP_ADD, .attrs = {.element_count = count}};
        float *x = case_random(&add, 0, count, 1), *y = case_random(&add, 1, count, 1);
        case_run(&add);
        float *want = allocate(count * sizeof *want);
        for (uint64_t i = 0; i < count; i++)
            want[i] = y[i] + x[i];
        case_compare_bits(&add, 1, want);
        case_close(&add);
        kernel_case clear = {.kind = SL_OP_CLEAR, .attrs = {.element_count = count}};
        case_random(&clear, 0, count, 1);
        case_run(&clear);
        memset(want, 0, count * sizeof *want);
        case_compare_bits(&clear, 0, want);
        case_close(&clear);
        free(want);
    }
}

/* Tails of tensors, a chunk's long end, one element; between them nothing changes. */
static void clear_padding_when_run_clears_the_padding_alone(void **state)
{
    (void)state;
    enum { ELEMENTS = 60 * SL_BLOCK_ELEMENTS };
    static const sl_padding padding[] = {{768, 1280}, {4095, 1}, {8001, 191}, {12288, 110592}};
    enum { COUNT = sizeof padding / sizeof *padding };
    for (uint64_t count = 0; count <= COUNT; count++) {
        kernel_case c = {.kind = SL_OP_CLEAR_PADDING,
                         .attrs = {.element_count = ELEMENTS},
                         .padding = padding,
                         .padding_count = count};
        float *want = allocate(ELEMENTS * sizeof *want);
        memcpy(want, case_random(&c, 0, ELEMENTS, 1), ELEMENTS * sizeof *want);
        for (uint64_t i = 0; i < count; i++)
            memset(want + padding[i].first, 0, padding[i].count * sizeof *want);
        case_run(&c);
        case_compare_bits(&c, 0, want);
        case_close(&c);
        free(want);
    }
}

static void table_when_asked_has_every_op(void **state)
{
    (void)state;
    const sl_kernel_table *table = sl_kernels_cpu();
    const sl_op_attrs attrs = {.batch = 2,
                               .seq = 3,
                               .in = 40,
                               .out = 24,
                               .heads = 4,
                               .row_count = 6,
                               .id_count = 9,
                               .valid_id_count = 9,
                               .element_count = 3 * SL_BLOCK_ELEMENTS};
    for (int kind = 0; kind < SL_OP_COUNT; kind++) {
        sl_kernel kernel = NULL;
        const bool is_missing =
            kind == SL_OP_INPUT || sl_op_info_of((sl_op_kind)kind)->is_collective;
        assert_int_equal(table->row[kind].run == NULL, is_missing);
        assert_int_equal(sl_kernels_find(table, (sl_op_kind)kind, &kernel),
                         is_missing ? SL_ERROR_INTERNAL : SL_OK);
        assert_true(kernel == table->row[kind].run);
        const sl_kernel_call shapes = {.attrs = &attrs};
        assert_int_equal(table->prepare(NULL, (sl_op_kind)kind, &shapes), SL_OK);
        assert_true(sl_kernels_workspace_bytes(table, (sl_op_kind)kind, &attrs, 3) < 1 << 20);
    }
    assert_non_null(strstr(table->description(), sl_simd_current()->isa));
    sl_kernel kernel = NULL;
    assert_int_equal(sl_kernels_find(table, SL_OP_ALL_REDUCE, &kernel), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "all_reduce"));
    assert_int_equal(sl_kernels_find(table, SL_OP_COUNT, &kernel), SL_ERROR_INTERNAL);
}

static void kernels_when_a_shape_is_not_theirs_fail(void **state)
{
    (void)state;
    sl_step_control control = {0};
    sl_op_attrs attrs = {.element_count = SL_BLOCK_ELEMENTS + 1, .in = 3, .out = 0};
    sl_kernel_call call = {.attrs = &attrs, .workers = pools[0], .operand = {&control}};
    const sl_op_kind refused[] = {SL_OP_ADAMW, SL_OP_BLOCK_NORM, SL_OP_LINEAR};
    for (int i = 0; i < 3; i++)
        assert_int_equal(sl_kernels_cpu()->row[refused[i]].run(&call), SL_ERROR_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layernorm_when_run_equals_the_definition),
        cmocka_unit_test(layernorm_backward_when_run_equals_the_derivative),
        cmocka_unit_test(rmsnorm_when_run_equals_the_definition),
        cmocka_unit_test(rmsnorm_backward_when_run_equals_the_derivative),
        cmocka_unit_test(swiglu_when_run_equals_the_definition),
        cmocka_unit_test(geglu_when_run_equals_the_definition),
        cmocka_unit_test(scale_when_run_multiplies),
        cmocka_unit_test(rotary_when_run_turns_the_pairs),
        cmocka_unit_test(rotary_when_positions_are_beyond_the_table_fails),
        cmocka_unit_test(gelu_when_run_equals_the_definition),
        cmocka_unit_test(gelu_backward_when_run_equals_the_derivative),
        cmocka_unit_test(elementwise_ops_when_run_are_exact),
        cmocka_unit_test(clear_padding_when_run_clears_the_padding_alone),
        cmocka_unit_test(table_when_asked_has_every_op),
        cmocka_unit_test(kernels_when_a_shape_is_not_theirs_fail),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
