/* The gradients of the query heads of one key head. With P = exp(scores - lse) recomputed tile by
 * tile and D = sum over features of dy y:
 *
 *   dV = P^T dY,  dS = P (dY V^T - D),  dQ = scale dS K,  dK = scale dS^T Q.
 *
 * With dropout P^T in dV and dY V^T are multiplied by the factors of the mask.
 *
 * Every sum over queries or keys grows in ascending order, head by head: blocks of queries in the
 * outer loop, keys up to them in the inner one, and of a block all tiles of queries that see the
 * tile of keys. dK and dV are summed in fp32 and rounded once. */
#include "attention.h"

typedef struct backward_state {
    const sl_attention_head *head;
    sl_attention_backward_room room;
    uint64_t query_head;
    sl_attention_mask mask; /* of the query head */
    bool is_masked;
    float scale;
} backward_state;

/* One tile of queries. */
typedef struct query_tile {
    uint32_t *turned_q, *turned_dy, *q, *dy;
    float *dq, *lse, *d;
    uint64_t first_query, count;
    uint64_t first_key; /* of the first tile of keys that it sees */
    sight sight;
} query_tile;

static uint32_t *words_at(const backward_state *s, uint64_t place)
{
    return s->head->scratch + place;
}

static float *floats_at(const backward_state *s, uint64_t place)
{
    return (float *)words_at(s, place);
}

static const sl_attention_mask *mask_of_head(const backward_state *s)
{
    return s->is_masked ? &s->mask : NULL;
}

/* Rows of the query head from `first` on. */
static typed_rows query_rows(const backward_state *s, const void *values, uint64_t stride,
                             uint64_t first)
{
    const sl_attention_shape *shape = &s->head->shape;
    const void *head = typed_at(values, shape->type, s->query_head * shape->width);
    return rows_from((typed_rows){head, stride, shape->type}, first);
}

static typed_rows key_rows(const backward_state *s, const void *values, uint64_t first)
{
    return rows_from((typed_rows){values, s->head->key_row, s->head->shape.type}, first);
}

SL_INLINE float multiply_typed(sl_type type, const void *a, const void *b, uint64_t width)
{
    lanes sum = set_lanes(0.0f);
    for (uint64_t i = 0; i < width; i += LANES) {
        const uint32_t part = part_at(i, width);
        sum = fma_lanes(load_at(type, a, i, part), load_at(type, b, i, part), sum);
    }
    return sum_lanes(sum);
}

SL_INLINE void find_d(sl_type type, typed_rows y, typed_rows dy, uint64_t width, uint64_t count,
                      float *d)
{
    for (uint64_t i = 0; i < count; i++)
        d[i] = multiply_typed(type, typed_at(y.values, type, i * y.stride),
                              typed_at(dy.values, type, i * dy.stride), width);
}

static void prepare_tile(const backward_state *s, uint64_t index, uint64_t first, query_tile *tile)
{
    const sl_attention_head *head = s->head;
    const sl_attention_shape *shape = &head->shape;
    const uint64_t at = index * s->room.tile_words, left = head->seq - first;
    const typed_rows q = query_rows(s, head->q, head->q_row, first);
    const typed_rows y = query_rows(s, head->y, head->y_row, first);
    const typed_rows dy = query_rows(s, head->dy, head->y_row, first);
    *tile = (query_tile){.turned_q = words_at(s, s->room.turned_q + at),
                         .turned_dy = words_at(s, s->room.turned_dy + at),
                         .q = words_at(s, s->room.q + at),
                         .dy = words_at(s, s->room.dy + at),
                         .dq = floats_at(s, s->room.dq + at),
                         .lse = floats_at(s, s->room.lse + at),
                         .d = floats_at(s, s->room.d + at),
                         .first_query = first,
                         .count = left < QUERIES ? left : QUERIES,
                         .first_key = find_first_key(mask_of_head(s), first)};
    find_sight(mask_of_head(s), first, tile->count, &tile->sight);
    turn_rows(shape, q, tile->count, tile->turned_q);
    turn_rows(shape, dy, tile->count, tile->turned_dy);
    weave_rows(shape, q, tile->count, true, tile->q);
    weave_rows(shape, dy, tile->count, true, tile->dy);
    for (uint64_t i = 0; i < QUERIES; i++) { /* a query that is not there has weights of 0 */
        tile->lse[i] =
            i < tile->count ? head->lse[s->query_head * head->seq + first + i] : INFINITY;
        tile->d[i] = 0.0f;
    }
    SL_BY_TYPE(shape->type, find_d, y, dy, shape->width, tile->count, tile->d);
}

/* Where the weights of two keys and the gradients of their scores go. */
typedef void (*store_gradients)(const backward_state *s, uint64_t key, uint64_t column,
                                const lanes p[2], const lanes ds[2]);

/* How they are made and kept: constants where the loop is inlined. */
typedef struct gradient_form {
    uint32_t terms; /* of quick_exp_lanes */
    store_gradients store;
} gradient_form;

