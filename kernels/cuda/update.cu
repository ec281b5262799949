/* The updates of rules: one chunk, whole blocks, one pass; the bits of kernels/cpu/simd/update.c.
 * Every operation is rounded once, in the order written; fused ones are written fmaf (-fmad=false).
 * A block of threads does one block of the chunk, so its rate is read once.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                    sm_80                sm_90
 *   adamw<bf16, bf16>            50    318    233     48    345    233
 *   adamw<bf16, fp32>            56    321    249     56    349    249
 *   apply<bf16, bf16>            32     69    101     32     74    101
 *   apply<bf16, fp32>            32     77    117     32     82    117
 *   lion<bf16, bf16>             32    166    169     32    169    169
 *   lion<bf16, fp32>             32    172    185     32    181    185
 *   sgd<bf16, bf16>              32     83    105     32     84    105
 *   sgd<bf16, fp32>              32     91    121     32     92    121
 *   sgd_momentum<bf16, bf16>     34    116    169     34    119    169
 *   sgd_momentum<bf16, fp32>     34    122    185     32    132    185
 */
#include "update.cuh"

template <update_rule RULE, sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_quads(const update_args &a, const block_pace &pace,
                                                    uint64_t first)
{
    enum { COUNT = quads<TYPE>::COUNT, STEP = quads<TYPE>::STEP, STATES = states<RULE>::COUNT };
    float gradient[COUNT][QUAD], state[STATES_MOST][COUNT][QUAD], weights[COUNT][QUAD];
    load_quads<TYPE, GRADIENT, COUNT, STEP>(a, first, gradient, weights);
#pragma unroll
    for (int i = 0; i < STATES * COUNT; i++)
        load_quad<SL_TYPE_FP32>(a.state[i / COUNT], first + i % COUNT * STEP,
                                state[i / COUNT][i % COUNT]);
    update_elements<RULE, COUNT>(a, pace, gradient, state, weights);
#pragma unroll
    for (int i = 0; i < STATES * COUNT; i++)
        store_quad<SL_TYPE_FP32>(a.state[i / COUNT], first + i % COUNT * STEP,
                                 state[i / COUNT][i % COUNT]);
    store_quads<TYPE, COUNT, STEP>(a, first, weights);
}

template <update_rule RULE, sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_block(const update_args &a)
{
    enum { PASS = quads<TYPE>::COUNT * quads<TYPE>::STEP };
    if (a.control->skip != 0) {
        skip_block<TYPE>(a);
        return;
    }
    const block_pace pace = open_pace<RULE>(a);
#pragma unroll
    for (int i = 0; i < BLOCK; i += PASS)
        update_quads<RULE, TYPE, GRADIENT>(a, pace,
                                           (uint64_t)blockIdx.x * BLOCK + i + threadIdx.x * QUAD);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) adamw(const update_args a)
{
    update_block<ADAMW, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) sgd(const update_args a)
{
    update_block<SGD, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) sgd_momentum(const update_args a)
{
    update_block<MOMENTUM, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) lion(const update_args a)
{
    update_block<LION, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) apply(const update_args a)
{
    update_block<APPLY, TYPE, GRADIENT>(a);
}

static sl_status check_update(const sl_kernel_call *call, uint32_t state_count)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0 ||
        attrs->element_count / SL_BLOCK_ELEMENTS > INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "an update of %llu elements is not whole blocks of a grid",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    if (attrs->type != SL_TYPE_FP32 && call->operand[2 + state_count + MASTER] == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "an update in half precision without a master copy");
    if (attrs->master_type >= SL_MASTER_COUNT ||
        (attrs->master_type == SL_MASTER_LOW && attrs->type != SL_TYPE_BF16))
        SL_FAIL(SL_ERROR_INTERNAL, "a master of type %u beside parameters of type %u",
                attrs->master_type, attrs->type);
    if (attrs->state_type >= SL_STATES_COUNT ||
        (attrs->state_type == SL_STATES_BF16 && call->block_keys == NULL))
        SL_FAIL(SL_ERROR_INTERNAL, "states of type %u, or without the keys of blocks",
                attrs->state_type);
    return SL_OK;
}

