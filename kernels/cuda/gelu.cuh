/* GELU and its derivative.
 *
 * The tanh form, 0.5 x (1 + tanh(u)), is x / (1 + exp(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3):
 * one exponential, and no cancellation where x is far below 0. As kernels/cpu/simd/gelu.h does
 * it.
 */
#ifndef SL_KERNELS_CUDA_GELU_CUH
#define SL_KERNELS_CUDA_GELU_CUH

#include "launch.cuh"

#define SL_GELU_ROOT 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define SL_GELU_CUBIC 0.044715f

static __device__ __forceinline__ float sl_gelu(float x)
{
    const float two_u = x * SL_GELU_ROOT * fmaf(x * x, SL_GELU_CUBIC, 1.0f);
    return x / (1.0f + expf(-two_u));
}

/* s + x s (1 - s) 2u' with s = 1 / (1 + exp(-2u)). */
static __device__ __forceinline__ float sl_gelu_slope(float x)
{
    const float square = x * x;
    const float two_u = x * SL_GELU_ROOT * fmaf(square, SL_GELU_CUBIC, 1.0f);
    const float s = 1.0f / (1.0f + expf(-two_u));
    const float slope = SL_GELU_ROOT * fmaf(square, 3 * SL_GELU_CUBIC, 1.0f);
    return fmaf(x * slope, s * (1.0f - s), s);
}

#endif