SL_INLINE void store_float_gradients(const backward_state *s, uint64_t key, uint64_t column,
                                     const lanes p[2], const lanes ds[2])
{
    store_floats(words_at(s, s->room.p), key, column, p[0], p[1]);
    store_floats(words_at(s, s->room.ds), key, column, ds[0], ds[1]);
}

/* Of the query tile's LANES queries from `column` on and of key `key`: p: scores to weights; ds:
 * gradients of weights to gradients of scores. */
SL_INLINE void differentiate_key(const backward_state *s, const query_tile *tile, uint64_t key,
                                 uint64_t column, const float *factors, uint32_t terms, lanes *p,
                                 lanes *ds)
{
    const uint64_t at = key * QUERIES + column;
    const lanes score = load_lanes(floats_at(s, s->room.p) + at);
    const lanes exponent = score * set_lanes(s->scale) - load_lanes(tile->lse + column);
    lanes of_weight = load_lanes(floats_at(s, s->room.ds) + at);
    *p = quick_exp_lanes(exponent, terms);
    if (factors != NULL)
        of_weight *= load_lanes(factors + at);
    *ds = *p * (of_weight - load_lanes(tile->d + column));
    if (factors != NULL)
        *p *= load_lanes(factors + at);
}

SL_INLINE void differentiate_softmax(const backward_state *s, const query_tile *tile,
                                     const score_tile *place, const float *factors,
                                     const gradient_form form)
{
    const sl_micro_kernel *micro = s->head->shape.micro;
    const uint64_t terms = micro->terms_per_step > LANES ? micro->terms_per_step : LANES;
    const uint64_t columns = sl_bits_round_up(place->query_count, terms);
    for (uint64_t column = 0; column < columns; column += LANES) {
        const uint64_t keys = end_of_keys(micro, place, column, low_rows(micro));
        const uint64_t end = sl_bits_round_up(keys, micro->terms_per_step);
        lanes p[2], ds[2];
        uint64_t key = 0;
        for (; key < keys; key += 2) {
            p[1] = ds[1] = set_lanes(0.0f);
            differentiate_key(s, tile, key, column, factors, form.terms, &p[0], &ds[0]);
            if (key + 1 < keys)
                differentiate_key(s, tile, key + 1, column, factors, form.terms, &p[1], &ds[1]);
            form.store(s, key, column, p, ds);
        }
        p[0] = ds[0] = p[1] = ds[1] = set_lanes(0.0f);
        for (; key < end; key += 2)
            form.store(s, key, column, p, ds);
    }
}

static void differentiate_floats(const backward_state *s, const query_tile *tile,
                                 const score_tile *place, const float *factors)
{
    differentiate_softmax(s, tile, place, factors,
                          (gradient_form){EXACT_TERMS, store_float_gradients});
}

#if defined(__AVX512F__)

PAIRS void store_pair_gradients(const backward_state *s, uint64_t key, uint64_t column,
                                const lanes p[2], const lanes ds[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        lay_halves(words_at(s, s->room.laid_p), (key + i) * QUERIES + column, p[i]);
        lay_halves(words_at(s, s->room.laid_ds), (key + i) * QUERIES + column, ds[i]);
    }
    store_pairs(words_at(s, s->room.woven_ds), key, column, ds[0], ds[1]);
}

__attribute__((target("avx512bf16"))) static void differentiate_pairs(const backward_state *s,
                                                                      const query_tile *tile,
                                                                      const score_tile *place,
                                                                      const float *factors)
{
    differentiate_softmax(s, tile, place, factors,
                          (gradient_form){ROUNDED_TERMS, store_pair_gradients});
}

#else
#define differentiate_pairs differentiate_floats
#endif

/* Documents, causality and dropout, then the softmax. */
static void differentiate_scores(const backward_state *s, const query_tile *tile,
                                 const score_tile *place)
{
    const float *factors = NULL;
    mask_scores(&tile->sight, place, floats_at(s, s->room.p), -INFINITY);
    mask_scores(&tile->sight, place, floats_at(s, s->room.ds), 0.0f);
    if (drops_weights(mask_of_head(s))) {
        draw_factors(&s->mask, place);
        factors = s->mask.factors;
    }
    if (sl_attention_has_pairs(&s->head->shape))
        differentiate_pairs(s, tile, place, factors);
    else
        differentiate_floats(s, tile, place, factors);
}

/* sums[key_count][width] (+)= weights, laid, times rows of queries, woven. */
static void sum_over_queries(const backward_state *s, const score_tile *place,
                             const uint32_t *weights, const uint32_t *rows, float *sums)
{
    const sl_attention_shape *shape = &s->head->shape;
    const bool diagonal = is_diagonal(place); /* the first queries that see these keys */
    const tile_product p = {
        .a = weights,
        .a_row = sl_attention_has_pairs(shape) ? QUERIES / 2 : QUERIES,
        .a_step = shape->micro->words_per_step,
        .b = rows,
        .b_row = shape->padded_width,
        .c = sums + place->first_key * shape->padded_width,
        .c_row = shape->padded_width,
        .rows = place->key_count,
        .columns = shape->width,
        .terms = place->query_count,
        .add = !diagonal || s->query_head > 0,
        .part = diagonal ? TERMS_FROM_ROW : WHOLE,
    };
    multiply_tile(shape->micro, &p);
}

