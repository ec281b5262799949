/* mma.sync.m16n8k16: d [16, 8] = a [16, 16] b [16, 8] + c [16, 8], a and b of a half-precision
 * type, c and d fp32.
 *
 * Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"): lane 4 g + t
 * holds of an [8, 8] part the row g, columns 2 t and 2 t + 1. So a register of a, its 32 lanes one
 * after another, is an [8, 8] part of a by rows; the parts' order is upper left, lower left, upper
 * right, lower right. A register of b is a part of b by columns, the upper one first. c has one
 * column a register: even and odd columns of the upper half, then of the lower half.
 *
 * The ISA leaves open how it sums, from at least fp32. Products are exact, and of sums there are
 * two kinds:
 *
 *   in order    d = c, then for k = 0 … 15: d = d + a[k] b[k], rounded to nearest
 *   truncated   as the hardware is known to do it (Fasi, Higham, Mikaitis, Pranesh, "Numerical
 *               behavior of NVIDIA tensor cores", 2021): the sum so far and eight products are
 *               shifted to the largest of their exponents, cut to 24 bits, and added; the sum is
 *               cut to an fp32. Twice, for k = 0 … 7 and 8 … 15.
 */
#include <math.h>

#include "lanes.h"

enum { ROWS = 16, STEPS = 16, COLUMNS = 8 };

typedef struct matrices {
    float a[ROWS][STEPS], b[STEPS][COLUMNS], c[ROWS][COLUMNS];
} matrices;

/* A register's 64 halves, lane by lane, the low one first, as fp32. */
typedef uint16_t PTX_LANE_TYPE u16;
typedef void (*widen_function)(const u16 *halves, float *restrict out);

PTX_CLONES static void widen_bf16(const u16 *halves, float *restrict out)
{
    for (int i = 0; i < 64; i++)
        out[i] = float_of((uint32_t)halves[i] << 16);
}

PTX_CLONES static void widen_fp16(const u16 *halves, float *restrict out)
{
    for (int i = 0; i < 64; i++)
        out[i] = float_of(ptx_widen_fp16(halves[i]));
}

static void gather(const ptx_arithmetic_call *call, widen_function widen, matrices *m)
{
    float part[8][8];
    for (int i = 0; i < 4; i++) {
        widen(call->from[i], part[0]);
        for (int row = 0; row < 8; row++)
            memcpy(&m->a[row + i % 2 * 8][i / 2 * 8], part[row], sizeof part[row]);
    }
    for (int i = 0; i < 2; i++) {
        widen(call->from[4 + i], part[0]);
        for (int column = 0; column < 8; column++)
            for (int row = 0; row < 8; row++)
                m->b[8 * i + row][column] = part[column][row];
    }
    for (int i = 0; i < 2; i++) {
        const f32 *even = call->from[6 + 2 * i], *odd = call->from[7 + 2 * i];
        float *c = m->c[8 * i];
        PTX_EACH_LANE
        {
            c[2 * lane] = even[lane];
            c[2 * lane + 1] = odd[lane];
        }
    }
}

static void scatter(const matrices *m, const ptx_arithmetic_call *call)
{
    for (int i = 0; i < 4; i++) {
        f32 *restrict d = call->to[i];
        const float *sums = m->c[i / 2 * 8] + i % 2;
        PTX_EACH_LANE d[lane] = ptx_canonical(sums[2 * lane]);
    }
}

PTX_CLONES static void multiply_in_order(matrices *m)
{
    for (int row = 0; row < ROWS; row++)
        for (int k = 0; k < STEPS; k++) {
            const float factor = m->a[row][k];
#pragma GCC unroll 1 /* eight columns are a vector, not eight numbers */
            for (int column = 0; column < COLUMNS; column++)
                m->c[row][column] = fmaf(factor, m->b[k][column], m->c[row][column]);
        }
}

/* ---- truncated: loops over the eight columns, which are vectors ---- */

enum { TERMS = 9, EXPONENT_BIAS = 1023, EXPONENT_SHIFT = 52, KEPT_BITS = 23 };

static inline double power_of_two(int64_t exponent)
{
    return double_of((uint64_t)(EXPONENT_BIAS + exponent) << EXPONENT_SHIFT);
}

/* The nearest fp32 that is not further from zero. */
static inline float cut(double value)
{
    const float nearest = (float)value;
    const uint32_t is_further = fabs((double)nearest) > fabs(value);
    return float_of(bits_of(nearest) - is_further);
}

/* Nine terms a column, each exact in fp64. Where they are not all finite, their sum is what it is
 * in fp64. */
static inline void add_truncated(double term[TERMS][COLUMNS], float *out_sums)
{
    for (int column = 0; column < COLUMNS; column++) {
        double largest = 0, total = 0, sum = 0;
        for (int i = 0; i < TERMS; i++) {
            const double size = fabs(term[i][column]);
            largest = size > largest ? size : largest;
            total = i == 0 ? term[i][column] : total + term[i][column];
        }
        const bool is_plain = largest > 0 && fabs(total) < INFINITY;
        const double top = is_plain ? largest : 1;
        const int64_t exponent = (int64_t)(bits_of_double(top) >> EXPONENT_SHIFT) - EXPONENT_BIAS;
        const double down = power_of_two(KEPT_BITS - exponent);
        for (int i = 0; i < TERMS; i++)
            sum += trunc(term[i][column] * down);
        const float kept = cut(sum * power_of_two(exponent - KEPT_BITS));
        out_sums[column] = is_plain ? kept : (float)total;
    }
}

PTX_CLONES static void multiply_truncated(matrices *m)
{
    double term[TERMS][COLUMNS];
    for (int row = 0; row < ROWS; row++)
        for (int first = 0; first < STEPS; first += TERMS - 1) {
            for (int column = 0; column < COLUMNS; column++)
                term[0][column] = m->c[row][column];
            for (int i = 1; i < TERMS; i++)
                for (int column = 0; column < COLUMNS; column++)
                    term[i][column] =
                        (double)m->a[row][first + i - 1] * m->b[first + i - 1][column];
            add_truncated(term, m->c[row]);
        }
}

static uint32_t multiply(const ptx_arithmetic_call *call, widen_function widen)
{
    matrices m;
    gather(call, widen, &m);
    if (call->mode->truncates_mma)
        multiply_truncated(&m);
    else
        multiply_in_order(&m);
    scatter(&m, call);
    return 0;
}

uint32_t ptx_do_mma_bf16(const ptx_arithmetic_call *call)
{
    return multiply(call, widen_bf16);
}

uint32_t ptx_do_mma_f16(const ptx_arithmetic_call *call)
{
    return multiply(call, widen_fp16);
}
