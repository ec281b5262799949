/* The gradients of one head. With P = exp(scores - lse) recomputed tile by tile and
 * D = sum over features of dy y:
 *
 *   dV = P^T dY,  dS = P (dY V^T - D),  dQ = scale dS K,  dK = scale dS^T Q.
 *
 * Queries are walked in the outer loop and keys up to them in the inner one, so every sum over
 * queries or keys grows in ascending order. */
#include "attention.h"

typedef struct backward_state {
    float *q_transposed, *dy_transposed; /* [head_width, QUERIES]; queries scaled */
    float *q, *dq;                       /* [QUERIES, head_width]; queries scaled */
    float *p, *ds;                       /* [KEYS, QUERIES] */
    float *lse, *d;                      /* [QUERIES] */
    uint64_t first_query, query_count;
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
    const uint64_t width = head->head_width;
    const float *q = head->q + s->first_query * head->qkv_row;
    const float *y = head->y + s->first_query * head->y_row;
    const float *dy = head->dy + s->first_query * head->y_row;
    transpose_rows(q, head->qkv_row, s->query_count, width, s->scale, s->q_transposed);
    transpose_rows(dy, head->y_row, s->query_count, width, 1.0f, s->dy_transposed);
    memset(s->lse, 0, QUERIES * sizeof *s->lse);
    memset(s->d, 0, QUERIES * sizeof *s->d);
    for (uint64_t i = 0; i < s->query_count; i++) {
        for (uint64_t d = 0; d < width; d++)
            s->q[i * width + d] = q[i * head->qkv_row + d] * s->scale;
        s->lse[i] = head->lse[s->first_query + i];
        s->d[i] = multiply_rows(y + i * head->y_row, dy + i * head->y_row, width);
    }
}

/* p: scores to probabilities; ds: gradients of probabilities to gradients of scores. */
static void soften(const backward_state *s, uint64_t key_count)
{
    for (uint64_t key = 0; key < key_count; key++)
        for (uint32_t i = 0; i < QUERIES; i += LANES) {
            float *p = s->p + key * QUERIES + i, *ds = s->ds + key * QUERIES + i;
            lanes probability = exp_lanes(load_lanes(p) - load_lanes(s->lse + i));
            store_lanes(p, probability);
            store_lanes(ds, probability * (load_lanes(ds) - load_lanes(s->d + i)));
        }
}

/* gradient[key_count][width] (+)= weights[key_count][QUERIES] rows[query_count][width] */
static void add_to_keys(const backward_state *s, const float *weights, product p)
{
    p.a = weights;
    p.a_row = QUERIES;
    p.a_step = 1;
    p.steps = s->query_count;
    multiply(&p);
}

static void add_key_tile(const sl_attention_head *head, const backward_state *s, uint64_t first_key,
                         uint64_t key_count)
{
    const uint64_t width = head->head_width, offset = first_key * head->qkv_row;
    const bool diagonal = first_key == s->first_query; /* the first tile that these keys meet */
    const transposed_rows queries = {s->q_transposed, width, diagonal};
    const transposed_rows results = {s->dy_transposed, width, diagonal};
    multiply_keys(head->k + offset, head->qkv_row, key_count, &queries, s->p);
    multiply_keys(head->v + offset, head->qkv_row, key_count, &results, s->ds);
    if (diagonal) {
        mask_later_keys(s->p, key_count, 0, -INFINITY);
        mask_later_keys(s->ds, key_count, 0, 0.0f);
    }
    soften(s, key_count);
    product to_keys = {
        .b = head->dy + s->first_query * head->y_row,
        .b_step = head->y_row,
        .c = head->dv + offset,
        .c_row = head->qkv_row,
        .rows = key_count,
        .columns = width,
        .add = !diagonal,
        .part = diagonal ? STEPS_FROM_ROW : WHOLE,
    };
    add_to_keys(s, s->p, to_keys);
    to_keys.b = s->q;
    to_keys.b_step = width;
    to_keys.c = head->dk + offset;
    add_to_keys(s, s->ds, to_keys);
    const product to_queries = {
        .a = s->ds,
        .a_row = 1,
        .a_step = QUERIES,
        .b = head->k + offset,
        .b_step = head->qkv_row,
        .c = s->dq,
        .c_row = width,
        .rows = s->query_count,
        .columns = width,
        .steps = key_count,
        .add = first_key > 0,
        .part = diagonal ? STEPS_TO_ROW : WHOLE,
    };
    multiply(&to_queries);
}

static void write_queries(const sl_attention_head *head, const backward_state *s)
{
    for (uint64_t i = 0; i < s->query_count; i++)
        for (uint64_t d = 0; d < head->head_width; d++)
            head->dq[(s->first_query + i) * head->qkv_row + d] =
                s->dq[i * head->head_width + d] * s->scale;
}

_Static_assert((int)KEYS == (int)QUERIES, "the diagonal tile is the one of equal index");

void SL_VECTOR(attention_backward)(const sl_attention_head *head)
{
    backward_state s = carve_scratch(head);
    for (s.first_query = 0; s.first_query < head->seq; s.first_query += QUERIES) {
        const uint64_t left = head->seq - s.first_query;
        s.query_count = left < QUERIES ? left : QUERIES;
        load_queries(head, &s);
        for (uint64_t key = 0; key <= s.first_query; key += KEYS)
            add_key_tile(head, &s, key, key == s.first_query ? s.query_count : KEYS);
        write_queries(head, &s);
    }
}
