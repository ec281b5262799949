/* Matrix products by our own kernel: for machines without cuBLASLt, and the oracle for those with.
 *
 * A block computes 128 x 128 elements of C, a thread 8 x 8 of them, as two times two groups of 4
 * that lie half a tile apart: then the threads of a warp read neighbouring shared memory. Panels of
 * 16 terms of A and B pass through shared memory, widened to fp32 and always with the terms as
 * rows; while one pair is multiplied, the next is on its way in registers.
 *
 * Each element is one chain of fused multiply-adds over the terms in order, whatever the type, the
 * transpositions or the alignment: these choose how the same numbers are loaded.
 */
#include "product.h"

#include "typed.cuh"

enum {
    TILE = 128,
    HALF = TILE / 2,
    TERMS = 16,
    THREADS = 256,
    PART = 8,                 /* elements of a panel that one thread loads, neighbours in memory */
    GROUP = 4,                /* neighbouring rows or columns of a thread */
    PANEL_ROW = TILE / 4 + 1, /* float4; the last spreads what is written over the banks */
    GRID_BLOCKS_MAX = 0x7fffffff,
};

/* op(A) seen as [terms, width = m], or op(B) as [terms, width = n]. */
typedef struct product_side {
    const void *from;
    uint64_t width, terms;
    bool runs_along_terms; /* a row of memory is one column of this view */
    bool has_packs;        /* every eighth element of a row is 16-byte aligned */
} product_side;

typedef struct product_job {
    product_side a, b;
    void *c;
    const void *bias, *residual;
    bool add, c_is_fp32;
} product_job;

/* This thread's eight elements of the panel at (first_term, first_width); zero outside. */
template <sl_type TYPE>
static __device__ __forceinline__ void fetch_part(const product_side &side, uint64_t first_width,
                                                  uint64_t first_term, float *part)
{
    const uint32_t t = threadIdx.x;
    uint64_t row = first_term + t / 16, column = first_width + t % 16 * PART;
    uint64_t rows = side.terms, columns = side.width;
    if (side.runs_along_terms) {
        row = first_width + t / 2;
        column = first_term + t % 2 * PART;
        rows = side.width;
        columns = side.terms;
    }
    const uint64_t at = row * columns + column;
    if (row < rows && column + PART <= columns && side.has_packs) {
#pragma unroll
        for (int first = 0; first < PART; first += sl_pack<TYPE>::COUNT) {
            const sl_pack<TYPE> pack = sl_load_pack<TYPE>(side.from, at + first);
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
                part[first + i] = pack.value[i];
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PART; i++)
        part[i] = row < rows && column + i < columns ? sl_load<TYPE>(side.from, at + i) : 0.0f;
}

/* Into panel[TERMS][4 * PANEL_ROW]. */
static __device__ __forceinline__ void deposit_part(const product_side &side, const float *part,
                                                    float *panel)
{
    const uint32_t t = threadIdx.x;
    const uint32_t term = side.runs_along_terms ? t % 2 * PART : t / 16;
    const uint32_t column = side.runs_along_terms ? t / 2 : t % 16 * PART;
    const uint32_t step = side.runs_along_terms ? 4 * PANEL_ROW : 1;
    float *to = panel + term * 4 * PANEL_ROW + column;
#pragma unroll
    for (int i = 0; i < PART; i++)
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

template <sl_type TYPE>
static __device__ __forceinline__ void finish_element(const product_job &job, uint64_t row,
                                                      uint64_t column, float sum)
{
    const uint64_t at = row * job.b.width + column;
    if (job.bias != NULL)
        sum += sl_load<TYPE>(job.bias, column);
    if (job.residual != NULL)
        sum += sl_load<TYPE>(job.residual, at);
    if (job.c_is_fp32)
        ((float *)job.c)[at] = job.add ? ((float *)job.c)[at] + sum : sum;
    else
        sl_store<TYPE>(job.c, at, job.add ? sl_load<TYPE>(job.c, at) + sum : sum);
}

/* Row or column of C, within the tile, of a thread's `index`-th. */
static __device__ __forceinline__ uint32_t place_in_tile(uint32_t group, uint32_t index)
{
    return index / GROUP * HALF + group * GROUP + index % GROUP;
}

/* Blocks are numbered down the columns of C: neighbours in time share panels of B. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS, 2) multiply(const product_job job)
{
    __shared__ float4 panel_a[2][TERMS * PANEL_ROW];
    __shared__ float4 panel_b[2][TERMS * PANEL_ROW];
    const uint64_t down = (job.a.width + TILE - 1) / TILE;
    const uint64_t first_row = blockIdx.x % down * TILE, first_column = blockIdx.x / down * TILE;
    float sums[2 * GROUP][2 * GROUP] = {}, part_a[PART], part_b[PART];
    int now = 0;
    fetch_part<TYPE>(job.a, first_row, 0, part_a);
    fetch_part<TYPE>(job.b, first_column, 0, part_b);
    for (uint64_t term = TERMS;; term += TERMS) {
        deposit_part(job.a, part_a, (float *)panel_a[now]);
        deposit_part(job.b, part_b, (float *)panel_b[now]);
        /* Who passes has multiplied the panels before these, which the next deposit replaces. */
        __syncthreads();
        const bool is_last = term >= job.a.terms;
        if (!is_last) {
            fetch_part<TYPE>(job.a, first_row, term, part_a);
            fetch_part<TYPE>(job.b, first_column, term, part_b);
        }
        multiply_panels(panel_a[now], panel_b[now], sums);
        if (is_last)
            break;
        now = 1 - now;
    }
    for (uint32_t i = 0; i < 2 * GROUP; i++) {
        const uint64_t row = first_row + place_in_tile(threadIdx.x / 16, i);
        for (uint32_t j = 0; j < 2 * GROUP; j++) {
            const uint64_t column = first_column + place_in_tile(threadIdx.x % 16, j);
            if (row < job.a.width && column < job.b.width)
                finish_element<TYPE>(job, row, column, sums[i][j]);
        }
    }
}

