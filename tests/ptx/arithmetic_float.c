/* Numbers: fp32, fp64 and the conversions between them, the half-precision types and integers.
 *
 * Operations that round are IEEE 754's, subnormal numbers included, and so are the processor's. The
 * ISA leaves open which NaN an fp32 operation gives: here it is always 0x7fffffff, as a GPU's, so
 * that bits depend on nothing else. fp64 keeps the payload of its first NaN.
 *
 * Approximate operations give the nearest number, or, with a seed, another one within the error
 * that the ISA documents; which one is a function of seed and source alone.
 */
#include <math.h>

#include "lanes.h"

/* Of an operation of fp64 on a, b, c: its first NaN, made quiet; else a NaN of its own. */
static inline double keep_payload(double value, double a, double b, double c)
{
    const double source = a != a ? a : b != b ? b : c;
    if (value == value)
        return value;
    return double_of(source != source ? bits_of_double(source) | UINT64_C(1) << 51
                                      : UINT64_C(0x7ff8000000000000));
}

PTX_TWO(add_rn_f32, f32, f32, f32, ptx_canonical(a + b))
PTX_TWO(sub_rn_f32, f32, f32, f32, ptx_canonical(a - b))
PTX_TWO(mul_rn_f32, f32, f32, f32, ptx_canonical((a * b)))
PTX_TWO(div_rn_f32, f32, f32, f32, ptx_canonical(a / b))
PTX_THREE(fma_rn_f32, f32, ptx_canonical(fmaf(a, b, c)))
PTX_ONE(rcp_rn_f32, f32, f32, ptx_canonical(1.0f / a))
PTX_ONE(sqrt_rn_f32, f32, f32, ptx_canonical(sqrtf(a)))
PTX_ONE(neg_f32, u32, u32, a ^ 0x80000000)

PTX_TWO(add_rn_f64, f64, f64, f64, keep_payload(a + b, a, b, 0))
PTX_TWO(sub_rn_f64, f64, f64, f64, keep_payload(a - b, a, b, 0))
PTX_TWO(mul_rn_f64, f64, f64, f64, keep_payload((a * b), a, b, 0))
PTX_TWO(div_rn_f64, f64, f64, f64, keep_payload(a / b, a, b, 0))
PTX_THREE(fma_rn_f64, f64, keep_payload(fma(a, b, c), a, b, c))
PTX_ONE(sqrt_rn_f64, f64, f64, keep_payload(sqrt(a), a, 0, 0))
PTX_ONE(neg_f64, u64, u64, a ^ UINT64_C(1) << 63)
PTX_ONE(abs_f64, u64, u64, a & ~(UINT64_C(1) << 63))

/* The next number below; of both zeros the smallest subnormal one. */
static inline float next_below(float value)
{
    const uint32_t bits = bits_of(value);
    return float_of(value == 0 ? 0x80000001 : bits >> 31 ? bits + 1 : bits - 1);
}

/* a b + c rounded down. In fp64 the product is exact and the sum's error is a number too (Knuth's
 * TwoSum), so the nearest fp32 is one too high exactly where it is above both together. A sum that
 * is exactly zero is -0 when rounded down, unless both of its parts are +0. */
static inline float fma_down(float a, float b, float c)
{
    const double product = (double)a * b, sum = product + c;
    const double of_c = sum - product, error = (product - (sum - of_c)) + (c - of_c);
    const float nearest = (float)sum;
    const bool is_above = nearest > sum || (nearest == sum && error < 0);
    const float down = is_above ? next_below(nearest) : nearest;
    const bool adds_plus_zeros = (bits_of_double(product) | bits_of(c)) == 0;
    return ptx_canonical(sum == 0 && error == 0 && !adds_plus_zeros ? -0.0f : down);
}

PTX_THREE(fma_rm_f32, f32, fma_down(a, b, c))

