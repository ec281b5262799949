/* Half precision, one number at a time: bf16 (the upper half of an fp32) and IEEE fp16.
 *
 * fp32 -> half rounds to nearest, ties to even, subnormals included; numbers that are too large
 * become infinite; a NaN stays a NaN. Integers only, so the bits are the same on every machine. The
 * vector code of the kernels is compared with these functions.
 */
#ifndef SL_BASE_HALF_H
#define SL_BASE_HALF_H

#include <stdint.h>

#include "bits.h"

static inline float sl_half_from_bf16(uint16_t half)
{
    return sl_bits_to_float((uint32_t)half << 16);
}

static inline uint16_t sl_half_to_bf16(float value)
{
    uint32_t bits = sl_bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x0040); /* quiet: a NaN with only low bits set would become
                                                   infinity */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float sl_half_from_fp16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    if (exponent == 0x1f)
        return sl_bits_to_float(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x00400000 : 0));
    if (exponent > 0)
        return sl_bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; /* exact */
    return sl_bits_to_float(sign | sl_bits_of_float(tiny));
}

/* `value` >> `shift`, to nearest, ties to even; 0 < shift < 32. */
static inline uint32_t sl_half_shift_rounded(uint32_t value, uint32_t shift)
{
    uint32_t rest = value & ((1u << shift) - 1), tie = 1u << (shift - 1), kept = value >> shift;
    return kept + (rest > tie || (rest == tie && (kept & 1)));
}

static inline uint16_t sl_half_to_fp16(float value)
{
    uint32_t bits = sl_bits_of_float(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) /* 65520: halfway between the largest fp16 and 2^16 */
        return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000) /* 2^-14: normal; a carry out of the mantissa raises the exponent */
        return (uint16_t)(sign | sl_half_shift_rounded(size - (112u << 23), 13));
    uint32_t exponent = size >> 23;
    if (exponent < 102) /* below 2^-25, half of the smallest fp16 */
        return (uint16_t)sign;
    uint32_t mantissa = (size & 0x7fffff) | 0x800000;
    return (uint16_t)(sign | sl_half_shift_rounded(mantissa, 126 - exponent));
}

#endif
