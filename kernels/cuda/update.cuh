/* What the updates have in common, however states are stored: the arguments of a call, the rules
 * for one element, the loads and stores of fours, a step that is skipped. States in fp32 are in
 * update.cu, others in update_small.cu.
 */
#ifndef SL_KERNELS_CUDA_UPDATE_CUH
#define SL_KERNELS_CUDA_UPDATE_CUH

#include <stdbool.h>

#include "base/low_half.h"
#include "launch.cuh"
#include "typed.cuh"

extern "C" {
#include "kernels/rates.h"
}

enum { THREADS = 256, STATES_MOST = 2, BLOCK = SL_BLOCK_ELEMENTS };

typedef enum update_rule { ADAMW, SGD, MOMENTUM, LION, APPLY } update_rule;

/* Operands of every update: the control, the gradient, the rule's states, and behind them: */
typedef enum behind_states { PARAM, MASTER } behind_states;

typedef struct update_args {
    const sl_step_control *control;
    const void *gradient;
    void *state[STATES_MOST];     /* of the rule */
    float *weights;               /* what is updated: parameters in fp32, or their master copy */
    void *param;                  /* in half precision the parameters, made from it */
    uint16_t *low;                /* not NULL: low halves of what is updated, beside `param`, and
                                     there is no `weights` */
    const uint8_t *rate_of_block; /* into `rates` */
    float beta1, beta2, rest1, rest2;
    float inverse_root; /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
    float momentum;
    uint32_t is_nesterov;
    const uint64_t *keys; /* states in bf16: by which each block draws */
    uint64_t run_step;
    /* ADAMW: step is lr / (1 - beta1^t); ADAMW, LION: decay is 1 - lr * weight decay. */
    sl_block_rate rates[SL_RATES_MAX];
} update_args;

template <update_rule RULE> struct states {
    enum { COUNT = RULE == ADAMW ? 2 : RULE == SGD || RULE == APPLY ? 0 : 1 };
};

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
static __device__ __forceinline__ void update_by_adamw(const update_args &a, sl_block_rate rate,
                                                       float g, float *moment1, float *moment2,
                                                       float *weight)
{
    const float m = fmaf(a.beta1, *moment1, a.rest1 * g);
    const float v = fmaf(a.beta2, *moment2, a.rest2 * g * g);
    const float quotient = __fdiv_rn(m, fmaf(__fsqrt_rn(v), a.inverse_root, a.epsilon));
    *moment1 = m;
    *moment2 = v;
    *weight = fmaf(-rate.step, quotient, *weight * rate.decay);
}

static __device__ __forceinline__ void update_by_momentum(const update_args &a, sl_block_rate rate,
                                                          float g, float *sum, float *weight)
{
    const float decayed = fmaf(rate.decay, *weight, g);
    const float m = fmaf(a.momentum, *sum, decayed);
    *sum = m;
    *weight = fmaf(-rate.step, a.is_nesterov ? fmaf(a.momentum, m, decayed) : m, *weight);
}

/* Lion (Chen et al. 2023); the sign of zero is zero. */
static __device__ __forceinline__ void update_by_lion(const update_args &a, sl_block_rate rate,
                                                      float g, float *moment, float *weight)
{
    const float mean = fmaf(a.beta1, *moment, a.rest1 * g);
    const float sign = mean > 0.0f ? 1.0f : mean < 0.0f ? -1.0f : 0.0f;
    *moment = fmaf(a.beta2, *moment, a.rest2 * g);
    *weight = fmaf(-rate.step, sign, *weight * rate.decay);
}

template <update_rule RULE>
static __device__ __forceinline__ void update_element(const update_args &a, sl_block_rate rate,
                                                      float g, float *state1, float *state2,
                                                      float *weight)
{
    if constexpr (RULE == ADAMW)
        update_by_adamw(a, rate, g, state1, state2, weight);
    if constexpr (RULE == SGD)
        *weight = fmaf(-rate.step, fmaf(rate.decay, *weight, g), *weight);
    if constexpr (RULE == MOMENTUM)
        update_by_momentum(a, rate, g, state1, weight);
    if constexpr (RULE == LION)
        update_by_lion(a, rate, g, state1, weight);
    if constexpr (RULE == APPLY)
        *weight = fmaf(-rate.step, g, *weight * rate.decay);
}

/* Two halves of a number as one (base/low_half.h). */
static __device__ __forceinline__ void join_quad(const void *high, const uint16_t *low,
                                                 uint64_t first, float *out)
{
    const uint2 raw_high = *(const uint2 *)((const uint16_t *)high + first);
    const uint2 raw_low = *(const uint2 *)(low + first);
    const uint32_t highs[2] = {raw_high.x, raw_high.y}, lows[2] = {raw_low.x, raw_low.y};
#pragma unroll
    for (int i = 0; i < QUAD; i++)
        out[i] = __uint_as_float(sl_low_half_join(highs[i / 2] >> (i % 2 * 16) & 0xffffu,
                                                  lows[i / 2] >> (i % 2 * 16) & 0xffffu));
}

