/* Matrix products by our own kernels: for machines without cuBLASLt, and for products that it has
 * no algorithm for. product_fp32 multiplies fp32 by plain arithmetic, product_halves the other
 * types by the tensor cores.
 *
 * A block computes a tile of C, 128 x 128 elements. Slices of some terms of A and B pass through
 * shared memory; while one pair is multiplied, the next is on its way. Each element is one chain
 * over the terms in order, whatever the transpositions or the alignment: these choose how the same
 * numbers are loaded. Blocks are numbered down the columns of C: neighbours in time share slices of
 * B.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions, loads an MMA or FMA.
 *
 *                                              sm_80                sm_90
 *   product_fp32                          128   1.12   0.06    128   1.12   0.06
 *   product_halves<bf16, false, false>    108   4.28   0.38    114   4.41   0.38
 *   product_halves<bf16, true, false>     104   4.12   0.38    112   4.19   0.38
 *   product_halves<bf16, true, true>      104   4.00   0.38    112   4.06   0.38
 */
#include "gelu.cuh"
#include "mma.cuh"

enum {
    TILE = 128, /* rows and columns of C that a block computes */
    THREADS = 256,
    PART = 8, /* elements that one thread loads at once, neighbours in memory */
};

/* op(A) seen as [terms, width = m], or op(B) as [terms, width = n]. */
typedef struct product_side {
    const void *from;
    uint64_t width, terms;
    bool runs_along_terms; /* a row of memory is one column of this view */
    bool has_packs;        /* every part of a row is 16-byte aligned */
} product_side;

typedef struct product_job {
    product_side a, b;
    void *c;
    const void *bias, *residual, *gelu_x;
    bool add, c_is_fp32;
    sl_type type;
} product_job;

static __device__ __forceinline__ uint64_t memory_rows(const product_side &side)
{
    return side.runs_along_terms ? side.width : side.terms;
}

static __device__ __forceinline__ uint64_t memory_columns(const product_side &side)
{
    return side.runs_along_terms ? side.terms : side.width;
}

/* Element [row, column] of C before it is rounded, from the sum of its terms. */
template <sl_type TYPE>
static __device__ __forceinline__ float apply_epilogue(const product_job &job, uint64_t row,
                                                       uint64_t column, float sum)
{
    const uint64_t at = row * job.b.width + column;
    if (job.bias != NULL)
        sum += sl_load<TYPE>(job.bias, column);
    if (job.residual != NULL)
        sum += sl_load<TYPE>(job.residual, at);
    if (job.add)
        sum += job.c_is_fp32 ? ((const float *)job.c)[at] : sl_load<TYPE>(job.c, at);
    if (job.gelu_x != NULL)
        sum *= sl_gelu_slope(sl_load<TYPE>(job.gelu_x, at));
    return sum;
}

/* ---- fp32
 *
 * A thread computes 8 x 8 elements, as two times two groups of 4 that lie half a tile apart: then
 * the threads of a warp read neighbouring shared memory. Slices of 16 terms always have the terms
 * as rows; the next ones are on their way in registers. An element is one chain of fused
 * multiply-adds. */

enum {
    HALF_TILE = TILE / 2,
    FP32_TERMS = 16,
    GROUP = 4,                /* neighbouring rows or columns of a thread */
    SLICE_ROW = TILE / 4 + 1, /* float4; the last spreads writes over the banks */
};

