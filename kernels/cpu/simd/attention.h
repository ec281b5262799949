/* What the two directions of attention share: tiles of scores with the keys as rows and the queries
 * as columns, so that a register holds one key against LANES queries. Maxima and sums over the keys
 * are then plain register arithmetic, keys and values are read where they lie, and only the queries
 * are transposed, once a tile. Queries past the last are zero columns that nobody reads. Half
 * precision is widened tile by tile, which is a small part of a tile's products. */
#ifndef SL_KERNELS_CPU_SIMD_ATTENTION_H
#define SL_KERNELS_CPU_SIMD_ATTENTION_H

#include <math.h>
#include <stddef.h>

#include "exp.h"
#include "isa.h"
#include "tile_product.h"
#include "typed.h"

enum { QUERIES = SL_ATTENTION_QUERIES, KEYS = SL_ATTENTION_KEYS };

/* Rows in memory, elements of `type`, `stride` elements apart. */
typedef struct typed_rows {
    const void *values;
    uint64_t stride;
    sl_type type;
} typed_rows;

/* Rows of floats. */
typedef struct float_rows {
    const float *values;
    uint64_t stride;
} float_rows;

/* The rows first .. first + count, `width` elements each: where they lie, or widened in `room`
 * [count, width]. */
SL_INLINE float_rows widen_rows(typed_rows rows, uint64_t first, uint64_t count, uint64_t width,
                                float *room)
{
    const void *from = typed_at(rows.values, rows.type, first * rows.stride);
    if (rows.type == SL_TYPE_FP32)
        return (float_rows){from, rows.stride};
    for (uint64_t i = 0; i < count; i++) {
        const void *row = typed_at(from, rows.type, i * rows.stride);
        SL_SIMD(widen)(row, rows.type, room + i * width, width);
    }
    return (float_rows){room, width};
}

/* Queries, or the gradients of their results, as columns. */
typedef struct transposed_rows {
    const float *values; /* [width, QUERIES] */
    uint64_t width;
    bool diagonal; /* the keys are those of their own positions */
} transposed_rows;

typedef float quad __attribute__((vector_size(16)));

/* A 4 x 4 corner of the transposition below. */
SL_INLINE void transpose_quads(const float *from, uint64_t from_row, float scale, float *to)
{
    quad row[4], low[2], high[2];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        memcpy(&row[i], from + i * from_row, sizeof row[i]);
        row[i] *= (quad){scale, scale, scale, scale};
    }
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 2; i++) {
        low[i] = __builtin_shufflevector(row[2 * i], row[2 * i + 1], 0, 4, 1, 5);
        high[i] = __builtin_shufflevector(row[2 * i], row[2 * i + 1], 2, 6, 3, 7);
    }
    const quad column[4] = {
        __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5),
        __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7),
        __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5),
        __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7),
    };
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
        memcpy(to + i * QUERIES, &column[i], sizeof column[i]);
}

/* to[width][QUERIES] = scale * from[count][width], transposed; zero columns from `count` on. */
SL_INLINE void transpose_rows(float_rows rows, uint64_t count, uint64_t width, float scale,
                              float *restrict to)
{
    const float *from = rows.values;
    const uint64_t from_row = rows.stride;
    if (count < QUERIES)
        memset(to, 0, width * QUERIES * sizeof *to);
    const uint64_t quads = count / 4 * 4, wide = width / 4 * 4;
    for (uint64_t i = 0; i < quads; i += 4)
        for (uint64_t d = 0; d < wide; d += 4)
            transpose_quads(from + i * from_row + d, from_row, scale, to + d * QUERIES + i);
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t d = i < quads ? wide : 0; d < width; d++)
            to[d * QUERIES + i] = from[i * from_row + d] * scale;
}

/* scores[key_count][QUERIES] = keys[key_count][width] transposed[width][QUERIES]; of the diagonal
 * tile no more than what the queries see is sure to be written. */
SL_INLINE void multiply_keys(float_rows keys, uint64_t key_count, const transposed_rows *queries,
                             float *scores)
{
    const tile_product p = {
        .a = keys.values,
        .a_row = keys.stride,
        .a_step = 1,
        .b = queries->values,
        .b_step = QUERIES,
        .c = scores,
        .c_row = QUERIES,
        .rows = key_count,
        .columns = QUERIES,
        .steps = queries->width,
        .part = queries->diagonal ? COLUMNS_FROM_ROW : WHOLE,
    };
    multiply_tiles(&p);
}

/* Sets to `value` where the key is later than the query: key `key` of the tile is seen by the
 * queries from key - diagonal on. */
SL_INLINE void mask_later_keys(float *scores, uint64_t key_count, int64_t diagonal, float value)
{
    for (uint64_t key = 0; key < key_count; key++) {
        int64_t first = (int64_t)key - diagonal;
        for (int64_t i = 0; i < first && i < QUERIES; i++)
            scores[key * QUERIES + (uint64_t)i] = value;
    }
}

#endif
