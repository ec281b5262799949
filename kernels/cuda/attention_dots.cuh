/* dots [B, H, T]: the dot product of each row of y with its row of dy, per head. The weights of a
 * query sum to 1, so each weight's gradient is reduced by it: ds = p * (dp - dot). */
#ifndef SL_KERNELS_CUDA_ATTENTION_DOTS_CUH
#define SL_KERNELS_CUDA_ATTENTION_DOTS_CUH

#include "attention.cuh"

enum { SL_DOT_LANES = 8, SL_DOT_THREADS = 256, SL_DOT_ROWS = SL_DOT_THREADS / SL_DOT_LANES };

/* IN_PACKS: heads are known to be whole packs wide. Eight lanes a row, which lie in memory as
 * (batch, query, head) one after another. */
template <sl_type TYPE, bool IN_PACKS>
static __global__ void __launch_bounds__(SL_DOT_THREADS) attention_dots(sl_attention_args args)
{
    const uint32_t row_count = args.head_count * args.query_count;
    const uint32_t row = blockIdx.x * SL_DOT_ROWS + threadIdx.x / SL_DOT_LANES;
    const uint32_t lane = threadIdx.x % SL_DOT_LANES;
    const uint64_t at = (uint64_t)row * args.width;
    float sum = 0.0f;
    const bool in_packs = IN_PACKS || args.width % sl_pack<TYPE>::COUNT == 0;
    if (row < row_count && in_packs) {
        for (uint32_t i = lane * sl_pack<TYPE>::COUNT; i < args.width;
             i += SL_DOT_LANES * sl_pack<TYPE>::COUNT) {
            const sl_pack<TYPE> y = sl_load_pack<TYPE>(args.y, at + i);
            const sl_pack<TYPE> dy = sl_load_pack<TYPE>(args.dy, at + i);
#pragma unroll
            for (int j = 0; j < sl_pack<TYPE>::COUNT; j++)
                sum = fmaf(y.value[j], dy.value[j], sum);
        }
    } else if (row < row_count) {
        for (uint32_t i = lane; i < args.width; i += SL_DOT_LANES)
            sum = fmaf(sl_load<TYPE>(args.y, at + i), sl_load<TYPE>(args.dy, at + i), sum);
    }
#pragma unroll
    for (int distance = SL_DOT_LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(SL_EVERY_LANE, sum, distance);
    const uint32_t query = row / args.heads;
    const uint32_t head = query / args.query_count * args.heads + row % args.heads;
    if (row < row_count && lane == 0)
        args.dots[head * args.query_count + query % args.query_count] = sum;
}

template <sl_type TYPE, bool IN_PACKS>
static sl_status sl_attention_dots(const sl_kernel_call *call, const sl_attention_args *args)
{
    const uint64_t row_count = (uint64_t)args->head_count * args->query_count;
    const uint64_t blocks = row_count / SL_DOT_ROWS + (row_count % SL_DOT_ROWS != 0);
    const sl_attention_args copy = *args;
    if (row_count > INT32_MAX) /* the kernel counts them in 32 bits */
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu rows", (unsigned long long)row_count);
    return SL_LAUNCH(call, (uint32_t)blocks, SL_DOT_THREADS, 0, (attention_dots<TYPE, IN_PACKS>),
                     copy);
}

#endif
