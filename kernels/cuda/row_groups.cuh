/* Sums over rows, as of the gradients of a normalisation: a block owns a fixed group of rows and
 * leaves the sums of its columns in the workspace, where a second kernel adds those of all groups.
 *
 * Groups depend on the number of rows alone: there are at most 512, of as many rows each, and of
 * `least` rows or more.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                             sm_80                sm_90
 *   add_row_groups<1>     30     37     32     30     37     32
 *   add_row_groups<2>     30     37     32     30     37     32
 */
#ifndef SL_KERNELS_CUDA_ROW_GROUPS_CUH
#define SL_KERNELS_CUDA_ROW_GROUPS_CUH

#include "gradient_out.cuh"

enum { SL_ROW_GROUPS_MOST = 512, SL_ROW_GROUPS_THREADS = 256 };

static inline uint64_t sl_row_groups_rows(uint64_t row_count, uint64_t least)
{
    const uint64_t rows = sl_bits_divide_up(row_count, SL_ROW_GROUPS_MOST);
    return rows > least ? rows : least;
}

static inline uint64_t sl_row_groups_count(uint64_t row_count, uint64_t least)
{
    return sl_bits_divide_up(row_count, sl_row_groups_rows(row_count, least));
}

/* Behind the last row of the block's group. */
static __device__ __forceinline__ uint64_t sl_row_groups_end(uint64_t group_rows,
                                                             uint64_t row_count)
{
    const uint64_t end = (blockIdx.x + 1) * group_rows;
    return end < row_count ? end : row_count;
}

/* partials [groups, SUMS, width]: the sum over the groups of one of SUMS, blockIdx.y, of a warp's
 * width of columns: each warp adds the same share of the groups, one after the other, and the first
 * adds the warps' sums. The first sum goes to `first`, the second to `second`, which is stored in
 * the same way; a sum whose place is NULL is left out. */
template <int SUMS>
static __global__ void __launch_bounds__(SL_ROW_GROUPS_THREADS)
    add_row_groups(const float *partials, uint64_t group_count, uint64_t width,
                   sl_gradient_out first_out, void *second)
{
    enum { WARPS = SL_ROW_GROUPS_THREADS / SL_WARP };
    __shared__ float sums[WARPS][SL_WARP];
    const sl_gradient_out out = {blockIdx.y == 0 ? first_out.to : second, first_out.type,
                                 first_out.add};
    if (out.to == NULL)
        return;
    const uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
    const uint64_t column = (uint64_t)blockIdx.x * SL_WARP + lane;
    const uint64_t share = (group_count + WARPS - 1) / WARPS, first = warp * share;
    const uint64_t end = first + share < group_count ? first + share : group_count;
    float sum = 0.0f;
    if (column < width)
#pragma unroll 8
        for (uint64_t group = first; group < end; group++)
            sum += partials[(group * SUMS + blockIdx.y) * width + column];
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= width)
        return;
#pragma unroll
    for (int i = 1; i < WARPS; i++)
        sum += sums[i][lane];
    sl_store_gradient(out, column, sum);
}

/* Queues it, for all columns. */
template <int SUMS>
static sl_status sl_row_groups_add(const sl_kernel_call *call, uint64_t group_count, uint64_t width,
                                   const sl_gradient_out &first, void *second)
{
    const float *partials = (const float *)call->workspace;
    const dim3 grid((uint32_t)sl_bits_divide_up(width, SL_WARP), SUMS);
    return SL_LAUNCH(call, grid, SL_ROW_GROUPS_THREADS, 0, (add_row_groups<SUMS>), partials,
                     group_count, width, first, second);
}

#endif
