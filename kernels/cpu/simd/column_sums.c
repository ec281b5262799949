/* Sums of the rows of a matrix, each column's in row order: the gradient of a bias. */
#include "by_type.h"
#include "isa.h"

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

SL_INLINE void add_rows(sl_type type, const void *x, uint64_t row_count, uint64_t width,
                        float *sums)
{
    for (uint64_t row = 0; row < row_count; row++)
        add_row(typed_at(x, type, row * width), type, width, sums);
}

void SL_SIMD(column_sums)(const void *x, sl_type type, uint64_t row_count, uint64_t width,
                          float *sums)
{
    memset(sums, 0, width * sizeof *sums);
    SL_BY_TYPE(type, add_rows, x, row_count, width, sums);
}
