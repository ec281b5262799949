/* Layer normalisation over rows (Ba et al. 2016). A row is read once and stays in registers, so the
 * variance is taken in a second pass over it and does not cancel. Up to NARROW wide, a warp has a
 * row to itself and meets no barrier; up to WIDEST, a block of 256 has it. Any other width (rows
 * that are no multiple of sixteen bytes, or wider) is walked three times, out of the caches.
 */
#include "reduce.cuh"
#include "typed.cuh"

enum { THREADS = 256, WARP_BLOCK = 128 };

#define EPSILON 1e-5f

typedef struct norm_rows {
    const void *x, *gamma, *beta;
    void *y;
    float *stats; /* [row_count, 2] */
    uint64_t row_count, width;
} norm_rows;

/* Of the threads that share a row. */
template <int TEAM> static __device__ __forceinline__ uint32_t find_member(void)
{
    return threadIdx.x % TEAM;
}

template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ float sum_packs(const sl_pack<TYPE> (&x)[PACKS], uint32_t packs)
{
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + find_member<TEAM>() < packs)
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
                sum += x[p].value[i];
    return sum;
}

/* The sum of squared distances from the mean, which is taken off for good. */
template <sl_type TYPE, int TEAM, int PACKS>
static __device__ __forceinline__ float centre_packs(sl_pack<TYPE> (&x)[PACKS], uint32_t packs,
                                                     float mean)
{
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + find_member<TEAM>() < packs)
#pragma unroll
            for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
                x[p].value[i] -= mean;
                sum = fmaf(x[p].value[i], x[p].value[i], sum);
            }
    return sum;
}

/* Moves the minimum, and reads gamma and beta again for every row, out of the caches. So few blocks
 * a multiprocessor keep bytes enough on their way, and a row in registers. */
template <sl_type TYPE, int TEAM, int PACKS>
static __global__ void __launch_bounds__(TEAM == SL_WARP ? WARP_BLOCK : TEAM,
                                         TEAM == SL_WARP ? 4 : 2) normalise_rows(norm_rows rows)
{
    __shared__ float scratch[2][TEAM / SL_WARP];
    const int COUNT = sl_pack<TYPE>::COUNT;
    const uint32_t member = find_member<TEAM>(), packs = (uint32_t)rows.width / COUNT;
    const uint64_t row = (uint64_t)blockIdx.x * (blockDim.x / TEAM) + threadIdx.x / TEAM;
    if (row >= rows.row_count) /* whole warps */
        return;
    sl_pack<TYPE> x[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs)
            x[p] = sl_load_pack<TYPE>(rows.x, row * rows.width + (p * TEAM + member) * COUNT);
    const float sum = sl_team_sum<TEAM>(sum_packs<TYPE, TEAM>(x, packs), scratch[0]);
    const float mean = sum / (float)rows.width;
    const float squares = sl_team_sum<TEAM>(centre_packs<TYPE, TEAM>(x, packs, mean), scratch[1]);
    const float inverse = 1.0f / sqrtf(squares / (float)rows.width + EPSILON);
#pragma unroll
    for (int p = 0; p < PACKS; p++)
        if (p * TEAM + member < packs) {
            const uint32_t column = (p * TEAM + member) * COUNT;
            const sl_pack<TYPE> gamma = sl_load_pack<TYPE>(rows.gamma, column);
            const sl_pack<TYPE> beta = sl_load_pack<TYPE>(rows.beta, column);
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                x[p].value[i] = fmaf(x[p].value[i] * inverse, gamma.value[i], beta.value[i]);
            sl_store_pack<TYPE>(rows.y, row * rows.width + column, x[p]);
        }
    if (member == 0) {
        rows.stats[2 * row] = mean;
        rows.stats[2 * row + 1] = inverse;
    }
}

/* Any width. */
template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS) normalise_any_rows(norm_rows rows)
{
    __shared__ float scratch[2][THREADS / SL_WARP];
    const uint64_t row = blockIdx.x, first = row * rows.width;
    float sum = 0.0f, squares = 0.0f;
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS)
        sum += sl_load<TYPE>(rows.x, first + i);
    const float mean = sl_block_sum<THREADS>(sum, scratch[0]) / (float)rows.width;
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS) {
        const float distance = sl_load<TYPE>(rows.x, first + i) - mean;
        squares = fmaf(distance, distance, squares);
    }
    squares = sl_block_sum<THREADS>(squares, scratch[1]);
    const float inverse = 1.0f / sqrtf(squares / (float)rows.width + EPSILON);
    for (uint64_t i = threadIdx.x; i < rows.width; i += THREADS) {
        const float normal = (sl_load<TYPE>(rows.x, first + i) - mean) * inverse;
        sl_store<TYPE>(rows.y, first + i,
                       fmaf(normal, sl_load<TYPE>(rows.gamma, i), sl_load<TYPE>(rows.beta, i)));
    }
    if (threadIdx.x == 0) {
        rows.stats[2 * row] = mean;
        rows.stats[2 * row + 1] = inverse;
    }
}

/* The kernel whose threads hold a row of up to TEAM * VALUES. */
template <sl_type TYPE, int TEAM, int VALUES>
static sl_status launch_normalise(const sl_kernel_call *call, const norm_rows *all)
{
    const norm_rows rows = *all;
    const uint32_t block = TEAM == SL_WARP ? WARP_BLOCK : TEAM, rows_a_block = block / TEAM;
    const uint64_t grid = sl_bits_divide_up(rows.row_count, rows_a_block);
    return SL_LAUNCH(call, (uint32_t)grid, block, 0,
                     (normalise_rows<TYPE, TEAM, VALUES / sl_pack<TYPE>::COUNT>), rows);
}

template <sl_type TYPE> static sl_status normalise(const sl_kernel_call *call, const norm_rows *all)
{
    const norm_rows rows = *all;
    if (rows.width % sl_pack<TYPE>::COUNT == 0) {
        if (rows.width <= SL_WARP * 32)
            return launch_normalise<TYPE, SL_WARP, 32>(call, all);
        if (rows.width <= SL_WARP * 64)
            return launch_normalise<TYPE, SL_WARP, 64>(call, all);
        if (rows.width <= THREADS * 16)
            return launch_normalise<TYPE, THREADS, 16>(call, all);
        if (rows.width <= THREADS * 48)
            return launch_normalise<TYPE, THREADS, 48>(call, all);
    }
    return SL_LAUNCH(call, (uint32_t)rows.row_count, THREADS, 0, normalise_any_rows<TYPE>, rows);
}

extern "C" sl_status sl_cuda_layernorm(const sl_kernel_call *call)
{
    const norm_rows rows = {call->operand[0], call->operand[1],          call->operand[2],
                            call->operand[3], (float *)call->operand[4], call->attrs->row_count,
                            call->attrs->in};
    SL_TRY(sl_launch_covers(rows.row_count, "layernorm"));
    return SL_BY_TYPE(call->attrs->type, normalise, call, &rows);
}
