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

/* The nearest fp32 that is not further from zero. */
static float cut(double value)
{
    const float nearest = (float)value;
    return fabs((double)nearest) > fabs(value) ? float_of(bits_of(nearest) - 1) : nearest;
}

/* Nine terms, finite, each exact in fp64. */
static float add_truncated(const double *term)
{
    double largest = 0;
    for (int i = 0; i < 9; i++)
        largest = fmax(largest, fabs(term[i]));
    if (largest == 0)
        return (float)(term[0] + term[1]);
    const int exponent = ilogb(largest);
    double sum = 0;
    for (int i = 0; i < 9; i++)
        sum += trunc(scalbn(term[i], 23 - exponent));
    return cut(scalbn(sum, exponent - 23));
}

static float dot_truncated(const matrices *m, int row, int column)
{
    float sum = m->c[row][column];
    for (int k = 0; k < STEPS; k += 8) {
        double term[9] = {sum}, total = sum;
        for (int i = 0; i < 8; i++) {
            term[1 + i] = (double)m->a[row][k + i] * m->b[k + i][column];
            total += term[1 + i];
        }
        sum = isfinite(total) ? add_truncated(term) : (float)total;
    }
    return sum;
}

static void multiply_truncated(matrices *m)
{
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            m->c[row][column] = dot_truncated(m, row, column);
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
