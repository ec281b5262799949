/* Shared by attention forward and backward: tiles of KEYS x QUERIES scores, multiplied by the
 * micro-kernel of the operands' type (../micro_kernel.h), whatever it sums in a step.
 *
 * The keys are the rows of a tile, the queries its columns, so that a register holds one key
 * against LANES queries: maxima and sums over the keys are plain register arithmetic, and a tile of
 * weights is already the B of the next product. A head's operands are stored for the micro-kernel
 * in three ways, each made straight from the tensor:
 *
 *   laid     rows as they are, the words of a row's features one behind the other: A of K Q^T
 *   woven    packed with the rows as terms: A of V^T P^T and K^T dS^T, B of P^T dY and dS^T Q
 *   turned   packed with the features as terms, the rows as columns: B of K Q^T and V dY^T
 *
 * Where a step has one term, a word is a float, and what is woven is what is laid. Else a word is a
 * pair of bf16, and so are weights and their gradients (FlashAttention-2, Dao 2023). */
#ifndef SL_KERNELS_CPU_SIMD_ATTENTION_H
#define SL_KERNELS_CPU_SIMD_ATTENTION_H

#include <math.h>
#include <stddef.h>

#include "exp.h"
#include "isa.h"
#include "kernels/cpu/tiles.h"
#include "steps.h"
#include "typed.h"

enum { QUERIES = SL_ATTENTION_QUERIES, KEYS = SL_ATTENTION_KEYS };

_Static_assert((int)KEYS == (int)QUERIES, "the diagonal tile is the one of equal index");
_Static_assert(QUERIES % 16 == 0 && KEYS % 16 == 0, "draws do not reach over tiles");

/* ---- operands */

/* Rows of a head in memory: elements of `type`, `stride` elements apart. */
typedef struct typed_rows {
    const void *values;
    uint64_t stride;
    sl_type type;
} typed_rows;

SL_INLINE typed_rows rows_from(typed_rows rows, uint64_t first)
{
    rows.values = typed_at(rows.values, rows.type, first * rows.stride);
    return rows;
}

/* to[count][row_words], the missing terms of a last step zero. */
SL_INLINE void lay_rows(const sl_attention_shape *shape, typed_rows rows, uint64_t count,
                        uint32_t *to)
{
    for (uint64_t i = 0; i < count; i++, to += shape->row_words) {
        const void *row = typed_at(rows.values, rows.type, i * rows.stride);
        if (shape->micro->terms_per_step == 1) {
            SL_SIMD(widen)(row, rows.type, (float *)to, shape->width);
            continue;
        }
        const uint64_t bytes = shape->width * sizeof(uint16_t);
        memcpy(to, row, bytes);
        memset((char *)to + bytes, 0, shape->row_words * sizeof *to - bytes);
    }
}

SL_INLINE void weave_rows(const sl_attention_shape *shape, typed_rows rows, uint64_t count,
                          bool for_b, uint32_t *to)
{
    const sl_gemm_strip strip = {.from = rows.values,
                                 .type = rows.type,
                                 .leading = rows.stride,
                                 .width = shape->width,
                                 .term_count = count,
                                 .step_width = shape->padded_width,
                                 .to = to};
    if (for_b)
        shape->micro->pack_b(&strip);
    else
        shape->micro->pack_a(&strip);
}

SL_INLINE void turn_rows(const sl_attention_shape *shape, typed_rows rows, uint64_t count,
                         uint32_t *to)
{
    const sl_gemm_strip strip = {.from = rows.values,
                                 .type = rows.type,
                                 .leading = rows.stride,
                                 .transpose = true,
                                 .width = count,
                                 .term_count = shape->width,
                                 .step_width = QUERIES,
                                 .to = to};
    shape->micro->pack_b(&strip);
}

/* ---- products */

/* The part of a product that the diagonal tile of causal attention needs. The other elements or
 * terms are zero, or are masked later. Whole patches are computed, so a little more than the
 * triangle. */
typedef enum triangle {
    WHOLE,
    COLUMNS_FROM_ROW, /* of C; other patches are left as they are */
    TERMS_FROM_ROW,
    TERMS_TO_COLUMN,
} triangle;

