/* One call of a product op under test, whatever computes it: operands of small integers, whose sums
 * are exact in fp32 in any order, so that the result is known to the bit; or of random numbers,
 * within the bound of their roundings. */
#ifndef SL_TESTS_PRODUCT_CASE_H
#define SL_TESTS_PRODUCT_CASE_H

#include "base/half.h"
#include "kernel_case.h"

/* C (+)= A B as the ops see it: A[i, s] is a[i * a_row + s * a_step], and so on; times the slope of
 * GELU where there is a gelu. */
typedef struct product_case {
    kernel_case c;
    int a, b, out, bias, residual, gelu; /* operands; -1: none */
    uint64_t m, n, k;
    uint64_t a_row, a_step, b_step, b_column;
    uint64_t a_first, b_first, out_first; /* elements before those that the call uses */
    sl_type out_type;
    bool add;
} product_case;

static sl_type type_of(const product_case *p, int index)
{
    return index == p->out ? p->out_type : (sl_type)p->c.attrs.type;
}

static double read_element(const void *values, sl_type type, uint64_t i)
{
    if (type == SL_TYPE_FP32)
        return (double)((const float *)values)[i];
    const uint16_t half = ((const uint16_t *)values)[i];
    return (double)(type == SL_TYPE_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half));
}

static void write_element(void *values, sl_type type, uint64_t i, float value)
{
    if (type == SL_TYPE_FP32)
        ((float *)values)[i] = value;
    else if (type == SL_TYPE_BF16)
        ((uint16_t *)values)[i] = sl_half_to_bf16(value);
    else
        ((uint16_t *)values)[i] = sl_half_to_fp16(value);
}

/* Integers of -8 .. 8, or normal numbers. */
static void fill_operand(product_case *p, int index, uint64_t count, bool integers)
{
    const sl_type type = type_of(p, index);
    void *values = case_operand(&p->c, index, count * sl_type_bytes(type));
    const uint64_t stream = 1000 + draw_count++;
    for (uint64_t i = 0; i < count; i++)
        write_element(values, type, i,
                      integers ? (float)sl_rng_below(test_seed, stream, i, 17) - 8.0f
                               : sl_rng_normal(test_seed, stream, i));
}

/* Numbers of which the slope is 0, 1/2 and 1 to the bit, or normal numbers. */
static void fill_gelu(product_case *p, bool integers)
{
    static const float plain[] = {-30.0f, 0.0f, 30.0f};
    const uint64_t count = p->m * p->n;
    void *values = case_operand(&p->c, p->gelu, count * sl_type_bytes(type_of(p, p->gelu)));
    const uint64_t stream = 1000 + draw_count++;
    for (uint64_t i = 0; i < count; i++)
        write_element(values, type_of(p, p->gelu), i,
                      integers ? plain[sl_rng_below(test_seed, stream, i, 3)]
                               : sl_rng_normal(test_seed, stream, i));
}

typedef struct product_shape {
    uint64_t rows, in, out; /* of the head, `out` are its ids */
} product_shape;

/* Row-major matrices: where a row and a column lead. */
static void place_a(product_case *p, int index, bool transpose)
{
    p->a = index;
    p->a_row = transpose ? 1 : p->k;
    p->a_step = transpose ? p->m : 1;
}

static void place_b(product_case *p, int index, bool transpose)
{
    p->b = index;
    p->b_step = transpose ? 1 : p->n;
    p->b_column = transpose ? p->k : 1;
}

static void set_sizes(product_case *p, uint64_t m, uint64_t n, uint64_t k)
{
    p->m = m;
    p->n = n;
    p->k = k;
}

/* The gradient of a parameter: added to, written in fp32, or rounded. */
static void describe_gathered(product_case *p, uint64_t round)
{
    p->add = round % 2;
    p->c.attrs.adds_gradient = p->add;
    p->out_type = round % 4 == 2 ? (sl_type)p->c.attrs.type : SL_TYPE_FP32;
    p->c.attrs.grad_type = (uint16_t)p->out_type;
}

