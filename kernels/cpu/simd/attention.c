/* Attention of up to QUERIES queries of one head, key tile by key tile with a running softmax (Dao
 * et al. 2022): the scores of one tile are all that is ever stored. */
#include "attention.h"

#include <float.h>

_Static_assert((int)KEYS >= (int)QUERIES, "queries are widened where keys will be");

typedef struct forward_state {
    float *transposed;             /* [head_width, QUERIES], scaled queries */
    float *scores;                 /* [KEYS, QUERIES] */
    float *sum;                    /* [QUERIES, head_width], the weighted values */
    float *max, *weight, *rescale; /* [QUERIES]; rescale: of earlier sums, to the new maximum */
    float *widened_keys, *widened_values; /* [KEYS, head_width]; of half precision only */
} forward_state;

static forward_state carve_scratch(const sl_attention_tile *tile)
{
    forward_state s;
    s.transposed = tile->scratch;
    s.scores = s.transposed + QUERIES * tile->head_width;
    s.sum = s.scores + KEYS * QUERIES;
    s.max = s.sum + QUERIES * tile->head_width;
    s.weight = s.max + QUERIES;
    s.rescale = s.weight + QUERIES;
    s.widened_keys = s.rescale + QUERIES;
    s.widened_values = s.widened_keys + KEYS * tile->head_width;
    return s;
}

/* Scores become exponentials against the running maximum of each query, LANES queries at a time. Of
 * the diagonal tile, keys that the weighted sum will not read stay as they are. */
static void update_softmax(const forward_state *s, uint64_t query_count, uint64_t all_keys,
                           bool diagonal)
{
    for (uint64_t column = 0; column < query_count; column += LANES) {
        const uint64_t seen = column + LANES + PATCH_ROWS;
        const uint64_t key_count = diagonal && seen < all_keys ? seen : all_keys;
        float *scores = s->scores + column;
        const lanes old_max = load_lanes(s->max + column);
        lanes max = old_max;
        for (uint64_t key = 0; key < key_count; key++)
            max = max_lanes(load_lanes(scores + key * QUERIES), max);
        const lanes base = max_lanes(set_lanes(-FLT_MAX), max); /* a query may see none of them */
        lanes sum = set_lanes(0.0f);
        for (uint64_t key = 0; key < key_count; key++) {
            lanes value = exp_lanes(load_lanes(scores + key * QUERIES) - base);
            store_lanes(scores + key * QUERIES, value);
            sum += value;
        }
        lanes rescale = exp_lanes(old_max - base);
        store_lanes(s->max + column, max);
        store_lanes(s->rescale + column, rescale);
        store_lanes(s->weight + column, fma_lanes(load_lanes(s->weight + column), rescale, sum));
    }
}

static void rescale_sums(const forward_state *s, uint64_t query_count, uint64_t width)
{
    for (uint64_t i = 0; i < query_count; i++)
        for (uint64_t d = 0; d < width; d++)
            s->sum[i * width + d] *= s->rescale[i];
}

/* `is_first`: there are no sums yet. */
static void attend_key_tile(const sl_attention_tile *tile, const forward_state *s,
                            uint64_t first_key, uint64_t key_count, bool is_first)
{
    const uint64_t width = tile->head_width;
    const bool diagonal = first_key == tile->first_query;
    const score_tile place = {tile->first_query, tile->query_count, first_key, key_count};
    const transposed_rows queries = {s->transposed, width, tile->query_count, diagonal};
    const typed_rows all_keys = {tile->k, tile->key_row, tile->type};
    const typed_rows all_values = {tile->v, tile->key_row, tile->type};
    const float_rows keys = widen_rows(all_keys, first_key, key_count, width, s->widened_keys);
    const float_rows values =
        widen_rows(all_values, first_key, key_count, width, s->widened_values);
    multiply_keys(keys, key_count, &queries, s->scores);
    mask_later_keys(s->scores, key_count, (int64_t)tile->first_query - (int64_t)first_key,
                    -INFINITY);
    mask_documents(tile->mask, place, s->scores, -INFINITY);
    update_softmax(s, tile->query_count, key_count, diagonal);
    if (drops_weights(tile->mask)) {
        draw_factors(tile->mask, place);
        multiply_factors(tile->mask, place, s->scores);
    }
    if (!is_first)
        rescale_sums(s, tile->query_count, width);
    const tile_product weighted = {
        .a = s->scores,
        .a_row = 1,
        .a_step = QUERIES,
        .b = values.values,
        .b_step = values.stride,
        .c = s->sum,
        .c_row = width,
        .rows = tile->query_count,
        .columns = width,
        .steps = key_count,
        .add = !is_first,
        .part = diagonal ? STEPS_TO_ROW : WHOLE,
    };
    multiply_tiles(&weighted);
}

static void write_result(const sl_attention_tile *tile, const forward_state *s)
{
    const uint64_t width = tile->head_width;
    for (uint64_t i = 0; i < tile->query_count; i++) {
        const float inverse = 1.0f / s->weight[i];
        float *sum = s->sum + i * width;
        for (uint64_t d = 0; d < width; d++)
            sum[d] *= inverse;
        char *y = (char *)tile->y + i * tile->y_row * sl_type_bytes(tile->type);
        SL_SIMD(round)(sum, y, tile->type, width);
        if (tile->lse != NULL)
            tile->lse[i] = s->max[i] + logf(s->weight[i]);
    }
}

void SL_SIMD(attention_forward)(const sl_attention_tile *tile)
{
    const forward_state s = carve_scratch(tile);
    const uint64_t width = tile->head_width;
    const float scale = 1.0f / sqrtf((float)width);
    /* The keys are not there yet, so their room holds the queries for a moment. */
    const typed_rows all_queries = {tile->q, tile->q_row, tile->type};
    const float_rows queries = widen_rows(all_queries, 0, tile->query_count, width, s.widened_keys);
    transpose_rows(queries, tile->query_count, width, scale, s.transposed);
    for (uint32_t i = 0; i < QUERIES; i++) {
        s.max[i] = -INFINITY;
        s.weight[i] = 0.0f;
    }
    /* The first queries see the earliest keys, and each sees the last tile. */
    const uint64_t key_end = tile->first_query + tile->query_count;
    const uint64_t first_key = find_first_key(tile->mask, tile->first_query);
    for (uint64_t key = first_key; key < key_end; key += KEYS)
        attend_key_tile(tile, &s, key, key_end - key < KEYS ? key_end - key : KEYS,
                        key == first_key);
    write_result(tile, &s);
}
