/* y = x times a number. A thread does sixteen bytes; the last one does what is left, element by
 * element. The bits of kernels/cpu/elementwise.c. */
#include "launch.cuh"
#include "typed.cuh"

enum { THREADS = 256 };

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void multiply(const void *x, void *y, uint64_t i, float factor)
{
    sl_piece<TYPE, WIDE> piece = sl_load_piece<TYPE, WIDE>(x, i);
#pragma unroll
    for (int j = 0; j < sl_piece<TYPE, WIDE>::COUNT; j++)
        piece.value[j] *= factor;
    sl_store_piece<TYPE, WIDE>(y, i, piece);
}

template <sl_type TYPE>
static __global__ void __launch_bounds__(THREADS)
    scale_elements(const void *x, void *y, uint64_t count, float factor)
{
    const uint64_t thread = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const uint64_t first = thread * sl_pack<TYPE>::COUNT;
    if (first + sl_pack<TYPE>::COUNT <= count) {
        multiply<TYPE, true>(x, y, first, factor);
        return;
    }
#pragma unroll 1
    for (uint64_t i = first; i < count; i++)
        multiply<TYPE, false>(x, y, i, factor);
}

template <sl_type TYPE> static sl_status launch(const sl_kernel_call *call)
{
    const uint64_t count = call->attrs->element_count;
    const uint64_t blocks = sl_bits_divide_up(count, THREADS * sl_pack<TYPE>::COUNT);
    const void *x = call->operand[0];
    void *y = call->operand[1];
    const float factor = call->attrs->scale;
    if (count == 0)
        return SL_OK;
    SL_TRY(sl_launch_covers(blocks, "scale"));
    return SL_LAUNCH(call, (uint32_t)blocks, THREADS, 0, scale_elements<TYPE>, x, y, count, factor);
}

extern "C" sl_status sl_cuda_scale(const sl_kernel_call *call)
{
    return SL_BY_TYPE(call->attrs->type, launch, call);
}
