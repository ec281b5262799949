/* Loops over elements: exp, GELU and its derivative. */
#include <stddef.h>

#include "by_type.h"
#include "exp.h"
#include "isa.h"

void SL_VECTOR(exp)(const float *x, float *y, uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store_lanes(y + i, exp_lanes(load_lanes(x + i)));
    uint32_t rest = (uint32_t)(count - i);
    if (rest > 0)
        store_part(y + i, exp_lanes(load_part(x + i, rest)), rest);
}

/* The tanh form, 0.5 x (1 + tanh(u)), is x / (1 + exp(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3):
 * one exponential, and no cancellation where x is far below 0. */
static const float TWO_ROOT = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
static const float CUBIC = 0.044715f;

SL_INLINE lanes gelu_lanes(lanes x)
{
    lanes two_u = x * set_lanes(TWO_ROOT) * fma_lanes(x * x, set_lanes(CUBIC), set_lanes(1.0f));
    return x / (set_lanes(1.0f) + exp_lanes(-two_u));
}

/* s + x s (1 - s) 2u' with s = 1 / (1 + exp(-2u)). */
SL_INLINE lanes gelu_slope_lanes(lanes x)
{
    const lanes one = set_lanes(1.0f), root = set_lanes(TWO_ROOT);
    lanes square = x * x;
    lanes two_u = x * root * fma_lanes(square, set_lanes(CUBIC), one);
    lanes s = one / (one + exp_lanes(-two_u));
    lanes slope = root * fma_lanes(square, set_lanes(3 * CUBIC), one);
    return fma_lanes(x * slope, s * (one - s), s);
}

SL_INLINE void gelu(sl_type type, const void *x, void *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        store_at(type, y, i, gelu_lanes(load_at(type, x, i, part)), part);
    }
}

void SL_VECTOR(gelu)(const void *x, void *y, sl_type type, uint64_t count)
{
    SL_BY_TYPE(type, gelu, x, y, count);
}

SL_INLINE void gelu_backward(sl_type type, const void *x, void *d, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        const lanes slope = gelu_slope_lanes(load_at(type, x, i, part));
        store_at(type, d, i, load_at(type, d, i, part) * slope, part);
    }
}

void SL_VECTOR(gelu_backward)(const void *x, void *d, sl_type type, uint64_t count)
{
    SL_BY_TYPE(type, gelu_backward, x, d, count);
}
