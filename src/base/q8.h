/* Numbers in 8 bits, by groups: the blocks q8_0 of llama.cpp's GGUF files, rounded as this page
 * says. To be inlined into the CPU kernels, the CUDA kernels and what reads and writes tensors, so
 * that all give the same bits.
 *
 * A group of SL_Q8_GROUP numbers has a scale in fp16 and a code of 8 bits, with a sign, for each
 * number:
 *
 *   d     = max |x| / 127                in fp32
 *   scale = d                            rounded to fp16
 *   code  = x / d                        in fp32, rounded to an integer; 0 if the scale is 0
 *   x     = code * scale                 exact in fp32
 *
 * All roundings are to nearest, ties to even. The largest number of a group has the code 127 or
 * -127. So what was decoded has the same scale and the same codes when it is encoded again, and a
 * checkpoint that holds the numbers loses nothing. A group with a number that is not finite, or of
 * 127 * 65520 or more, decodes to NaNs.
 */
#ifndef SL_BASE_Q8_H
#define SL_BASE_Q8_H

#include <stdbool.h>

#include "half.h"

enum { SL_Q8_GROUP = 32, SL_Q8_CODE_MAX = 127, SL_Q8_NOT_A_NUMBER = 0x7e00 };

/* To an integer, of a number below 2^22: what an fp32 of this size has behind the point is rounded
 * away. */
static inline float sl_q8_round(float value)
{
    return value + 0x1.8p23f - 0x1.8p23f;
}

/* Encodes a group; returns the bits of its scale. */
static inline uint16_t sl_q8_encode_group(const float *values, int8_t *out_codes)
{
    uint32_t largest = 0; /* by the bits of magnitudes: a NaN is above infinity */
    for (int i = 0; i < SL_Q8_GROUP; i++) {
        const uint32_t magnitude = sl_bits_of_float(values[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float d = sl_bits_to_float(largest) / SL_Q8_CODE_MAX;
    const uint16_t scale = sl_half_to_fp16(d);
    const bool is_finite = scale < 0x7c00;
    for (int i = 0; i < SL_Q8_GROUP; i++)
        out_codes[i] = (int8_t)(scale == 0 || !is_finite ? 0 : (int)sl_q8_round(values[i] / d));
    return is_finite ? scale : SL_Q8_NOT_A_NUMBER;
}

/* Decodes a group of the scale with these bits. */
static inline void sl_q8_decode_group(const int8_t *codes, uint16_t scale, float *out_values)
{
    const float wide = sl_half_from_fp16(scale);
    for (int i = 0; i < SL_Q8_GROUP; i++)
        out_values[i] = (float)codes[i] * wide;
}

#endif
