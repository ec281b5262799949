/* Shared by attention forward and backward: tiles of scores with the keys as rows and the queries
 * as columns, so that a register holds one key against LANES queries. Maxima and sums over the keys
 * are then plain register arithmetic, keys and values are read in place, and only the queries are
 * transposed, once a tile. Columns behind the last query are zero and are never read. Half
 * precision is widened tile by tile, which costs little beside a tile's products. */
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
    const float *values;   /* [width, QUERIES] */
    uint64_t width, count; /* `count` queries: columns behind them are not wanted */
    bool diagonal;         /* the keys are those of their own positions */
} transposed_rows;

/* Columns of the registers that hold `count` queries. */
SL_INLINE uint64_t whole_lanes(uint64_t count)
{
    return (count + LANES - 1) / LANES * LANES;
}

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

/* scores[key_count][QUERIES] = keys[key_count][width] transposed[width][QUERIES], in the registers
 * that hold queries; of the diagonal tile no more than what the queries see is sure to be written.
 */
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
        .columns = whole_lanes(queries->count),
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

/* ---- masks ---- */

/* Of the document of a query; 0 without documents. A position that is none gives a key that may be
 * behind the query. */
SL_INLINE uint64_t find_document(const sl_attention_mask *mask, uint64_t query)
{
    if (mask == NULL || mask->positions == NULL)
        return 0;
    const int64_t first = (int64_t)query - mask->positions[query];
    return first > 0 ? (uint64_t)first : 0;
}

/* The first key of the first tile of keys that the queries from `query` on see anything of. */
SL_INLINE uint64_t find_first_key(const sl_attention_mask *mask, uint64_t query)
{
    const uint64_t first = find_document(mask, query);
    return (first < query ? first : query) / KEYS * KEYS;
}

/* A tile of scores, or of what belongs to them: [key_count, QUERIES]. */
typedef struct score_tile {
    uint64_t first_query, query_count, first_key, key_count;
} score_tile;

/* Sets to `value` where the key is of an earlier document than the query. */
SL_INLINE void mask_documents(const sl_attention_mask *mask, score_tile tile, float *scores,
                              float value)
{
    int32_t first[QUERIES] = {0}, latest = 0; /* keys of the tile */
    if (mask == NULL || mask->positions == NULL)
        return;
    for (uint64_t i = 0; i < tile.query_count; i++) {
        const uint64_t key = find_document(mask, tile.first_query + i);
        first[i] = key > tile.first_key ? (int32_t)(key - tile.first_key) : 0;
        latest = first[i] > latest ? first[i] : latest;
    }
    for (uint64_t key = 0; key < tile.key_count && (int64_t)key < latest; key++)
        for (uint64_t i = 0; i < tile.query_count; i++)
            scores[key * QUERIES + i] = (int32_t)key < first[i] ? value : scores[key * QUERIES + i];
}

SL_INLINE bool drops_weights(const sl_attention_mask *mask)
{
    return mask != NULL && mask->dropout.threshold > 0;
}

/* What each weight of a tile is multiplied with. A draw is for keys and queries that are
 * SL_DROPOUT_APART positions from each other. */
SL_INLINE void draw_factors(const sl_attention_mask *mask, score_tile tile)
{
    enum { APART = SL_DROPOUT_APART, DRAWS = QUERIES / 2 };
    const sl_dropout *dropout = &mask->dropout;
    uint32_t words[SL_DROPOUT_WORDS][DRAWS];
    for (uint32_t k = 0; k < KEYS / 2; k++) {
        const uint32_t key = k / APART * 2 * APART + k % APART;
        for (uint32_t n = 0; n < DRAWS; n++) {
            const uint32_t query = (uint32_t)tile.first_query + n / APART * 2 * APART + n % APART;
            const uint64_t index =
                sl_dropout_index(mask->head, query, (uint32_t)tile.first_key + key);
            uint32_t drawn[SL_DROPOUT_WORDS];
            sl_philox_draw(dropout->seed, dropout->stream, index, drawn);
            for (uint32_t w = 0; w < SL_DROPOUT_WORDS; w++)
                words[w][n] = drawn[w];
        }
        for (uint32_t w = 0; w < SL_DROPOUT_WORDS; w++) {
            float *row = mask->factors + (key + w % 2 * APART) * QUERIES + w / 2 * APART;
            for (uint32_t n = 0; n < DRAWS; n++)
                row[n / APART * 2 * APART + n % APART] =
                    sl_dropout_factor(words[w][n], dropout->threshold, dropout->scale);
        }
    }
}

SL_INLINE void multiply_factors(const sl_attention_mask *mask, score_tile tile, float *weights)
{
    const uint64_t columns = whole_lanes(tile.query_count);
    for (uint64_t key = 0; key < tile.key_count; key++)
        for (uint64_t i = 0; i < columns; i++)
            weights[key * QUERIES + i] *= mask->factors[key * QUERIES + i];
}

_Static_assert(QUERIES % 16 == 0 && KEYS % 16 == 0, "draws do not reach over tiles");

#endif