/* C[rows, columns] (+)= A[rows, terms] B[terms, columns]; words as in sl_gemm_patch. */
typedef struct tile_product {
    const uint32_t *a, *b;
    uint64_t a_row, a_step, b_row;
    float *c;
    uint64_t c_row;
    uint64_t rows, columns, terms;
    bool add; /* to C, else overwrite it */
    triangle part;
} tile_product;

/* Rows in whole strips where the micro-kernel reads whole strips: there is room for them. */
SL_INLINE uint64_t whole_rows(const sl_micro_kernel *micro, uint64_t rows)
{
    return micro->blocking.whole_strips ? sl_bits_round_up(rows, micro->rows) : rows;
}

/* Rows of a strip where strips follow the diagonal. */
SL_INLINE uint32_t low_rows(const sl_micro_kernel *micro)
{
    enum { LOW_ROWS = 8 };
    return !micro->blocking.whole_strips && micro->rows > LOW_ROWS ? LOW_ROWS : micro->rows;
}

SL_INLINE sl_span strip_of(uint64_t rows, uint64_t strips, uint64_t index)
{
    const uint64_t first = index * rows / strips;
    return (sl_span){first, (index + 1) * rows / strips - first};
}

/* A patch of these rows and columns, the sum of the steps from `first` to the one with term `end`.
 */
SL_INLINE void multiply_steps(const sl_micro_kernel *micro, const tile_product *p, sl_span row,
                              sl_span column, uint64_t first, uint64_t end)
{
    const sl_gemm_patch patch = {
        .a = p->a + row.first * p->a_row + first * p->a_step,
        .a_row = p->a_row,
        .a_step = p->a_step,
        .b = p->b + first * micro->words_per_step * p->b_row + column.first,
        .b_row = p->b_row,
        .step_count = sl_bits_divide_up(end, micro->terms_per_step) - first,
        .c = p->c + row.first * p->c_row + column.first,
        .leading_c = p->c_row,
        .rows = (uint32_t)row.count,
        .columns = (uint32_t)column.count,
        .add = p->add,
        .next_a = p->a,
        .next_b = p->b,
    };
    micro->multiply(&patch);
}

/* Of the diagonal tile: low strips and narrow patches follow the diagonal closely. */
SL_INLINE void multiply_triangle(const sl_micro_kernel *micro, const tile_product *p, sl_span row)
{
    const uint64_t narrow = micro->narrow_columns, wide = micro->columns;
    uint64_t column = p->part == COLUMNS_FROM_ROW ? row.first / narrow * narrow : 0;
    while (column < p->columns) {
        const bool is_whole = column % wide == 0 && p->part != TERMS_TO_COLUMN;
        const sl_span columns = {column, is_whole ? wide : narrow};
        const uint64_t seen = column + columns.count;
        const uint64_t end = p->part == TERMS_TO_COLUMN && seen < p->terms ? seen : p->terms;
        const uint64_t first = p->part == TERMS_FROM_ROW ? row.first / micro->terms_per_step : 0;
        multiply_steps(micro, p, row, columns, first, end);
        column += columns.count;
    }
}

/* Columns are rounded up to the micro-kernel's: there is room for them. */
static __attribute__((unused)) void multiply_tile(const sl_micro_kernel *micro,
                                                  const tile_product *p)
{
    const bool is_low = p->part == COLUMNS_FROM_ROW || p->part == TERMS_FROM_ROW;
    const uint64_t most = is_low ? low_rows(micro) : micro->rows;
    const uint64_t rows = whole_rows(micro, p->rows), strips = sl_bits_divide_up(rows, most);
    if (p->part != WHOLE)
        for (uint64_t strip = 0; strip < strips; strip++)
            multiply_triangle(micro, p, strip_of(rows, strips, strip));
    else
        for (uint64_t column = 0; column < p->columns; column += micro->columns)
            for (uint64_t strip = 0; strip < strips; strip++)
                multiply_steps(micro, p, strip_of(rows, strips, strip),
                               (sl_span){column, micro->columns}, 0, p->terms);
}

/* scores[key_count][QUERIES] = keys, laid, times queries, turned. Of the diagonal tile no more than
 * what the queries see is sure to be written. */
