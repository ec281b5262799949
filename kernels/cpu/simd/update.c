/* The updates and the norm of whole blocks: kernels whose bits are the same on every processor and
 * device. Each operation below is rounded once, in the order written; fused ones are
 * written fmaf. The compiler may run lanes side by side but may change nothing else
 * (-ffp-contract=off), and division and square root are correctly rounded everywhere. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/low_half.h"
#include "gradient.h"

/* The numbers of one block; `state` is NULL where the rule has fewer. */
typedef struct block_numbers {
    const float *gradient;
    float *state[2], *weights;
} block_numbers;

/* Updates one block with its rate. */
typedef void block_update(const sl_update_blocks *s, const block_numbers *block,
                          sl_block_rate rate);

static inline __attribute__((always_inline)) void join_halves(const uint16_t *restrict high,
                                                              const uint16_t *restrict low,
                                                              float *restrict weights)
{
    uint32_t bits[SL_BLOCK_ELEMENTS];
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++)
        bits[i] = sl_low_half_join(high[i], low[i]);
    memcpy(weights, bits, sizeof bits);
}

static inline __attribute__((always_inline)) void split_halves(const float *restrict weights,
                                                               uint16_t *restrict high,
                                                               uint16_t *restrict low)
{
    uint32_t bits[SL_BLOCK_ELEMENTS];
    memcpy(bits, weights, sizeof bits);
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        const uint32_t kept = sl_low_half_keep(bits[i]);
        high[i] = (uint16_t)sl_low_half_high(kept);
        low[i] = (uint16_t)kept;
    }
}

/* In half precision the parameters follow from what was updated. */
static inline __attribute__((always_inline)) void store_params(const sl_update_blocks *blocks,
                                                               uint64_t index, const float *weights)
{
    const uint64_t first = index * SL_BLOCK_ELEMENTS;
    uint16_t *param = blocks->param == NULL ? NULL : (uint16_t *)blocks->param + first;
    if (blocks->low != NULL)
        split_halves(weights, param, blocks->low + first);
    else if (param != NULL)
        SL_SIMD(round)(weights, param, blocks->gradient.type, SL_BLOCK_ELEMENTS);
}

static inline __attribute__((always_inline)) void update_blocks(const sl_update_blocks *blocks,
                                                                block_update *update_block)
{
    const uint64_t state_bytes = sl_states_block_bytes(blocks->states);
    float buffer[SL_BLOCK_ELEMENTS], states[2][SL_BLOCK_ELEMENTS], joined[SL_BLOCK_ELEMENTS];
    for (uint64_t index = 0; index < blocks->block_count; index++) {
        const uint64_t first = index * SL_BLOCK_ELEMENTS;
        block_numbers block = {.gradient = read_gradient(&blocks->gradient, index, buffer),
                               .weights = joined};
        if (blocks->low == NULL)
            block.weights = blocks->weights + first;
        else
            join_halves((const uint16_t *)blocks->param + first, blocks->low + first, joined);
        for (int i = 0; i < 2 && blocks->state[i] != NULL; i++) {
            char *stored = (char *)blocks->state[i] + index * state_bytes;
            block.state[i] = (float *)(void *)stored;
            if (blocks->states != SL_STATES_FP32) {
                block.state[i] = states[i];
                SL_SIMD(load_states)(stored, blocks->states, blocks->shares[i], states[i]);
            }
        }
        update_block(blocks, &block, blocks->rates[blocks->rate_of_block[index]]);
        if (blocks->states != SL_STATES_FP32)
            SL_SIMD(store_states)(blocks, index, states);
        store_params(blocks, index, block.weights);
    }
}

/* Decoupled AdamW (Loshchilov and Hutter 2019), in the arrangement of PyTorch's. */
static void update_by_adamw(const sl_update_blocks *s, const block_numbers *block,
                            sl_block_rate rate)
{
    const float *restrict gradient = block->gradient;
    float *restrict moment1 = block->state[0], *restrict moment2 = block->state[1];
    float *restrict weights = block->weights;
    const float clip_scale = s->clip_scale, beta1 = s->beta1, beta2 = s->beta2;
    const float rest1 = s->rest1, rest2 = s->rest2, step = rate.step, decay = rate.decay;
    const float inverse_root = s->inverse_root, epsilon = s->epsilon;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        float g = gradient[i] * clip_scale;
        float m = fmaf(beta1, moment1[i], rest1 * g);
        float v = fmaf(beta2, moment2[i], rest2 * g * g);
        float quotient = m / fmaf(sqrtf(v), inverse_root, epsilon);
        moment1[i] = m;
        moment2[i] = v;
        weights[i] = fmaf(-step, quotient, weights[i] * decay);
    }
}

void SL_SIMD(adamw)(const sl_update_blocks *blocks)
{
    update_blocks(blocks, update_by_adamw);
}

