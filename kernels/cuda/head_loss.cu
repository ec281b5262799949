/* The loss of rows from their softmax statistics, in double. A block adds a fixed group of rows:
 * each thread every 256th row, and the threads' sums as a tree. With more groups than one, their
 * sums go to the workspace and one more block adds them. */
#include "head.h"

#include "launch.cuh"

enum { THREADS = 256 };

static const uint64_t GROUPS_MOST = 1024, GROUP_ROWS_LEAST = 1024;

static uint64_t count_group_rows(uint64_t row_count)
{
    const uint64_t rows = sl_bits_divide_up(row_count, GROUPS_MOST);
    return rows > GROUP_ROWS_LEAST ? rows : GROUP_ROWS_LEAST;
}

static uint64_t count_groups(uint64_t row_count)
{
    return sl_bits_divide_up(row_count, count_group_rows(row_count));
}

uint64_t sl_cuda_head_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind != SL_OP_HEAD_LOSS)
        return 0;
    return count_groups(attrs->row_count) * sizeof(double);
}

/* The first thread gets the sum of every thread's value. */
static __device__ double add_threads(double value)
{
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = value;
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[threadIdx.x];
}

/* -log p(target) of the rows of a group; added to *sums where that is the loss itself. */
static __global__ void __launch_bounds__(THREADS)
    add_rows(const float4 *stats, uint64_t row_count, uint64_t group_rows, double *sums,
             bool accumulate)
{
    const uint64_t first = blockIdx.x * group_rows;
    const uint64_t end = first + group_rows < row_count ? first + group_rows : row_count;
    double sum = 0.0;
    for (uint64_t row = first + threadIdx.x; row < end; row += THREADS) {
        const float4 s = stats[row];
        sum += log((double)s.y) + ((double)s.x - (double)s.z);
    }
    sum = add_threads(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = accumulate ? sums[blockIdx.x] + sum : sum;
}

static __global__ void __launch_bounds__(THREADS)
    add_groups(const double *sums, uint64_t group_count, double *loss, bool accumulate)
{
    double sum = 0.0;
    for (uint64_t group = threadIdx.x; group < group_count; group += THREADS)
        sum += sums[group];
    sum = add_threads(sum);
    if (threadIdx.x == 0)
        *loss = accumulate ? *loss + sum : sum;
}

extern "C" sl_status sl_cuda_head_loss(const sl_kernel_call *call)
{
    const float4 *stats = (const float4 *)call->operand[0];
    double *loss = (double *)call->operand[1], *sums = (double *)call->workspace;
    const uint64_t row_count = call->attrs->row_count;
    const uint64_t group_rows = count_group_rows(row_count), group_count = count_groups(row_count);
    const bool accumulate = call->attrs->adds_output != 0;
    if (group_count == 1)
        return SL_LAUNCH(call, 1, THREADS, 0, add_rows, stats, row_count, group_rows, loss,
                         accumulate);
    SL_TRY(SL_LAUNCH(call, (uint32_t)group_count, THREADS, 0, add_rows, stats, row_count,
                     group_rows, sums, false));
    return SL_LAUNCH(call, 1, THREADS, 0, add_groups, sums, group_count, loss, accumulate);
}
