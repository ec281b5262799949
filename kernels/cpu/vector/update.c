/* The update and the norm of whole blocks: the two kernels whose bits are the same on every
 * processor and device. Each operation below is rounded once, in the order written; fused ones are
 * written fmaf. The compiler may run lanes side by side but may change nothing else
 * (-ffp-contract=off), and division and square root are correctly rounded everywhere. */
#include <math.h>

#include "isa.h"
#include "sluice/op_list.h"

/* Decoupled AdamW (Loshchilov and Hutter 2019), in the arrangement of PyTorch's. */
static void update_block(const sl_adamw_blocks *s, uint64_t first, float decay)
{
    const float *restrict gradient = s->gradient + first;
    float *restrict moment1 = s->moment1 + first, *restrict moment2 = s->moment2 + first;
    float *restrict param = s->param + first;
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
        param[i] = fmaf(-step, quotient, param[i] * decay);
    }
}

void SL_VECTOR(adamw)(const sl_adamw_blocks *blocks)
{
    for (uint64_t block = 0; block < blocks->block_count; block++)
        update_block(blocks, block * SL_BLOCK_ELEMENTS,
                     blocks->decay_flags[block] ? blocks->decay : 1.0f);
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

void SL_VECTOR(block_norm)(const float *gradient, uint64_t block_count, float *sums)
{
    for (uint64_t block = 0; block < block_count; block++)
        sums[block] = sum_block(gradient + block * SL_BLOCK_ELEMENTS);
}
