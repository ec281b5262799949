/* How ranks combine their statistics of a row's logits, the same on every device. It has its own
 * exponential, because those of two libraries differ in their last bits.
 *
 * exp(x) = 2^n * exp(r), n the integer nearest to x / ln 2, |r| <= ln 2 / 2; exp(r) is its Taylor
 * polynomial of degree 7, whose error of 5e-9 is below fp32's rounding (Cody and Waite 1980). Every
 * step is one rounding, written out, so no compiler can change it. The factor 2^n is applied in two
 * halves: only the second one can round, if the result is subnormal.
 */
#ifndef SL_KERNELS_RANK_STATS_H
#define SL_KERNELS_RANK_STATS_H

#include <math.h>

#include "base/philox.h"
#include "kernels/kernels.h"

enum { SL_RANK_STATS_A_ROW = 4 }; /* of HEAD_STATS: largest, sum, target's logit, masked */

typedef union sl_rank_word {
    uint32_t bits;
    float value;
} sl_rank_word;

/* 2^-n for n <= 126. */
SL_PHILOX_INLINE float sl_rank_halvings(uint32_t n)
{
    const sl_rank_word word = {(127 - n) << 23};
    return word.value;
}

/* exp(x) of x <= 0, or of a NaN. */
SL_PHILOX_INLINE float sl_rank_exp(float x)
{
    if (!(x > -104.0f)) /* a NaN, or below half of the smallest number */
        return x < 0.0f ? 0.0f : x;
    const float shift = 0x1.8p23f; /* a number plus this has no place for a fraction */
    sl_rank_word shifted;
    shifted.value = fmaf(x, 1.44269504f, shift);
    const float n = shifted.value - shift;
    float r = fmaf(n, -0.693145751953125f, x); /* 16 bits of ln 2: the product is exact */
    r = fmaf(n, -1.42860682030941723212e-6f, r);
    float sum = 1.0f / 5040;
    sum = fmaf(sum, r, 1.0f / 720);
    sum = fmaf(sum, r, 1.0f / 120);
    sum = fmaf(sum, r, 1.0f / 24);
    sum = fmaf(sum, r, 1.0f / 6);
    sum = fmaf(sum, r, 0.5f);
    sum = fmaf(sum, r, 1.0f);
    sum = fmaf(sum, r, 1.0f);
    const uint32_t halvings = 0x4b400000u - shifted.bits; /* -n */
    return sum * sl_rank_halvings(halvings / 2) * sl_rank_halvings(halvings - halvings / 2);
}

/* One row of parts [rank_count][row_floats]: as HEAD_STATS combines panels. The target's logit is
 * there on one rank, and 0 on the others; whether it is masked, all know. A rank whose ids are all
 * padding has no sum; one that is not a number stays so. */
SL_PHILOX_INLINE void sl_rank_combine_stats(const float *parts, uint64_t part_floats,
                                            uint64_t rank_count, float *stats)
{
    float joint = -INFINITY, sum = 0.0f, target = 0.0f;
    for (uint64_t rank = 0; rank < rank_count; rank++) {
        const float most = parts[rank * part_floats];
        joint = most > joint ? most : joint; /* a NaN is no maximum */
    }
    for (uint64_t rank = 0; rank < rank_count; rank++) {
        const float *part = parts + rank * part_floats;
        if (part[1] != 0.0f)
            sum += part[1] * sl_rank_exp(part[0] - joint);
        target += part[2];
    }
    stats[0] = joint;
    stats[1] = sum;
    stats[2] = target;
    stats[3] = parts[3];
}

#endif
