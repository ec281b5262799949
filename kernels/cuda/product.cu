/* Matrix products by our own kernels: for machines without cuBLASLt, and for products that it has
 * no algorithm for. product_fp32 multiplies fp32 by plain arithmetic, product_halves the other
 * types by the tensor cores.
 *
 * A block computes a tile of C, 128 x 128 elements. Slices of some terms of A and B pass through
 * shared memory; while one pair is multiplied, the next is loaded. Each element is one chain
 * over the terms in order, whatever the transpositions or the alignment: these choose how the same
 * numbers are loaded. Then the sums pass through shared memory too, half a tile at a time, so that
 * threads get neighbours in rows of C: one short loop applies the epilogue, rounds and writes them.
 * Blocks are numbered down the columns of C, so blocks that run at the same time share slices of B.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions, loads an MMA or FMA.
 *
 *                                              sm_80                sm_90
 *   product_fp32                          127   1.08   0.06    125   1.09   0.06
 *   product_halves<bf16, false, false>    108   4.28   0.38    114   4.28   0.38
 *   product_halves<bf16, true, false>     104   4.12   0.38    112   4.09   0.38
 *   product_halves<bf16, true, true>      107   4.00   0.38    112   3.88   0.38
 */
#include "gelu.cuh"
#include "mma.cuh"

enum {
    TILE = 128, /* rows and columns of C that a block computes */
    HALF_TILE = TILE / 2,
    THREADS = 256,
    PART = 8,  /* elements of half precision that one thread copies at once, neighbours in memory */
    GROUP = 4, /* elements that it takes at once elsewhere: a float4 where they are fp32 */
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
    bool has_groups; /* every group of C's columns, and of what comes with it, is aligned */
} product_job;

static __device__ __forceinline__ uint64_t memory_rows(const product_side &side)
{
    return side.runs_along_terms ? side.width : side.terms;
}

static __device__ __forceinline__ uint64_t memory_columns(const product_side &side)
{
    return side.runs_along_terms ? side.terms : side.width;
}

typedef struct tile_place {
    uint64_t row, column; /* where the block's tile begins */
} tile_place;

static __device__ __forceinline__ tile_place place_tile(const product_job &job)
{
    const uint32_t down = (uint32_t)((job.a.width + TILE - 1) / TILE);
    return {(uint64_t)(blockIdx.x % down) * TILE, (uint64_t)(blockIdx.x / down) * TILE};
}

/* ---- elements of C ---- */

/* What ops ask for beside the product (kernels/product.c). A kernel has the code of what the ops of
 * its layout ask for. */
enum {
    TAKES_BIAS = 1, /* and a residual */
    TAKES_GELU = 2,
    ADDS = 4,        /* to C of the operands' type */
    WRITES_FP32 = 8, /* from operands of another type, or adds to it */
    ALL_PARTS = TAKES_BIAS | TAKES_GELU | ADDS
};

/* By how A and B lie in memory: x^T dy, dy W^T, x W. */
static constexpr int parts_of_layout(bool a_along, bool b_along)
{
    return !a_along ? WRITES_FP32 : b_along ? TAKES_GELU | ADDS : TAKES_BIAS | WRITES_FP32;
}

/* Half a tile of sums in shared memory. What is over spreads the writes of a warp over the banks.
 */
template <sl_type TYPE> struct half_tile {
    enum { ROW = TYPE == SL_TYPE_FP32 ? TILE + 4 : TILE + 8, FLOATS = HALF_TILE * ROW };
};

/* Neighbours in a row of C: four where rows are WIDE, one where they begin anywhere. So the lanes
 * of a warp take neighbouring words of shared memory, and whole sectors of C in either type. */