static void describe_linear(product_case *p, product_shape s, uint64_t round)
{
    const bool add = round % 2;
    p->c.attrs.out = s.out;
    if (p->c.kind == SL_OP_LINEAR) {
        set_sizes(p, s.rows, s.out, s.in);
        place_a(p, 0, false);
        place_b(p, 1, false);
        p->bias = 2;
        p->residual = 3;
        p->out = 4;
        p->c.attrs.rank_index = round % 5 == 4; /* of a later rank: without these two */
    } else if (p->c.kind == SL_OP_LINEAR_INPUT_BACKWARD) {
        set_sizes(p, s.rows, s.in, s.out);
        place_a(p, 0, false);
        place_b(p, 1, true);
        p->gelu = 3;
        p->c.attrs.adds_output = p->add = add;
    } else {
        set_sizes(p, s.in, s.out, s.rows);
        place_a(p, 0, true);
        place_b(p, 1, false);
        describe_gathered(p, round);
    }
}

/* x and dx have two rows before those of the call. */
static void describe_head(product_case *p, product_shape s, uint64_t round)
{
    enum { BEFORE = 2 };
    const bool add = round % 2;
    p->c.attrs.first_row = BEFORE;
    p->c.attrs.id_count = s.out;
    if (p->c.kind == SL_OP_HEAD_LOGITS) {
        set_sizes(p, s.rows, s.out, s.in);
        place_a(p, 0, false);
        place_b(p, 1, true);
        p->a_first = BEFORE * s.in;
    } else if (p->c.kind == SL_OP_HEAD_INPUT_BACKWARD) {
        set_sizes(p, s.rows, s.in, s.out);
        place_a(p, 0, false);
        place_b(p, 1, false);
        p->out_first = BEFORE * s.in;
        p->out_type = SL_TYPE_FP32;
        p->c.attrs.adds_output = p->add = add;
    } else {
        set_sizes(p, s.out, s.in, s.rows);
        place_a(p, 1, true);
        place_b(p, 0, false);
        p->b_first = BEFORE * s.in;
        describe_gathered(p, round);
    }
}

static const sl_op_kind kinds[] = {
    SL_OP_LINEAR,      SL_OP_LINEAR_INPUT_BACKWARD, SL_OP_LINEAR_WEIGHT_BACKWARD,
    SL_OP_HEAD_LOGITS, SL_OP_HEAD_INPUT_BACKWARD,   SL_OP_HEAD_WEIGHT_BACKWARD};

enum { KINDS = sizeof kinds / sizeof *kinds };

static bool is_head(sl_op_kind kind)
{
    return kind == SL_OP_HEAD_LOGITS || kind == SL_OP_HEAD_INPUT_BACKWARD ||
           kind == SL_OP_HEAD_WEIGHT_BACKWARD;
}

static uint64_t first_of(const product_case *p, int index)
{
    return index == p->out ? p->out_first
           : index == p->a ? p->a_first
           : index == p->b ? p->b_first
                           : 0;
}

static product_case open_product(sl_op_kind kind, sl_type type, product_shape s, uint64_t round,
                                 bool integers)
{
    product_case p = {.out = 2, .bias = -1, .residual = -1, .gelu = -1, .out_type = type};
    p.c.kind = kind;
    p.c.attrs = (sl_op_attrs){.row_count = s.rows, .in = s.in, .type = (uint16_t)type};
    if (is_head(kind))
        describe_head(&p, s, round);
    else
        describe_linear(&p, s, round);
    fill_operand(&p, p.a, first_of(&p, p.a) + p.m * p.k, integers);
    fill_operand(&p, p.b, first_of(&p, p.b) + p.n * p.k, integers);
    fill_operand(&p, p.out, p.out_first + p.m * p.n, integers);
    if (!p.add) /* must not be read */
        memset(p.c.input[p.out], 0xff, p.c.bytes[p.out]);
    if (p.bias >= 0 && round % 2)
        fill_operand(&p, p.bias, p.n, integers);
    if (p.residual >= 0 && round % 3)
        fill_operand(&p, p.residual, p.m * p.n, integers);
    if (p.gelu >= 0 && round % 4 == 2)
        fill_gelu(&p, integers);
    return p;
}

