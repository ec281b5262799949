/* The gradients of one head. With P = exp(scores - lse) recomputed tile by tile and
 * D = sum over features of dy y:
 *
 *   dV = P^T dY,  dS = P (dY V^T - D),  dQ = scale dS K,  dK = scale dS^T Q.
 *
 * With dropout P^T in dV and dY V^T are multiplied by the factors of the mask.
 *
 * Queries are walked in the outer loop and keys up to them in the inner one, so every sum over
 * queries or keys grows in ascending order. dK and dV are summed where they belong, or, in half
 * precision, in fp32 for the whole head and rounded once. */
#include "attention.h"

typedef struct backward_state {
    float *q_transposed, *dy_transposed; /* [head_width, QUERIES]; queries scaled */
    float *q, *dq;                       /* [QUERIES, head_width]; queries scaled */
    float *p, *ds;                       /* [KEYS, QUERIES] */
    float *lse, *d;                      /* [QUERIES] */
    float_rows dy;
    float *dk, *dv; /* of all keys, rows key_stride apart */
    uint64_t key_stride;
    float *room_y, *room_dy, *room_k, *room_v; /* [64, head_width]; of half precision only */
    uint64_t first_query, query_count;
    uint64_t first_key; /* of the first tile that the queries see */
    float scale;
} backward_state;

static backward_state carve_scratch(const sl_attention_head *head)
{
    const uint64_t tile = QUERIES * head->head_width;
    backward_state s = {.q_transposed = head->scratch};
    s.dy_transposed = s.q_transposed + tile;
    s.q = s.dy_transposed + tile;
    s.dq = s.q + tile;
    s.p = s.dq + tile;
    s.ds = s.p + KEYS * QUERIES;
    s.lse = s.ds + KEYS * QUERIES;
    s.d = s.lse + QUERIES;
    s.room_y = s.d + QUERIES;
    s.room_dy = s.room_y + tile;
    s.room_k = s.room_dy + tile;
    s.room_v = s.room_k + KEYS * head->head_width;
    s.dk = s.room_v + KEYS * head->head_width;
    s.dv = s.dk + head->seq * head->head_width;
    s.key_stride = head->head_width;
    if (head->type == SL_TYPE_FP32) {
        s.dk = head->dk;
        s.dv = head->dv;
        s.key_stride = head->qkv_row;
    }
    s.scale = 1.0f / sqrtf((float)head->head_width);
    return s;
}

static float multiply_rows(const float *a, const float *b, uint64_t width)
{
    lanes sum = set_lanes(0.0f);
    for (uint64_t i = 0; i < width; i += LANES) {
        uint32_t part = width - i < LANES ? (uint32_t)(width - i) : LANES;
        sum = fma_lanes(load_part(a + i, part), load_part(b + i, part), sum);
    }
    return sum_lanes(sum);
}

static void load_queries(const sl_attention_head *head, backward_state *s)
{
    const uint64_t width = head->head_width, first = s->first_query, count = s->query_count;
    const typed_rows all_q = {head->q, head->qkv_row, head->type};
    const typed_rows all_y = {head->y, head->y_row, head->type};
    const typed_rows all_dy = {head->dy, head->y_row, head->type};
    const float_rows q = widen_rows(all_q, first, count, width, s->room_k);
    const float_rows y = widen_rows(all_y, first, count, width, s->room_y);
    const float_rows dy = widen_rows(all_dy, first, count, width, s->room_dy);
    transpose_rows(q, count, width, s->scale, s->q_transposed);
    transpose_rows(dy, count, width, 1.0f, s->dy_transposed);
    memset(s->lse, 0, QUERIES * sizeof *s->lse);
    memset(s->d, 0, QUERIES * sizeof *s->d);
    for (uint64_t i = 0; i < count; i++) {
        for (uint64_t d = 0; d < width; d++)
            s->q[i * width + d] = q.values[i * q.stride + d] * s->scale;
        s->lse[i] = head->lse[first + i];
        s->d[i] = multiply_rows(y.values + i * y.stride, dy.values + i * dy.stride, width);
    }
    s->dy = dy;
}

/* p: scores to probabilities; ds: gradients of probabilities to gradients of scores. */
static void differentiate_softmax(const backward_state *s, uint64_t key_count)
{
    for (uint64_t key = 0; key < key_count; key++)
        for (uint64_t i = 0; i < s->query_count; i += LANES) {
            float *p = s->p + key * QUERIES + i, *ds = s->ds + key * QUERIES + i;
            lanes probability = exp_lanes(load_lanes(p) - load_lanes(s->lse + i));
            store_lanes(p, probability);
            store_lanes(ds, probability * (load_lanes(ds) - load_lanes(s->d + i)));
        }
}

