/* Rows of a layer normalisation (Ba et al. 2016). The variance is taken in a second pass over the
 * row, which is in cache by then, so it does not cancel. */
#include <math.h>

#include "isa.h"
#include "lanes.h"

static const float EPSILON = 1e-5f;

enum { CHAINS = 4 }; /* independent sums of a row: hides the latency of an addition */

/* Sum over the row of (x - centre), or of its square. */
SL_INLINE float sum_row(const float *x, uint64_t width, float centre, const bool squared)
{
    lanes sum[CHAINS];
    for (uint32_t j = 0; j < CHAINS; j++)
        sum[j] = set_lanes(0.0f);
    const lanes middle = set_lanes(centre), one = set_lanes(1.0f);
    uint64_t i = 0;
    for (; i + CHAINS * LANES <= width; i += CHAINS * LANES) {
#pragma GCC unroll 4
        for (uint32_t j = 0; j < CHAINS; j++) {
            lanes value = load_lanes(x + i + j * LANES) - middle;
            sum[j] = fma_lanes(value, squared ? value : one, sum[j]);
        }
    }
    for (; i < width; i += LANES) {
        uint32_t rest = width - i < LANES ? (uint32_t)(width - i) : LANES;
        lanes value = load_part(x + i, rest) - middle;
        value = keep_from(set_lanes(0.0f), (int32_t)rest, value);
        sum[0] = fma_lanes(value, squared ? value : one, sum[0]);
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

void SL_VECTOR(norm_forward)(const sl_norm_rows *rows)
{
    const uint64_t width = rows->width;
    for (uint64_t row = 0; row < rows->row_count; row++) {
        const float *x = rows->x + row * width;
        float *restrict y = rows->y + row * width;
        const float *restrict gamma = rows->gamma, *restrict beta = rows->beta;
        float mean = sum_row(x, width, 0.0f, false) / (float)width;
        float variance = sum_row(x, width, mean, true) / (float)width;
        float inverse = 1.0f / sqrtf(variance + EPSILON);
        for (uint64_t i = 0; i < width; i++)
            y[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
        rows->stats[2 * row] = mean;
        rows->stats[2 * row + 1] = inverse;
    }
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

static row_sums sum_gradients(const sl_norm_rows *rows, uint64_t row)
{
    const float *x = rows->x + row * rows->width, *dy = rows->dy + row * rows->width;
    const lanes mean = set_lanes(rows->stats[2 * row]);
    const lanes inverse = set_lanes(rows->stats[2 * row + 1]);
    row_sums sums = {set_lanes(0.0f), set_lanes(0.0f)};
    uint64_t i = 0;
    for (; i + LANES <= rows->width; i += LANES) {
        lanes dgamma = load_lanes(rows->dgamma + i), dbeta = load_lanes(rows->dbeta + i);
        sums = add_register(sums, (load_lanes(x + i) - mean) * inverse, load_lanes(dy + i),
                            load_lanes(rows->gamma + i), &dgamma, &dbeta);
        store_lanes(rows->dgamma + i, dgamma);
        store_lanes(rows->dbeta + i, dbeta);
    }
    uint32_t rest = (uint32_t)(rows->width - i);
    if (rest > 0) {
        lanes dgamma = load_part(rows->dgamma + i, rest), dbeta = load_part(rows->dbeta + i, rest);
        sums =
            add_register(sums, (load_part(x + i, rest) - mean) * inverse, load_part(dy + i, rest),
                         load_part(rows->gamma + i, rest), &dgamma, &dbeta);
        store_part(rows->dgamma + i, dgamma, rest);
        store_part(rows->dbeta + i, dbeta, rest);
    }
    return sums;
}

void SL_VECTOR(norm_backward)(const sl_norm_rows *rows)
{
    const uint64_t width = rows->width;
    for (uint64_t row = 0; row < rows->row_count; row++) {
        row_sums sums = sum_gradients(rows, row);
        const float plain = sum_lanes(sums.plain) / (float)width;
        const float crossed = sum_lanes(sums.crossed) / (float)width;
        const float mean = rows->stats[2 * row], inverse = rows->stats[2 * row + 1];
        const float *x = rows->x + row * width, *dy = rows->dy + row * width;
        const float *gamma = rows->gamma;
        float *restrict dx = rows->dx + row * width;
        const bool add = rows->add;
        for (uint64_t i = 0; i < width; i++) {
            float normal = (x[i] - mean) * inverse;
            float d = (dy[i] * gamma[i] - plain - normal * crossed) * inverse;
            dx[i] = add ? dx[i] + d : d;
        }
    }
}
