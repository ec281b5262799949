/* The updates of rules whose states are bf16 or codes of 8 bits; the bits of
 * kernels/cpu/simd/states.c. A block of threads does one block of the chunk. With codes a warp does
 * one group, so that its scale takes no more than shuffles; what codes stand for is worked out into
 * shared memory, once a block.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                     sm_80                sm_90
 *   adamw_bf16<bf16, bf16>        48    581    177     47    594    177
 *   adamw_bf16<bf16, fp32>        52    591    193     52    605    193
 *   adamw_bf16<fp16, fp16>        64    551    177     68    570    177
 *   adamw_bf16<fp16, fp32>        64    557    193     66    576    193
 *   adamw_bf16<fp32, fp32>        42    605    185     40    625    185
 *   adamw_int8<bf16, bf16>        64   1236    153     58   1254    153
 *   adamw_int8<bf16, fp32>        61   1244    169     62   1262    169
 *   lion_bf16<bf16, bf16>         32    374    145     32    379    145
 *   lion_bf16<bf16, fp32>         36    385    161     32    385    161
 *   lion_bf16<fp16, fp16>         39    374    145     32    364    145
 *   lion_bf16<fp16, fp32>         40    377    161     35    370    161
 *   lion_bf16<fp32, fp32>         31    388    153     32    372    153
 *   lion_int8<bf16, bf16>         40    645    129     36    656    129
 *   lion_int8<bf16, fp32>         40    660    145     32    674    145
 *   momentum_bf16<bf16, bf16>     32    327    145     32    323    145
 *   momentum_bf16<bf16, fp32>     34    338    161     34    338    161
 *   momentum_bf16<fp16, fp16>     40    323    145     34    325    145
 *   momentum_bf16<fp16, fp32>     34    328    161     38    330    161
 *   momentum_bf16<fp32, fp32>     28    343    153     32    332    153
 *   momentum_int8<bf16, bf16>     32    616    129     32    624    129
 *   momentum_int8<bf16, fp32>     32    624    145     32    632    145
 */
#include "base/dynamic_codes.h"
#include "base/stochastic.h"
#include "update.cuh"

enum {
    CODES = 256,
    CODED_BYTES = BLOCK + BLOCK / SL_CODES_GROUP * 4 /* of a block: codes and scales */
};

/* ---- bf16 ---- */

/* `words`: of the four elements. */
static __device__ __forceinline__ void store_drawn_quad(void *to, uint64_t first,
                                                        const float *values, const uint32_t *words,
                                                        uint32_t state)
{
    uint32_t word[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < QUAD; i++)
        word[i / 2] |= sl_stochastic_round(__float_as_uint(values[i]), words[i], state)
                       << (i % 2 * 16);
    *(uint2 *)((uint16_t *)to + first) = make_uint2(word[0], word[1]);
}

template <update_rule RULE, sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_rounded(const update_args &a, const block_pace &pace,
                                                      uint32_t in_block)
{
    enum { COUNT = quads<TYPE>::COUNT, STEP = quads<TYPE>::STEP, STATES = states<RULE>::COUNT };
    const uint64_t first = (uint64_t)blockIdx.x * BLOCK + in_block;
    const uint64_t key = a.keys[blockIdx.x];
    float gradient[COUNT][QUAD], state[STATES_MOST][COUNT][QUAD], weights[COUNT][QUAD];
    load_quads<TYPE, GRADIENT, COUNT, STEP>(a, first, gradient, weights);
#pragma unroll
    for (int i = 0; i < STATES * COUNT; i++)
        load_quad<SL_TYPE_BF16>(a.state[i / COUNT], first + i % COUNT * STEP,
                                state[i / COUNT][i % COUNT]);
    update_elements<RULE, COUNT>(a, pace, gradient, state, weights);
    store_quads<TYPE, COUNT, STEP>(a, first, weights);
#pragma unroll
    for (int q = 0; q < COUNT; q++) {
        uint32_t words[SL_STOCHASTIC_WORDS];
        sl_stochastic_draw(key, a.run_step, (in_block + q * STEP) / SL_STOCHASTIC_WORDS, words);
#pragma unroll
        for (int s = 0; s < STATES; s++)
            store_drawn_quad(a.state[s], first + q * STEP, state[s][q], words, s);
    }
}

template <update_rule RULE, sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_block_rounded(const update_args &a)
{
    enum { PASS = quads<TYPE>::COUNT * quads<TYPE>::STEP };
    if (a.control->skip != 0) {
        skip_block<TYPE>(a);
        return;
    }
    const block_pace pace = open_pace<RULE>(a);
#pragma unroll
    for (int i = 0; i < BLOCK; i += PASS)
        update_rounded<RULE, TYPE, GRADIENT>(a, pace, i + threadIdx.x * QUAD);
}

/* ---- codes of 8 bits ---- */

enum { GROUP_COUNT = 2, GROUP_STEP = SL_WARP * QUAD }; /* quads of a thread in its warp's group */

static __device__ __forceinline__ void load_codes(const char *block, uint32_t in_block,
                                                  const float *shares, float scale,
                                                  float values[GROUP_COUNT][QUAD])
{
#pragma unroll
    for (int q = 0; q < GROUP_COUNT; q++) {
        const uint32_t codes = *(const uint32_t *)(block + in_block + q * GROUP_STEP);
#pragma unroll
        for (int i = 0; i < QUAD; i++)
            values[q][i] = shares[codes >> (8 * i) & 0xffu] * scale;
    }
}