typedef struct product_sums {
    double *sum, *size; /* [m, n]: the exact sums, and those of the absolute values */
} product_sums;

/* What the sum starts from. */
static void add_others(const product_case *p, product_sums *sums, uint64_t row, uint64_t column)
{
    const uint64_t at = row * p->n + column;
    double others[3] = {0};
    if (p->add)
        others[0] = read_element(p->c.input[p->out], p->out_type, p->out_first + at);
    if (p->bias >= 0 && p->c.bytes[p->bias] > 0 && p->c.attrs.rank_index == 0)
        others[1] = read_element(p->c.input[p->bias], type_of(p, p->bias), column);
    if (p->residual >= 0 && p->c.bytes[p->residual] > 0 && p->c.attrs.rank_index == 0)
        others[2] = read_element(p->c.input[p->residual], type_of(p, p->residual), at);
    for (int i = 0; i < 3; i++) {
        sums->sum[at] += others[i];
        sums->size[at] += fabs(others[i]);
    }
}

/* Of a product that passes a GELU: how often it is rounded, once or also before the GELU, and how
 * far a slope may be off beyond what fp32 does to it. */
static MAYBE_UNUSED int gelu_roundings = 1;
static MAYBE_UNUSED double gelu_shortness = 0;

static bool has_gelu(const product_case *p)
{
    return p->gelu >= 0 && p->c.bytes[p->gelu] > 0;
}

static double gelu_x(const product_case *p, uint64_t at)
{
    return read_element(p->c.input[p->gelu], type_of(p, p->gelu), at);
}

/* What the sum is multiplied with: d/dx x s, with s = 1 / (1 + exp(-2u)). */
static double slope_of(const product_case *p, uint64_t at)
{
    if (!has_gelu(p))
        return 1;
    const double x = gelu_x(p, at), root = 2 * sqrt(2 / M_PI);
    const double s = 1 / (1 + exp(-root * x * (1 + 0.044715 * x * x)));
    return s + x * root * (1 + 3 * 0.044715 * x * x) * s * (1 - s);
}

/* 2u has 4 roundings and exp 2 units, which reach s times |2u|; then a sum, a quotient and some 6
 * more of terms that are at most 1 + |x| (1 - s, at most e^-|2u|, makes up for the slope of u). */
static double slope_error(const product_case *p, uint64_t at)
{
    if (!has_gelu(p))
        return 0;
    const double x = fabs(gelu_x(p, at)), two_u = 2 * sqrt(2 / M_PI) * x * (1 + 0.044715 * x * x);
    return ((16 + 8 * two_u) * UNIT + gelu_shortness) * (1 + x);
}

static double *allocate_doubles(uint64_t count)
{
    double *values = calloc(count ? count : 1, sizeof *values);
    assert_non_null(values);
    return values;
}

/* op(A) as [k, m] or op(B) as [k, n]: rows of the inner loop below. */
static double *gather(const product_case *p, int index, uint64_t step, uint64_t other,
                      uint64_t other_count)
{
    double *values = allocate_doubles(p->k * other_count);
    for (uint64_t s = 0; s < p->k; s++)
        for (uint64_t i = 0; i < other_count; i++)
            values[s * other_count + i] = read_element(p->c.input[index], type_of(p, index),
                                                       first_of(p, index) + s * step + i * other);
    return values;
}

static product_sums sum_exactly(const product_case *p)
{
    product_sums sums = {allocate_doubles(p->m * p->n), allocate_doubles(p->m * p->n)};
    double *a = gather(p, p->a, p->a_step, p->a_row, p->m);
    double *b = gather(p, p->b, p->b_step, p->b_column, p->n);
    for (uint64_t row = 0; row < p->m; row++) {
        double *sum = sums.sum + row * p->n, *size = sums.size + row * p->n;
        for (uint64_t s = 0; s < p->k; s++) {
            const double factor = a[s * p->m + row], *row_of_b = b + s * p->n;
            for (uint64_t i = 0; i < p->n; i++) {
                sum[i] += factor * row_of_b[i];
                size[i] += fabs(factor * row_of_b[i]);
            }
        }
        for (uint64_t i = 0; i < p->n; i++)
            add_others(p, &sums, row, i);
    }
    free(a);
    free(b);
    return sums;
}

