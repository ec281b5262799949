/* What could be wrong in numbers that ptxas does not fold: a rounding, the error of an
 * approximation, the order of a matrix's elements in lanes and registers, its sums. They are
 * compared with arithmetic of more bits, in which what is compared is exact or rounds to the same:
 * the rounded sum, product, quotient or root of twice and two bits more is the rounded exact one
 * (Figueroa, 1995). */
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lanes_case.h"
#include "mma.h"
#include "scratch_dir.h"

#ifdef __SIZEOF_FLOAT128__
__extension__ typedef __float128 quad;
#else
typedef long double quad;
#endif

static float float_of(uint64_t bits)
{
    const uint32_t word = (uint32_t)bits;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

/* Any mantissa, either sign, an exponent within `reach` of 2^0. */
static float draw_float(uint64_t *seed, uint32_t reach)
{
    const uint64_t bits = lanes_draw(seed);
    const uint32_t exponent = 127 - reach + (uint32_t)(bits >> 32) % (2 * reach + 1);
    return float_of((bits & 0x807fffff) | exponent << 23);
}

static double draw_double(uint64_t *seed, uint32_t reach)
{
    const uint64_t exponent = 1023 - reach + lanes_draw(seed) % (2 * reach + 1);
    return double_of((lanes_draw(seed) & 0x800fffffffffffff) | exponent << 52);
}

/* ---- rounding ---- */

typedef struct operation {
    const char *name;
    char kind;
    uint32_t reach; /* of exponents; 126: results may be subnormal, infinite */
} operation;

static float single_of(char kind, float a, float b, float c)
{
    switch (kind) {
    case '+':
        return (float)((double)a + b);
    case '-':
        return (float)((double)a - b);
    case '*':
        return (float)((double)a * b);
    case '/':
        return (float)((double)a / b);
    case 'r':
        return (float)(1 / (double)a);
    case 's':
        return (float)sqrt((double)a);
    default:
        return (float)((quad)a * b + c);
    }
}

static void fp32_rounds_to_nearest(void **state)
{
    (void)state;
    static const operation OPERATIONS[] = {
        {"add.rn.f32", '+', 30},  {"sub.rn.f32", '-', 30}, {"mul.rn.f32", '*', 126},
        {"div.rn.f32", '/', 126}, {"rcp.rn.f32", 'r', 60}, {"sqrt.rn.f32", 's', 126},
        {"fma.rn.f32", 'f', 30},
    };
    uint64_t seed = scratch_seed("fp32", 11);
    for (uint64_t round = 0; round < 7 * scratch_count(1000, 100000); round++) {
        const operation *o = &OPERATIONS[round % 7];
        lanes_call call;
        lanes_open(&call, o->name);
        float source[3][32];
        for (int lane = 0; lane < 32; lane++)
            for (int k = 0; k < 3; k++) {
                source[k][lane] = draw_float(&seed, o->reach);
                if (o->kind == 's')
                    source[k][lane] = fabsf(source[k][lane]);
                if (call.row->sources[0] && k < (int)strlen(call.row->sources))
                    lanes_set(&call, k, lane, bits_of(source[k][lane]));
            }
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            const float a = source[0][lane], b = source[1][lane], c = source[2][lane];
            const float expected = single_of(o->kind, a, b, c);
            if (lanes_result(&call, 0, lane) != bits_of(expected))
                fail_msg("%s %a %a %a: %a, not %a", o->name, a, b, c,
                         float_of(lanes_result(&call, 0, lane)), expected);
        }
    }
}

static double wide_of(char kind, double a, double b, double c)
{
    switch (kind) {
    case '+':
        return (double)((quad)a + b);
    case '-':
        return (double)((quad)a - b);
    case '*':
        return (double)((quad)a * b);
    case '/':
        return (double)((quad)a / b);
    default:
        return (double)((quad)a * b + c);
    }
}

