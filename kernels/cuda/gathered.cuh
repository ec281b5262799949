/* Where a kernel leaves the gradient of a parameter, mode G of op_list.h. */
#ifndef SL_KERNELS_CUDA_GATHERED_CUH
#define SL_KERNELS_CUDA_GATHERED_CUH

#include "typed.cuh"

typedef struct sl_gathered {
    void *to;
    sl_type type; /* fp32 where sums are added to it */
    bool add;
} sl_gathered;

static inline sl_gathered sl_gathered_of(const sl_kernel_call *call, void *to)
{
    return {to, (sl_type)call->attrs->grad_type, call->attrs->gather != 0};
}

static __device__ __forceinline__ void sl_gather(const sl_gathered &gradient, uint64_t index,
                                                 float sum)
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
