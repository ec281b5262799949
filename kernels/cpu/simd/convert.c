/* From one type to another, and sums of elements in their order: the same bits in every instruction
 * set. */
#include "isa.h"
#include "typed.h"

SL_INLINE void widen(sl_type type, const void *x, float *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        store_at(SL_TYPE_FP32, y, i, load_at(type, x, i, part), part);
    }
}

void SL_SIMD(widen)(const void *x, sl_type type, float *y, uint64_t count)
{
    SL_BY_TYPE(type, widen, x, y, count);
}

SL_INLINE void round_to(sl_type type, const void *x, void *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        store_at(type, y, i, load_at(SL_TYPE_FP32, x, i, part), part);
    }
}

void SL_SIMD(round)(const void *x, void *y, sl_type type, uint64_t count)
{
    SL_BY_TYPE(type, round_to, x, y, count);
}

SL_INLINE void add_to(sl_type type, const void *x, void *y, uint64_t count, sl_type y_type)
{
    for (uint64_t i = 0; i < count; i += LANES) {
        const uint32_t part = part_at(i, count);
        const lanes sum = load_at(y_type, y, i, part) + load_at(type, x, i, part);
        store_at(y_type, y, i, sum, part);
    }
}

SL_INLINE void add(sl_type type, const void *x, void *y, uint64_t count)
{
    add_to(type, x, y, count, type);
}

void SL_SIMD(add)(const void *x, void *y, sl_type type, uint64_t count)
{
    SL_BY_TYPE(type, add, x, y, count);
}

void SL_SIMD(add_to_float)(const void *x, sl_type type, float *y, uint64_t count)
{
    SL_BY_TYPE(type, add_to, x, y, count, SL_TYPE_FP32);
}

SL_INLINE void add_strided(sl_type type, const sl_strided_rows *rows, float *sums)
{
    for (uint64_t i = 0; i < rows->width; i += LANES) {
        const uint32_t part = part_at(i, rows->width);
        lanes sum = load_at(type, rows->x, i, part);
        for (uint64_t row = 1; row < rows->row_count; row++)
            sum += load_at(type, rows->x, row * rows->stride + i, part);
        store_at(SL_TYPE_FP32, sums, i, load_at(SL_TYPE_FP32, sums, i, part) + sum, part);
    }
}

void SL_SIMD(add_strided)(const sl_strided_rows *rows, float *sums)
{
    SL_BY_TYPE(rows->type, add_strided, rows, sums);
}

/* ---- sums of the rows of a matrix, each column's in row order: the gradient of a bias */

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