/* Sources of fma have few bits, so that its sum is exact before it is rounded. */
static void fp64_rounds_to_nearest(void **state)
{
    (void)state;
    static const operation OPERATIONS[] = {{"add.rn.f64", '+', 30},
                                           {"sub.rn.f64", '-', 30},
                                           {"mul.rn.f64", '*', 500},
                                           {"div.rn.f64", '/', 500},
                                           {"fma.rn.f64", 'f', 3}};
    uint64_t seed = scratch_seed("fp64", 12);
    for (uint64_t round = 0; round < 5 * scratch_count(500, 50000); round++) {
        const operation *o = &OPERATIONS[round % 5];
        lanes_call call;
        lanes_open(&call, o->name);
        double source[3][32];
        for (int lane = 0; lane < 32; lane++)
            for (int k = 0; k < (int)strlen(call.row->sources); k++) {
                source[k][lane] = draw_double(&seed, o->reach);
                lanes_set(&call, k, lane, bits_of_double(source[k][lane]));
            }
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            const double c = o->kind == 'f' ? source[2][lane] : 0;
            const double expected = wide_of(o->kind, source[0][lane], source[1][lane], c);
            if (lanes_result(&call, 0, lane) != bits_of_double(expected))
                fail_msg("%s %a %a %a: not %a", o->name, source[0][lane], source[1][lane], c,
                         expected);
        }
    }
}

/* The root lies between the middles to its neighbours. */
static void roots_of_fp64_round_to_nearest(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("roots", 13);
    for (uint64_t round = 0; round < scratch_count(300, 30000); round++) {
        lanes_call call;
        lanes_open(&call, "sqrt.rn.f64");
        for (int lane = 0; lane < 32; lane++)
            lanes_set(&call, 0, lane, bits_of_double(fabs(draw_double(&seed, 1000))));
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            const double a = call.from[0].wide[lane] ? double_of(call.from[0].wide[lane]) : 0;
            const double root = double_of(lanes_result(&call, 0, lane));
            const quad low = ((quad)root + nextafter(root, 0)) / 2;
            const quad high = ((quad)root + nextafter(root, INFINITY)) / 2;
            assert_true(low * low <= a && a <= high * high);
        }
    }
}

/* The result is not above the exact one, and the next number is. */
static void fma_rm_rounds_down(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("fma.rm", 14);
    for (uint64_t round = 0; round < scratch_count(3000, 300000); round++) {
        lanes_call call;
        lanes_open(&call, "fma.rm.f32");
        const uint32_t reach = round % 3 ? 15 : 1; /* every third time sums that cancel */
        for (int lane = 0; lane < 32; lane++)
            for (int k = 0; k < 3; k++)
                lanes_set(&call, k, lane, bits_of(draw_float(&seed, reach)));
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            const float a = float_of(call.from[0].word[lane]),
                        b = float_of(call.from[1].word[lane]);
            const float c = float_of(call.from[2].word[lane]);
            const float down = float_of(lanes_result(&call, 0, lane));
            const quad exact = (quad)a * b + c;
            if (!((quad)down <= exact && exact < (quad)nextafterf(down, INFINITY)))
                fail_msg("fma.rm.f32 %a %a %a: %a", a, b, c, down);
        }
    }
}

/* ---- conversions ---- */

static uint64_t convert(const char *name, uint64_t bits)
{
    lanes_call call;
    lanes_open(&call, name);
    for (int lane = 0; lane < 32; lane++)
        for (int k = 0; call.row->sources[k]; k++)
            lanes_set(&call, k, lane, bits);
    lanes_run(&call);
    return lanes_result(&call, 0, 17);
}

static double value_of_fp16(uint32_t half)
{
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return half & 0x8000 ? -size : size;
}

