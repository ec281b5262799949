/* Rows of a layer normalisation (Ba et al. 2016). The variance is taken in a second pass over the
 * row, which is in cache by then, so it does not cancel. */
#include <math.h>

#include "isa.h"
#include "row_sum.h"

static const float EPSILON = 1e-5f;

SL_INLINE void normalise_row(sl_type type, const sl_layernorm_rows *rows, uint64_t row)
{
    const uint64_t width = rows->width;
    const void *x = typed_at(rows->x, type, row * width);
    const float mean = sum_row(type, x, width, 0.0f, false) / (float)width;
    const float variance = sum_row(type, x, width, mean, true) / (float)width;
    const float inverse = 1.0f / sqrtf(variance + EPSILON);
    for (uint64_t i = 0; i < width; i += LANES) {
        const uint32_t part = part_at(i, width);
        lanes normal = (load_at(type, x, i, part) - set_lanes(mean)) * set_lanes(inverse);
        normal = normal * load_at(type, rows->gamma, i, part) + load_at(type, rows->beta, i, part);
        store_at(type, rows->y, row * width + i, normal, part);
    }
    rows->stats[2 * row] = mean;
    rows->stats[2 * row + 1] = inverse;
}

SL_INLINE void normalise(sl_type type, const sl_layernorm_rows *rows)
{
    for (uint64_t row = 0; row < rows->row_count; row++)
        normalise_row(type, rows, row);
}

void SL_SIMD(layernorm_forward)(const sl_layernorm_rows *rows)
{
    SL_BY_TYPE(rows->type, normalise, rows);
}

typedef struct row_sums {
    lanes plain, crossed; /* of g = dy gamma, and of g times the normalised x */
} row_sums;

/* One register of a row: adds to the sums and to dgamma and dbeta. Lanes that were loaded as zero
 * have dy = 0, so they add nothing. */
SL_INLINE row_sums add_register(row_sums sums, lanes x, lanes dy, lanes gamma, lanes *dgamma,
                                lanes *dbeta)
{
    lanes g = dy * gamma;
    sums.plain += g;
    sums.crossed = fma_lanes(g, x, sums.crossed);
    *dgamma = fma_lanes(dy, x, *dgamma);
    *dbeta += dy;
    return sums;
}

/* `has_columns`: adds to dgamma and dbeta. */
SL_INLINE row_sums sum_gradients(sl_type type, const sl_layernorm_rows *rows, uint64_t row,
                                 const bool has_columns)
{
    const uint64_t first = row * rows->width;
    const lanes mean = set_lanes(rows->stats[2 * row]);
    const lanes inverse = set_lanes(rows->stats[2 * row + 1]);
    lanes dgamma = set_lanes(0.0f), dbeta = set_lanes(0.0f);
    row_sums sums = {set_lanes(0.0f), set_lanes(0.0f)};
    for (uint64_t i = 0; i < rows->width; i += LANES) {
        const uint32_t part = part_at(i, rows->width);
        if (has_columns) {
            dgamma = load_at(SL_TYPE_FP32, rows->dgamma, i, part);
            dbeta = load_at(SL_TYPE_FP32, rows->dbeta, i, part);
        }
        const lanes normal = (load_at(type, rows->x, first + i, part) - mean) * inverse;
        sums = add_register(sums, normal, load_at(type, rows->dy, first + i, part),
                            load_at(type, rows->gamma, i, part), &dgamma, &dbeta);
        if (has_columns) {
            store_at(SL_TYPE_FP32, rows->dgamma, i, dgamma, part);
            store_at(SL_TYPE_FP32, rows->dbeta, i, dbeta, part);
        }
    }
    return sums;
}

SL_INLINE void store_slopes(sl_type type, const sl_layernorm_rows *rows, uint64_t row,
                            row_sums sums)
{
    const uint64_t width = rows->width, first = row * width;
    const lanes plain = set_lanes(sum_lanes(sums.plain) / (float)width);
    const lanes crossed = set_lanes(sum_lanes(sums.crossed) / (float)width);
    const lanes mean = set_lanes(rows->stats[2 * row]);
    const lanes inverse = set_lanes(rows->stats[2 * row + 1]);
    for (uint64_t i = 0; i < width; i += LANES) {
        const uint32_t part = part_at(i, width);
        const lanes normal = (load_at(type, rows->x, first + i, part) - mean) * inverse;
        const lanes g =
            load_at(type, rows->dy, first + i, part) * load_at(type, rows->gamma, i, part);
        lanes d = (g - plain - normal * crossed) * inverse;
        if (rows->add)
            d = load_at(type, rows->dx, first + i, part) + d;
        store_at(type, rows->dx, first + i, d, part);
    }
}

/* The flags are constants: each caller has loops of its own, without the work left out. */
SL_INLINE void differentiate_rows(sl_type type, const sl_layernorm_rows *rows, const bool has_dx,
                                  const bool has_columns)
{
    for (uint64_t row = 0; row < rows->row_count; row++) {
        const row_sums sums = sum_gradients(type, rows, row, has_columns);
        if (has_dx)
            store_slopes(type, rows, row, sums);
    }
}

SL_INLINE void differentiate(sl_type type, const sl_layernorm_rows *rows)
{
    if (rows->dx == NULL)
        differentiate_rows(type, rows, false, true);
    else if (rows->dgamma == NULL)
        differentiate_rows(type, rows, true, false);
    else
        differentiate_rows(type, rows, true, true);
}

void SL_SIMD(layernorm_backward)(const sl_layernorm_rows *rows)
{
    SL_BY_TYPE(rows->type, differentiate, rows);
}
