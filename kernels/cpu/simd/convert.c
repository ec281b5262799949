/* From one type to another, and sums of elements in their order: the same bits in every instruction
 * set. */
#include "by_type.h"
#include "isa.h"

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