/* Every number there and back, and the three numbers around each middle between two of them. */
static void every_fp16_is_widened_and_rounded(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7c00; half++) {
        const float value = float_of(convert("cvt.f32.f16", half));
        assert_true((double)value == value_of_fp16(half));
        assert_int_equal(convert("cvt.f32.f16", half | 0x8000), bits_of(-value));
        assert_int_equal(convert("cvt.rn.f16.f32", bits_of(-value)), half | 0x8000);
        const double next = half == 0x7bff ? 65536 : value_of_fp16(half + 1);
        const float middle = (float)((value + next) / 2);
        const uint32_t even = half % 2 ? half + 1 : half;
        assert_int_equal(convert("cvt.rn.f16.f32", bits_of(middle)), even);
        assert_int_equal(convert("cvt.rn.f16.f32", bits_of(middle) - 1), half);
        assert_int_equal(convert("cvt.rn.f16.f32", bits_of(middle) + 1), half + 1);
        assert_int_equal(convert("cvt.rn.f16x2.f32", bits_of(middle) + 1),
                         (half + 1) << 16 | (half + 1));
    }
}

static void every_bf16_is_rounded_to(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7f80; half++) {
        const uint32_t middle = half << 16 | 0x8000, even = half % 2 ? half + 1 : half;
        assert_int_equal(convert("cvt.rn.bf16.f32", half << 16 | 0x80000000), half | 0x8000);
        assert_int_equal(convert("cvt.rn.bf16.f32", middle), even);
        assert_int_equal(convert("cvt.rn.bf16.f32", middle - 1), half);
        assert_int_equal(convert("cvt.rn.bf16x2.f32", middle + 1), (half + 1) << 16 | (half + 1));
    }
}

static void integers_are_rounded_to_numbers(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("integers", 15);
    for (uint64_t round = 0; round < scratch_count(20000, 2000000); round++) {
        const uint64_t shift = lanes_draw(&seed) % 64, bits = lanes_draw(&seed) >> shift;
        assert_int_equal(convert("cvt.rn.f32.u64", bits), bits_of((float)(quad)bits));
        assert_int_equal(convert("cvt.rn.f64.u64", bits), bits_of_double((double)(quad)bits));
        assert_int_equal(convert("cvt.rn.f32.s32", bits & 0xffffffff),
                         bits_of((float)(double)(int32_t)bits));
    }
}

static void quotient_and_remainder_make_the_dividend(void **state)
{
    (void)state;
    static const char *const NAMES[][2] = {{"div.u32", "rem.u32"}, {"div.u64", "rem.u64"}};
    uint64_t seed = scratch_seed("division", 16);
    for (uint64_t round = 0; round < scratch_count(1000, 100000); round++)
        for (int wide = 0; wide < 2; wide++) {
            lanes_call divide, rest;
            lanes_open(&divide, NAMES[wide][0]);
            lanes_open(&rest, NAMES[wide][1]);
            uint64_t a[32], b[32];
            for (int lane = 0; lane < 32; lane++) {
                a[lane] = lanes_draw(&seed) >> (wide ? 0 : 32);
                b[lane] = (lanes_draw(&seed) >> (wide ? 0 : 32) >> lane) + (lane == 31);
                b[lane] += b[lane] == 0;
                for (int k = 0; k < 2; k++) {
                    lanes_set(k ? &rest : &divide, 0, lane, a[lane]);
                    lanes_set(k ? &rest : &divide, 1, lane, b[lane]);
                }
            }
            assert_int_equal(lanes_run(&divide) | lanes_run(&rest), 0);
            for (int lane = 0; lane < 32; lane++) {
                const uint64_t left = lanes_result(&rest, 0, lane);
                assert_true(left < b[lane]);
                assert_true(lanes_result(&divide, 0, lane) * b[lane] + left == a[lane]);
            }
        }
}

/* ---- approximations ---- */

