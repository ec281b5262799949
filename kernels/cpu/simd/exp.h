/* The exponential of a register of floats, to 1 unit in the last place over the whole range;
 * subnormal results, 0, infinity and not-a-number come out as they should.
 *
 * exp(x) = 2^n exp(r) with n = round(x / ln 2), so |r| <= ln 2 / 2. ln 2 is taken off in two parts,
 * the first short enough that n times it is exact without fused multiply-add. exp(r) = 1 + r + r^2
 * p(r); p is the least-maximum fit of degree 4, coefficients rounded to fp32 one after the other
 * and the rest refitted each time; it adds less than 0.1 units in the last place.
 */
#ifndef SL_KERNELS_CPU_SIMD_EXP_H
#define SL_KERNELS_CPU_SIMD_EXP_H

#include "lanes.h"

typedef int32_t int_lanes __attribute__((vector_size(sizeof(lanes))));

/* 2^power * value, for power in [-252, 254]: two factors, so that each is a normal number. */
SL_INLINE lanes scale_by_power(lanes value, lanes power)
{
#if defined(__AVX512F__)
    return _mm512_scalef_ps(value, power);
#else
    const float shifter = 0x1.8p23f; /* adding it leaves the integer in the low mantissa bits */
    lanes shifted = power + set_lanes(shifter);
    int_lanes whole, half;
    memcpy(&whole, &shifted, sizeof whole);
    whole -= 0x4b400000; /* the bits of the shifter */
    half = whole >> 1;
    whole = (whole - half + 127) << 23;
    half = (half + 127) << 23;
    lanes first, second;
    memcpy(&first, &half, sizeof first);
    memcpy(&second, &whole, sizeof second);
    return value * first * second;
#endif
}

SL_INLINE lanes exp_lanes(lanes x)
{
    /* Beyond these the result is 0 or infinity anyway. A NaN comes second, so it passes. */
    x = min_lanes(set_lanes(89.0f), max_lanes(set_lanes(-105.0f), x));
    const lanes shifter = set_lanes(0x1.8p23f);
    lanes n = (fma_lanes(x, set_lanes(0x1.715476p+0f), shifter)) - shifter;
    lanes r = fma_lanes(n, set_lanes(-0x1.63p-1f), x);
    r = fma_lanes(n, set_lanes(0x1.bd0106p-13f), r);
    lanes p = set_lanes(0x1.6a4d12p-10f);
    p = fma_lanes(p, r, set_lanes(0x1.12398cp-7f));
    p = fma_lanes(p, r, set_lanes(0x1.5558b0p-5f));
    p = fma_lanes(p, r, set_lanes(0x1.555492p-3f));
    p = fma_lanes(p, r, set_lanes(0x1.fffffcp-2f));
    lanes y = fma_lanes(r * r, p, r) + set_lanes(1.0f);
    return scale_by_power(y, n);
}

/* e^x by a sum of `terms` powers of what is left of x: 5 are off by 2^-23 relative to the result, 3
 * by 10^-4, and the product x log2(e) by |x| 2^-24 more. Below e^-103 it is 0; not-a-number stays;
 * of x above 176 nothing is promised. `terms` is a constant where this is inlined.
 *
 * e^x = 2^n (1 + r q(r)) with n = round(x log2(e)), so |r| <= 1/2; q is a least-maximum fit as
 * above of the power of 2. */
SL_INLINE lanes quick_exp_lanes(lanes x, const uint32_t terms)
{
    x = max_lanes(set_lanes(-110.0f), x);
    const lanes log2e = set_lanes(0x1.715476p+0f), shifter = set_lanes(0x1.8p23f);
    const lanes n = fma_lanes(x, log2e, shifter) - shifter;
    const lanes r = fma_lanes(x, log2e, -n);
    lanes q;
    if (terms == 3) {
        q = set_lanes(0x1.c2a258p-5f);
        q = fma_lanes(q, r, set_lanes(0x1.f00c4ep-3f));
        q = fma_lanes(q, r, set_lanes(0x1.62f5fap-1f));
    } else {
        q = set_lanes(0x1.5bd97ap-10f);
        q = fma_lanes(q, r, set_lanes(0x1.3ce8b2p-7f));
        q = fma_lanes(q, r, set_lanes(0x1.c6b6dap-5f));
        q = fma_lanes(q, r, set_lanes(0x1.ebf9c2p-3f));
        q = fma_lanes(q, r, set_lanes(0x1.62e42ap-1f));
    }
    return scale_by_power(fma_lanes(q, r, set_lanes(1.0f)), n);
}

#endif
