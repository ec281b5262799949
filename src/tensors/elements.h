/* Elements as they are stored, from and to floats, one after the other: for checkpoints, weights
 * and logits; and a matrix laid across. Kernels have their own over vector registers, with the same
 * bits. */
#ifndef SL_TENSORS_ELEMENTS_H
#define SL_TENSORS_ELEMENTS_H

#include <string.h>

#include "base/half.h"
#include "program/op_list.h"

/* Writes `count` elements of `type` as floats; exact. The two do not overlap. */
static inline void sl_elements_widen(sl_type type, const void *stored, uint64_t count,
                                     float *out_data)
{
    const uint16_t *half = (const uint16_t *)stored;
    if (type == SL_TYPE_FP32) {
        memcpy(out_data, stored, count * sizeof *out_data);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        out_data[i] =
            type == SL_TYPE_BF16 ? sl_half_from_bf16(half[i]) : sl_half_from_fp16(half[i]);
}

/* Writes `count` floats as elements of `type`, rounded. The two do not overlap. */
static inline void sl_elements_round(sl_type type, const float *data, uint64_t count,
                                     void *out_stored)
{
    uint16_t *half = (uint16_t *)out_stored;
    if (type == SL_TYPE_FP32) {
        memcpy(out_stored, data, count * sizeof *data);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        half[i] = type == SL_TYPE_BF16 ? sl_half_to_bf16(data[i]) : sl_half_to_fp16(data[i]);
}

/* Lays [rows, columns] across: element [r, c] goes to out_data[c * out_stride + r], by tiles that
 * fit the nearest cache. The two do not overlap. */
static inline void sl_elements_lay_across(const float *data, uint64_t rows, uint64_t columns,
                                          uint64_t out_stride, float *out_data)
{
    enum { TILE = 32 };
    for (uint64_t row = 0; row < rows; row += TILE)
        for (uint64_t column = 0; column < columns; column += TILE)
            for (uint64_t c = column; c < column + TILE && c < columns; c++)
                for (uint64_t r = row; r < row + TILE && r < rows; r++)
                    out_data[c * out_stride + r] = data[r * columns + c];
}

#endif
