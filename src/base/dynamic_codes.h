/* Numbers in 8 bits, by blocks: the dynamic code of Dettmers et al. (2021), "8-bit Optimizers via
 * Block-wise Quantization". To be inlined into the CPU kernels, the CUDA kernels and what reads and
 * writes tensors, so that all give the same codes.
 *
 * A group of SL_CODES_GROUP numbers has a scale in fp32: its number of the largest magnitude, with
 * the sign of that number; of two the positive one. A code stands for a share of the scale. Shares
 * are in decades, from 10^-7 to 1; a decade has twice as many intervals as the one below, of equal
 * length, and a share is the middle of its interval.
 *
 *   signed     bit 7: the sign. Bits 0 to 6, x: decade floor(log2 x) of 1, 2, 4 ... 64 intervals.
 *              0 is zero, and 128 is 1.
 *   unsigned   x of 8 bits: decade floor(log2 x) - 1 of 2, 4 ... 128 intervals. 0 is zero, and 1
 *              is 1.
 *
 * Both are the code of bitsandbytes. Its scale has no sign, so that a largest number below zero
 * loses 0.7 %; here it is exact. So what was decoded has the same scale and the same codes when it
 * is encoded again, and a checkpoint that holds the numbers loses nothing.
 *
 * A group whose scale is below 2^-104 is stored as zeros: no product is subnormal. A group
 * with a number that is not finite decodes to numbers none of which is.
 */
#ifndef SL_BASE_DYNAMIC_CODES_H
#define SL_BASE_DYNAMIC_CODES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define SL_CODES_INLINE static __device__ __forceinline__
#else
#define SL_CODES_INLINE static inline __attribute__((always_inline, unused))
#endif

enum { SL_CODES_GROUP = 256, SL_CODES_ONE = 128, SL_CODES_ONE_UNSIGNED = 1 };

/* X(end of the decade, its intervals in the signed code), downwards, without the lowest. */
#define SL_CODES_DECADES(X) X(1.0, 64) X(1e-1, 32) X(1e-2, 16) X(1e-3, 8) X(1e-4, 4) X(1e-5, 2)

/* Intervals of a decade that ends at 1 for each unit; the numbers are made in double and rounded
 * once, by every compiler alike. */
#define SL_CODES_SLOPE(end, n) ((float)((n) / (0.9 * (end))))
/* Half way from the last share of the decade below to the first one of this decade. */
#define SL_CODES_BORDER(end, n) ((float)(0.1 * (end) + 0.18 * (end) / (n)))

/* Up to this a share is nearer to zero than to the first share of a code. */
#define SL_CODES_NEAR_ZERO(n_first) ((float)(0.5e-6 * (0.1 + 0.45 / (n_first))))

/* The place of a share in [0, 1]: n + the index of its interval, in a decade of n intervals, and 0
 * where zero is nearer. `n_first`: intervals of the first decade, 1 (signed) or 2. A share that is
 * not a number has place 0. */
SL_CODES_INLINE float sl_codes_place(float share, const int n_first)
{
    float slope = SL_CODES_SLOPE(1.0, 64 * n_first), n = (float)(64 * n_first);
    /* Downwards by sums, which compilers do not turn into branches. */
#define X(end, intervals)                                                                          \
    {                                                                                              \
        const bool is_above = share > SL_CODES_BORDER(end, n_first * (intervals));                 \
        slope += is_above ? 0.0f : 4.0f * SL_CODES_SLOPE(end, n_first * (intervals));              \
        n -= is_above ? 0.0f : 0.5f * (float)(n_first * (intervals));                              \
    }
    SL_CODES_DECADES(X)
#undef X
    /* The decade begins at a ninth of its length below its first interval. */
    float place = fmaf(share, slope, n * (float)(8.0 / 9.0));
    place = place > n ? place : n;
    place = place < n + n - 1.0f ? place : n + n - 1.0f;
    return share > SL_CODES_NEAR_ZERO(n_first) ? place : 0.0f;
}

/* Behind this a share is nearer to 1 than to the last share before it. */
#define SL_CODES_NEAR_ONE(n) ((float)(1.0 - 0.225 / (n)))