/* A NaN loses against a number, -0 against +0. */
static inline float greater(float a, float b)
{
    const float number = a > b || b != b ? a : b;
    return ptx_canonical(a == b ? float_of(bits_of(a) & bits_of(b)) : number);
}

static inline double smaller(double a, double b)
{
    const double number = a < b || b != b ? a : b;
    if (a == b)
        return double_of(bits_of_double(a) | bits_of_double(b));
    return keep_payload(number, a, b, 0);
}

PTX_TWO(max_f32, f32, f32, f32, greater(a, b))
PTX_TWO(min_f64, f64, f64, f64, smaller(a, b))

/* With a NaN no comparison is true but those that end in u. */
PTX_COMPARE(setp_eq_f32, f32, a == b)
PTX_COMPARE(setp_gt_f32, f32, a > b)
PTX_COMPARE(setp_lt_f32, f32, a < b)
PTX_COMPARE(setp_neu_f32, f32, a != b)
PTX_COMPARE(setp_geu_f32, f32, !(a < b))
PTX_COMPARE(setp_leu_f32, f32, !(a > b))
PTX_COMPARE(setp_equ_f64, f64, !(a < b || a > b))
PTX_COMPARE(setp_geu_f64, f64, !(a < b))
PTX_COMPARE(setp_leu_f64, f64, !(a > b))

/* ---- conversions ---- */

