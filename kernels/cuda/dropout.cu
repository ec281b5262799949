/* The op DROPOUT. A thread does sixteen bytes of a row of the batch with one or two draws; a row
 * whose end or beginning is no multiple of that is done element by element.
 */
#include "typed.cuh"

extern "C" {
#include "kernels/dropout.h"
}

enum { THREADS = 256 };

typedef struct dropout_args {
    const void *x, *residual;
    void *y;
    uint64_t row_elements;
    uint32_t row_blocks; /* blocks of one row */
    bool in_packs;       /* every row begins at a multiple of sixteen bytes */
    sl_dropout dropout;
} dropout_args;

template <sl_type TYPE>
static __device__ __forceinline__ void draw_factors(const dropout_args &args, uint64_t row,
                                                    uint64_t first, sl_pack<TYPE> &factors)
{
#pragma unroll
    for (int i = 0; i < sl_pack<TYPE>::COUNT; i += SL_DROPOUT_WORDS) {
        uint32_t words[SL_DROPOUT_WORDS];
        sl_philox_draw(args.dropout.seed, args.dropout.stream + row, (first + i) / SL_DROPOUT_WORDS,
                       words);
#pragma unroll
        for (int w = 0; w < SL_DROPOUT_WORDS; w++)
            factors.value[i + w] =
                sl_dropout_factor(words[w], args.dropout.threshold, args.dropout.scale);
    }
}

template <sl_type TYPE>
static __device__ __forceinline__ void drop_pack(const dropout_args &args, uint64_t at,
                                                 const sl_pack<TYPE> &factors)
{
    sl_pack<TYPE> value = sl_load_pack<TYPE>(args.x, at), residual = {};
    if (args.residual)
        residual = sl_load_pack<TYPE>(args.residual, at);
#pragma unroll
    for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
        value.value[i] *= factors.value[i];
        if (args.residual)
            value.value[i] += residual.value[i];
    }
    sl_store_pack<TYPE>(args.y, at, value);
}

template <sl_type TYPE> static __global__ void __launch_bounds__(THREADS) dropout(dropout_args args)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    const uint32_t row = blockIdx.x / args.row_blocks, block = blockIdx.x % args.row_blocks;
    const uint64_t first = ((uint64_t)block * THREADS + threadIdx.x) * COUNT;
    const uint64_t at = row * args.row_elements + first;
    sl_pack<TYPE> factors;
    if (first >= args.row_elements)
        return;
    draw_factors<TYPE>(args, row, first, factors);
    if (args.in_packs) {
        drop_pack<TYPE>(args, at, factors);
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (first + i < args.row_elements) {
            float value = sl_load<TYPE>(args.x, at + i) * factors.value[i];
            if (args.residual)
                value += sl_load<TYPE>(args.residual, at + i);
            sl_store<TYPE>(args.y, at + i, value);
        }
}

template <sl_type TYPE> static sl_status launch(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t each = THREADS * sl_pack<TYPE>::COUNT;
    dropout_args args = {};
    args.x = call->operand[0];
    args.residual = call->operand[1];
    args.y = call->operand[2];
    args.row_elements = attrs->seq * attrs->in;
    const uint64_t row_blocks = (args.row_elements + each - 1) / each;
    SL_TRY(sl_launch_covers(row_blocks * attrs->batch, "dropout"));
    args.row_blocks = (uint32_t)row_blocks;
    args.in_packs = args.row_elements % sl_pack<TYPE>::COUNT == 0;
    args.dropout = sl_dropout_of(call);
    return SL_LAUNCH(call, (uint32_t)(row_blocks * attrs->batch), THREADS, 0, (dropout<TYPE>),
                     args);
}

extern "C" sl_status sl_cuda_dropout(const sl_kernel_call *call)
{
    return SL_BY_TYPE(call->attrs->type, launch, call);
}
