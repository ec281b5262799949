/* ADAMW: one chunk, whole blocks, one pass; the bits of kernels/cpu/simd/adamw.c. Every
 * operation is rounded once, in the order written; fused ones are written fmaf (-fmad=false). A
 * block of threads does one block of the chunk, so its decay flag is read once.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                             sm_80                sm_90
 *   adamw<bf16, bf16>     61    312    281     62    338    281
 *   adamw<bf16, fp32>     61    319    297     62    345    297
 */
#include <stdbool.h>

#include "launch.cuh"
#include "typed.cuh"

enum { THREADS = 256 };

typedef struct update_args {
    const sl_step_control *control;
    const void *gradient;
    float *moment1, *moment2;
    float *weights;             /* what is updated: parameters in fp32, or their master copy */
    void *param;                /* in half precision the parameters, made from it */
    const uint8_t *decay_flags; /* one a block */
    float decay;                /* 1 - lr * weight decay */
    float beta1, beta2, rest1, rest2;
    float step;         /* lr / (1 - beta1^t) */
    float inverse_root; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
} update_args;

/* COUNT floats, a multiple of 4. */
template <int COUNT>
static __device__ __forceinline__ void load_floats(const float *from, uint64_t first, float *out)
{
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        const sl_pack<SL_TYPE_FP32> part = sl_load_pack<SL_TYPE_FP32>(from, first + i);
#pragma unroll
        for (int j = 0; j < 4; j++)
            out[i + j] = part.value[j];
    }
}

template <int COUNT>
static __device__ __forceinline__ void store_floats(float *to, uint64_t first, const float *values)
{
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        sl_pack<SL_TYPE_FP32> part;
#pragma unroll
        for (int j = 0; j < 4; j++)
            part.value[j] = values[i + j];
        sl_store_pack<SL_TYPE_FP32>(to, first + i, part);
    }
}

/* Gradients in fp32 are rounded to the compute type first. */
template <sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void load_gradient(const void *gradient, uint64_t first,
                                                     float *out)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    if constexpr (GRADIENT == TYPE) {
        const sl_pack<TYPE> pack = sl_load_pack<TYPE>(gradient, first);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            out[i] = pack.value[i];
    } else {
        load_floats<COUNT>((const float *)gradient, first, out);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            out[i] = sl_widen<TYPE>(sl_round<TYPE>(out[i]));
    }
}

/* Decoupled AdamW (Loshchilov and Hutter 2019), in the arrangement of PyTorch's. */
static __device__ __forceinline__ void update_element(const update_args &a, float decay, float g,
                                                      float *moment1, float *moment2, float *weight)
{
    const float m = fmaf(a.beta1, *moment1, a.rest1 * g);
    const float v = fmaf(a.beta2, *moment2, a.rest2 * g * g);
    const float quotient = __fdiv_rn(m, fmaf(__fsqrt_rn(v), a.inverse_root, a.epsilon));
    *moment1 = m;
    *moment2 = v;
    *weight = fmaf(-a.step, quotient, *weight * decay);
}

template <sl_type TYPE>
static __device__ __forceinline__ void store_param(void *param, uint64_t first,
                                                   const float *weights)
{
    if constexpr (TYPE != SL_TYPE_FP32) {
        sl_pack<TYPE> pack;
#pragma unroll
        for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
            pack.value[i] = weights[i];
        sl_store_pack<TYPE>(param, first, pack);
    }
}

template <sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_pack(const update_args &a, float clip_scale,
                                                   float decay, uint64_t first)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    float gradient[COUNT], moment1[COUNT], moment2[COUNT], weights[COUNT];
    load_gradient<TYPE, GRADIENT>(a.gradient, first, gradient);
    load_floats<COUNT>(a.moment1, first, moment1);
    load_floats<COUNT>(a.moment2, first, moment2);
    load_floats<COUNT>(a.weights, first, weights);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        update_element(a, decay, gradient[i] * clip_scale, &moment1[i], &moment2[i], &weights[i]);
    store_floats<COUNT>(a.moment1, first, moment1);
    store_floats<COUNT>(a.moment2, first, moment2);
    store_floats<COUNT>(a.weights, first, weights);
    store_param<TYPE>(a.param, first, weights);
}

/* What a skipped step still owes: the parameters are made from their master copy. */
template <sl_type TYPE>
static __device__ __forceinline__ void round_pack(const update_args &a, uint64_t first)
{
    float weights[sl_pack<TYPE>::COUNT];
    load_floats<sl_pack<TYPE>::COUNT>(a.weights, first, weights);
    store_param<TYPE>(a.param, first, weights);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) adamw(const update_args a)
{
    enum { COUNT = sl_pack<TYPE>::COUNT };
    const bool skips = a.control->skip != 0;
    const float clip_scale = a.control->clip_scale;
    const float decay = a.decay_flags[blockIdx.x] ? a.decay : 1.0f;
    if (skips && TYPE == SL_TYPE_FP32)
        return;
#pragma unroll
    for (int i = 0; i < SL_BLOCK_ELEMENTS; i += THREADS * COUNT) {
        const uint64_t first = (uint64_t)blockIdx.x * SL_BLOCK_ELEMENTS + i + threadIdx.x * COUNT;
        if (skips)
            round_pack<TYPE>(a, first);
        else
            update_pack<TYPE, GRADIENT>(a, clip_scale, decay, first);
    }
}

static sl_status check_update(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0 ||
        attrs->element_count / SL_BLOCK_ELEMENTS > INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "an update of %llu elements is not whole blocks of a grid",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    if (attrs->type != SL_TYPE_FP32 && call->operand[5] == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "an update in half precision without a master copy");
    return SL_OK;
}

template <sl_type TYPE>
static sl_status launch_adamw(const sl_kernel_call *call, const update_args &a)
{
    const uint32_t blocks = (uint32_t)(call->attrs->element_count / SL_BLOCK_ELEMENTS);
    if (call->attrs->grad_type == SL_TYPE_FP32)
        return SL_LAUNCH(call, blocks, THREADS, 0, (adamw<TYPE, SL_TYPE_FP32>), a);
    return SL_LAUNCH(call, blocks, THREADS, 0, (adamw<TYPE, TYPE>), a);
}

extern "C" sl_status sl_cuda_adamw(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_step_scalars *scalars = &call->scalars;
    SL_TRY(check_update(call));
    if (attrs->element_count == 0)
        return SL_OK;
    const bool half = attrs->type != SL_TYPE_FP32;
    update_args a;
    a.control = (const sl_step_control *)call->operand[0];
    a.gradient = call->operand[1];
    a.moment1 = (float *)call->operand[2];
    a.moment2 = (float *)call->operand[3];
    a.weights = (float *)call->operand[half ? 5 : 4];
    a.param = half ? call->operand[4] : NULL;
    a.decay_flags = call->block_flags + attrs->first_block;
    a.decay = 1.0f - scalars->learning_rate * scalars->weight_decay;
    a.beta1 = scalars->beta1;
    a.beta2 = scalars->beta2;
    a.rest1 = 1.0f - scalars->beta1;
    a.rest2 = 1.0f - scalars->beta2;
    a.step = scalars->learning_rate / scalars->bias1;
    a.inverse_root = 1.0f / scalars->bias2_root;
    a.epsilon = scalars->epsilon;
    return SL_BY_TYPE(attrs->type, launch_adamw, call, a);
}
