/* Tiles of rows in shared memory and their products by tensor cores, for attention.
 *
 * A tile [rows, WIDTH] of 2-byte elements consists of packs of 16 bytes. Pack c of row r stands
 * at c ^ (r % 8) of its row: the eight rows of a matrix of 8 x 8, which one phase of ldmatrix
 * reads, then lie in eight different quarters of the 32 banks, and so do a row's packs as they
 * arrive. WIDTH is the head's width rounded up to 64, 128 or 256; columns beyond the head's are
 * zeros, which add nothing to scores, and are not stored.
 *
 * A block is 4 warps. Each owns 16 * ROW_TILES rows of the tile that the block owns (of queries, or
 * of keys), and every warp reads all of the other side's tile. Fragments are as mma.cuh says.
 */
#ifndef SL_KERNELS_CUDA_ATTENTION_TILES_CUH
#define SL_KERNELS_CUDA_ATTENTION_TILES_CUH

#include "attention.cuh"
#include "mma.cuh"

enum { SL_ATTENTION_WARPS = 4, SL_ATTENTION_THREADS = SL_ATTENTION_WARPS * SL_WARP };

template <int WIDTH>
static __device__ __forceinline__ uint32_t sl_tile_pack(uint32_t row, uint32_t pack)
{
    return row * (WIDTH / 8) + (pack ^ (row % 8));
}

/* Some rows of a matrix in global memory. */
typedef struct sl_tile_rows {
    const uint16_t *first;
    uint64_t stride;       /* elements from one to the next */
    uint32_t count, width; /* beyond them a tile has zeros */
} sl_tile_rows;

/* Begins to copy up to ROWS rows into a tile. */
template <int WIDTH, int ROWS>
static __device__ __forceinline__ void sl_tile_copy(uint4 *tile, const sl_tile_rows &rows)
{
    enum { PACKS = WIDTH / 8, STEP = SL_ATTENTION_THREADS / PACKS };
    static_assert(ROWS % STEP == 0, "all threads copy as many packs: no branch between them");
    const uint32_t first = threadIdx.x / PACKS, pack = threadIdx.x % PACKS;
    const bool inside = pack * 8 < rows.width;
    const uint16_t *from = rows.first + first * rows.stride + pack * 8;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / STEP; i++, from += STEP * rows.stride) {
        const uint32_t row = first + i * STEP;
        const bool copies = inside && row < rows.count;
        sl_copy_begin(&tile[sl_tile_pack<WIDTH>(row, pack)], copies ? from : rows.first, copies);
    }
}

/* Begins to copy rows of k, from element `at` on, and the same rows of v into two neighbouring
 * tiles. */
template <int WIDTH, int ROWS>
static __device__ __forceinline__ void sl_tile_copy_keys(const sl_attention_args &args, uint64_t at,
                                                         uint32_t count, uint4 *tiles)
{
    sl_tile_rows rows = {(const uint16_t *)args.k + at, args.key_row, count, args.width};
    sl_tile_copy<WIDTH, ROWS>(tiles, rows);
    rows.first = (const uint16_t *)args.v + at;
    sl_tile_copy<WIDTH, ROWS>(tiles + ROWS * WIDTH / 8, rows);
}

/* ---- products ---- */

/* products [16 * ROW_TILES, 8 * COLUMN_TILES] = rows first_row.. of `left` times the transposed
 * rows of `right`. */
