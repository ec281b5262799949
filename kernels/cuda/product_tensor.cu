/* Products of halves, by the tensor cores: the warp's product of mma.cuh, sums in fp32.
 *
 * A block computes 128 x 128 elements of C, each of its 8 warps 64 x 32 of them. Panels of 32 terms
 * of A and B lie in shared memory as their rows lie in memory, along the width or along the terms:
 * the loads of fragments turn the one into the other. While one pair is multiplied, the next is
 * copied past the registers, where rows allow that.
 *
 * Each element is a chain of 16-term products in order, whatever the transpositions or the
 * alignment. Terms outside of the matrix are zeros.
 */
#include "mma.cuh"
#include "product.cuh"

enum {
    TERMS = 32,
    WARP_ROWS = 64,
    WARP_COLUMNS = 32,
    WARPS_ACROSS = SL_PRODUCT_TILE / WARP_COLUMNS,
    ROW_GROUPS = WARP_ROWS / 16,
    COLUMN_GROUPS = WARP_COLUMNS / 8,
    /* Elements of a panel's row. Eight more than it holds: then the eight rows that a load of
     * matrices touches begin in different banks. */
    ROW_ALONG = TERMS + 8,
    ROW_ACROSS = SL_PRODUCT_TILE + 8,
    PANEL = SL_PRODUCT_TILE * ROW_ALONG, /* the larger of the two */
};

/* Copies the panel at (first_term, first_width), zeros outside; each thread two parts of it. */
template <bool ALONG>
static __device__ __forceinline__ void fetch_panel(const sl_product_side &side,
                                                   uint64_t first_width, uint64_t first_term,
                                                   uint16_t *panel)
{
    enum { PARTS = (ALONG ? +TERMS : +SL_PRODUCT_TILE) / SL_PRODUCT_PART /* of a row */ };
    const uint16_t *from = (const uint16_t *)side.from;
    const uint64_t rows = ALONG ? side.width : side.terms;
    const uint64_t columns = ALONG ? side.terms : side.width;
#pragma unroll
    for (uint32_t t = threadIdx.x; t < SL_PRODUCT_TILE * TERMS / SL_PRODUCT_PART;
         t += SL_PRODUCT_THREADS) {
        const uint32_t down = t / PARTS, across = t % PARTS * SL_PRODUCT_PART;
        const uint64_t row = (ALONG ? first_width : first_term) + down;
        const uint64_t column = (ALONG ? first_term : first_width) + across;
        uint16_t *to = panel + down * (ALONG ? ROW_ALONG : ROW_ACROSS) + across;
        const bool is_inside = row < rows && column < columns;
        if (side.has_packs) {
            sl_copy_begin(to, is_inside ? from + row * columns + column : from, is_inside);
            continue;
        }
#pragma unroll
        for (uint32_t i = 0; i < SL_PRODUCT_PART; i++)
            to[i] = is_inside && column + i < columns ? from[row * columns + column + i] : 0;
    }
}

/* The 16 x 16 elements at (width, term) as four matrices of rows of terms: widths 0..7 and 8..15 of
 * terms 0..7, then of terms 8..15. Of A these are an operand, of B those of two products. */
template <bool ALONG>
static __device__ __forceinline__ void load_fragments(const uint16_t *panel, uint32_t width,
                                                      uint32_t term, uint32_t (&part)[4])
{
    const uint32_t lane = threadIdx.x % SL_WARP;
    if constexpr (ALONG)
        sl_load_matrices(part, panel + (width + lane % 16) * ROW_ALONG + term + lane / 16 * 8);
    else
        sl_load_transposed(part, panel + (term + lane % 8 + lane / 16 * 8) * ROW_ACROSS + width +
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
static __device__ __forceinline__ void multiply_panels(const uint16_t *a, const uint16_t *b,
                                                       float (&sums)[ROW_GROUPS][COLUMN_GROUPS][4])
{
    const warp_place place = place_warp();
#pragma unroll
    for (uint32_t term = 0; term < TERMS; term += 16) {
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
static __device__ __forceinline__ void write_pair(const sl_product_job &job, uint64_t row,
                                                  uint64_t column, float first, float second)
{
    const uint64_t width = job.b.width, at = row * width + column;
    if (row >= job.a.width || column >= width)
        return;
    first = sl_product_finish<TYPE>(job, row, column, first);
    if (column + 1 < width)
        second = sl_product_finish<TYPE>(job, row, column + 1, second);
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
static __device__ __forceinline__ void write_sums(const sl_product_job &job, uint64_t first_row,
                                                  uint64_t first_column,
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
static __global__ void __launch_bounds__(SL_PRODUCT_THREADS, 2) multiply(const sl_product_job job)
{
    __shared__ __align__(16) uint16_t panel_a[2][PANEL];
    __shared__ __align__(16) uint16_t panel_b[2][PANEL];
    const uint64_t down = (job.a.width + SL_PRODUCT_TILE - 1) / SL_PRODUCT_TILE;
    const uint64_t first_row = blockIdx.x % down * SL_PRODUCT_TILE;
    const uint64_t first_column = blockIdx.x / down * SL_PRODUCT_TILE;
    float sums[ROW_GROUPS][COLUMN_GROUPS][4] = {};
    int now = 0;
    fetch_panel<A_ALONG>(job.a, first_row, 0, panel_a[0]);
    fetch_panel<B_ALONG>(job.b, first_column, 0, panel_b[0]);
    for (uint64_t term = TERMS;; term += TERMS) {
        sl_copy_wait();
        /* Who passes has multiplied the panels before these, which are replaced now. */
        __syncthreads();
        const bool is_last = term >= job.a.terms;
        if (!is_last) {
            fetch_panel<A_ALONG>(job.a, first_row, term, panel_a[1 - now]);
            fetch_panel<B_ALONG>(job.b, first_column, term, panel_b[1 - now]);
        }
        multiply_panels<TYPE, A_ALONG, B_ALONG>(panel_a[now], panel_b[now], sums);
        if (is_last)
            break;
        now = 1 - now;
    }
    write_sums<TYPE>(job, first_row, first_column, sums);
}

template <sl_type TYPE>
static sl_status launch(const sl_kernel_call *call, const sl_product_job &job, uint32_t blocks)
{
    if (!job.a.runs_along_terms && job.b.runs_along_terms)
        SL_FAIL(SL_ERROR_INTERNAL, "no op multiplies two transposed matrices");
    if (!job.a.runs_along_terms)
        return SL_LAUNCH(call, blocks, SL_PRODUCT_THREADS, 0, (multiply<TYPE, false, false>), job);
    if (job.b.runs_along_terms)
        return SL_LAUNCH(call, blocks, SL_PRODUCT_THREADS, 0, (multiply<TYPE, true, true>), job);
    return SL_LAUNCH(call, blocks, SL_PRODUCT_THREADS, 0, (multiply<TYPE, true, false>), job);
}

sl_status sl_product_launch_tensor(const sl_kernel_call *call, const sl_product_job &job,
                                   uint32_t blocks)
{
    return job.type == SL_TYPE_BF16 ? launch<SL_TYPE_BF16>(call, job, blocks)
                                    : launch<SL_TYPE_FP16>(call, job, blocks);
}
