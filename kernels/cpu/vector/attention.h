/* What the two directions of attention share: tiles of scores with the keys as rows and the queries
 * as columns, so that a register holds one key against LANES queries. Maxima and sums over the keys
 * are then plain register arithmetic, keys and values are read where they lie, and only the queries
 * are transposed, once a tile. Queries past the last are zero columns that nobody reads. */
#ifndef SL_KERNELS_CPU_VECTOR_ATTENTION_H
#define SL_KERNELS_CPU_VECTOR_ATTENTION_H

#include <math.h>
#include <stddef.h>

#include "exp.h"
#include "isa.h"
#include "product.h"

enum { QUERIES = SL_ATTENTION_QUERIES, KEYS = SL_ATTENTION_KEYS };

/* to[width][QUERIES] = scale * from[count][width], transposed; zero columns from `count` on. */
SL_INLINE void transpose_rows(const float *from, uint64_t from_row, uint64_t count, uint64_t width,
                              float scale, float *restrict to)
{
    if (count < QUERIES)
        memset(to, 0, width * QUERIES * sizeof *to);
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t d = 0; d < width; d++)
            to[d * QUERIES + i] = from[i * from_row + d] * scale;
}

/* scores[key_count][QUERIES] = keys[key_count][width] transposed[width][QUERIES] */
SL_INLINE void multiply_keys(const float *keys, uint64_t key_row, uint64_t key_count,
                             const float *transposed, uint64_t width, float *scores)
{
    const product p = {
        .a = keys,
        .a_row = key_row,
        .a_step = 1,
        .b = transposed,
        .b_step = QUERIES,
        .c = scores,
        .c_row = QUERIES,
        .rows = key_count,
        .columns = QUERIES,
        .steps = width,
    };
    multiply(&p);
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
