/* The update and the norm of whole blocks: the two kernels whose bits are the same on every
 * processor and device. Each operation below is rounded once, in the order written; fused ones are
 * written fmaf. The compiler may run lanes side by side but may change nothing else
 * (-ffp-contract=off), and division and square root are correctly rounded everywhere. */
#include <math.h>
#include <stddef.h>

#include "isa.h"
#include "typed.h"

/* One block of the gradient in fp32, rounded to the compute type: where it lies, or in `buffer`. */
static const float *read_gradient(const sl_gradient_blocks *gradient, uint64_t block,
                                  float buffer[SL_BLOCK_ELEMENTS])
{
    const uint64_t first = block * SL_BLOCK_ELEMENTS;
    const void *stored = typed_at(gradient->elements, gradient->stored_type, first);
    uint16_t halves[SL_BLOCK_ELEMENTS];
    if (gradient->type == SL_TYPE_FP32)
        return stored;
    if (gradient->stored_type == SL_TYPE_FP32) {
        SL_SIMD(round)(stored, halves, gradient->type, SL_BLOCK_ELEMENTS);
        stored = halves;
    }
    SL_SIMD(widen)(stored, gradient->type, buffer, SL_BLOCK_ELEMENTS);
    return buffer;
}

/* Decoupled AdamW (Loshchilov and Hutter 2019), in the arrangement of PyTorch's. */
static void update_block(const sl_adamw_blocks *s, const float *restrict gradient, uint64_t first,
                         float decay)
{
    float *restrict moment1 = s->moment1 + first, *restrict moment2 = s->moment2 + first;
    float *restrict weights = s->weights + first;
    const float clip_scale = s->clip_scale, beta1 = s->beta1, beta2 = s->beta2;
    const float rest1 = s->rest1, rest2 = s->rest2, step = s->step;
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

void SL_SIMD(adamw)(const sl_adamw_blocks *blocks)
{
    const sl_type type = blocks->gradient.type;
    float buffer[SL_BLOCK_ELEMENTS];
    for (uint64_t block = 0; block < blocks->block_count; block++) {
        const uint64_t first = block * SL_BLOCK_ELEMENTS;
        const float *gradient = read_gradient(&blocks->gradient, block, buffer);
        update_block(blocks, gradient, first, blocks->decay_flags[block] ? blocks->decay : 1.0f);
        if (blocks->param != NULL) {
            char *param = (char *)blocks->param + first * sl_type_bytes(type);
            SL_SIMD(round)(blocks->weights + first, param, type, SL_BLOCK_ELEMENTS);
        }
    }
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