SL_INLINE void multiply_keys(const sl_attention_shape *shape, const uint32_t *keys,
                             uint64_t key_count, const uint32_t *queries, uint64_t query_count,
                             bool diagonal, float *scores)
{
    const tile_product p = {
        .a = keys,
        .a_row = shape->row_words,
        .a_step = shape->micro->words_per_step,
        .b = queries,
        .b_row = QUERIES,
        .c = scores,
        .c_row = QUERIES,
        .rows = key_count,
        .columns = query_count,
        .terms = shape->width,
        .part = diagonal ? COLUMNS_FROM_ROW : WHOLE,
    };
    multiply_tile(shape->micro, &p);
}

/* A sum over keys for each query: sums[width][QUERIES] (+)= rows, woven, times weights, which are
 * [keys, QUERIES] words. */
SL_INLINE void sum_over_keys(const sl_attention_shape *shape, const uint32_t *rows,
                             uint64_t key_count, const uint32_t *weights, uint64_t query_count,
                             tile_product p)
{
    const sl_micro_kernel *micro = shape->micro;
    p.a = rows;
    p.a_row = micro->words_per_step;
    p.a_step = micro->words_per_step * shape->padded_width;
    p.b = weights;
    p.b_row = QUERIES;
    p.c_row = QUERIES;
    p.rows = shape->width;
    p.columns = query_count;
    p.terms = key_count;
    multiply_tile(micro, &p);
}

/* ---- masks */

/* The first key of a query's document; 0 without documents. An invalid position (negative, or
 * larger than the query's index) gives a key behind the query, or 0. */
SL_INLINE uint64_t find_document(const sl_attention_mask *mask, uint64_t query)
{
    if (mask == NULL || mask->positions == NULL)
        return 0;
    const int64_t first = (int64_t)query - mask->positions[query];
    return first > 0 ? (uint64_t)first : 0;
}

/* The first key of the first tile of keys of which the queries from `query` on see a key. */
SL_INLINE uint64_t find_first_key(const sl_attention_mask *mask, uint64_t query)
{
    const uint64_t first = find_document(mask, query);
    return (first < query ? first : query) / KEYS * KEYS;
}

/* A tile of scores, or of what belongs to them: [KEYS, QUERIES], of these positions. */
typedef struct score_tile {
    uint64_t first_query, query_count, first_key, key_count;
} score_tile;

SL_INLINE bool is_diagonal(const score_tile *tile)
{
    return tile->first_key == tile->first_query;
}

/* For the LANES queries from `query` on: one past the last key whose weight a product reads.
 * `strip`: rows of a strip where the weights are A too (backward); 0 where they are only B. */
SL_INLINE uint64_t end_of_keys(const sl_micro_kernel *micro, const score_tile *tile, uint64_t query,
                               uint32_t strip)
{
    const uint64_t end = sl_bits_round_up(query + LANES + strip, micro->narrow_columns);
    return is_diagonal(tile) && end < tile->key_count ? end : tile->key_count;
}

SL_INLINE lanes select_lanes(int_lanes keep, lanes value, lanes other)
{
    int_lanes kept, rest;
    memcpy(&kept, &value, sizeof kept);
    memcpy(&rest, &other, sizeof rest);
    kept = (kept & keep) | (rest & ~keep);
    memcpy(&value, &kept, sizeof value);
    return value;
}

/* The keys that the queries of a tile see: first[i] <= key <= last[i]. */
typedef struct sight {
    int32_t first[QUERIES], last[QUERIES];
    int32_t latest_first; /* over all queries */
} sight;

SL_INLINE void find_sight(const sl_attention_mask *mask, uint64_t first_query, uint64_t count,
                          sight *out)
{
    out->latest_first = 0;
    for (uint32_t i = 0; i < QUERIES; i++) {
        const uint64_t query = first_query + (i < count ? i : count - 1);
        out->first[i] = (int32_t)find_document(mask, query);
        out->last[i] = (int32_t)query;
        out->latest_first = out->first[i] > out->latest_first ? out->first[i] : out->latest_first;
    }
}

