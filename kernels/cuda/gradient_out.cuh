/* Where a kernel leaves the gradient of a parameter, mode GRADIENT of op_list.h. */
#ifndef SL_KERNELS_CUDA_GRADIENT_OUT_CUH
#define SL_KERNELS_CUDA_GRADIENT_OUT_CUH

#include "typed.cuh"

typedef struct sl_gradient_out {
    void *to;
    sl_type type; /* fp32 where sums are added to it */
    bool add;
} sl_gradient_out;

static inline sl_gradient_out sl_gradient_out_of(const sl_kernel_call *call, void *to)
{
    return {to, (sl_type)call->attrs->grad_type, call->attrs->adds_gradient != 0};
}

static __device__ __forceinline__ void sl_store_gradient(const sl_gradient_out &gradient,
                                                         uint64_t index, float sum)
{
    if (gradient.add)
        ((float *)gradient.to)[index] += sum;
    else if (gradient.type == SL_TYPE_FP32)
        sl_store<SL_TYPE_FP32>(gradient.to, index, sum);
    else if (gradient.type == SL_TYPE_BF16)
        sl_store<SL_TYPE_BF16>(gradient.to, index, sum);
    else
        sl_store<SL_TYPE_FP16>(gradient.to, index, sum);
}

#endif
