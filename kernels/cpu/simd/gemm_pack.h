/* Strips for a micro-kernel. What differs between packing single terms as fp32 and packing pairs of
 * bf16 is how LANES elements of a step are read; both ways are functions that are inlined here. */
#ifndef SL_KERNELS_CPU_SIMD_GEMM_PACK_H
#define SL_KERNELS_CPU_SIMD_GEMM_PACK_H

#include "kernels/cpu/gemm_micro.h"
#include "transpose.h"
#include "typed.h"

/* The matrix's rows are terms: step `step` of strip columns first .. first + count. `type` is a
 * constant where these are inlined. */
typedef lanes (*pack_across)(const sl_gemm_strip *strip, sl_type type, uint64_t step,
                             uint64_t first, uint32_t count);
/* The matrix's rows lie along the strip: steps first .. first + count of row `row`. */
typedef lanes (*pack_along)(const sl_gemm_strip *strip, sl_type type, uint64_t row, uint64_t first,
                            uint32_t count);

enum { PREFETCH_STEPS = 48 };

SL_INLINE const void *strip_at(const sl_gemm_strip *strip, sl_type type, uint64_t row,
                               uint64_t column)
{
    return typed_at(strip->from, type, row * strip->leading + column);
}

SL_INLINE uint32_t at_most_lanes(uint64_t count)
{
    return count < LANES ? (uint32_t)count : LANES;
}

/* Each store may spill into the next step, which is then written over, or into the slack. */
SL_INLINE void pack_steps(const sl_gemm_strip *strip, sl_type type, uint64_t step_count,
                          pack_across read)
{
    float *to = (float *)strip->to;
    const uint64_t whole = strip->width / LANES * LANES;
    const uint32_t rest = (uint32_t)(strip->width - whole);
    for (uint64_t step = 0; step < step_count; step++, to += strip->step_width) {
        for (uint64_t first = 0; first < whole; first += LANES) {
            __builtin_prefetch(strip_at(strip, type, step + PREFETCH_STEPS, first));
            store_lanes(to + first, read(strip, type, step, first, LANES));
        }
        if (rest > 0)
            store_lanes(to + whole, read(strip, type, step, whole, rest));
    }
}

SL_INLINE void pack_square(const sl_gemm_strip *strip, sl_type type, uint64_t row, uint64_t step,
                           uint32_t steps, pack_along read)
{
    lanes square[LANES];
    const uint32_t rows = at_most_lanes(strip->width - row);
    for (uint32_t i = 0; i < LANES; i++)
        square[i] = i < rows ? read(strip, type, row + i, step, steps) : set_lanes(0.0f);
    transpose_lanes(square);
    float *to = (float *)strip->to + step * strip->step_width + row;
    for (uint32_t i = 0; i < steps; i++)
        store_lanes(to + i * strip->step_width, square[i]);
}

SL_INLINE void pack_whole_square(const sl_gemm_strip *strip, sl_type type, uint64_t row,
                                 uint64_t step, pack_along read)
{
    lanes square[LANES];
    const uint64_t last = strip->width - 1;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++) /* rows that do not exist repeat the last one */
        square[i] = read(strip, type, row + i < last ? row + i : last, step, LANES);
    transpose_lanes(square);
    float *to = (float *)strip->to + step * strip->step_width + row;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < LANES; i++)
        store_lanes(to + i * strip->step_width, square[i]);
}

SL_INLINE void pack_squares(const sl_gemm_strip *strip, sl_type type, uint64_t step_count,
                            pack_along read)
{
    const uint64_t whole = step_count / LANES * LANES;
    for (uint64_t step = 0; step < whole; step += LANES)
        for (uint64_t row = 0; row < strip->width; row += LANES)
            pack_whole_square(strip, type, row, step, read);
    for (uint64_t row = 0; row < strip->width && whole < step_count; row += LANES)
        pack_square(strip, type, row, whole, (uint32_t)(step_count - whole), read);
}

#endif