static void differentiate_tile(const backward_state *s, const query_tile *tile, uint64_t first_key)
{
    const sl_attention_shape *shape = &s->head->shape;
    const uint64_t left = tile->first_query + tile->count - first_key;
    const score_tile place = {tile->first_query, tile->count, first_key, left < KEYS ? left : KEYS};
    const bool diagonal = is_diagonal(&place);
    multiply_keys(shape, words_at(s, s->room.keys), place.key_count, tile->turned_q, tile->count,
                  diagonal, floats_at(s, s->room.p));
    multiply_keys(shape, words_at(s, s->room.values), place.key_count, tile->turned_dy, tile->count,
                  diagonal, floats_at(s, s->room.ds));
    differentiate_scores(s, tile, &place);
    sum_over_queries(s, &place, words_at(s, s->room.laid_p), tile->dy, floats_at(s, s->room.dv));
    sum_over_queries(s, &place, words_at(s, s->room.laid_ds), tile->q, floats_at(s, s->room.dk));
    const tile_product to_queries = {.c = tile->dq,
                                     .add = first_key > tile->first_key,
                                     .part = diagonal ? TERMS_TO_COLUMN : WHOLE};
    sum_over_keys(shape, words_at(s, s->room.woven_keys), place.key_count,
                  words_at(s, s->room.woven_ds), tile->count, to_queries);
}

static void write_queries(const backward_state *s, const query_tile *tile)
{
    const sl_attention_head *head = s->head;
    float scales[QUERIES];
    for (uint64_t i = 0; i < QUERIES; i++)
        scales[i] = s->scale;
    write_columns(tile->dq, scales, head->shape.width, tile->count,
                  query_rows(s, head->dq, head->q_row, tile->first_query));
}

/* A tile of keys and values, as products read them. */
static void load_keys(const backward_state *s, uint64_t first_key)
{
    const sl_attention_head *head = s->head;
    const uint64_t left = head->seq - first_key, count = left < KEYS ? left : KEYS;
    const typed_rows k = key_rows(s, head->k, first_key), v = key_rows(s, head->v, first_key);
    lay_rows(&head->shape, k, count, words_at(s, s->room.keys));
    lay_rows(&head->shape, v, count, words_at(s, s->room.values));
    if (sl_attention_has_pairs(&head->shape))
        weave_rows(&head->shape, k, count, false, words_at(s, s->room.woven_keys));
}

/* The tiles of queries from `first` on. */
static void differentiate_block(const backward_state *s, uint64_t first)
{
    const uint64_t seq = s->head->seq;
    query_tile tile[SL_ATTENTION_TILES];
    uint64_t tiles = 0, first_key = first, end = first;
    for (; tiles < SL_ATTENTION_TILES && end < seq; end += QUERIES) {
        query_tile *next = &tile[tiles];
        prepare_tile(s, tiles++, end, next);
        first_key = next->first_key < first_key ? next->first_key : first_key;
    }
    for (uint64_t key = first_key; key < end; key += KEYS) {
        load_keys(s, key);
        for (uint64_t t = 0; t < tiles; t++)
            if (key >= tile[t].first_key && key <= tile[t].first_query)
                differentiate_tile(s, &tile[t], key);
    }
    for (uint64_t t = 0; t < tiles; t++)
        write_queries(s, &tile[t]);
}

SL_INLINE void write_sums_typed(sl_type type, const sl_attention_head *head, const float *sums,
                                float scale, void *to)
{
    const uint64_t width = head->shape.width;
    for (uint64_t key = 0; key < head->seq; key++, sums += head->shape.padded_width) {
        void *row = (char *)to + key * head->key_row * sl_type_bytes(type);
        for (uint64_t d = 0; d < width; d += LANES) {
            const uint32_t part = part_at(d, width);
            store_at(type, row, d, load_part(sums + d, part) * set_lanes(scale), part);
        }
    }
}

static void write_keys(const backward_state *s)
{
    const sl_attention_head *head = s->head;
    const float *dk = floats_at(s, s->room.dk), *dv = floats_at(s, s->room.dv);
    SL_BY_TYPE(head->shape.type, write_sums_typed, head, dk, s->scale, head->dk);
    SL_BY_TYPE(head->shape.type, write_sums_typed, head, dv, 1.0f, head->dv);
}

void SL_SIMD(attention_backward)(const sl_attention_head *head)
{
    backward_state s = {.head = head,
                        .room = sl_attention_backward_room_of(&head->shape, head->seq),
                        .is_masked = head->mask != NULL,
                        .scale = 1.0f / sqrtf((float)head->shape.width)};
    if (s.is_masked)
        s.mask = *head->mask;
    head->shape.micro->start();
    for (; s.query_head < head->query_heads; s.query_head++, s.mask.head++)
        for (uint64_t first = 0; first < head->seq; first += SL_ATTENTION_BLOCK)
            differentiate_block(&s, first);
    head->shape.micro->stop();
    write_keys(&s);
}
