/* Sums over the rows of a matrix: the gradient of a bias.
 *
 * cuBLASLt could compute it with the product (CUBLASLT_EPILOGUE_BGRADA or B), but only in the type
 * of the product's result and without adding to an fp32 sum; and the order of its additions is not
 * documented.
 *
 * Rows are cut into tiles, at most 64, by their number alone. A block adds one tile's rows over a
 * range of columns in 8 interleaved lanes; the lanes, and then the tiles, are added in order. So
 * the order of the additions of a column does not depend on widths, packs or the machine, nor on
 * whether one kernel or two add it.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                      sm_80                sm_90
 *   column_sums_add                22     23     16     28     23     16
 *   column_sums_tiles<bf16, 1>     32    152     20     32    159     20
 *   column_sums_tiles<bf16, 8>     40     83     64     40     83     64
 *   column_sums_whole<bf16>        32    107     64     52    106     64
 */
#include "gradient_out.cuh"

enum { LANES = 8, THREADS = LANES * SL_WARP, TILES_MAX = 64, ROWS_MIN = 32 };

/* Of sums by one kernel: packs of a block's columns; the least bytes of a row, which are 64 blocks,
 * and the most rows of one block. */
enum {
    PACKS_WHOLE = SL_WARP / LANES,
    THREADS_WHOLE = 512,
    ROW_BYTES_WHOLE = 64 * PACKS_WHOLE * 16,
    ROWS_WHOLE = 16384
};

static uint64_t rows_of_tile(uint64_t row_count)
{
    const uint64_t rows = (row_count + TILES_MAX - 1) / TILES_MAX;
    return rows > ROWS_MIN ? rows : (uint64_t)ROWS_MIN;
}

static uint64_t count_tiles(uint64_t row_count)
{
    return (row_count + rows_of_tile(row_count) - 1) / rows_of_tile(row_count);
}

extern "C" uint64_t sl_cuda_column_sums_workspace_bytes(uint64_t row_count, uint64_t width)
{
    return count_tiles(row_count) * width * sizeof(float);
}

typedef struct sums_job {
    const void *x;
    uint64_t row_count, tile_rows, width;
    float *partials; /* [tiles, width] */
} sums_job;

/* Adds rows `first`, `first` + 8, ... of the tile for COUNT columns from `column`. */
template <sl_type TYPE, int COUNT>
static __device__ __forceinline__ void add_rows(const sums_job &job, uint64_t first, uint64_t end,
                                                uint64_t column, float *sums)
{
    for (uint64_t row = first; row < end; row += LANES) {
        if constexpr (COUNT == 1) {
            sums[0] += sl_load<TYPE>(job.x, row * job.width + column);
        } else {
            const sl_pack<TYPE> pack = sl_load_pack<TYPE>(job.x, row * job.width + column);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                sums[i] += pack.value[i];
        }
    }
}

/* Block (columns, tile); COUNT columns a thread, 1 or those of a pack. */
template <sl_type TYPE, int COUNT>
static __global__ void __launch_bounds__(THREADS) column_sums_tiles(const sums_job job)
{
    enum { COLUMNS = SL_WARP * COUNT };
    /* Padded so that neither the columns of a warp nor those of a thread share a bank. */
    __shared__ float lanes[LANES][COUNT][SL_WARP + (COUNT > 1 ? SL_WARP / COUNT : 0)];
    const uint32_t lane = threadIdx.x / SL_WARP, place = threadIdx.x % SL_WARP * COUNT;
    const uint64_t first_column = (uint64_t)blockIdx.x * COLUMNS;
    const uint64_t first = blockIdx.y * job.tile_rows;
    const uint64_t left = job.row_count - first;
    const uint64_t end = first + (left < job.tile_rows ? left : job.tile_rows);
    float sums[COUNT] = {};
    if (first_column + place < job.width)
        add_rows<TYPE, COUNT>(job, first + lane, end, first_column + place, sums);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        lanes[lane][i][threadIdx.x % SL_WARP] = sums[i];
    __syncthreads();
    if (threadIdx.x >= COLUMNS || first_column + threadIdx.x >= job.width)
        return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < LANES; i++)
        sum += lanes[i][threadIdx.x % COUNT][threadIdx.x / COUNT];
    job.partials[blockIdx.y * job.width + first_column + threadIdx.x] = sum;
}

