/* Rows of a normalisation by the root of the mean square (Zhang and Sennrich 2019). */
#include <math.h>

#include "isa.h"
#include "row_sum.h"

/* The factors of features: gamma, or 1 + gamma. Without an offset they are gamma (-0 becomes 0). */
SL_INLINE lanes factors_at(sl_type type, const sl_rmsnorm_rows *rows, uint64_t i, uint32_t part)
{
    return load_at(type, rows->gamma, i, part) + set_lanes(rows->gamma_offset);
}

SL_INLINE void normalise_row(sl_type type, const sl_rmsnorm_rows *rows, uint64_t row)
{
    const uint64_t width = rows->width;
    const void *x = typed_at(rows->x, type, row * width);
    const float square = sum_row(type, x, width, 0.0f, true) / (float)width;
    const float inverse = 1.0f / sqrtf(square + rows->epsilon);
    for (uint64_t i = 0; i < width; i += LANES) {
        const uint32_t part = part_at(i, width);
        const lanes normal = load_at(type, x, i, part) * set_lanes(inverse);
        store_at(type, rows->y, row * width + i, normal * factors_at(type, rows, i, part), part);
    }
    rows->stats[row] = inverse;
}

SL_INLINE void normalise(sl_type type, const sl_rmsnorm_rows *rows)
{
    for (uint64_t row = 0; row < rows->row_count; row++)
        normalise_row(type, rows, row);
}

void SL_SIMD(rmsnorm_forward)(const sl_rmsnorm_rows *rows)
{
    SL_BY_TYPE(rows->type, normalise, rows);
}

/* Returns the sum of dy gamma times the normalised x. `has_dgamma`: adds to dgamma. Lanes that were
 * loaded as zero have dy = 0, so they add nothing. */
SL_INLINE float sum_gradients(sl_type type, const sl_rmsnorm_rows *rows, uint64_t row,
                              const bool has_dgamma)
{
    const uint64_t first = row * rows->width;
    const lanes inverse = set_lanes(rows->stats[row]);
    lanes crossed = set_lanes(0.0f);
    for (uint64_t i = 0; i < rows->width; i += LANES) {
        const uint32_t part = part_at(i, rows->width);
        const lanes normal = load_at(type, rows->x, first + i, part) * inverse;
        const lanes dy = load_at(type, rows->dy, first + i, part);
        crossed = fma_lanes(dy * factors_at(type, rows, i, part), normal, crossed);
        if (has_dgamma) {
            const lanes dgamma = load_at(SL_TYPE_FP32, rows->dgamma, i, part);
            store_at(SL_TYPE_FP32, rows->dgamma, i, fma_lanes(dy, normal, dgamma), part);
        }
    }
    return sum_lanes(crossed);
}

SL_INLINE void store_slopes(sl_type type, const sl_rmsnorm_rows *rows, uint64_t row, float sum)
{
    const uint64_t width = rows->width, first = row * width;
    const lanes crossed = set_lanes(sum / (float)width), inverse = set_lanes(rows->stats[row]);
    for (uint64_t i = 0; i < width; i += LANES) {
        const uint32_t part = part_at(i, width);
        const lanes normal = load_at(type, rows->x, first + i, part) * inverse;
        const lanes g = load_at(type, rows->dy, first + i, part) * factors_at(type, rows, i, part);
        lanes d = (g - normal * crossed) * inverse;
        if (rows->add)
            d = load_at(type, rows->dx, first + i, part) + d;
        store_at(type, rows->dx, first + i, d, part);
    }
}

/* The flags are constants: each caller has loops of its own, without the work left out. */
SL_INLINE void differentiate_rows(sl_type type, const sl_rmsnorm_rows *rows, const bool has_dx,
                                  const bool has_dgamma)
{
    for (uint64_t row = 0; row < rows->row_count; row++) {
        const float sum = sum_gradients(type, rows, row, has_dgamma);
        if (has_dx)
            store_slopes(type, rows, row, sum);
    }
}

SL_INLINE void differentiate(sl_type type, const sl_rmsnorm_rows *rows)
{
    if (rows->dx == NULL)
        differentiate_rows(type, rows, false, true);
    else if (rows->dgamma == NULL)
        differentiate_rows(type, rows, true, false);
    else
        differentiate_rows(type, rows, true, true);
}

void SL_SIMD(rmsnorm_backward)(const sl_rmsnorm_rows *rows)
{
    SL_BY_TYPE(rows->type, differentiate, rows);
}
