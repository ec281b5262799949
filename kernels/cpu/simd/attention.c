/* Attention of a block of queries of one head: tile of keys by tile of keys, each met by all tiles
 * of queries that see it, with a running softmax (Dao et al. 2022). The scores of one tile are all
 * that is ever stored.
 *
 * A weight is e^(scale score - base). The base of a query is its largest scaled score at the first
 * tile; a later maximum becomes the base only if that is more than BASE_LAG above it. So sums are
 * rescaled seldom, and a weight is at most e^BASE_LAG (FlashAttention-4's way). */
#include "attention.h"

#include <float.h>

#define BASE_LAG 8.0f

typedef struct forward_state {
    const sl_attention_block *block;
    sl_attention_room room;
    float scale; /* of a score */
} forward_state;

/* One tile of queries. */
typedef struct query_tile {
    uint32_t *queries;
    float *sums, *base, *weight;
    uint64_t first_query, count;
    uint64_t first_key; /* of the first tile of keys that it sees */
    sight sight;
} query_tile;

static float *floats_at(const forward_state *s, uint64_t place)
{
    return (float *)s->block->scratch + place;
}

static typed_rows rows_of(const sl_attention_block *block, const void *values, uint64_t stride,
                          uint64_t first)
{
    return rows_from((typed_rows){values, stride, block->shape.type}, first);
}

static void prepare_tile(const forward_state *s, uint64_t index, query_tile *tile)
{
    const sl_attention_block *block = s->block;
    const uint64_t at = index * s->room.tile_words, first = index * QUERIES;
    const uint64_t left = block->query_count - first;
    tile->queries = block->scratch + s->room.queries + at;
    tile->sums = floats_at(s, s->room.sums + at);
    tile->base = floats_at(s, s->room.base + at);
    tile->weight = floats_at(s, s->room.weight + at);
    tile->first_query = block->first_query + first;
    tile->count = left < QUERIES ? left : QUERIES;
    tile->first_key = find_first_key(block->mask, tile->first_query);
    find_sight(block->mask, tile->first_query, tile->count, &tile->sight);
    turn_rows(&block->shape, rows_of(block, block->q, block->q_row, first), tile->count,
              tile->queries);
    for (uint32_t i = 0; i < QUERIES; i++) {
        tile->base[i] = -INFINITY;
        tile->weight[i] = 0.0f;
    }
}

/* Lifts the base of each of LANES queries to this tile's largest score where that is far above;
 * then earlier sums are multiplied by `rescale`. */
SL_INLINE bool lift_base(lanes largest, lanes *base, lanes *rescale)
{
    const lanes limit = *base + set_lanes(BASE_LAG), old = *base;
    if (!any_greater(largest, limit))
        return false;
    *base = select_lanes((int_lanes)(largest > limit), largest, old);
    *rescale = quick_exp_lanes(old - max_lanes(set_lanes(-FLT_MAX), *base), EXACT_TERMS);
    return true;
}

/* e^(scale score - base), with two roundings: it is 1 at the score that the base was made from. */
SL_INLINE lanes weigh(const float *score, lanes scale, lanes base, const uint32_t terms)
{
    return quick_exp_lanes(load_lanes(score) * scale - base, terms);
}

/* How a tile's weights are made and kept: constants where the loops are inlined. */
typedef struct weight_form {
    uint32_t terms; /* of quick_exp_lanes */
    store_keys store;
} weight_form;

/* Scores of LANES queries, from `column` on, become weights; keys from the end of the tile up
 * to a whole step get weight 0. Returns the sum of the weights. */
SL_INLINE lanes weigh_keys(const forward_state *s, const score_tile *place, uint64_t column,
                           lanes base, const float *factors, const weight_form form)
{
    const float *scores = floats_at(s, s->room.scores) + column;
    uint32_t *weights = s->block->scratch + s->room.weights;
    const uint64_t keys = end_of_keys(s->block->shape.micro, place, column, 0);
    const uint64_t end = sl_bits_round_up(keys, s->block->shape.micro->terms_per_step);
    const lanes scale = set_lanes(s->scale), zero = set_lanes(0.0f);
    lanes even_sum = zero, odd_sum = zero;
    uint64_t key = 0;
    for (; key < keys; key += 2) {
        const float *at = scores + key * QUERIES;
        lanes even = weigh(at, scale, base, form.terms), odd = zero;
        if (key + 1 < keys)
            odd = weigh(at + QUERIES, scale, base, form.terms);
        even_sum += even;
        odd_sum += odd;
        if (factors != NULL) {
            even *= load_lanes(factors + key * QUERIES + column);
            odd *= load_lanes(factors + (key + 1) * QUERIES + column);
        }
        form.store(weights, key, column, even, odd);
    }
    for (; key < end; key += 2)
        form.store(weights, key, column, zero, zero);
    return even_sum + odd_sum;
}

