/* Loops over elements: exp, a factor, GELU and its derivative. */
#include <stddef.h>

#include "exp.h"
#include "gelu.h"
#include "isa.h"
#include "typed.h"

void SL_SIMD(exp)(const float *x, float *y, uint64_t count)
{
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store_lanes(y + i, exp_lanes(load_lanes(x + i)));
    uint32_t rest = (uint32_t)(count - i);
    if (rest > 0)
        store_part(y + i, exp_lanes(load_part(x + i, rest)), rest);
}

SL_INLINE void scale(sl_type type, const void *x, void *y, uint64_t count, float factor)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        store_at(type, y, i, load_at(type, x, i, part) * set_lanes(factor), part);
    }
}

void SL_SIMD(scale)(const void *x, void *y, sl_type type, uint64_t count, float factor)
{
    SL_BY_TYPE(type, scale, x, y, count, factor);
}

SL_INLINE void gelu(sl_type type, const void *x, void *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        store_at(type, y, i, gelu_lanes(load_at(type, x, i, part)), part);
    }
}

void SL_SIMD(gelu)(const void *x, void *y, sl_type type, uint64_t count)
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

void SL_SIMD(gelu_backward)(const void *x, void *d, sl_type type, uint64_t count)
{
    SL_BY_TYPE(type, gelu_backward, x, d, count);
}