/* The scale of the warp's group, in every lane. */
static __device__ __forceinline__ float find_scale(const float values[GROUP_COUNT][QUAD])
{
    uint32_t rank = 0;
#pragma unroll
    for (int i = 0; i < GROUP_COUNT * QUAD; i++)
        rank = max(rank, sl_codes_rank(__float_as_uint(values[i / QUAD][i % QUAD])));
#pragma unroll
    for (int distance = SL_WARP / 2; distance > 0; distance /= 2)
        rank = max(rank, __shfl_xor_sync(SL_EVERY_LANE, rank, distance));
    return __uint_as_float(sl_codes_scale(rank));
}

template <bool IS_SIGNED>
static __device__ __forceinline__ void store_codes(char *block, uint32_t in_block, float scale,
                                                   const float values[GROUP_COUNT][QUAD])
{
    const float inverse = scale == 0.0f ? 0.0f : __fdiv_rn(1.0f, scale);
#pragma unroll
    for (int q = 0; q < GROUP_COUNT; q++) {
        uint32_t codes = 0;
#pragma unroll
        for (int i = 0; i < QUAD; i++) {
            const float share = values[q][i] * inverse;
            codes |= (IS_SIGNED ? sl_codes_encode_signed(share) : sl_codes_encode_unsigned(share))
                     << (8 * i);
        }
        *(uint32_t *)(block + in_block + q * GROUP_STEP) = codes;
    }
}

template <update_rule RULE, sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_coded(const update_args &a, char *const *block,
                                                    const float (*shares)[CODES])
{
    enum { STATES = states<RULE>::COUNT };
    const uint32_t group = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
    const uint32_t in_block = group * SL_CODES_GROUP + lane * QUAD;
    const uint64_t first = (uint64_t)blockIdx.x * BLOCK + in_block;
    float gradient[GROUP_COUNT][QUAD], weights[GROUP_COUNT][QUAD];
    float state[STATES_MOST][GROUP_COUNT][QUAD];
    load_quads<TYPE, GRADIENT, GROUP_COUNT, GROUP_STEP>(a, first, gradient, weights);
#pragma unroll
    for (int s = 0; s < STATES; s++)
        load_codes(block[s], in_block, shares[s], ((const float *)(block[s] + BLOCK))[group],
                   state[s]);
    update_elements<RULE, GROUP_COUNT>(a, open_pace<RULE>(a), gradient, state, weights);
    store_quads<TYPE, GROUP_COUNT, GROUP_STEP>(a, first, weights);
#pragma unroll
    for (int s = 0; s < STATES; s++) {
        const float scale = find_scale(state[s]);
        if (s == 0)
            store_codes<true>(block[s], in_block, scale, state[s]);
        else
            store_codes<false>(block[s], in_block, scale, state[s]);
        __syncwarp(); /* all lanes have read the scale of before */
        if (lane == 0)
            ((float *)(block[s] + BLOCK))[group] = scale;
    }
}

template <update_rule RULE, sl_type TYPE, sl_type GRADIENT>
static __device__ __forceinline__ void update_block_coded(const update_args &a)
{
    enum { STATES = states<RULE>::COUNT };
    __shared__ float shares[STATES_MOST][CODES];
    char *block[STATES_MOST] = {};
    if (a.control->skip != 0) {
        skip_block<TYPE>(a);
        return;
    }
#pragma unroll
    for (int s = 0; s < STATES; s++) {
        block[s] = (char *)a.state[s] + (uint64_t)blockIdx.x * CODED_BYTES;
        shares[s][threadIdx.x] = sl_codes_decode(threadIdx.x, s == 0);
    }
    __syncthreads();
    update_coded<RULE, TYPE, GRADIENT>(a, block, shares);
}

/* ---- kernels ---- */

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) adamw_bf16(const update_args a)
{
    update_block_rounded<ADAMW, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) momentum_bf16(const update_args a)
{
    update_block_rounded<MOMENTUM, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) lion_bf16(const update_args a)
{
    update_block_rounded<LION, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) adamw_int8(const update_args a)
{
    update_block_coded<ADAMW, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) momentum_int8(const update_args a)
{
    update_block_coded<MOMENTUM, TYPE, GRADIENT>(a);
}

template <sl_type TYPE, sl_type GRADIENT>
static __global__ void __launch_bounds__(THREADS) lion_int8(const update_args a)
{
    update_block_coded<LION, TYPE, GRADIENT>(a);
}

template <sl_type TYPE>
static sl_status launch_small(const sl_kernel_call *call, const update_args &a, update_rule rule)
{
    const uint32_t blocks = (uint32_t)(call->attrs->element_count / BLOCK);
    const bool is_coded = call->attrs->state_type == SL_STATES_INT8;
    if (rule == ADAMW)
        return is_coded ? LAUNCH_UPDATE(adamw_int8) : LAUNCH_UPDATE(adamw_bf16);
    if (rule == LION)
        return is_coded ? LAUNCH_UPDATE(lion_int8) : LAUNCH_UPDATE(lion_bf16);
    return is_coded ? LAUNCH_UPDATE(momentum_int8) : LAUNCH_UPDATE(momentum_bf16);
}

sl_status sl_cuda_update_small(const sl_kernel_call *call, const update_args &a, update_rule rule)
{
    return SL_BY_TYPE(call->attrs->type, launch_small, call, a, rule);
}