/* Within 2 in the last place of the rounded 2^x, whatever the seed; all five places are drawn. */
static void powers_of_two_stay_within_the_documented_error(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("ex2", 17), drawn[5] = {0};
    for (uint64_t round = 0; round < scratch_count(2000, 200000); round++) {
        lanes_call call;
        lanes_open(&call, "ex2.approx.ftz.f32");
        call.mode.seed = round % 8;
        for (int lane = 0; lane < 32; lane++) {
            const float x = (float)(lanes_draw(&seed) % 2520000) / 10000 - 125.9f;
            lanes_set(&call, 0, lane, bits_of(lane % 2 ? x : x / 1024));
        }
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            const float x = float_of(call.from[0].word[lane]);
            const int64_t nearest = bits_of((float)exp2l((long double)x));
            const int64_t places = (int64_t)lanes_result(&call, 0, lane) - nearest;
            if (places < -2 || places > 2 || (round % 8 == 0 && places != 0))
                fail_msg("seed %u, 2^%a: %d places off", (unsigned)(round % 8), x, (int)places);
            drawn[places + 2]++;
        }
    }
    for (int i = 0; i < 5; i++)
        assert_true(drawn[i] > 1000);
}

static void an_approximation_is_a_function_of_seed_and_source(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"ex2.approx.ftz.f32", "rcp.approx.ftz.f64"};
    for (int i = 0; i < 2; i++) {
        int differ = 0;
        for (uint64_t seed = 1; seed < 50; seed++) {
            lanes_call call;
            lanes_open(&call, NAMES[i]);
            call.mode.seed = seed;
            for (int lane = 0; lane < 32; lane++)
                lanes_set(&call, 0, lane, i ? bits_of_double(1.2345) : bits_of(1.2345f));
            lanes_run(&call);
            for (int lane = 1; lane < 32; lane++)
                assert_int_equal(lanes_result(&call, 0, lane), lanes_result(&call, 0, 0));
            differ += lanes_result(&call, 0, 0) != convert(NAMES[i], call.from[0].wide[0]);
        }
        assert_true(differ > 10);
    }
}

/* 20 bits of the mantissa: half of one from rounding, one more from a seed, one from the lower word
 * that is not read. */
static void reciprocals_are_near_and_have_no_lower_word(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("rcp", 18);
    for (uint64_t round = 0; round < scratch_count(2000, 200000); round++) {
        lanes_call call;
        lanes_open(&call, "rcp.approx.ftz.f64");
        call.mode.seed = round % 4;
        for (int lane = 0; lane < 32; lane++)
            lanes_set(&call, 0, lane, bits_of_double(draw_double(&seed, 1000)));
        lanes_run(&call);
        for (int lane = 0; lane < 32; lane++) {
            const uint64_t result = lanes_result(&call, 0, lane);
            const double error = double_of(result) * double_of(call.from[0].wide[lane]) - 1;
            assert_int_equal(result & 0xffffffff, 0);
            assert_true(fabs(error) < (round % 4 ? 3.5 : 1.75) * 0x1p-20);
            const uint64_t nearest = convert(call.row->name, call.from[0].wide[lane]);
            assert_true((result >> 32) - (nearest >> 32) + 1 <= 2);
        }
    }
}

/* ---- matrices ---- */

/* Where the ISA's tables say that element `i` of a lane's fragment lies. */
static int a_row(int lane, int i)
{
    return lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8);
}

static int a_column(int lane, int i)
{
    return lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0);
}

static int b_row(int lane, int i)
{
    return lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0);
}

static int c_row(int lane, int i)
{
    return lane / 4 + (i < 2 ? 0 : 8);
}

static int c_column(int lane, int i)
{
    return lane % 4 * 2 + (i & 1);
}

typedef struct matrix_case {
    double a[16][16], b[16][8], c[16][8]; /* of values that their types hold */
} matrix_case;

static uint32_t half_of(double value, bool is_bf16)
{
    return (uint32_t)convert(is_bf16 ? "cvt.rn.bf16.f32" : "cvt.rn.f16.f32", bits_of((float)value));
}

/* The product of one warp; d[16][8]. */
static void multiply(const matrix_case *m, bool is_bf16, bool truncates, float (*d)[8])
{
    lanes_call call;
    lanes_open(&call, is_bf16 ? "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                              : "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
    call.mode.truncates_mma = truncates;
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 8; i++)
            call.from[i / 2].word[lane] |= half_of(m->a[a_row(lane, i)][a_column(lane, i)], is_bf16)
                                           << i % 2 * 16;
        for (int i = 0; i < 4; i++)
            call.from[4 + i / 2].word[lane] |= half_of(m->b[b_row(lane, i)][lane / 4], is_bf16)
                                               << i % 2 * 16;
        for (int i = 0; i < 4; i++)
            call.from[6 + i].word[lane] = bits_of((float)m->c[c_row(lane, i)][c_column(lane, i)]);
    }
    assert_int_equal(lanes_run(&call), 0);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++)
            d[c_row(lane, i)][c_column(lane, i)] = float_of(lanes_result(&call, i, lane));
}