/* Fills in what all rules have, and writes the number of rates. */
static sl_status open_args(const sl_kernel_call *call, uint32_t state_count, update_args *a,
                           uint32_t *rate_count)
{
    const bool half = call->attrs->type != SL_TYPE_FP32;
    SL_TRY(check_update(call, state_count));
    *a = {};
    *rate_count = sl_rates_of_step(call, a->rates);
    a->control = (const sl_step_control *)call->operand[0];
    a->gradient = call->operand[1];
    for (uint32_t i = 0; i < state_count; i++)
        a->state[i] = call->operand[2 + i];
    if (call->attrs->master_type == SL_MASTER_LOW)
        a->low = (uint16_t *)call->operand[2 + state_count + MASTER];
    else
        a->weights = (float *)call->operand[2 + state_count + (half ? MASTER : PARAM)];
    a->param = half ? call->operand[2 + state_count + PARAM] : NULL;
    a->rate_of_block = call->block_flags + call->attrs->first_block;
    if (call->attrs->state_type == SL_STATES_BF16)
        a->keys = call->block_keys + call->attrs->first_block;
    a->run_step = call->scalars.step;
    return SL_OK;
}

static void set_betas(update_args *a, float beta1, float beta2)
{
    a->beta1 = beta1;
    a->beta2 = beta2;
    a->rest1 = 1.0f - beta1;
    a->rest2 = 1.0f - beta2;
}

template <sl_type TYPE>
static sl_status launch_update(const sl_kernel_call *call, const update_args &a, update_rule rule)
{
    const uint32_t blocks = (uint32_t)(call->attrs->element_count / SL_BLOCK_ELEMENTS);
    if (blocks == 0)
        return SL_OK;
    if (call->attrs->state_type != SL_STATES_FP32)
        return sl_cuda_update_small(call, a, rule);
    if (rule == ADAMW)
        return LAUNCH_UPDATE(adamw);
    if (rule == LION)
        return LAUNCH_UPDATE(lion);
    if (rule == APPLY)
        return LAUNCH_UPDATE(apply);
    return rule == SGD ? LAUNCH_UPDATE(sgd) : LAUNCH_UPDATE(sgd_momentum);
}

extern "C" sl_status sl_cuda_adamw(const sl_kernel_call *call)
{
    const sl_step_scalars *scalars = &call->scalars;
    update_args a;
    uint32_t rate_count;
    SL_TRY(open_args(call, 2, &a, &rate_count));
    sl_rates_decouple(a.rates, rate_count);
    for (uint32_t i = 0; i < rate_count; i++)
        a.rates[i].step /= scalars->bias1;
    set_betas(&a, scalars->beta1, scalars->beta2);
    a.inverse_root = 1.0f / scalars->bias2_root;
    a.epsilon = scalars->epsilon;
    return SL_BY_TYPE(call->attrs->type, launch_update, call, a, ADAMW);
}

extern "C" sl_status sl_cuda_sgd(const sl_kernel_call *call)
{
    update_args a;
    uint32_t rate_count;
    SL_TRY(open_args(call, 1, &a, &rate_count));
    a.momentum = call->scalars.momentum;
    a.is_nesterov = call->scalars.is_nesterov;
    return SL_BY_TYPE(call->attrs->type, launch_update, call, a,
                      a.state[0] != NULL ? MOMENTUM : SGD);
}

extern "C" sl_status sl_cuda_lion(const sl_kernel_call *call)
{
    update_args a;
    uint32_t rate_count;
    SL_TRY(open_args(call, 1, &a, &rate_count));
    sl_rates_decouple(a.rates, rate_count);
    set_betas(&a, call->scalars.lion_beta1, call->scalars.lion_beta2);
    return SL_BY_TYPE(call->attrs->type, launch_update, call, a, LION);
}

extern "C" sl_status sl_cuda_apply(const sl_kernel_call *call)
{
    update_args a;
    uint32_t rate_count;
    SL_TRY(open_args(call, 0, &a, &rate_count));
    sl_rates_decouple(a.rates, rate_count);
    return SL_BY_TYPE(call->attrs->type, launch_update, call, a, APPLY);
}