/* The same with what documents and dropout take away. */
static void differentiate_masked(const sl_attention_mask *mask, const backward_state *s,
                                 uint64_t first_key, uint64_t key_count)
{
    const score_tile place = {s->first_query, s->query_count, first_key, key_count};
    mask_documents(mask, place, s->p, -INFINITY);
    mask_documents(mask, place, s->ds, 0.0f);
    if (!drops_weights(mask)) {
        differentiate_softmax(s, key_count);
        return;
    }
    draw_factors(mask, place);
    multiply_factors(mask, place, s->ds);
    differentiate_softmax(s, key_count);
    multiply_factors(mask, place, s->p);
}

/* gradient[key_count][width] (+)= weights[key_count][QUERIES] rows[query_count][width] */
static void add_to_keys(const backward_state *s, const float *weights, tile_product p)
{
    p.a = weights;
    p.a_row = QUERIES;
    p.a_step = 1;
    p.steps = s->query_count;
    multiply_tiles(&p);
}

static void differentiate_key_tile(const sl_attention_head *head, const backward_state *s,
                                   uint64_t first_key, uint64_t key_count)
{
    const uint64_t width = head->head_width, sums = first_key * s->key_stride;
    const bool diagonal = first_key == s->first_query; /* the first queries that see these keys */
    const transposed_rows queries = {s->q_transposed, width, s->query_count, diagonal};
    const transposed_rows results = {s->dy_transposed, width, s->query_count, diagonal};
    const typed_rows all_k = {head->k, head->qkv_row, head->type};
    const typed_rows all_v = {head->v, head->qkv_row, head->type};
    const float_rows k = widen_rows(all_k, first_key, key_count, width, s->room_k);
    const float_rows v = widen_rows(all_v, first_key, key_count, width, s->room_v);
    multiply_keys(k, key_count, &queries, s->p);
    multiply_keys(v, key_count, &results, s->ds);
    if (diagonal) {
        mask_later_keys(s->p, key_count, 0, -INFINITY);
        mask_later_keys(s->ds, key_count, 0, 0.0f);
    }
    if (head->mask != NULL)
        differentiate_masked(head->mask, s, first_key, key_count);
    else
        differentiate_softmax(s, key_count);
    tile_product to_keys = {
        .b = s->dy.values,
        .b_step = s->dy.stride,
        .c = s->dv + sums,
        .c_row = s->key_stride,
        .rows = key_count,
        .columns = width,
        .add = !diagonal,
        .part = diagonal ? STEPS_FROM_ROW : WHOLE,
    };
    add_to_keys(s, s->p, to_keys);
    to_keys.b = s->q;
    to_keys.b_step = width;
    to_keys.c = s->dk + sums;
    add_to_keys(s, s->ds, to_keys);
    const tile_product to_queries = {
        .a = s->ds,
        .a_row = 1,
        .a_step = QUERIES,
        .b = k.values,
        .b_step = k.stride,
        .c = s->dq,
        .c_row = width,
        .rows = s->query_count,
        .columns = width,
        .steps = key_count,
        .add = first_key > s->first_key,
        .part = diagonal ? STEPS_TO_ROW : WHOLE,
    };
    multiply_tiles(&to_queries);
}

/* Rows first .. first + count of a gradient, from floats `stride` apart. */
static void write_rows(const sl_attention_head *head, float_rows from, void *to, uint64_t first,
                       uint64_t count)
{
    const uint64_t row_bytes = head->qkv_row * sl_type_bytes(head->type);
    for (uint64_t i = 0; i < count; i++) {
        const float *row = from.values + i * from.stride;
        char *place = (char *)to + (first + i) * row_bytes;
        SL_SIMD(round)(row, place, head->type, head->head_width);
    }
}

static void write_queries(const sl_attention_head *head, const backward_state *s)
{
    const float_rows dq = {s->dq, head->head_width};
    for (uint64_t i = 0; i < s->query_count * head->head_width; i++)
        s->dq[i] *= s->scale;
    write_rows(head, dq, head->dq, s->first_query, s->query_count);
}

static void write_keys(const sl_attention_head *head, const backward_state *s)
{
    write_rows(head, (float_rows){s->dk, s->key_stride}, head->dk, 0, head->seq);
    write_rows(head, (float_rows){s->dv, s->key_stride}, head->dv, 0, head->seq);
}

_Static_assert((int)KEYS == (int)QUERIES, "the diagonal tile is the one of equal index");

void SL_SIMD(attention_backward)(const sl_attention_head *head)
{
    backward_state s = carve_scratch(head);
    for (s.first_query = 0; s.first_query < head->seq; s.first_query += QUERIES) {
        const uint64_t left = head->seq - s.first_query;
        s.query_count = left < QUERIES ? left : QUERIES;
        s.first_key = find_first_key(head->mask, s.first_query);
        load_queries(head, &s);
        for (uint64_t key = s.first_key; key <= s.first_query; key += KEYS)
            differentiate_key_tile(head, &s, key, key == s.first_query ? s.query_count : KEYS);
        write_queries(head, &s);
    }
    if (head->type != SL_TYPE_FP32)
        write_keys(head, &s);
}