template <sl_type TYPE, int WIDTH, int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void sl_tile_multiply(
    float (&products)[ROW_TILES][COLUMN_TILES][4], const uint4 *left, uint32_t first_row,
    const uint4 *right)
{
    const uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
            products[m][n][0] = products[m][n][1] = products[m][n][2] = products[m][n][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < WIDTH / 16; step++) {
        uint32_t a[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
            sl_load_matrices(
                a[m],
                &left[sl_tile_pack<WIDTH>(first_row + 16 * m + lane % 16, 2 * step + lane / 16)]);
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n += 2) {
            uint32_t b[4]; /* two columns of 8, each with both halves of the step */
            sl_load_matrices(b, &right[sl_tile_pack<WIDTH>(8 * n + lane / 16 * 8 + lane % 8,
                                                           2 * step + lane / 8 % 2)]);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                sl_mma<TYPE>(products[m][n], a[m], b[0], b[1]);
                sl_mma<TYPE>(products[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Weights in fp32 become the left operand of a product, rounded. */
template <sl_type TYPE, int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void sl_tile_round(
    uint32_t (&rounded)[ROW_TILES][COLUMN_TILES / 2][4],
    const float (&weights)[ROW_TILES][COLUMN_TILES][4])
{
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++) {
            uint32_t *pair = &rounded[m][n / 2][n % 2 * 2];
            pair[0] = sl_round_pair<TYPE>(weights[m][n][0], weights[m][n][1]);
            pair[1] = sl_round_pair<TYPE>(weights[m][n][2], weights[m][n][3]);
        }
}

/* sums [16 * ROW_TILES, COLUMNS] += weights [16 * ROW_TILES, 16 * STEPS] times rows 0 .. 16 * STEPS
 * of `right`, its columns from first_pack on. */
template <sl_type TYPE, int WIDTH, int COLUMNS, int ROW_TILES, int STEPS>
static __device__ __forceinline__ void sl_tile_add(float (&sums)[ROW_TILES][COLUMNS / 8][4],
                                                   const uint32_t (&weights)[ROW_TILES][STEPS][4],
                                                   const uint4 *right, uint32_t first_pack)
{
    const uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n += 2) {
            uint32_t b[4]; /* two columns of 8, each with both halves of the step */
            sl_load_transposed(
                b, &right[sl_tile_pack<WIDTH>(16 * step + lane % 16, first_pack + n + lane / 16)]);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                sl_mma<TYPE>(sums[m][n], weights[m][step], b[0], b[1]);
                sl_mma<TYPE>(sums[m][n + 1], weights[m][step], b[2], b[3]);
            }
        }
}

/* Element i of a fragment: its row and column in the 16 x 8 of its tile. */
static __device__ __forceinline__ uint32_t sl_tile_row(int i)
{
    return threadIdx.x % SL_WARP / 4 + i / 2 * 8;
}

static __device__ __forceinline__ uint32_t sl_tile_column(int i)
{
    return threadIdx.x % 4 * 2 + i % 2;
}

/* Scores of keys later than their query become -inf. `causal_offset`: the first key's position
 * less the warp's first query's. */
template <int ROW_TILES, int COLUMN_TILES>
static __device__ __forceinline__ void sl_tile_mask_rows(
    float (&scores)[ROW_TILES][COLUMN_TILES][4], int causal_offset)
{
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMN_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (causal_offset + 8 * n + (int)sl_tile_column(i) > 16 * m + (int)sl_tile_row(i))
                    scores[m][n][i] = -INFINITY;
}

/* ---- results ---- */

/* Some rows of a result, as sl_tile_rows. */
typedef struct sl_tile_result {
    uint16_t *first;
    uint64_t stride;
    uint32_t count, width;
} sl_tile_result;

/* Rounds sums * scale and stores them as rows of `result` and its columns from first_pack on. They
 * pass through the warp's own rows of a tile, first_row on, which nobody else reads any more: so
 * the stores are 16 bytes wide. */
template <sl_type TYPE, int WIDTH, int COLUMNS, int ROW_TILES>
static __device__ __forceinline__ void sl_tile_store(const sl_tile_result &result,
                                                     const float (&sums)[ROW_TILES][COLUMNS / 8][4],
                                                     const float (&scale)[ROW_TILES][2],
                                                     uint4 *tile, uint32_t first_row,
                                                     uint32_t first_pack)
{
    enum { PACKS = COLUMNS / 8 };
    const uint32_t lane = threadIdx.x % SL_WARP;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < PACKS; n++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t row = first_row + 16 * m + sl_tile_row(2 * half);
                uint32_t *pairs = (uint32_t *)&tile[sl_tile_pack<WIDTH>(row, first_pack + n)];
                pairs[lane % 4] = sl_round_pair<TYPE>(sums[m][n][2 * half] * scale[m][half],
                                                      sums[m][n][2 * half + 1] * scale[m][half]);
            }
    __syncwarp();
#pragma unroll
    for (uint32_t i = lane; i < 16 * ROW_TILES * PACKS; i += SL_WARP) {
        const uint32_t row = first_row + i / PACKS, pack = first_pack + i % PACKS;
        if (row < result.count && pack * 8 < result.width)
            *(uint4 *)(result.first + row * result.stride + pack * 8) =
                tile[sl_tile_pack<WIDTH>(row, pack)];
    }
}

/* ---- launches ---- */

/* Calls run<TYPE, WIDTH>(...) for a half-precision type and a head's width; an sl_status. */
#define SL_ATTENTION_BY_WIDTH(type, width, run, ...)                                               \
    ((type) == SL_TYPE_BF16 ? ((width) <= 64    ? run<SL_TYPE_BF16, 64>(__VA_ARGS__)               \
                               : (width) <= 128 ? run<SL_TYPE_BF16, 128>(__VA_ARGS__)              \
                                                : run<SL_TYPE_BF16, 256>(__VA_ARGS__))             \
                            : ((width) <= 64    ? run<SL_TYPE_FP16, 64>(__VA_ARGS__)               \
                               : (width) <= 128 ? run<SL_TYPE_FP16, 128>(__VA_ARGS__)              \
                                                : run<SL_TYPE_FP16, 256>(__VA_ARGS__)))

/* Lets a kernel be launched with that much dynamic shared memory, on the device that is open. */
template <typename kernel>
static inline sl_status sl_attention_allow_shared(kernel *function, int bytes)
{
    const cudaError_t error =
        cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess)
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA refuses %d bytes of shared memory to attention: %s", bytes,
                cudaGetErrorString(error));
    return SL_OK;
}

#endif
