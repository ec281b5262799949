/* Products of fp32.
 *
 * A block computes 128 x 128 elements of C, a thread 8 x 8 of them, as two times two groups of 4
 * that lie half a tile apart: then the threads of a warp read neighbouring shared memory. Panels of
 * 16 terms of A and B pass through shared memory, always with the terms as rows; while one pair is
 * multiplied, the next is on its way in registers.
 *
 * Each element is one chain of fused multiply-adds over the terms in order, whatever the
 * transpositions or the alignment: these choose how the same numbers are loaded.
 */
#include "product.cuh"

enum {
    HALF = SL_PRODUCT_TILE / 2,
    TERMS = 16,
    GROUP = 4,                           /* neighbouring rows or columns of a thread */
    PANEL_ROW = SL_PRODUCT_TILE / 4 + 1, /* float4; the last spreads writes over the banks */
};

/* This thread's eight elements of the panel at (first_term, first_width); zero outside. */
static __device__ __forceinline__ void fetch_part(const sl_product_side &side, uint64_t first_width,
                                                  uint64_t first_term, float *part)
{
    const uint32_t t = threadIdx.x;
    const bool along = side.runs_along_terms;
    const uint64_t row = along ? first_width + t / 2 : first_term + t / 16;
    const uint64_t column =
        along ? first_term + t % 2 * SL_PRODUCT_PART : first_width + t % 16 * SL_PRODUCT_PART;
    const uint64_t rows = sl_product_rows(side), columns = sl_product_columns(side);
    const uint64_t at = row * columns + column;
    if (row < rows && column + SL_PRODUCT_PART <= columns && side.has_packs) {
        const sl_pack<SL_TYPE_FP32> low = sl_load_pack<SL_TYPE_FP32>(side.from, at);
        const sl_pack<SL_TYPE_FP32> high = sl_load_pack<SL_TYPE_FP32>(side.from, at + 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            part[i] = low.value[i];
            part[4 + i] = high.value[i];
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < SL_PRODUCT_PART; i++)
        part[i] = row < rows && column + i < columns ? ((const float *)side.from)[at + i] : 0.0f;
}

/* Into panel[TERMS][4 * PANEL_ROW]. */
static __device__ __forceinline__ void deposit_part(const sl_product_side &side, const float *part,
                                                    float *panel)
{
    const uint32_t t = threadIdx.x;
    const bool along = side.runs_along_terms;
    const uint32_t term = along ? t % 2 * SL_PRODUCT_PART : t / 16;
    const uint32_t column = along ? t / 2 : t % 16 * SL_PRODUCT_PART;
    const uint32_t step = along ? 4 * PANEL_ROW : 1;
    float *to = panel + term * 4 * PANEL_ROW + column;
#pragma unroll
    for (int i = 0; i < SL_PRODUCT_PART; i++)
        to[i * step] = part[i];
}

/* Groups `group` and `group` + half a tile of one term. */
static __device__ __forceinline__ void read_groups(const float4 *panel, uint32_t term,
                                                   uint32_t group, float *value)
{
    const float4 low = panel[term * PANEL_ROW + group];
    const float4 high = panel[term * PANEL_ROW + group + HALF / GROUP];
    value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
    value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
}

static __device__ __forceinline__ void multiply_panels(const float4 *a, const float4 *b,
                                                       float (*sums)[2 * GROUP])
{
#pragma unroll
    for (uint32_t term = 0; term < TERMS; term++) {
        float x[2 * GROUP], y[2 * GROUP];
        read_groups(a, term, threadIdx.x / 16, x);
        read_groups(b, term, threadIdx.x % 16, y);
#pragma unroll
        for (int i = 0; i < 2 * GROUP; i++)
#pragma unroll
            for (int j = 0; j < 2 * GROUP; j++)
                sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
    }
}

/* Row or column of C, within the tile, of a thread's `index`-th. */
static __device__ __forceinline__ uint32_t place_in_tile(uint32_t group, uint32_t index)
{
    return index / GROUP * HALF + group * GROUP + index % GROUP;
}

static __device__ __forceinline__ void write_sums(const sl_product_job &job, uint64_t first_row,
                                                  uint64_t first_column,
                                                  const float (*sums)[2 * GROUP])
{
    for (uint32_t i = 0; i < 2 * GROUP; i++) {
        const uint64_t row = first_row + place_in_tile(threadIdx.x / 16, i);
        for (uint32_t j = 0; j < 2 * GROUP; j++) {
            const uint64_t column = first_column + place_in_tile(threadIdx.x % 16, j);
            if (row < job.a.width && column < job.b.width)
                ((float *)job.c)[row * job.b.width + column] =
                    sl_product_finish<SL_TYPE_FP32>(job, row, column, sums[i][j]);
        }
    }
}

static __global__ void __launch_bounds__(SL_PRODUCT_THREADS, 2) multiply(const sl_product_job job)
{
    __shared__ float4 panel_a[2][TERMS * PANEL_ROW];
    __shared__ float4 panel_b[2][TERMS * PANEL_ROW];
    const uint64_t down = (job.a.width + SL_PRODUCT_TILE - 1) / SL_PRODUCT_TILE;
    const uint64_t first_row = blockIdx.x % down * SL_PRODUCT_TILE;
    const uint64_t first_column = blockIdx.x / down * SL_PRODUCT_TILE;
    float sums[2 * GROUP][2 * GROUP] = {}, part_a[SL_PRODUCT_PART], part_b[SL_PRODUCT_PART];
    int now = 0;
    fetch_part(job.a, first_row, 0, part_a);
    fetch_part(job.b, first_column, 0, part_b);
    for (uint64_t term = TERMS;; term += TERMS) {
        deposit_part(job.a, part_a, (float *)panel_a[now]);
        deposit_part(job.b, part_b, (float *)panel_b[now]);
        /* Who passes has multiplied the panels before these, which the next deposit replaces. */
        __syncthreads();
        const bool is_last = term >= job.a.terms;
        if (!is_last) {
            fetch_part(job.a, first_row, term, part_a);
            fetch_part(job.b, first_column, term, part_b);
        }
        multiply_panels(panel_a[now], panel_b[now], sums);
        if (is_last)
            break;
        now = 1 - now;
    }
    write_sums(job, first_row, first_column, sums);
}

sl_status sl_product_launch_plain(const sl_kernel_call *call, const sl_product_job &job,
                                  uint32_t blocks)
{
    return SL_LAUNCH(call, blocks, SL_PRODUCT_THREADS, 0, multiply, job);
}