template <bool WIDE> struct c_piece {
    enum { COUNT = WIDE ? +GROUP : 1 };
    float value[COUNT];
};

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ c_piece<WIDE> load_piece(const void *from, uint64_t at)
{
    c_piece<WIDE> piece;
    if constexpr (TYPE == SL_TYPE_FP32) {
        sl_load_floats((const float *)from, at, piece.value);
    } else if constexpr (WIDE) {
        const uint2 raw = ((const uint2 *)from)[at / GROUP];
        const uint32_t word[2] = {raw.x, raw.y};
#pragma unroll
        for (int i = 0; i < GROUP; i++)
            piece.value[i] = sl_widen<TYPE>((uint16_t)(word[i / 2] >> (i % 2 * 16)));
    } else {
        piece.value[0] = sl_load<TYPE>(from, at);
    }
    return piece;
}

/* By an index in groups: of a pointer to elements that is cast where it stores, nvcc 13.0 forgets
 * the alignment here, and stores word by word. */
template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void store_piece(void *to, uint64_t at,
                                                   const c_piece<WIDE> &piece)
{
    if constexpr (TYPE == SL_TYPE_FP32 && WIDE)
        ((float4 *)to)[at / GROUP] =
            make_float4(piece.value[0], piece.value[1], piece.value[2], piece.value[3]);
    else if constexpr (WIDE)
        ((uint2 *)to)[at / GROUP] = make_uint2(sl_round_pair<TYPE>(piece.value[0], piece.value[1]),
                                               sl_round_pair<TYPE>(piece.value[2], piece.value[3]));
    else
        sl_store<TYPE>(to, at, piece.value[0]);
}

/* Adds what lies there, or multiplies by the slope of a GELU of it. */
template <sl_type TYPE, bool IS_GELU, bool WIDE>
static __device__ __forceinline__ void join_piece(c_piece<WIDE> &sum, const void *from, uint64_t at)
{
    const c_piece<WIDE> more = load_piece<TYPE, WIDE>(from, at);
#pragma unroll
    for (int i = 0; i < c_piece<WIDE>::COUNT; i++)
        sum.value[i] =
            IS_GELU ? sum.value[i] * sl_gelu_slope(more.value[i]) : sum.value[i] + more.value[i];
}

static __host__ __device__ __forceinline__ bool takes_bias(const product_job &job)
{
    return job.bias != NULL || job.residual != NULL;
}

/* Some elements of a row of C, from their sums. */
template <sl_type TYPE, bool WIDE, int PARTS>
static __device__ __forceinline__ void write_piece(const product_job &job, uint64_t row,
                                                   uint64_t column, const float *sums)
{
    const uint64_t at = row * job.b.width + column;
    c_piece<WIDE> sum = load_piece<SL_TYPE_FP32, WIDE>(sums, 0);
    if ((PARTS & WRITES_FP32) && job.c_is_fp32) {
        if (job.add)
            join_piece<SL_TYPE_FP32, false>(sum, job.c, at);
        store_piece<SL_TYPE_FP32>(job.c, at, sum);
        return;
    }
    /* One of the three: sl_cuda_product_run. */
    if ((PARTS & TAKES_BIAS) && takes_bias(job)) {
        if (job.bias != NULL)
            join_piece<TYPE, false>(sum, job.bias, column);
        if (job.residual != NULL)
            join_piece<TYPE, false>(sum, job.residual, at);
    } else if ((PARTS & ADDS) && job.add) {
        join_piece<TYPE, false>(sum, job.c, at);
    } else if ((PARTS & TAKES_GELU) && job.gelu_x != NULL) {
        join_piece<TYPE, true>(sum, job.gelu_x, at);
    }
    store_piece<TYPE>(job.c, at, sum);
}

template <sl_type TYPE, bool WIDE, int PARTS>
static __device__ __forceinline__ void write_pieces(const product_job &job, tile_place place,
                                                    const float *sums)
{
    enum { COUNT = c_piece<WIDE>::COUNT, PIECES = TILE / COUNT };
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < HALF_TILE * PIECES; i += THREADS) {
        const uint32_t down = i / PIECES, across = i % PIECES * COUNT;
        if (place.row + down < job.a.width && place.column + across < job.b.width)
            write_piece<TYPE, WIDE, PARTS>(job, place.row + down, place.column + across,
                                           sums + down * half_tile<TYPE>::ROW + across);
    }
}

