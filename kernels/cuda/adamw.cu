/* ADAMW: one chunk, whole blocks, one pass; the bits of kernels/cpu/simd/adamw.c. Every
 * operation is rounded once, in the order written; fused ones are written fmaf (-fmad=false). A
 * block of threads does one block of the chunk, so its decay flag is read once.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                             sm_80                sm_90
 *   adamw<bf16, bf16>     62    315    281     62    341    281
 *   adamw<bf16, fp32>     61    321    297     62    347    297
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

/* Four elements side by side: sixteen bytes in fp32, so that those of a warp are one piece of
 * memory in any type. */
enum { QUAD = 4 };

template <sl_type TYPE>
static __device__ __forceinline__ void load_quad(const void *from, uint64_t first, float *out)
{
    if constexpr (TYPE == SL_TYPE_FP32) {
        const sl_pack<TYPE> pack = sl_load_pack<TYPE>(from, first);
#pragma unroll
        for (int i = 0; i < QUAD; i++)
            out[i] = pack.value[i];
    } else {
        const uint2 raw = *(const uint2 *)((const uint16_t *)from + first);
        const uint32_t word[2] = {raw.x, raw.y};
#pragma unroll
        for (int i = 0; i < QUAD; i++)
            out[i] = sl_widen<TYPE>((uint16_t)(word[i / 2] >> (i % 2 * 16)));
    }
}

template <sl_type TYPE>
static __device__ __forceinline__ void store_quad(void *to, uint64_t first, const float *values)
{
    if constexpr (TYPE == SL_TYPE_FP32) {
        *(float4 *)((float *)to + first) = make_float4(values[0], values[1], values[2], values[3]);
    } else {
        uint32_t word[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < QUAD; i++)
            word[i / 2] |= (uint32_t)sl_round<TYPE>(values[i]) << (i % 2 * 16);
        *(uint2 *)((uint16_t *)to + first) = make_uint2(word[0], word[1]);
    }
}

/* Gradients in fp32 are rounded to the compute type first. */
template <sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void load_gradient(const void *gradient, uint64_t first,
                                                     float *out)
{
    load_quad<GRADIENT>(gradient, first, out);
    if constexpr (GRADIENT != TYPE) {
#pragma unroll
        for (int i = 0; i < QUAD; i++)
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

/* Quads of a thread's pass, a block of threads apart: so many bytes are on their way. */
template <sl_type TYPE> struct quads {
    enum { COUNT = TYPE == SL_TYPE_FP32 ? 1 : 2, STEP = THREADS * QUAD };
};

template <sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_quads(const update_args &a, float clip_scale,
                                                    float decay, uint64_t first)
{
    enum { COUNT = quads<TYPE>::COUNT, STEP = quads<TYPE>::STEP };
    float gradient[COUNT][QUAD], moment1[COUNT][QUAD], moment2[COUNT][QUAD], weights[COUNT][QUAD];
#pragma unroll
    for (int q = 0; q < COUNT; q++) {
        load_gradient<TYPE, GRADIENT>(a.gradient, first + q * STEP, gradient[q]);
        load_quad<SL_TYPE_FP32>(a.moment1, first + q * STEP, moment1[q]);
        load_quad<SL_TYPE_FP32>(a.moment2, first + q * STEP, moment2[q]);
        load_quad<SL_TYPE_FP32>(a.weights, first + q * STEP, weights[q]);
    }
#pragma unroll
    for (int i = 0; i < COUNT * QUAD; i++)
        update_element(a, decay, gradient[i / QUAD][i % QUAD] * clip_scale,
                       &moment1[i / QUAD][i % QUAD], &moment2[i / QUAD][i % QUAD],
                       &weights[i / QUAD][i % QUAD]);
#pragma unroll
    for (int q = 0; q < COUNT; q++) {
        store_quad<SL_TYPE_FP32>(a.moment1, first + q * STEP, moment1[q]);
        store_quad<SL_TYPE_FP32>(a.moment2, first + q * STEP, moment2[q]);
        store_quad<SL_TYPE_FP32>(a.weights, first + q * STEP, weights[q]);
        if constexpr (TYPE != SL_TYPE_FP32)
            store_quad<TYPE>(a.param, first + q * STEP, weights[q]);
    }
}

/* What a skipped step still owes: the parameters are made from their master copy. */
template <sl_type TYPE>
static __device__ __forceinline__ void round_quads(const update_args &a, uint64_t first)
{
    enum { COUNT = quads<TYPE>::COUNT, STEP = quads<TYPE>::STEP };
    float weights[COUNT][QUAD];
#pragma unroll
    for (int q = 0; q < COUNT; q++)
        load_quad<SL_TYPE_FP32>(a.weights, first + q * STEP, weights[q]);
#pragma unroll
    for (int q = 0; q < COUNT; q++)
        store_quad<TYPE>(a.param, first + q * STEP, weights[q]);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) adamw(const update_args a)
{
    enum { PASS = quads<TYPE>::COUNT * quads<TYPE>::STEP };
    const bool skips = a.control->skip != 0;
    const float clip_scale = a.control->clip_scale;
    const float decay = a.decay_flags[blockIdx.x] ? a.decay : 1.0f;
    if (skips && TYPE == SL_TYPE_FP32)
        return;
#pragma unroll
    for (int i = 0; i < SL_BLOCK_ELEMENTS; i += PASS) {
        const uint64_t first = (uint64_t)blockIdx.x * SL_BLOCK_ELEMENTS + i + threadIdx.x * QUAD;
        if (skips)
            round_quads<TYPE>(a, first);
        else
            update_quads<TYPE, GRADIENT>(a, clip_scale, decay, first);
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