/* The code of number / scale. In floats up to the end: so loops have no branches. */
SL_CODES_INLINE uint32_t sl_codes_encode_signed(float share)
{
    const float magnitude = share < 0.0f ? -share : share;
    const float sign = share < -SL_CODES_NEAR_ZERO(1) ? 128.0f : 0.0f;
    const float code = sl_codes_place(magnitude, 1) + sign;
    return (uint32_t)(int32_t)(share > SL_CODES_NEAR_ONE(64) ? (float)SL_CODES_ONE : code);
}

SL_CODES_INLINE uint32_t sl_codes_encode_unsigned(float share)
{
    const float code = sl_codes_place(share, 2);
    return (uint32_t)(int32_t)(share > SL_CODES_NEAR_ONE(128) ? (float)SL_CODES_ONE_UNSIGNED
                                                              : code);
}

/* The share that a place stands for. */
SL_CODES_INLINE float sl_codes_share(uint32_t place, uint32_t n_first)
{
    float n = (float)(int32_t)(64 * n_first), end = 1.0f;
#define X(end_, intervals)                                                                         \
    if (place < n_first * (intervals)) {                                                           \
        n = (float)(int32_t)(n_first * (intervals) / 2);                                           \
        end = (float)((end_)*0.1);                                                                 \
    }
    SL_CODES_DECADES(X)
#undef X
    const float interval = ((float)(int32_t)place - n + 0.5f) * (1.0f / n); /* exact */
    return end * fmaf(0.9f, interval, 0.1f);
}

/* What a code stands for; times the scale it is the number. */
SL_CODES_INLINE float sl_codes_decode(uint32_t code, bool is_signed)
{
    const uint32_t place = is_signed ? code & 127u : code;
    if (code == 0)
        return 0.0f;
    if (code == (is_signed ? (uint32_t)SL_CODES_ONE : (uint32_t)SL_CODES_ONE_UNSIGNED))
        return 1.0f;
    const float share = sl_codes_share(place, is_signed ? 1u : 2u);
    return is_signed && code > 128u ? -share : share;
}

/* The rank of a number, given by its bits, among those that may be the scale of its group: by
 * magnitude, then the positive one. */
SL_CODES_INLINE uint32_t sl_codes_rank(uint32_t bits)
{
    return (bits << 1 | bits >> 31) ^ 1u;
}

/* The scale, by its bits, of a group whose highest rank is `rank`: 0 below 2^-104, and NaN if it is
 * not finite. */
SL_CODES_INLINE uint32_t sl_codes_scale(uint32_t rank)
{
    const uint32_t bits = (rank ^ 1u) >> 1 | (rank ^ 1u) << 31, magnitude = rank >> 1;
    const uint32_t kept = magnitude < 0x0b800000u ? 0u : bits;
    return magnitude < 0x7f800000u ? kept : 0x7fc00000u;
}

#if !defined(__cplusplus)

/* Encodes a group; returns its scale. Numbers of an unsigned group are not below zero. */
SL_CODES_INLINE float sl_codes_encode_group(const float *restrict values, bool is_signed,
                                            uint8_t *restrict out_codes)
{
    uint32_t rank = 0;
    for (int i = 0; i < SL_CODES_GROUP; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const uint32_t own = sl_codes_rank(bits);
        rank = own > rank ? own : rank;
    }
    const uint32_t bits = sl_codes_scale(rank);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    if (is_signed)
        for (int i = 0; i < SL_CODES_GROUP; i++)
            out_codes[i] = (uint8_t)sl_codes_encode_signed(values[i] * inverse);
    else
        for (int i = 0; i < SL_CODES_GROUP; i++)
            out_codes[i] = (uint8_t)sl_codes_encode_unsigned(values[i] * inverse);
    return scale;
}

/* Decodes a group. `shares`: of all codes, [256]. */
SL_CODES_INLINE void sl_codes_decode_group(const uint8_t *restrict codes, float scale,
                                           const float *restrict shares, float *restrict out_values)
{
    for (int i = 0; i < SL_CODES_GROUP; i++)
        out_values[i] = shares[codes[i]] * scale;
}

/* Writes what all codes stand for, [256]. */
static inline void sl_codes_list_shares(bool is_signed, float *out_shares)
{
    for (uint32_t code = 0; code < 256; code++)
        out_shares[code] = sl_codes_decode(code, is_signed);
}

#endif

#endif
