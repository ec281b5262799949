/* Sums of the rows of a matrix, each column's in row order: the gradient of a bias. */
#include "isa.h"
#include "typed.h"

SL_INLINE void add_row(const void *row, sl_type type, uint64_t width, float *sums)
{
    uint64_t i = 0;
    for (; i + LANES <= width; i += LANES)
        store_lanes(sums + i, load_lanes(sums + i) + load_typed(typed_at(row, type, i), type));
    const uint32_t rest = (uint32_t)(width - i);
    if (rest > 0)
        store_part(sums + i,
                   load_part(sums + i, rest) + load_typed_part(typed_at(row, type, i), type, rest),
                   rest);
}

SL_INLINE void add_rows(const void *x, sl_type type, uint64_t row_count, uint64_t width,
                        float *sums)
{
    for (uint64_t row = 0; row < row_count; row++)
        add_row(typed_at(x, type, row * width), type, width, sums);
}

void SL_VECTOR(column_sums)(const void *x, sl_type type, uint64_t row_count, uint64_t width,
                            float *sums)
{
    memset(sums, 0, width * sizeof *sums);
    if (type == SL_TYPE_FP32)
        add_rows(x, SL_TYPE_FP32, row_count, width, sums);
    else if (type == SL_TYPE_BF16)
        add_rows(x, SL_TYPE_BF16, row_count, width, sums);
    else
        add_rows(x, SL_TYPE_FP16, row_count, width, sums);
}