/* Whole numbers so small that every sum is exact in any order, and none equal to its neighbours. */
static void products_of_whole_numbers_are_exact(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("whole numbers", 19);
    for (int kind = 0; kind < 4; kind++)
        for (uint64_t round = 0; round < scratch_count(20, 2000); round++) {
            matrix_case m;
            float d[16][8];
            for (int i = 0; i < 256; i++)
                m.a[i / 16][i % 16] = (double)(lanes_draw(&seed) % 255) - 127;
            for (int i = 0; i < 128; i++) {
                m.b[i / 8][i % 8] = (double)(lanes_draw(&seed) % 255) - 127;
                m.c[i / 8][i % 8] = (double)(lanes_draw(&seed) % 65536) - 32768;
            }
            multiply(&m, kind % 2, kind / 2, d);
            for (int row = 0; row < 16; row++)
                for (int column = 0; column < 8; column++) {
                    double sum = m.c[row][column];
                    for (int k = 0; k < 16; k++)
                        sum += m.a[row][k] * m.b[k][column];
                    assert_true(d[row][column] == sum);
                }
        }
}

static void draw_matrices(matrix_case *m, bool is_bf16, uint64_t *seed)
{
    for (int i = 0; i < 256; i++) {
        const uint64_t half = half_of(draw_float(seed, 6), is_bf16);
        m->a[i / 16][i % 16] = is_bf16 ? float_of(half << 16) : value_of_fp16((uint32_t)half);
    }
    for (int i = 0; i < 128; i++) {
        const uint64_t half = half_of(draw_float(seed, 6), is_bf16);
        m->b[i / 8][i % 8] = is_bf16 ? float_of(half << 16) : value_of_fp16((uint32_t)half);
        m->c[i / 8][i % 8] = draw_float(seed, 12);
    }
}

/* In order: the very sums. Truncated: within the bound, and not the same sums. */
static void products_are_summed_as_they_say(void **state)
{
    (void)state;
    uint64_t seed = scratch_seed("sums", 20), differ = 0;
    for (uint64_t round = 0; round < scratch_count(100, 10000); round++) {
        matrix_case m;
        float in_order[16][8], truncated[16][8];
        draw_matrices(&m, round % 2, &seed);
        multiply(&m, round % 2, false, in_order);
        multiply(&m, round % 2, true, truncated);
        for (int row = 0; row < 16; row++)
            for (int column = 0; column < 8; column++) {
                float sum = (float)m.c[row][column];
                double exact = sum, size = fabs(exact);
                for (int k = 0; k < 16; k++) {
                    const double product = m.a[row][k] * m.b[k][column];
                    sum =
                        (float)((double)sum + product); /* exact before it is rounded, or nearly */
                    exact += product;
                    size += fabs(product);
                }
                const double bound = PTX_MMA_ERROR * size + PTX_MMA_SMALLEST;
                assert_true(in_order[row][column] == sum);
                assert_true(fabs(truncated[row][column] - exact) <= bound);
                assert_true(fabs(in_order[row][column] - exact) <= bound);
                differ += in_order[row][column] != truncated[row][column];
            }
    }
    assert_true(differ > 100);
}