SL_INLINE void update_softmax(const forward_state *s, const query_tile *tile,
                              const score_tile *place, const float *factors, const weight_form form)
{
    const float *scores = floats_at(s, s->room.scores);
    float *rescales = floats_at(s, s->room.rescale);
    for (uint64_t column = 0; column < place->query_count; column += LANES) {
        const uint64_t keys = end_of_keys(s->block->shape.micro, place, column, 0);
        lanes largest = set_lanes(-INFINITY), rescale = set_lanes(1.0f);
        for (uint64_t key = 0; key < keys; key++)
            largest = max_lanes(load_lanes(scores + key * QUERIES + column), largest);
        lanes base = load_lanes(tile->base + column), weight = load_lanes(tile->weight + column);
        if (lift_base(largest * set_lanes(s->scale), &base, &rescale)) {
            store_lanes(tile->base + column, base);
            weight *= rescale;
        }
        store_lanes(rescales + column, rescale);
        base = max_lanes(set_lanes(-FLT_MAX), base); /* a query may see none of the keys */
        weight += weigh_keys(s, place, column, base, factors, form);
        store_lanes(tile->weight + column, weight);
    }
}

static void update_softmax_floats(const forward_state *s, const query_tile *tile,
                                  const score_tile *place, const float *factors)
{
    update_softmax(s, tile, place, factors, (weight_form){EXACT_TERMS, store_floats});
}

#if defined(__AVX512F__)
__attribute__((target("avx512bf16"))) static void update_softmax_pairs(const forward_state *s,
                                                                       const query_tile *tile,
                                                                       const score_tile *place,
                                                                       const float *factors)
{
    update_softmax(s, tile, place, factors, (weight_form){ROUNDED_TERMS, store_pairs});
}
#else
#define update_softmax_pairs update_softmax_floats
#endif

static void rescale_sums(const forward_state *s, const query_tile *tile)
{
    const float *rescales = floats_at(s, s->room.rescale);
    for (uint64_t column = 0; column < tile->count; column += LANES) {
        const lanes rescale = load_lanes(rescales + column);
        if (!any_greater(set_lanes(1.0f), rescale))
            continue;
        float *sum = tile->sums + column;
        for (uint64_t d = 0; d < s->block->shape.width; d++, sum += QUERIES)
            store_lanes(sum, load_lanes(sum) * rescale);
    }
}

static void attend_tile(const forward_state *s, const query_tile *tile, uint64_t first_key)
{
    const sl_attention_block *block = s->block;
    const sl_attention_shape *shape = &block->shape;
    const uint64_t end = tile->first_query + tile->count, keys = end - first_key;
    const score_tile place = {tile->first_query, tile->count, first_key, keys < KEYS ? keys : KEYS};
    float *scores = floats_at(s, s->room.scores);
    const float *factors = NULL;
    multiply_keys(shape, block->scratch + s->room.keys, place.key_count, tile->queries, tile->count,
                  is_diagonal(&place), scores);
    mask_scores(&tile->sight, &place, scores, -INFINITY);
    if (drops_weights(block->mask)) {
        draw_factors(block->mask, &place);
        factors = block->mask->factors;
    }
    if (sl_attention_has_pairs(shape))
        update_softmax_pairs(s, tile, &place, factors);
    else
        update_softmax_floats(s, tile, &place, factors);
    const bool is_first = first_key == tile->first_key;
    if (!is_first)
        rescale_sums(s, tile);
    const tile_product weighted = {
        .c = tile->sums, .add = !is_first, .part = is_diagonal(&place) ? TERMS_TO_COLUMN : WHOLE};
    sum_over_keys(shape, block->scratch + s->room.values, place.key_count,
                  block->scratch + s->room.weights, tile->count, weighted);
}

static void write_result(const forward_state *s, uint64_t index, const query_tile *tile)
{
    const sl_attention_block *block = s->block;
    const uint64_t first = index * QUERIES;
    float inverse[QUERIES];
    for (uint64_t i = 0; i < QUERIES; i++)
        inverse[i] = 1.0f / tile->weight[i];
    write_columns(tile->sums, inverse, block->shape.width, tile->count,
                  rows_of(block, block->y, block->y_row, first));
    for (uint64_t i = 0; i < tile->count && block->lse != NULL; i++)
        block->lse[first + i] = tile->base[i] + logf(tile->weight[i]);
}

void SL_SIMD(attention_forward)(const sl_attention_block *block)
{
    const sl_attention_shape *shape = &block->shape;
    const forward_state s = {block, sl_attention_room_of(shape, block->query_count),
                             1.0f / sqrtf((float)shape->width)};
    const uint64_t tiles = sl_bits_divide_up(block->query_count, QUERIES);
    const uint64_t end = block->first_query + block->query_count;
    query_tile tile[SL_ATTENTION_TILES];
    shape->micro->start();
    uint64_t first_key = block->first_query;
    for (uint64_t t = 0; t < tiles; t++) {
        prepare_tile(&s, t, &tile[t]);
        first_key = tile[t].first_key < first_key ? tile[t].first_key : first_key;
    }
    for (uint64_t key = first_key; key < end; key += KEYS) {
        const uint64_t count = end - key < KEYS ? end - key : KEYS;
        const typed_rows keys = rows_of(block, block->k, block->key_row, key);
        const typed_rows values = rows_of(block, block->v, block->key_row, key);
        lay_rows(shape, keys, count, block->scratch + s.room.keys);
        weave_rows(shape, values, count, false, block->scratch + s.room.values);
        for (uint64_t t = 0; t < tiles; t++)
            if (key >= tile[t].first_key && key < tile[t].first_query + tile[t].count)
                attend_tile(&s, &tile[t], key);
    }
    shape->micro->stop();
    for (uint64_t t = 0; t < tiles; t++)
        write_result(&s, t, &tile[t]);
}