static void update_plainly(const sl_update_blocks *s, const block_numbers *block,
                           sl_block_rate rate)
{
    const float *restrict gradient = block->gradient;
    float *restrict weights = block->weights;
    const float clip_scale = s->clip_scale, step = rate.step, decay = rate.decay;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        float g = fmaf(decay, weights[i], gradient[i] * clip_scale);
        weights[i] = fmaf(-step, g, weights[i]);
    }
}

/* The sum begins at zero, so that it is the gradient after the first step. */
static void update_by_momentum(const sl_update_blocks *s, const block_numbers *block,
                               sl_block_rate rate)
{
    const float *restrict gradient = block->gradient;
    float *restrict sum = block->state[0], *restrict weights = block->weights;
    const float clip_scale = s->clip_scale, momentum = s->momentum;
    const float step = rate.step, decay = rate.decay;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        float g = fmaf(decay, weights[i], gradient[i] * clip_scale);
        float m = fmaf(momentum, sum[i], g);
        sum[i] = m;
        weights[i] = fmaf(-step, m, weights[i]);
    }
}

/* The step after the next one, as far as it is known (Nesterov 1983, Sutskever et al. 2013). */
static void update_ahead(const sl_update_blocks *s, const block_numbers *block, sl_block_rate rate)
{
    const float *restrict gradient = block->gradient;
    float *restrict sum = block->state[0], *restrict weights = block->weights;
    const float clip_scale = s->clip_scale, momentum = s->momentum;
    const float step = rate.step, decay = rate.decay;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        float g = fmaf(decay, weights[i], gradient[i] * clip_scale);
        float m = fmaf(momentum, sum[i], g);
        sum[i] = m;
        weights[i] = fmaf(-step, fmaf(momentum, m, g), weights[i]);
    }
}

/* In the arrangement of PyTorch's. */
void SL_SIMD(sgd)(const sl_update_blocks *blocks)
{
    if (blocks->state[0] == NULL)
        update_blocks(blocks, update_plainly);
    else if (blocks->is_nesterov)
        update_blocks(blocks, update_ahead);
    else
        update_blocks(blocks, update_by_momentum);
}

/* Lion (Chen et al. 2023); the sign of zero is zero. */
static void update_by_lion(const sl_update_blocks *s, const block_numbers *block,
                           sl_block_rate rate)
{
    const float *restrict gradient = block->gradient;
    float *restrict moment = block->state[0], *restrict weights = block->weights;
    const float clip_scale = s->clip_scale, beta1 = s->beta1, beta2 = s->beta2;
    const float rest1 = s->rest1, rest2 = s->rest2, step = rate.step, decay = rate.decay;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        float g = gradient[i] * clip_scale;
        float mean = fmaf(beta1, moment[i], rest1 * g);
        float sign = mean > 0.0f ? 1.0f : mean < 0.0f ? -1.0f : 0.0f;
        moment[i] = fmaf(beta2, moment[i], rest2 * g);
        weights[i] = fmaf(-step, sign, weights[i] * decay);
    }
}

void SL_SIMD(lion)(const sl_update_blocks *blocks)
{
    update_blocks(blocks, update_by_lion);
}

static void update_by_direction(const sl_update_blocks *s, const block_numbers *block,
                                sl_block_rate rate)
{
    (void)s; /* what is clipped is behind it */
    const float *restrict direction = block->gradient;
    float *restrict weights = block->weights;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++)
        weights[i] = fmaf(-rate.step, direction[i], weights[i] * rate.decay);
}

void SL_SIMD(apply)(const sl_update_blocks *blocks)
{
    update_blocks(blocks, update_by_direction);
}

enum { NORM_LANES = 32 };

/* The fixed tree of a block's squares: 32 sums, lane l over the elements l, l + 32, l + 64, ... in
 * that order, each a chain of fused multiply-adds from 0; then halves are added, lane i to lane
 * i + 16, then i + 8, 4, 2, 1. One warp of a GPU does it as it stands. */
static float sum_block(const float *restrict gradient)
{
    float sum[NORM_LANES] = {0};
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i += NORM_LANES)
        for (uint32_t lane = 0; lane < NORM_LANES; lane++)
            sum[lane] = fmaf(gradient[i + lane], gradient[i + lane], sum[lane]);
    for (uint32_t width = NORM_LANES / 2; width > 0; width /= 2)
        for (uint32_t lane = 0; lane < width; lane++)
            sum[lane] += sum[lane + width];
    return sum[0];
}

void SL_SIMD(block_norm)(const sl_gradient_blocks *gradient, uint64_t block_count, float *sums)
{
    float buffer[SL_BLOCK_ELEMENTS];
    for (uint64_t block = 0; block < block_count; block++)
        sums[block] = sum_block(read_gradient(gradient, block, buffer));
}