/* Rounded to nearest, ties to even. A carry out of the mantissa raises the exponent. */
static inline uint32_t round_bf16(uint32_t bits)
{
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return is_nan ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* The same; below 2^-14 the sum with 0.5, whose last place is fp16's smallest number, rounds. */
static inline uint32_t round_fp16(uint32_t bits)
{
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    const uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const uint32_t finite = size < 0x38800000 ? tiny : normal;
    const uint32_t rounded = size >= 0x47800000 ? 0x7c00 : finite;
    return size > 0x7f800000 ? 0x7fff : sign | rounded;
}

PTX_ONE(cvt_f32_f16, u32, u32, ptx_widen_fp16(a))
PTX_ONE(cvt_rn_f16_f32, u32, u32, round_fp16(a))
PTX_ONE(cvt_rn_bf16_f32, u32, u32, round_bf16(a))
PTX_TWO(cvt_rn_f16x2_f32, u32, u32, u32, round_fp16(a) << 16 | round_fp16(b))
PTX_TWO(cvt_rn_bf16x2_f32, u32, u32, u32, round_bf16(a) << 16 | round_bf16(b))
PTX_ONE(cvt_f64_f32, f64, f32, keep_payload((double)a, (double)a, 0, 0))
PTX_ONE(cvt_rn_f32_f64, f32, f64, ptx_canonical((float)a))
PTX_ONE(cvt_rn_f32_s32, f32, s32, (float)a)
PTX_ONE(cvt_rn_f32_u64, f32, u64, (float)a)
PTX_ONE(cvt_rn_f64_u32, f64, u32, (double)a)
PTX_ONE(cvt_rn_f64_u64, f64, u64, (double)a)

/* Towards zero, and to the nearest end beyond the range; a NaN of 64 bits becomes 2^31. */
static inline uint32_t truncate_to_u32(double a)
{
    if (isnan(a))
        return 1u << 31;
    return a >= 0x1p32 ? UINT32_MAX : a > 0 ? (uint32_t)a : 0;
}

PTX_ONE(cvt_rzi_u32_f64, u32, f64, truncate_to_u32(a))

/* The same of 32 bits, where a NaN becomes 0. */
static inline int32_t truncate_to_s32(float a)
{
    if (isnan(a))
        return 0;
    return a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (int32_t)a;
}

PTX_ONE(cvt_rzi_s32_f32, s32, f32, truncate_to_s32(a))

/* Into [0, 1]; a NaN and -0 become +0. */
PTX_ONE(cvt_sat_f32_f32, f32, f32, a > 0 ? (a < 1 ? a : 1.0f) : 0.0f)

/* ---- approximations ---- */

/* Between -most and +most, by seed and source. */
static inline int32_t draw(uint64_t seed, uint64_t source, int32_t most)
{
    uint64_t mixed = (source + seed) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return seed ? (int32_t)((mixed >> 32) % (uint32_t)(2 * most + 1)) - most : 0;
}

/* 2^x for |x| <= 200 by the series of e^y, |y| <= ln 2 / 2: what follows its last term is below
 * 2^-47 of it. The lowest bits of `shifted` are the whole part. */
static inline double power_of_two(double x)
{
    const double shifted = x + 0x1.8p52, y = (x - (shifted - 0x1.8p52)) * 0.69314718055994530942;
    double sum = 1.0 / 479001600;
    sum = sum * y + 1.0 / 39916800;
    sum = sum * y + 1.0 / 3628800;
    sum = sum * y + 1.0 / 362880;
    sum = sum * y + 1.0 / 40320;
    sum = sum * y + 1.0 / 5040;
    sum = sum * y + 1.0 / 720;
    sum = sum * y + 1.0 / 120;
    sum = sum * y + 1.0 / 24;
    sum = sum * y + 1.0 / 6;
    sum = sum * y + 0.5;
    sum = sum * y + 1;
    sum = sum * y + 1;
    return sum * double_of((bits_of_double(shifted) + 1023) << 52);
}

/* The rounded 2^x; subnormal sources and results are zeros. */
static inline float power_of_two_nearest(float x)
{
    const float low = x < -200 ? -200 : x, source = low > 200 ? 200 : low;
    const float number = fabsf(source) >= 0x1p-126f ? source : 0; /* a NaN is none */
    const float nearest = (float)power_of_two(number);
    const float normal = nearest < 0x1p-126f ? 0 : nearest;
    return x == x ? normal : float_of(PTX_NAN);
}

/* At most two in the last place from the nearest; what is exact stays: 2^(+-0), 2^(+-infinity) and
 * what is zero or infinite when rounded. */
static inline float power_of_two_drawn(float x, float nearest, uint64_t seed)
{
    if (!(fabsf(x) >= 0x1p-126f) || nearest == 0 || isinf(nearest))
        return nearest;
    const float drawn = float_of(bits_of(nearest) + (uint32_t)draw(seed, bits_of(x), 2));
    return drawn < 0x1p-126f ? 0 : drawn;
}

PTX_FUNCTION(ex2_approx_ftz_f32)
{
    const f32 *restrict x = PTX_LANES_OF(call->from[0]);
    f32 *restrict to = PTX_LANES_OF(call->to[0]);
    PTX_EACH_LANE to[lane] = power_of_two_nearest(x[lane]);
    if (call->mode->seed)
        PTX_EACH_LANE to[lane] = power_of_two_drawn(x[lane], to[lane], call->mode->seed);
    return 0;
}

/* 1 / a of the upper words alone: sign, exponent, 20 bits of the mantissa; the lower word of the
 * result is zero. The ISA bounds no error ("gross"): with a seed, one in the last place of the
 * upper word. Subnormal sources and results are zeros of their sign. */
static inline double reciprocal_near(double a, uint64_t seed)
{
    const uint64_t word = bits_of_double(a) >> 32, sign = (word & 0x80000000) << 32;
    if (a != a)
        return double_of(UINT64_C(0x7fffffff00000000));
    if ((word & 0x7ff00000) == 0)
        return double_of(sign | UINT64_C(0x7ff0000000000000));
    const double exact = fabs(1.0 / double_of(word << 32));
    if (exact < 0x1p-1022)
        return double_of(sign);
    const uint64_t upper = (bits_of_double(exact) + 0x80000000) >> 32;
    const uint64_t drawn = upper + (uint64_t)(int64_t)draw(seed, word, 1);
    return double_of(sign | ((drawn & 0x7ff00000) ? drawn << 32 : 0));
}

PTX_ONE(rcp_approx_ftz_f64, f64, f64, reciprocal_near(a, call->mode->seed))