static __device__ __forceinline__ void split_quad(void *high, uint16_t *low, uint64_t first,
                                                  const float *values)
{
    uint32_t highs[2] = {0, 0}, lows[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < QUAD; i++) {
        const uint32_t kept = sl_low_half_keep(__float_as_uint(values[i]));
        highs[i / 2] |= sl_low_half_high(kept) << (i % 2 * 16);
        lows[i / 2] |= (kept & 0xffffu) << (i % 2 * 16);
    }
    *(uint2 *)((uint16_t *)high + first) = make_uint2(highs[0], highs[1]);
    *(uint2 *)(low + first) = make_uint2(lows[0], lows[1]);
}

/* True if what is updated is two halves. */
template <sl_type TYPE> static __device__ __forceinline__ bool has_low(const update_args &a)
{
    return TYPE == SL_TYPE_BF16 && a.low != NULL;
}

/* Quads of a thread's pass, a block of threads apart: so many bytes are on their way. */
template <sl_type TYPE> struct quads {
    enum { COUNT = TYPE == SL_TYPE_FP32 ? 1 : 2, STEP = THREADS * QUAD };
};

/* What a skipped step still owes: the parameters are made from their master copy in fp32. */
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

/* The same of a whole block. In fp32, and beside low halves, nothing is owed. */
template <sl_type TYPE> static __device__ __forceinline__ void skip_block(const update_args &a)
{
    enum { PASS = quads<TYPE>::COUNT * quads<TYPE>::STEP };
    if (has_low<TYPE>(a))
        return;
    if constexpr (TYPE != SL_TYPE_FP32) {
#pragma unroll
        for (int i = 0; i < BLOCK; i += PASS)
            round_quads<TYPE>(a, (uint64_t)blockIdx.x * BLOCK + i + threadIdx.x * QUAD);
    }
}

/* What is the same for all elements of a block. */
typedef struct block_pace {
    float clip_scale;
    sl_block_rate rate;
} block_pace;

template <update_rule RULE>
static __device__ __forceinline__ block_pace open_pace(const update_args &a)
{
    return {RULE == APPLY ? 1.0f : a.control->clip_scale, a.rates[a.rate_of_block[blockIdx.x]]};
}

/* Gradients and weights of the quads of a thread, STEP elements apart. */
template <sl_type TYPE, sl_type GRADIENT, int COUNT, int STEP>
static __device__ __forceinline__ void load_quads(const update_args &a, uint64_t first,
                                                  float gradient[COUNT][QUAD],
                                                  float weights[COUNT][QUAD])
{
#pragma unroll
    for (int q = 0; q < COUNT; q++)
        load_gradient<TYPE, GRADIENT>(a.gradient, first + q * STEP, gradient[q]);
    if (has_low<TYPE>(a)) {
#pragma unroll
        for (int q = 0; q < COUNT; q++)
            join_quad(a.param, a.low, first + q * STEP, weights[q]);
        return;
    }
#pragma unroll
    for (int q = 0; q < COUNT; q++)
        load_quad<SL_TYPE_FP32>(a.weights, first + q * STEP, weights[q]);
}

template <sl_type TYPE, int COUNT, int STEP>
static __device__ __forceinline__ void store_quads(const update_args &a, uint64_t first,
                                                   const float weights[COUNT][QUAD])
{
    if (has_low<TYPE>(a)) {
#pragma unroll
        for (int q = 0; q < COUNT; q++)
            split_quad(a.param, a.low, first + q * STEP, weights[q]);
        return;
    }
#pragma unroll
    for (int q = 0; q < COUNT; q++) {
        store_quad<SL_TYPE_FP32>(a.weights, first + q * STEP, weights[q]);
        if constexpr (TYPE != SL_TYPE_FP32)
            store_quad<TYPE>(a.param, first + q * STEP, weights[q]);
    }
}

template <update_rule RULE, int COUNT>
static __device__ __forceinline__ void update_elements(const update_args &a, const block_pace &pace,
                                                       const float gradient[COUNT][QUAD],
                                                       float state[STATES_MOST][COUNT][QUAD],
                                                       float weights[COUNT][QUAD])
{
#pragma unroll
    for (int i = 0; i < COUNT * QUAD; i++)
        update_element<RULE>(a, pace.rate, gradient[i / QUAD][i % QUAD] * pace.clip_scale,
                             &state[0][i / QUAD][i % QUAD], &state[1][i / QUAD][i % QUAD],
                             &weights[i / QUAD][i % QUAD]);
}

/* The kernel of a rule by the type of the stored gradient. */
#define LAUNCH_UPDATE(kernel)                                                                      \
    (call->attrs->grad_type == SL_TYPE_FP32                                                        \
         ? SL_LAUNCH(call, blocks, THREADS, 0, (kernel<TYPE, SL_TYPE_FP32>), a)                    \
         : SL_LAUNCH(call, blocks, THREADS, 0, (kernel<TYPE, TYPE>), a))

/* The update by states in bf16 or in 8 bits; `a` is filled in, and has a state. */
sl_status sl_cuda_update_small(const sl_kernel_call *call, const update_args &a, update_rule rule);

#endif
