/* Sums and maxima over a warp and over a block, in one fixed order. */
#ifndef SL_KERNELS_CUDA_REDUCE_CUH
#define SL_KERNELS_CUDA_REDUCE_CUH

#include "launch.cuh"

/* Every lane gets the sum; all 32 lanes take part. */
static __device__ __forceinline__ float sl_warp_sum(float value)
{
#pragma unroll
    for (int distance = SL_WARP / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(SL_EVERY_LANE, value, distance);
    return value;
}

static __device__ __forceinline__ float sl_warp_max(float value)
{
#pragma unroll
    for (int distance = SL_WARP / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(SL_EVERY_LANE, value, distance));
    return value;
}

/* Every thread of a block of THREADS gets the sum; `scratch` holds a float a warp and may be used
 * again once all threads have passed another barrier. */
template <int THREADS>
static __device__ __forceinline__ float sl_block_sum(float value, float *scratch)
{
    const int warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
    value = sl_warp_sum(value);
    if (lane == 0)
        scratch[warp] = value;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / SL_WARP; i++)
        sum += scratch[i];
    return sum;
}

/* As sl_block_sum. */
template <int THREADS>
static __device__ __forceinline__ float sl_block_max(float value, float *scratch)
{
    const int warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
    value = sl_warp_max(value);
    if (lane == 0)
        scratch[warp] = value;
    __syncthreads();
    float max = scratch[0];
#pragma unroll
    for (int i = 1; i < THREADS / SL_WARP; i++)
        max = fmaxf(max, scratch[i]);
    return max;
}

/* Over the threads that share a row: a warp or neighbours of it, a power of two, which need no
 * scratch but all lanes of the warp, or a whole block. */
template <int TEAM> static __device__ __forceinline__ float sl_team_sum(float value, float *scratch)
{
    if constexpr (TEAM <= SL_WARP) {
#pragma unroll
        for (int distance = TEAM / 2; distance > 0; distance /= 2)
            value += __shfl_xor_sync(SL_EVERY_LANE, value, distance);
        return value;
    } else {
        return sl_block_sum<TEAM>(value, scratch);
    }
}

template <int TEAM> static __device__ __forceinline__ float sl_team_max(float value, float *scratch)
{
    if constexpr (TEAM == SL_WARP)
        return sl_warp_max(value);
    else
        return sl_block_max<TEAM>(value, scratch);
}

#endif