/* Half a tile, which begins at `place`, once every thread has left its sums; then these may be
 * overwritten. */
template <sl_type TYPE, int PARTS>
static __device__ __forceinline__ void write_half(const product_job &job, tile_place place,
                                                  const float *sums)
{
    __syncthreads();
    if (job.has_groups)
        write_pieces<TYPE, true, PARTS>(job, place, sums);
    else
        write_pieces<TYPE, false, PARTS>(job, place, sums);
    __syncthreads();
}

/* Half of the threads have the sums of the upper half of a tile. */
static __device__ __forceinline__ bool has_sums_of(uint32_t half)
{
    return threadIdx.x / (THREADS / 2) == half;
}

/* ---- fp32
 *
 * A thread computes 8 x 8 elements: of neighbouring rows, and of two groups of 4 columns that lie
 * half a tile apart; then the threads of a warp read neighbouring shared memory. Slices of 16 terms
 * always have the terms as rows; the next ones are on their way in registers. An element is one
 * chain of fused multiply-adds. */

enum {
    FP32_TERMS = 16,
    GROUPS = HALF_TILE / GROUP,
    SLICE_ROW = TILE / GROUP + 1, /* float4; the last spreads writes over the banks */
    FP32_SLICE = FP32_TERMS * SLICE_ROW,
    ROUNDS = FP32_TERMS * TILE / GROUP / THREADS /* groups of a slice that one thread moves */
};

/* Where in a slice, as memory has it, this thread's group of a round begins: a warp takes whole
 * rows, or whole sectors of neighbouring ones. */
typedef struct group_place {
    uint32_t down, across;
} group_place;

static __device__ __forceinline__ group_place place_group(bool along, uint32_t round)
{
    const uint32_t t = threadIdx.x, groups = (along ? +FP32_TERMS : +TILE) / GROUP;
    return {t / groups + round * (THREADS / groups), t % groups * GROUP};
}

