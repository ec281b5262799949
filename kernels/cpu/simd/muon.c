/* Loops over elements of Muon: the direction, and what stands around the products of the
 * Newton-Schulz steps (kernels/newton_schulz.h). Each operation is rounded once, in the order
 * written. The direction has the same bits on every processor and device, as the updates. */
#include <math.h>
#include <stddef.h>

#include "gradient.h"

static const float fp16_most = 65504.0f;

/* Elements of a gradient, rounded to `type` where they are stored as fp32. */
SL_INLINE lanes load_rounded(sl_type type, sl_type stored_type, const void *from, uint64_t index,
                             uint32_t part)
{
    lanes value = load_at(stored_type, from, index, part);
    if (type == SL_TYPE_FP32 || stored_type == type)
        return value;
    uint16_t halves[LANES];
    store_typed(halves, type, value);
    return load_typed(halves, type);
}

/* Sums as torch.optim.Muon's, with its Nesterov step. */
static void make_direction(const sl_momentum_blocks *s, const float *gradient, float *restrict mean,
                           float *direction)
{
    const float clip_scale = s->clip_scale, momentum = s->momentum, rest = s->rest;
    const float loss_scale = s->loss_scale;
    const float most = s->gradient.type == SL_TYPE_FP16 ? fp16_most : INFINITY;
    for (uint32_t i = 0; i < SL_BLOCK_ELEMENTS; i++) {
        float term = rest * (gradient[i] * clip_scale);
        float m = fmaf(momentum, mean[i], term);
        float d = fmaf(momentum, m, term) * loss_scale;
        mean[i] = m;
        d = d > most ? most : d;
        direction[i] = d < -most ? -most : d;
    }
}

void SL_SIMD(momentum)(const sl_momentum_blocks *blocks)
{
    const sl_type stored = blocks->gradient.stored_type;
    float buffer[SL_BLOCK_ELEMENTS], made[SL_BLOCK_ELEMENTS];
    for (uint64_t block = 0; block < blocks->block_count; block++) {
        const uint64_t first = block * SL_BLOCK_ELEMENTS;
        char *to = (char *)blocks->direction + first * sl_type_bytes(stored);
        const float *gradient = read_gradient(&blocks->gradient, block, buffer);
        float *direction = stored == SL_TYPE_FP32 ? (float *)(void *)to : made;
        make_direction(blocks, gradient, blocks->mean + first, direction);
        if (stored != SL_TYPE_FP32)
            SL_SIMD(round)(made, to, stored, SL_BLOCK_ELEMENTS);
    }
}

enum { SQUARE_LANES = 32 };

/* 32 sums, each over every 32nd element, then halves are added: as the blocks of the norm. */
SL_INLINE void sum_squares(sl_type type, sl_type stored_type, const void *x, uint64_t count,
                           float *sum)
{
    float sums[SQUARE_LANES] = {0};
    for (uint64_t i = 0; i < count; i += LANES) {
        float *at = sums + i % SQUARE_LANES;
        const uint32_t part = part_at(i, count);
        const lanes value = load_rounded(type, stored_type, x, i, part);
        store_lanes(at, fma_lanes(value, value, load_lanes(at)));
    }
    for (uint32_t width = SQUARE_LANES / 2; width > 0; width /= 2)
        for (uint32_t lane = 0; lane < width; lane++)
            sums[lane] += sums[lane + width];
    *sum = sums[0];
}

void SL_SIMD(squares)(const void *x, sl_type stored_type, sl_type type, uint64_t count, float *sum)
{
    SL_BY_TYPE(type, sum_squares, stored_type, x, count, sum);
}

SL_INLINE void multiply_span(sl_type type, const sl_factor_span *s)
{
    const lanes factor = set_lanes(s->factor);
    for (uint64_t i = 0; i < s->count; i += LANES) {
        const uint32_t part = part_at(i, s->count);
        store_at(s->y_type, s->y, i, load_rounded(type, s->x_type, s->x, i, part) * factor, part);
    }
}

void SL_SIMD(factor)(const sl_factor_span *span)
{
    SL_BY_TYPE(span->type, multiply_span, span);
}

SL_INLINE void add_square(sl_type type, void *x, const float *square, uint64_t count, float factor,
                          float square_factor)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        const lanes linear = load_at(type, x, i, part) * set_lanes(factor);
        store_at(type, x, i,
                 fma_lanes(set_lanes(square_factor), load_part(square + i, part), linear), part);
    }
}

void SL_SIMD(quadratic)(void *x, sl_type type, const float *square, uint64_t count, float factor,
                        float square_factor)
{
    SL_BY_TYPE(type, add_square, x, square, count, factor, square_factor);
}