static void fail_at(const product_case *p, uint64_t at, double got, double want)
{
    fail_msg("%s: op %d, type %d, element [%llu, %llu]: got %.9g, want %.9g (m %llu n %llu k %llu)",
             sl_simd_current()->isa, (int)p->c.kind, (int)p->c.attrs.type,
             (unsigned long long)(at / p->n), (unsigned long long)(at % p->n), got, want,
             (unsigned long long)p->m, (unsigned long long)p->n, (unsigned long long)p->k);
}

/* One rounding to `type`: half of the last of 24, 8 or 11 bits, or of the smallest subnormal. */
static double rounding_of(sl_type type, double value)
{
    static const double relative[] = {0x1p-24, 0x1p-8, 0x1p-11};
    static const double smallest[] = {0x1p-150, 0x1p-134, 0x1p-25};
    return fabs(value) * relative[type] + smallest[type];
}

/* k terms and up to 4 others in fp32, in any order: each addition is off by at most UNIT of a
 * partial sum, itself at most `size`. What the instruction for pairs flushes is below 2^-126 a
 * term. Then one rounding of the result. */
static void check_near(const product_case *p, const product_sums *sums)
{
    for (uint64_t at = 0; at < p->m * p->n; at++) {
        const double got = read_element(p->c.result[p->out], p->out_type, p->out_first + at);
        const double slope = slope_of(p, at), want = sums->sum[at] * slope;
        double sum_error = (double)(p->k + 4) * (UNIT * sums->size[at] + 0x1p-126);
        if (has_gelu(p) && gelu_roundings > 1)
            sum_error += rounding_of(p->out_type, fabs(sums->sum[at]) + sum_error);
        const double error = sum_error * fabs(slope) +
                             (fabs(sums->sum[at]) + sum_error) * slope_error(p, at) +
                             (has_gelu(p) ? UNIT * fabs(want) : 0);
        const double bound = error + rounding_of(p->out_type, fabs(want) + error);
        if (!(fabs(got - want) <= bound))
            fail_at(p, at, got, want);
    }
}

static void check_exact(const product_case *p, const product_sums *sums)
{
    for (uint64_t at = 0; at < p->m * p->n; at++) {
        uint8_t want[sizeof(float)];
        assert_true(sums->size[at] < 0x1p24);
        write_element(want, p->out_type, 0, (float)(sums->sum[at] * slope_of(p, at)));
        const double got = read_element(p->c.result[p->out], p->out_type, p->out_first + at);
        if (!(got == read_element(want, p->out_type, 0)))
            fail_at(p, at, got, read_element(want, p->out_type, 0));
    }
}

/* Inputs, and what of the output the call has no business with. */
static void check_untouched(const product_case *p)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const uint64_t bytes =
            i == p->out ? p->out_first * sl_type_bytes(p->out_type) : p->c.bytes[i];
        if (bytes > 0)
            assert_memory_equal(p->c.input[i], p->c.result[i], bytes);
    }
}

/* How the case is computed; as case_run. */
typedef void (*product_runner)(kernel_case *c);

static MAYBE_UNUSED void check_product(sl_op_kind kind, sl_type type, product_shape s,
                                       uint64_t round, bool integers, product_runner run)
{
    product_case p = open_product(kind, type, s, round, integers);
    run(&p.c);
    product_sums sums = sum_exactly(&p);
    if (integers)
        check_exact(&p, &sums);
    else
        check_near(&p, &sums);
    check_untouched(&p);
    free(sums.sum);
    free(sums.size);
    case_close(&p.c);
}

static MAYBE_UNUSED uint64_t draw_size(void)
{
    static const uint64_t odd[] = {1,  2,  3,  5,  6,  7,  13, 14, 15, 16, 17, 27,
                                   28, 29, 31, 32, 33, 47, 48, 64, 65, 96, 97};
    return odd[draw_below(sizeof odd / sizeof *odd)];
}