static __global__ void __launch_bounds__(THREADS)
    column_sums_add(const float *partials, uint64_t tiles, uint64_t width, sl_gradient_out to)
{
    const uint64_t column = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= width)
        return;
    float sum = 0.0f;
    for (uint64_t tile = 0; tile < tiles; tile++)
        sum += partials[tile * width + column];
    sl_store_gradient(to, column, sum);
}

/* The same sums by one kernel, where there are blocks enough: one has PACKS_WHOLE packs of columns
 * and all rows. Each warp adds the rows of a tile in 8 lanes, then those of another. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS_WHOLE)
    column_sums_whole(const sums_job job, sl_gradient_out to)
{
    enum { COUNT = sl_pack<TYPE>::COUNT, COLUMNS = PACKS_WHOLE * COUNT };
    __shared__ float tile_sums[TILES_MAX][COLUMNS];
    const uint32_t warp = threadIdx.x / SL_WARP, pack = threadIdx.x % PACKS_WHOLE;
    const uint32_t lane = threadIdx.x % SL_WARP / PACKS_WHOLE;
    const uint64_t first_column = (uint64_t)blockIdx.x * COLUMNS,
                   column = first_column + pack * COUNT;
    const uint32_t tiles = (uint32_t)((job.row_count + job.tile_rows - 1) / job.tile_rows);
    for (uint32_t tile = warp; tile < tiles; tile += THREADS_WHOLE / SL_WARP) {
        const uint64_t first = tile * job.tile_rows, left = job.row_count - first;
        float sums[COUNT] = {};
        if (column < job.width)
            add_rows<TYPE, COUNT>(job, first + lane,
                                  first + (left < job.tile_rows ? left : job.tile_rows), column,
                                  sums);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float sum = 0.0f;
#pragma unroll
            for (int other = 0; other < LANES; other++)
                sum += __shfl_sync(SL_EVERY_LANE, sums[i], other * PACKS_WHOLE + pack);
            if (lane == 0)
                tile_sums[tile][pack * COUNT + i] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x >= COLUMNS || first_column + threadIdx.x >= job.width)
        return;
    float sum = 0.0f;
    for (uint32_t tile = 0; tile < tiles; tile++)
        sum += tile_sums[tile][threadIdx.x];
    sl_store_gradient(to, first_column + threadIdx.x, sum);
}

template <sl_type TYPE>
static sl_status launch_whole(const sl_kernel_call *call, const sums_job &job,
                              const sl_gradient_out &to)
{
    const uint64_t columns = PACKS_WHOLE * sl_pack<TYPE>::COUNT;
    return SL_LAUNCH(call, (uint32_t)sl_bits_divide_up(job.width, columns), THREADS_WHOLE, 0,
                     column_sums_whole<TYPE>, job, to);
}

template <sl_type TYPE>
static sl_status launch_tiles(const sl_kernel_call *call, const sums_job &job, uint32_t tiles)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    const uint64_t pack_columns = SL_WARP * COUNT;
    if ((uintptr_t)job.x % 16 == 0 && job.width % COUNT == 0)
        return SL_LAUNCH(call,
                         dim3((uint32_t)((job.width + pack_columns - 1) / pack_columns), tiles),
                         THREADS, 0, (column_sums_tiles<TYPE, COUNT>), job);
    return SL_LAUNCH(call, dim3((uint32_t)((job.width + SL_WARP - 1) / SL_WARP), tiles), THREADS, 0,
                     (column_sums_tiles<TYPE, 1>), job);
}

extern "C" sl_status sl_cuda_column_sums_run(const sl_kernel_call *call, const void *x,
                                             uint64_t row_count, uint64_t width, void *sums)
{
    const uint64_t tiles = count_tiles(row_count);
    sums_job job = {};
    job.x = x;
    job.row_count = row_count;
    job.tile_rows = rows_of_tile(row_count);
    job.width = width;
    job.partials = (float *)call->workspace;
    const uint64_t row_bytes = width * sl_type_bytes((sl_type)call->attrs->type);
    const sl_gradient_out to = sl_gradient_out_of(call, sums);
    if ((uintptr_t)x % 16 == 0 && row_bytes % 16 == 0 && row_bytes >= ROW_BYTES_WHOLE &&
        row_count <= ROWS_WHOLE)
        return SL_BY_TYPE(call->attrs->type, launch_whole, call, job, to);
    SL_TRY(SL_BY_TYPE(call->attrs->type, launch_tiles, call, job, (uint32_t)tiles));
    return SL_LAUNCH(call, (uint32_t)((width + THREADS - 1) / THREADS), THREADS, 0, column_sums_add,
                     (const float *)job.partials, tiles, width, to);
}
