/* GELU and its derivative of a register of floats.
 *
 * The tanh form, 0.5 x (1 + tanh(u)), is x / (1 + exp(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3):
 * one exponential, and no cancellation where x is far below 0. kernels/cuda/gelu.cuh does the same.
 */
#ifndef SL_KERNELS_CPU_SIMD_GELU_H
#define SL_KERNELS_CPU_SIMD_GELU_H

#include "exp.h"

#define SL_GELU_ROOT 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define SL_GELU_CUBIC 0.044715f

SL_INLINE lanes gelu_lanes(lanes x)
{
    const lanes one = set_lanes(1.0f);
    lanes two_u = x * set_lanes(SL_GELU_ROOT) * fma_lanes(x * x, set_lanes(SL_GELU_CUBIC), one);
    return x / (one + exp_lanes(-two_u));
}

/* s + x s (1 - s) 2u' with s = 1 / (1 + exp(-2u)). */
SL_INLINE lanes gelu_slope_lanes(lanes x)
{
    const lanes one = set_lanes(1.0f), root = set_lanes(SL_GELU_ROOT);
    lanes square = x * x;
    lanes two_u = x * root * fma_lanes(square, set_lanes(SL_GELU_CUBIC), one);
    lanes s = one / (one + exp_lanes(-two_u));
    lanes slope = root * fma_lanes(square, set_lanes(3 * SL_GELU_CUBIC), one);
    return fma_lanes(x * slope, s * (one - s), s);
}

#endif