/* What is below the last of 24 bits of the largest term is lost, of either sign. */
static void truncated_sums_lose_small_terms(void **state)
{
    (void)state;
    matrix_case m = {0};
    float d[16][8];
    m.c[3][5] = 1;
    m.a[3][2] = -0x1p-12;
    m.b[2][5] = 0x1p-12;
    multiply(&m, true, true, d);
    assert_true(d[3][5] == 1);
    m.b[2][5] = 0x1p-11; /* 2^-23: kept */
    multiply(&m, true, true, d);
    assert_true(d[3][5] == 1 - 0x1p-23);
    m.a[3][9] = 0x1p-12; /* of the second eight: added to a sum that was cut before */
    m.b[9][5] = 0x1p-12;
    multiply(&m, true, true, d);
    assert_true(d[3][5] == 1 - 0x1p-23 + 0x1p-24);
    for (int sign = -1; sign <= 1; sign += 2) { /* a sum of 25 bits is cut, not rounded */
        m = (matrix_case){0};
        m.c[0][0] = sign * (1 + 3 * 0x1p-23);
        m.a[0][0] = sign;
        m.b[0][0] = 1;
        multiply(&m, true, true, d);
        assert_true(d[0][0] == sign * (2 + 0x1p-22));
    }
}

static void infinities_and_nans_come_through_products(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        matrix_case m = {0};
        float d[16][8];
        m.a[4][7] = INFINITY;
        m.b[7][0] = -1;
        m.a[9][0] = 1;
        m.b[0][6] = 1;
        m.c[9][6] = NAN;
        multiply(&m, kind % 2, kind / 2, d);
        assert_true(d[4][0] == -INFINITY);
        assert_true(isnan(d[4][1])); /* infinity times zero */
        assert_int_equal(bits_of(d[9][6]), 0x7fffffff);
        assert_true(d[0][0] == 0);
    }
}

/* Row r of matrix i has 1000 i + 100 r + column. */
static void loaded_matrices_lie_in_lanes_as_the_isa_shows(void **state)
{
    (void)state;
    uint8_t rows[32][16];
    uint32_t lanes[4][32], *to[4] = {lanes[0], lanes[1], lanes[2], lanes[3]};
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < 8; r++)
            for (int column = 0; column < 8; column++) {
                const uint16_t element = (uint16_t)(1000 * i + 100 * r + column);
                memcpy(&rows[8 * i + r][2 * column], &element, 2);
            }
    for (uint32_t count = 1; count <= 4; count *= 2) {
        memset(lanes, 0xff, sizeof lanes);
        ptx_arithmetic_load_matrices(to, (const uint8_t(*)[16])rows, count, false);
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t lane = 0; lane < 32; lane++) {
                const uint32_t first = 1000 * i + 100 * (lane / 4) + lane % 4 * 2;
                assert_int_equal(lanes[i][lane],
                                 i < count ? first | (first + 1) << 16 : 0xffffffff);
            }
        ptx_arithmetic_load_matrices(to, (const uint8_t(*)[16])rows, count, true);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t lane = 0; lane < 32; lane++) {
                const uint32_t first = 1000 * i + 100 * (lane % 4 * 2) + lane / 4;
                assert_int_equal(lanes[i][lane], first | (first + 100) << 16);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_rounds_to_nearest),
        cmocka_unit_test(fp64_rounds_to_nearest),
        cmocka_unit_test(roots_of_fp64_round_to_nearest),
        cmocka_unit_test(fma_rm_rounds_down),
        cmocka_unit_test(every_fp16_is_widened_and_rounded),
        cmocka_unit_test(every_bf16_is_rounded_to),
        cmocka_unit_test(integers_are_rounded_to_numbers),
        cmocka_unit_test(quotient_and_remainder_make_the_dividend),
        cmocka_unit_test(powers_of_two_stay_within_the_documented_error),
        cmocka_unit_test(an_approximation_is_a_function_of_seed_and_source),
        cmocka_unit_test(reciprocals_are_near_and_have_no_lower_word),
        cmocka_unit_test(products_of_whole_numbers_are_exact),
        cmocka_unit_test(products_are_summed_as_they_say),
        cmocka_unit_test(truncated_sums_lose_small_terms),
        cmocka_unit_test(infinities_and_nans_come_through_products),
        cmocka_unit_test(loaded_matrices_lie_in_lanes_as_the_isa_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