static bool has_packs(const void *from, uint64_t row_elements, sl_type type)
{
    return (uintptr_t)from % 16 == 0 && row_elements * sl_type_bytes(type) % 16 == 0;
}

template <sl_type TYPE>
static sl_status launch(const sl_kernel_call *call, const product_job &job, uint32_t blocks)
{
    return SL_LAUNCH(call, blocks, THREADS, 0, multiply<TYPE>, job);
}

static uint64_t count_tiles(uint64_t elements)
{
    return (elements + TILE - 1) / TILE;
}

static sl_status check(const sl_product *product)
{
    const uint64_t m = product->m, n = product->n, k = product->k;
    const bool is_finished = product->bias != NULL || product->residual != NULL;
    if (m == 0 || n == 0 || k == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product without rows, columns or terms");
    if (product->c_type != product->type && (product->c_type != SL_TYPE_FP32 || is_finished))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of type %d into type %d", (int)product->type,
                (int)product->c_type);
    if (count_tiles(m) > GRID_BLOCKS_MAX / count_tiles(n))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of %llu x %llu is too large for one grid",
                (unsigned long long)m, (unsigned long long)n);
    return SL_OK;
}

sl_status sl_product_run(const sl_kernel_call *call, const sl_product *product)
{
    SL_TRY(check(product));
    const uint64_t m = product->m, n = product->n, k = product->k;
    product_job job = {};
    job.a = {product->a, m, k, !product->transpose_a,
             has_packs(product->a, product->transpose_a ? m : k, product->type)};
    job.b = {product->b, n, k, product->transpose_b,
             has_packs(product->b, product->transpose_b ? k : n, product->type)};
    job.c = product->c;
    job.bias = product->bias;
    job.residual = product->residual;
    job.add = product->add;
    job.c_is_fp32 = product->c_type == SL_TYPE_FP32;
    const uint32_t blocks = (uint32_t)(count_tiles(m) * count_tiles(n));
    return SL_BY_TYPE(product->type, launch, call, job, blocks);
}
