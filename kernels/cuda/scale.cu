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

/* All files of this room are compiled for the same architectures: one kernel tells for all. */
extern "C" sl_status sl_cuda_image(sl_kernel_image *out_image)
{
    static const int built[] = {__CUDA_ARCH_LIST__}; /* of nvcc: 800, 900 */
    int index = 0, major = 0, minor = 0;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, scale_elements<SL_TYPE_FP32>);
    if (error == cudaSuccess)
        error = cudaGetDevice(&index);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (error != cudaSuccess)
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA does not say which code it has loaded: %s",
                cudaGetErrorString(error));
    *out_image = {(uint32_t)(10 * major + minor), (uint32_t)attributes.binaryVersion, false};
    for (size_t i = 0; i < sizeof built / sizeof built[0]; i++)
        out_image->is_built |= built[i] == 10 * attributes.binaryVersion;
    return SL_OK;
}

extern "C" sl_status sl_cuda_scale(const sl_kernel_call *call)
{
    return SL_BY_TYPE(call->attrs->type, launch, call);
}