/* Four elements of the slice at (first_term, first_width); zero outside. */
static __device__ __forceinline__ void fetch_group(const product_side &side, uint64_t first_width,
                                                   uint64_t first_term, uint32_t round,
                                                   float (&group)[GROUP])
{
    const bool along = side.runs_along_terms;
    const group_place place = place_group(along, round);
    const uint64_t row = (along ? first_width : first_term) + place.down;
    const uint64_t column = (along ? first_term : first_width) + place.across;
    const uint64_t rows = memory_rows(side), columns = memory_columns(side);
    const float *from = (const float *)side.from;
    if (side.has_packs && row < rows && column < columns) {
        sl_load_floats(from, row * columns + column, group);
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        group[i] = row < rows && column + i < columns ? from[row * columns + column + i] : 0.0f;
}

/* Into slice[FP32_TERMS][SLICE_ROW]. */
static __device__ __forceinline__ void deposit_group(bool along, uint32_t round,
                                                     const float (&group)[GROUP], float4 *slice)
{
    const group_place place = place_group(along, round);
    if (!along) {
        slice[place.down * SLICE_ROW + place.across / GROUP] =
            make_float4(group[0], group[1], group[2], group[3]);
        return;
    }
    float *to = (float *)(slice + place.across * SLICE_ROW) + place.down;
#pragma unroll
    for (int i = 0; i < GROUP; i++)
        to[i * GROUP * SLICE_ROW] = group[i];
}

static __device__ __forceinline__ void fetch_groups(const product_side &side, uint64_t first_width,
                                                    uint64_t first_term,
                                                    float (&groups)[ROUNDS][GROUP])
{
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
        fetch_group(side, first_width, first_term, round, groups[round]);
}

static __device__ __forceinline__ void deposit_groups(const product_side &side,
                                                      const float (&groups)[ROUNDS][GROUP],
                                                      float4 *slice)
{
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
        deposit_group(side.runs_along_terms, round, groups[round], slice);
}

/* Two groups of one term. */
static __device__ __forceinline__ void read_groups(const float4 *low, const float4 *high,
                                                   float (&value)[2 * GROUP])
{
    value[0] = low->x, value[1] = low->y, value[2] = low->z, value[3] = low->w;
    value[4] = high->x, value[5] = high->y, value[6] = high->z, value[7] = high->w;
}

static __device__ __forceinline__ void multiply_slices_fp32(const float4 *a, const float4 *b,
                                                            float (&sums)[2 * GROUP][2 * GROUP])
{
    a += threadIdx.x / GROUPS * 2;
    b += threadIdx.x % GROUPS;
#pragma unroll
    for (uint32_t term = 0; term < FP32_TERMS; term++) {
        float x[2 * GROUP], y[2 * GROUP];
        read_groups(a + term * SLICE_ROW, a + term * SLICE_ROW + 1, x);
        read_groups(b + term * SLICE_ROW, b + term * SLICE_ROW + GROUPS, y);
#pragma unroll
        for (int i = 0; i < 2 * GROUP; i++)
#pragma unroll
            for (int j = 0; j < 2 * GROUP; j++)
                sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
    }
}

/* Into half_tile<SL_TYPE_FP32>. */
static __device__ __forceinline__ void deposit_sums_fp32(const float (&sums)[2 * GROUP][2 * GROUP],
                                                         float *half)
{
    const uint32_t row = threadIdx.x / GROUPS * 2 * GROUP % HALF_TILE;
    float4 *to = (float4 *)(half + row * half_tile<SL_TYPE_FP32>::ROW) + threadIdx.x % GROUPS;
#pragma unroll
    for (int i = 0; i < 2 * GROUP; i++) {
        float4 *const low = to + i * half_tile<SL_TYPE_FP32>::ROW / GROUP;
        low[0] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        low[GROUPS] = make_float4(sums[i][4], sums[i][5], sums[i][6], sums[i][7]);
    }
}

static __global__ void __launch_bounds__(THREADS, 2) product_fp32(const product_job job)
{
    __shared__ float4 slices[2][2][FP32_SLICE]; /* of A and B, in turns */
    static_assert(sizeof slices >= half_tile<SL_TYPE_FP32>::FLOATS * sizeof(float), "");
    const tile_place place = place_tile(job);
    float sums[2 * GROUP][2 * GROUP] = {}, groups_a[ROUNDS][GROUP], groups_b[ROUNDS][GROUP];
    uint32_t next = 0;
    for (uint64_t term = 0;; term += FP32_TERMS) {
        const bool has_next = term < job.a.terms;
        if (has_next) {
            fetch_groups(job.a, place.row, term, groups_a);
            fetch_groups(job.b, place.column, term, groups_b);
        }
        if (term > 0)
            multiply_slices_fp32(slices[1 - next][0], slices[1 - next][1], sums);
        if (has_next) {
            deposit_groups(job.a, groups_a, slices[next][0]);
            deposit_groups(job.b, groups_b, slices[next][1]);
        }
        /* Who passes has multiplied the slices that are replaced next. */
        __syncthreads();
        if (term >= job.a.terms)
            break;
        next = 1 - next;
    }
#pragma unroll 1
    for (uint32_t half = 0; half < 2; half++) {
        if (has_sums_of(half))
            deposit_sums_fp32(sums, (float *)slices);
        write_half<SL_TYPE_FP32, ALL_PARTS>(job, {place.row + half * HALF_TILE, place.column},
                                            (const float *)slices);
    }
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

/* A part of which `count` elements, at most PART, are inside of the matrix; then zeros. */
static __device__ __forceinline__ void copy_elements(uint16_t *to, const uint16_t *from,
                                                     uint64_t count)
{
#pragma unroll
    for (uint32_t i = 0; i < PART; i++)
        to[i] = i < count ? from[i] : 0;
}

/* Copies the slice at (first_term, first_width), zeros outside; each thread two parts of it. */
template <bool ALONG>
static __device__ __forceinline__ void fetch_slice(const product_side &side, uint64_t first_width,
                                                   uint64_t first_term, uint16_t *slice)
{
    enum {
        PARTS = (ALONG ? +HALVES_TERMS : +TILE) / PART, /* of a row */
        COPIES = TILE * HALVES_TERMS / PART / THREADS
    };
    const uint16_t *from = (const uint16_t *)side.from;
    const uint64_t rows = ALONG ? side.width : side.terms;
    const uint64_t columns = ALONG ? side.terms : side.width;
#pragma unroll
    for (uint32_t round = 0; round < COPIES; round++) {
        const uint32_t t = round * THREADS + threadIdx.x;
        const uint32_t down = t / PARTS, across = t % PARTS * PART;
        const uint64_t row = (ALONG ? first_width : first_term) + down;
        const uint64_t column = (ALONG ? first_term : first_width) + across;
        uint16_t *to = slice + down * (ALONG ? ROW_ALONG : ROW_ACROSS) + across;
        const bool is_inside = row < rows && column < columns;
        const uint16_t *part = is_inside ? from + row * columns + column : from;
        if (side.has_packs)
            sl_copy_begin(to, part, is_inside);
        else
            copy_elements(to, part, is_inside ? columns - column : 0);
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

/* Into half_tile<TYPE>, of which a warp has all rows. */
template <sl_type TYPE>
static __device__ __forceinline__ void deposit_sums_halves(
    const float (&sums)[ROW_GROUPS][COLUMN_GROUPS][4], float *half)
{
    enum { ROW = half_tile<TYPE>::ROW / 2 }; /* of float2 */
    const uint32_t lane = threadIdx.x % SL_WARP;
    float2 *to = (float2 *)half + lane / 4 * ROW + place_warp().column / 2 + lane % 4;
    static_assert(WARP_ROWS == +HALF_TILE, "");
#pragma unroll
    for (uint32_t i = 0; i < ROW_GROUPS; i++)
#pragma unroll
        for (uint32_t j = 0; j < COLUMN_GROUPS; j++) {
            float2 *const at = to + 16 * i * ROW + 4 * j;
            at[0] = make_float2(sums[i][j][0], sums[i][j][1]);
            at[8 * ROW] = make_float2(sums[i][j][2], sums[i][j][3]);
        }
}

template <sl_type TYPE, bool A_ALONG, bool B_ALONG>
static __global__ void __launch_bounds__(THREADS, 2) product_halves(const product_job job)
{
    __shared__ __align__(16) uint16_t slices[2][2][SLICE]; /* of A and B, in turns */
    static_assert(sizeof slices >= half_tile<TYPE>::FLOATS * sizeof(float), "");
    const tile_place place = place_tile(job);
    float sums[ROW_GROUPS][COLUMN_GROUPS][4] = {};
    uint32_t now = 0;
    fetch_slice<A_ALONG>(job.a, place.row, 0, slices[0][0]);
    fetch_slice<B_ALONG>(job.b, place.column, 0, slices[0][1]);
    for (uint64_t term = HALVES_TERMS;; term += HALVES_TERMS) {
        sl_copy_wait();
        /* Who passes has multiplied the slices before these, which are replaced now. */
        __syncthreads();
        const bool is_last = term >= job.a.terms;
        if (!is_last) {
            fetch_slice<A_ALONG>(job.a, place.row, term, slices[1 - now][0]);
            fetch_slice<B_ALONG>(job.b, place.column, term, slices[1 - now][1]);
        }
        multiply_slices_halves<TYPE, A_ALONG, B_ALONG>(slices[now][0], slices[now][1], sums);
        if (is_last)
            break;
        now = 1 - now;
    }
    __syncthreads(); /* nobody reads slices any more */
#pragma unroll 1
    for (uint32_t half = 0; half < 2; half++) {
        if (has_sums_of(half))
            deposit_sums_halves<TYPE>(sums, (float *)slices);
        write_half<TYPE, parts_of_layout(A_ALONG, B_ALONG)>(
            job, {place.row + half * HALF_TILE, place.column}, (const float *)slices);
    }
}

static int find_parts(const product_job &job)
{
    return (takes_bias(job) ? TAKES_BIAS : 0) | (job.gelu_x != NULL ? TAKES_GELU : 0) |
           (job.c_is_fp32 ? WRITES_FP32
            : job.add     ? ADDS
                          : 0);
}

template <sl_type TYPE, bool A_ALONG, bool B_ALONG>
static sl_status launch_layout(const sl_kernel_call *call, const product_job &job, uint32_t blocks)
{
    if ((find_parts(job) & ~parts_of_layout(A_ALONG, B_ALONG)) != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "no op asks for this bias, GELU or sum beside such a product");
    return SL_LAUNCH(call, blocks, THREADS, 0, (product_halves<TYPE, A_ALONG, B_ALONG>), job);
}

template <sl_type TYPE>
static sl_status launch_halves(const sl_kernel_call *call, const product_job &job, uint32_t blocks)
{
    if (!job.a.runs_along_terms && job.b.runs_along_terms)
        SL_FAIL(SL_ERROR_INTERNAL, "no op multiplies two transposed matrices");
    if (!job.a.runs_along_terms)
        return launch_layout<TYPE, false, false>(call, job, blocks);
    return job.b.runs_along_terms ? launch_layout<TYPE, true, true>(call, job, blocks)
                                  : launch_layout<TYPE, true, false>(call, job, blocks);
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

static product_job job_of(const sl_product *product)
{
    const sl_type type = product->type;
    const uint64_t m = product->m, n = product->n, k = product->k;
    const uintptr_t addresses = (uintptr_t)product->c | (uintptr_t)product->bias |
                                (uintptr_t)product->residual | (uintptr_t)product->gelu_x;
    product_job job = {};
    job.a = side_of(product->a, type, m, k, !product->transpose_a);
    job.b = side_of(product->b, type, n, k, product->transpose_b);
    job.c = product->c;
    job.bias = product->bias;
    job.residual = product->residual;
    job.gelu_x = product->gelu_x;
    job.add = product->add;
    job.c_is_fp32 = product->c_type == SL_TYPE_FP32;
    job.has_groups = addresses % 16 == 0 && n % GROUP == 0;
    return job;
}

extern "C" sl_status sl_cuda_product_run(const sl_kernel_call *call, const sl_product *product)
{
    SL_TRY(sl_product_check(product));
    const uint64_t m = product->m, n = product->n;
    if (count_tiles(m) > GRID_BLOCKS_MAX / count_tiles(n))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of %llu x %llu is too large for one grid",
                (unsigned long long)m, (unsigned long long)n);
    const product_job job = job_of(product);
    if (takes_bias(job) && (job.add || job.gelu_x != NULL))
        SL_FAIL(SL_ERROR_INTERNAL, "no op adds a bias beside an old C or a GELU");
    const uint32_t blocks = (uint32_t)(count_tiles(m) * count_tiles(n));
    if (product->type == SL_TYPE_FP32)
        return SL_LAUNCH(call, blocks, THREADS, 0, product_fp32, job);
    return product->type == SL_TYPE_BF16 ? launch_halves<SL_TYPE_BF16>(call, job, blocks)
                                         : launch_halves<SL_TYPE_FP16>(call, job, blocks);
}
