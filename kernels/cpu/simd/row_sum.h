/* Sums over a row of elements, for normalisations. */
#ifndef SL_KERNELS_CPU_SIMD_ROW_SUM_H
#define SL_KERNELS_CPU_SIMD_ROW_SUM_H

#include "typed.h"

enum { CHAINS = 4 }; /* independent sums of a row: hides the latency of an addition */

/* Sum over the row of (x - centre), or of its square. */
SL_INLINE float sum_row(sl_type type, const void *x, uint64_t width, float centre,
                        const bool squared)
{
    lanes sum[CHAINS];
    for (uint32_t j = 0; j < CHAINS; j++)
        sum[j] = set_lanes(0.0f);
    const lanes middle = set_lanes(centre), one = set_lanes(1.0f);
    uint64_t i = 0;
    for (; i + CHAINS * LANES <= width; i += CHAINS * LANES) {
#pragma GCC unroll 4
        for (uint32_t j = 0; j < CHAINS; j++) {
            lanes value = load_at(type, x, i + j * LANES, LANES) - middle;
            sum[j] = fma_lanes(value, squared ? value : one, sum[j]);
        }
    }
    for (; i < width; i += LANES) {
        const uint32_t part = part_at(i, width);
        lanes value = load_at(type, x, i, part) - middle;
        value = keep_from(set_lanes(0.0f), (int32_t)part, value);
        sum[0] = fma_lanes(value, squared ? value : one, sum[0]);
    }
    return sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

#endif