/* One of three sizes is larger in every other shape. */
static MAYBE_UNUSED product_shape draw_shape(uint64_t round)
{
    product_shape s = {draw_size(), draw_size(), draw_size()};
    uint64_t *larger[] = {&s.rows, &s.in, &s.out};
    if (round % 2)
        *larger[draw_below(3)] = draw_between(1, 3) == 3 ? draw_between(300, 420) : 129;
    return s;
}

/* dweight or dbias alone has the bits that it has beside the other. */
static void check_gradients_alone(const kernel_case *both, product_runner run)
{
    enum { X = 1 << 0, DWEIGHT = 1 << 2, DBIAS = 1 << 3 };
    kernel_case bias = *both;
    bias.attrs.in = 0;
    case_check_without(bias, X | DWEIGHT, run);
    case_check_without(*both, DBIAS, run);
}

/* Of integers: dbias is the sum over rows, rounded once. */
static void check_bias_sums(const product_case *p, product_shape s)
{
    for (uint64_t i = 0; i < s.out; i++) {
        double sum = p->add ? read_element(p->c.input[3], p->out_type, i) : 0;
        for (uint64_t row = 0; row < s.rows; row++)
            sum += read_element(p->c.input[1], (sl_type)p->c.attrs.type, row * s.out + i);
        uint8_t want[sizeof(float)];
        write_element(want, p->out_type, 0, (float)sum);
        const double got = read_element(p->c.result[3], p->out_type, i);
        if (!(got == read_element(want, p->out_type, 0)))
            fail_at(p, i, got, sum);
    }
}

static product_case open_bias_gradient(sl_type type, product_shape s, uint64_t round)
{
    product_case p = open_product(SL_OP_LINEAR_WEIGHT_BACKWARD, type, s, round, true);
    void *dbias = case_operand(&p.c, 3, s.out * sl_type_bytes(p.out_type));
    for (uint64_t i = 0; i < s.out; i++)
        write_element(dbias, p.out_type, i, p.add ? (float)draw_below(100) : NAN);
    return p;
}

/* dbias comes with the weight's gradient, and is gathered as it is; it must not be read where it is
 * written. */
static MAYBE_UNUSED void check_bias_gradient(sl_type type, product_shape s, uint64_t round,
                                             product_runner run)
{
    product_case p = open_bias_gradient(type, s, round);
    run(&p.c);
    check_bias_sums(&p, s);
    check_gradients_alone(&p.c, run);
    case_close(&p.c);
}

/* dbias alone: no product is computed. */
static MAYBE_UNUSED void check_bias_alone(sl_type type, product_shape s, uint64_t round,
                                          product_runner run)
{
    product_case p = open_bias_gradient(type, s, round);
    p.c.attrs.in = 0;
    p.c.bytes[0] = p.c.bytes[2] = 0;
    run(&p.c);
    check_bias_sums(&p, s);
    case_close(&p.c);
}

/* Infinities and NaNs reach the elements that depend on them, and no others. */
static MAYBE_UNUSED void check_not_finite(sl_type type, product_runner run)
{
    const product_shape s = {15, 40, 33};
    product_case p = open_product(SL_OP_LINEAR, type, s, 0, true);
    write_element(p.c.input[0], type, 3 * s.in + 5, NAN);
    write_element(p.c.input[1], type, 7 * s.out + 32, INFINITY);
    for (uint64_t row = 0; row < s.rows; row++) /* 0 * infinity is another matter */
        write_element(p.c.input[0], type, row * s.in + 7, 1.0f);
    run(&p.c);
    for (uint64_t at = 0; at < s.rows * s.out; at++) {
        const double got = read_element(p.c.result[4], type, at);
        if (at / s.out == 3)
            assert_true(isnan(got));
        else if (at % s.out == 32)
            assert_true(isinf(got));
        else
            assert_true(isfinite(got));
    }
    case_close(&p.c);
}

#endif