/* Sets to `value` where the query does not see the key. */
SL_INLINE void mask_scores(const sight *seen, const score_tile *tile, float *scores, float value)
{
    const int32_t first_key = (int32_t)tile->first_key;
    if (tile->first_key + tile->key_count <= tile->first_query + 1 &&
        seen->latest_first <= first_key)
        return;
    for (uint64_t column = 0; column < tile->query_count; column += LANES) {
        int_lanes first, last, key = {0};
        memcpy(&first, seen->first + column, sizeof first);
        memcpy(&last, seen->last + column, sizeof last);
        key += first_key;
        float *at = scores + column;
        for (uint64_t i = 0; i < tile->key_count; i++, at += QUERIES, key += 1) {
            const int_lanes keep = (int_lanes)(key >= first) & (int_lanes)(key <= last);
            store_lanes(at, select_lanes(keep, load_lanes(at), set_lanes(value)));
        }
    }
}

SL_INLINE bool drops_weights(const sl_attention_mask *mask)
{
    return mask != NULL && mask->dropout.threshold > 0;
}

/* What each weight of a tile is multiplied with. A draw is for keys and queries that are
 * SL_DROPOUT_APART positions from each other. */
SL_INLINE void draw_factors(const sl_attention_mask *mask, const score_tile *tile)
{
    enum { APART = SL_DROPOUT_APART, DRAWS = QUERIES / 2 };
    const sl_dropout *dropout = &mask->dropout;
    uint32_t words[SL_DROPOUT_WORDS][DRAWS];
    for (uint32_t k = 0; k < KEYS / 2; k++) {
        const uint32_t key = k / APART * 2 * APART + k % APART;
        for (uint32_t n = 0; n < DRAWS; n++) {
            const uint32_t query = (uint32_t)tile->first_query + n / APART * 2 * APART + n % APART;
            const uint64_t index =
                sl_dropout_index(mask->head, query, (uint32_t)tile->first_key + key);
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

/* ---- weights */

/* Terms of quick_exp_lanes's sum: of weights that stay floats, and of weights that become bf16. */
enum { EXACT_TERMS = 5, ROUNDED_TERMS = 3 };

/* Where two keys' weights of LANES queries go: of key `key`, which is even, and the next. */
typedef void (*store_keys)(uint32_t *weights, uint64_t key, uint64_t column, lanes even, lanes odd);

SL_INLINE void store_floats(uint32_t *weights, uint64_t key, uint64_t column, lanes even, lanes odd)
{
    store_lanes((float *)weights + key * QUERIES + column, even);
    store_lanes((float *)weights + (key + 1) * QUERIES + column, odd);
}

#if defined(__AVX512F__)

PAIRS __m256i round_to_bf16(lanes value)
{
    return (__m256i)_mm512_cvtneps_pbh(value);
}

/* LANES neighbours of a laid row, from element `first` on. */
PAIRS void lay_halves(uint32_t *row, uint64_t first, lanes value)
{
    _mm256_storeu_si256((__m256i *)((uint16_t *)row + first), round_to_bf16(value));
}

/* Woven: the words of a step, [KEYS / 2, QUERIES]. */
PAIRS void store_pairs(uint32_t *weights, uint64_t key, uint64_t column, lanes even, lanes odd)
{
    const __m512i low = _mm512_cvtepu16_epi32(round_to_bf16(even));
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(round_to_bf16(odd)), 16);
    _mm512_storeu_si512(weights + key / 2 * QUERIES + column, _mm512_or_si512(low, high));
}

#endif

/* ---- results */

/* to[query][width] = sums[width][query] * factors[query], rounded once. */
SL_INLINE void write_columns(const float *sums, const float *factors, uint64_t width,
                             uint64_t query_count, typed_rows to)
{
    for (uint64_t query = 0; query < query_count; query += LANES)
        for (uint64_t first = 0; first < width; first += LANES) {
            const uint32_t part = part_at(first, width);
            lanes square[LANES];
            for (uint32_t i = 0; i < LANES; i++) {
                square[i] = set_lanes(0.0f);
                if (i < part)
                    square[i] = load_lanes(sums + (first + i) * QUERIES + query) *
                                load_lanes(factors + query);
            }
            transpose_lanes(square);
            for (uint32_t i = 0; i < LANES && query + i < query_count; i++)
                store_at(to.type, (void *)to.values, (query + i) * to.stride + first, square[i],
                         part);
        }
}

#endif