/* This thread's eight elements of the slice at (first_term, first_width); zero outside. */
static __device__ __forceinline__ void fetch_part(const product_side &side, uint64_t first_width,
                                                  uint64_t first_term, float *part)
{
    const uint32_t t = threadIdx.x;
    const bool along = side.runs_along_terms;
    const uint64_t row = along ? first_width + t / 2 : first_term + t / 16;
    const uint64_t column = along ? first_term + t % 2 * PART : first_width + t % 16 * PART;
    const uint64_t rows = memory_rows(side), columns = memory_columns(side);
    const uint64_t at = row * columns + column;
    if (row < rows && column + PART <= columns && side.has_packs) {
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
    for (int i = 0; i < PART; i++)
        part[i] = row < rows && column + i < columns ? ((const float *)side.from)[at + i] : 0.0f;
}

/* Into slice[FP32_TERMS][4 * SLICE_ROW]. */
static __device__ __forceinline__ void deposit_part(const product_side &side, const float *part,
                                                    float *slice)
{
    const uint32_t t = threadIdx.x;
    const bool along = side.runs_along_terms;
    const uint32_t term = along ? t % 2 * PART : t / 16;
    const uint32_t column = along ? t / 2 : t % 16 * PART;
    const uint32_t step = along ? 4 * SLICE_ROW : 1;
    float *to = slice + term * 4 * SLICE_ROW + column;
#pragma unroll
    for (int i = 0; i < PART; i++)
        to[i * step] = part[i];
}

/* Groups `group` and `group` + half a tile of one term. */
static __device__ __forceinline__ void read_groups(const float4 *slice, uint32_t term,
                                                   uint32_t group, float *value)
{
    const float4 low = slice[term * SLICE_ROW + group];
    const float4 high = slice[term * SLICE_ROW + group + HALF_TILE / GROUP];
    value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
    value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
}

static __device__ __forceinline__ void multiply_slices_fp32(const float4 *a, const float4 *b,
                                                            float (*sums)[2 * GROUP])
{
#pragma unroll
    for (uint32_t term = 0; term < FP32_TERMS; term++) {
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
    return index / GROUP * HALF_TILE + group * GROUP + index % GROUP;
}

static __device__ __forceinline__ void write_sums_fp32(const product_job &job, uint64_t first_row,
                                                       uint64_t first_column,
                                                       const float (*sums)[2 * GROUP])
{
    for (uint32_t i = 0; i < 2 * GROUP; i++) {
        const uint64_t row = first_row + place_in_tile(threadIdx.x / 16, i);
        for (uint32_t j = 0; j < 2 * GROUP; j++) {
            const uint64_t column = first_column + place_in_tile(threadIdx.x % 16, j);
            if (row < job.a.width && column < job.b.width)
                ((float *)job.c)[row * job.b.width + column] =
                    apply_epilogue<SL_TYPE_FP32>(job, row, column, sums[i][j]);
        }
    }
}

static __global__ void __launch_bounds__(THREADS, 2) product_fp32(const product_job job)
{
    __shared__ float4 slice_a[2][FP32_TERMS * SLICE_ROW];
    __shared__ float4 slice_b[2][FP32_TERMS * SLICE_ROW];
    const uint64_t down = (job.a.width + TILE - 1) / TILE;
    const uint64_t first_row = blockIdx.x % down * TILE;
    const uint64_t first_column = blockIdx.x / down * TILE;
    float sums[2 * GROUP][2 * GROUP] = {}, part_a[PART], part_b[PART];
    int now = 0;
    fetch_part(job.a, first_row, 0, part_a);
    fetch_part(job.b, first_column, 0, part_b);
    for (uint64_t term = FP32_TERMS;; term += FP32_TERMS) {
        deposit_part(job.a, part_a, (float *)slice_a[now]);
        deposit_part(job.b, part_b, (float *)slice_b[now]);
        /* Who passes has multiplied the slices before these, which the next deposit replaces. */
        __syncthreads();
        const bool is_last = term >= job.a.terms;
        if (!is_last) {
            fetch_part(job.a, first_row, term, part_a);
            fetch_part(job.b, first_column, term, part_b);
        }
        multiply_slices_fp32(slice_a[now], slice_b[now], sums);
        if (is_last)
            break;
        now = 1 - now;
    }
    write_sums_fp32(job, first_row, first_column, sums);
}

/* ---- halves, by the warp's product of mma.cuh, sums in fp32
 *
 * Each of the 8 warps computes 64 x 32 elements. Slices of 32 terms lie in shared memory as their
 * rows lie in memory, along the width or along the terms: the loads of fragments turn the one into
 * the other. The next ones are copied past the registers, where rows allow that. An element is a
 * chain of 16-term products; terms outside of the matrix are zeros. */

enum {
    HALVES_TERMS = 32,
    WARP_ROWS = 64,
    WARP_COLUMNS = 32,
    WARPS_ACROSS = TILE / WARP_COLUMNS,
    ROW_GROUPS = WARP_ROWS / 16,
    COLUMN_GROUPS = WARP_COLUMNS / 8,
    /* Elements of a slice's row. Eight more than it holds: then the eight rows that a load of
     * matrices touches begin in different banks. */
    ROW_ALONG = HALVES_TERMS + 8,
    ROW_ACROSS = TILE + 8,
    SLICE = TILE * ROW_ALONG, /* the larger of the two */
};

/* Copies the slice at (first_term, first_width), zeros outside; each thread two parts of it. */
template <bool ALONG>
static __device__ __forceinline__ void fetch_slice(const product_side &side, uint64_t first_width,
                                                   uint64_t first_term, uint16_t *slice)
{
    enum { PARTS = (ALONG ? +HALVES_TERMS : +TILE) / PART /* of a row */ };
    const uint16_t *from = (const uint16_t *)side.from;
    const uint64_t rows = ALONG ? side.width : side.terms;
    const uint64_t columns = ALONG ? side.terms : side.width;
#pragma unroll
    for (uint32_t t = threadIdx.x; t < TILE * HALVES_TERMS / PART; t += THREADS) {
        const uint32_t down = t / PARTS, across = t % PARTS * PART;
        const uint64_t row = (ALONG ? first_width : first_term) + down;
        const uint64_t column = (ALONG ? first_term : first_width) + across;
        uint16_t *to = slice + down * (ALONG ? ROW_ALONG : ROW_ACROSS) + across;
        const bool is_inside = row < rows && column < columns;
        if (side.has_packs) {
            sl_copy_begin(to, is_inside ? from + row * columns + column : from, is_inside);
            continue;
        }
#pragma unroll
        for (uint32_t i = 0; i < PART; i++)
            to[i] = is_inside && column + i < columns ? from[row * columns + column + i] : 0;
    }
}

/* The 16 x 16 elements at (width, term) as four matrices of rows of terms: widths 0..7 and 8..15 of
 * terms 0..7, then of terms 8..15. Of A these are an operand, of B those of two products. */
template <bool ALONG>
static __device__ __forceinline__ void load_fragments(const uint16_t *slice, uint32_t width,
                                                      uint32_t term, uint32_t (&part)[4])
{
    const uint32_t lane = threadIdx.x % SL_WARP;
    if constexpr (ALONG)
        sl_load_matrices(part, slice + (width + lane % 16) * ROW_ALONG + term + lane / 16 * 8);
    else
        sl_load_transposed(part, slice + (term + lane % 8 + lane / 16 * 8) * ROW_ACROSS + width +
                                     lane / 8 % 2 * 8);
}

typedef struct warp_place {
    uint32_t row, column; /* within the tile */
} warp_place;

static __device__ __forceinline__ warp_place place_warp()
{
    const uint32_t warp = threadIdx.x / SL_WARP;
    return {warp / WARPS_ACROSS * WARP_ROWS, warp % WARPS_ACROSS * WARP_COLUMNS};
}

template <sl_type TYPE, bool A_ALONG, bool B_ALONG>
static __device__ __forceinline__ void multiply_slices_halves(
    const uint16_t *a, const uint16_t *b, float (&sums)[ROW_GROUPS][COLUMN_GROUPS][4])
{
    const warp_place place = place_warp();
#pragma unroll
    for (uint32_t term = 0; term < HALVES_TERMS; term += 16) {
        uint32_t x[ROW_GROUPS][4], y[COLUMN_GROUPS / 2][4];
#pragma unroll
        for (uint32_t i = 0; i < ROW_GROUPS; i++)
            load_fragments<A_ALONG>(a, place.row + 16 * i, term, x[i]);
#pragma unroll
        for (uint32_t j = 0; j < COLUMN_GROUPS / 2; j++)
            load_fragments<B_ALONG>(b, place.column + 16 * j, term, y[j]);
#pragma unroll
        for (uint32_t i = 0; i < ROW_GROUPS; i++)
#pragma unroll
            for (uint32_t j = 0; j < COLUMN_GROUPS; j++)
                sl_mma<TYPE>(sums[i][j], x[i], y[j / 2][j % 2], y[j / 2][j % 2 + 2]);
    }
}

/* Elements [row, column] and [row, column + 1]; rows of even width have room for both at once. */
template <sl_type TYPE>
static __device__ __forceinline__ void write_pair(const product_job &job, uint64_t row,
                                                  uint64_t column, float first, float second)
{
    const uint64_t width = job.b.width, at = row * width + column;
    if (row >= job.a.width || column >= width)
        return;
    first = apply_epilogue<TYPE>(job, row, column, first);
    if (column + 1 < width)
        second = apply_epilogue<TYPE>(job, row, column + 1, second);
    if (width % 2 == 0 && job.c_is_fp32)
        *(float2 *)((float *)job.c + at) = make_float2(first, second);
    else if (width % 2 == 0)
        *(uint32_t *)((uint16_t *)job.c + at) = sl_round_pair<TYPE>(first, second);
    else
        for (uint32_t i = 0; i < 2 && column + i < width; i++) {
            if (job.c_is_fp32)
                ((float *)job.c)[at + i] = i == 0 ? first : second;
            else
                sl_store<TYPE>(job.c, at + i, i == 0 ? first : second);
        }
}

template <sl_type TYPE>
static __device__ __forceinline__ void write_sums_halves(
    const product_job &job, uint64_t first_row, uint64_t first_column,
    const float (&sums)[ROW_GROUPS][COLUMN_GROUPS][4])
{
    const warp_place place = place_warp();
    const uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (uint32_t i = 0; i < ROW_GROUPS; i++)
#pragma unroll
        for (uint32_t j = 0; j < COLUMN_GROUPS; j++) {
            const uint64_t row = first_row + place.row + 16 * i + lane / 4;
            const uint64_t column = first_column + place.column + 8 * j + lane % 4 * 2;
            write_pair<TYPE>(job, row, column, sums[i][j][0], sums[i][j][1]);
            write_pair<TYPE>(job, row + 8, column, sums[i][j][2], sums[i][j][3]);
        }
}

template <sl_type TYPE, bool A_ALONG, bool B_ALONG>
static __global__ void __launch_bounds__(THREADS, 2) product_halves(const product_job job)
{
    __shared__ __align__(16) uint16_t slice_a[2][SLICE];
    __shared__ __align__(16) uint16_t slice_b[2][SLICE];
    const uint64_t down = (job.a.width + TILE - 1) / TILE;
    const uint64_t first_row = blockIdx.x % down * TILE;
    const uint64_t first_column = blockIdx.x / down * TILE;
    float sums[ROW_GROUPS][COLUMN_GROUPS][4] = {};
    int now = 0;
    fetch_slice<A_ALONG>(job.a, first_row, 0, slice_a[0]);
    fetch_slice<B_ALONG>(job.b, first_column, 0, slice_b[0]);
    for (uint64_t term = HALVES_TERMS;; term += HALVES_TERMS) {
        sl_copy_wait();
        /* Who passes has multiplied the slices before these, which are replaced now. */
        __syncthreads();
        const bool is_last = term >= job.a.terms;
        if (!is_last) {
            fetch_slice<A_ALONG>(job.a, first_row, term, slice_a[1 - now]);
            fetch_slice<B_ALONG>(job.b, first_column, term, slice_b[1 - now]);
        }
        multiply_slices_halves<TYPE, A_ALONG, B_ALONG>(slice_a[now], slice_b[now], sums);
        if (is_last)
            break;
        now = 1 - now;
    }
    write_sums_halves<TYPE>(job, first_row, first_column, sums);
}

template <sl_type TYPE>
static sl_status launch_halves_of(const sl_kernel_call *call, const product_job &job,
                                  uint32_t blocks)
{
    if (!job.a.runs_along_terms && job.b.runs_along_terms)
        SL_FAIL(SL_ERROR_INTERNAL, "no op multiplies two transposed matrices");
    if (!job.a.runs_along_terms)
        return SL_LAUNCH(call, blocks, THREADS, 0, (product_halves<TYPE, false, false>), job);
    if (job.b.runs_along_terms)
        return SL_LAUNCH(call, blocks, THREADS, 0, (product_halves<TYPE, true, true>), job);
    return SL_LAUNCH(call, blocks, THREADS, 0, (product_halves<TYPE, true, false>), job);
}

static sl_status launch_halves(const sl_kernel_call *call, const product_job &job, uint32_t blocks)
{
    return job.type == SL_TYPE_BF16 ? launch_halves_of<SL_TYPE_BF16>(call, job, blocks)
                                    : launch_halves_of<SL_TYPE_FP16>(call, job, blocks);
}

/* ---- either */

enum { GRID_BLOCKS_MAX = 0x7fffffff };

static uint64_t count_tiles(uint64_t elements)
{
    return (elements + TILE - 1) / TILE;
}

static product_side side_of(const void *from, sl_type type, uint64_t width, uint64_t terms,
                            bool runs_along_terms)
{
    product_side side = {from, width, terms, runs_along_terms, false};
    const uint64_t row_bytes = (runs_along_terms ? terms : width) * sl_type_bytes(type);
    side.has_packs = (uintptr_t)from % 16 == 0 && row_bytes % 16 == 0;
    return side;
}

extern "C" sl_status sl_cuda_product_run(const sl_kernel_call *call, const sl_product *product)
{
    SL_TRY(sl_product_check(product));
    const uint64_t m = product->m, n = product->n, k = product->k;
    if (count_tiles(m) > GRID_BLOCKS_MAX / count_tiles(n))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of %llu x %llu is too large for one grid",
                (unsigned long long)m, (unsigned long long)n);
    product_job job = {};
    job.a = side_of(product->a, product->type, m, k, !product->transpose_a);
    job.b = side_of(product->b, product->type, n, k, product->transpose_b);
    job.c = product->c;
    job.bias = product->bias;
    job.residual = product->residual;
    job.gelu_x = product->gelu_x;
    job.add = product->add;
    job.c_is_fp32 = product->c_type == SL_TYPE_FP32;
    job.type = product->type;
    const uint32_t blocks = (uint32_t)(count_tiles(m) * count_tiles(n));
    return product->type == SL_TYPE_FP32 ? SL_LAUNCH(call, blocks, THREADS, 0, product_fp32, job)
                                         : launch_halves(call, job, blocks);
}
