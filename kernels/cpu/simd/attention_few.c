/* Attention of a few queries with a cache, such as those of one token. A query is a row here: as
 * columns, one query would leave all other lanes of a register unused. Keys and values are read
 * once, where they lie, by multiply_few (../micro_kernel.h), with a running softmax over
 * SL_ATTENTION_FEW_KEYS keys at a time. */
#include "attention.h"

#include <float.h>

enum { ROWS = SL_ATTENTION_FEW, CHUNK = SL_ATTENTION_FEW_KEYS };

typedef struct few_state {
    const sl_attention_few *few;
    sl_attention_few_room room;
    uint64_t row_count;
    float scale; /* of a score */
    float base[ROWS], weight[ROWS];
} few_state;

static float *floats_at(const few_state *s, uint64_t place)
{
    return (float *)s->few->scratch + place;
}

/* Element 0 of row `row`, in q or y: the heads of a query are neighbours. */
static uint64_t place_of(const sl_attention_few *few, uint64_t row, uint64_t stride)
{
    return row / few->query_heads * stride + row % few->query_heads * few->shape.width;
}

static void lay_queries(const few_state *s)
{
    const sl_attention_few *few = s->few;
    const sl_type type = few->shape.type;
    for (uint64_t row = 0; row < s->row_count; row++) {
        const void *q = typed_at(few->q, type, place_of(few, row, few->q_row));
        lay_rows(&few->shape, (typed_rows){q, few->q_row, type}, 1,
                 few->scratch + s->room.queries + row * few->shape.row_words);
    }
}

/* Keys or values first .. first + count as the B of a product. */
static sl_gemm_strip describe_keys(const sl_attention_few *few, const void *keys, uint64_t first)
{
    return (sl_gemm_strip){
        .from = typed_at(keys, few->shape.type, first * few->key_row),
        .type = few->shape.type,
        .leading = few->key_row,
    };
}

static void multiply_few_keys(const few_state *s, uint64_t first, uint64_t count)
{
    const sl_attention_shape *shape = &s->few->shape;
    sl_gemm_few product = {.a = s->few->scratch + s->room.queries,
                           .a_stride = shape->row_words,
                           .rows = (uint32_t)s->row_count,
                           .b = describe_keys(s->few, s->few->k, first),
                           .sums = floats_at(s, s->room.scores),
                           .leading_sums = s->room.score_row};
    product.b.transpose = true;
    product.b.width = count;
    product.b.term_count = shape->width;
    memset(product.sums, 0, s->row_count * s->room.score_row * sizeof *product.sums);
    shape->micro->multiply_few(&product);
}

static void add_values(const few_state *s, uint64_t first, uint64_t count)
{
    const sl_attention_shape *shape = &s->few->shape;
    sl_gemm_few product = {.a = s->few->scratch + s->room.weights,
                           .a_stride = CHUNK,
                           .rows = (uint32_t)s->row_count,
                           .b = describe_keys(s->few, s->few->v, first),
                           .sums = floats_at(s, s->room.sums),
                           .leading_sums = s->room.sum_row};
    product.b.width = shape->width;
    product.b.term_count = count;
    shape->micro->multiply_few(&product);
}

/* How weights are made and kept: constants where the loop is inlined. */
typedef struct row_form {
    uint32_t terms; /* of quick_exp_lanes */
    void (*store)(uint32_t *row, uint64_t first, lanes value);
} row_form;

SL_INLINE void lay_floats(uint32_t *row, uint64_t first, lanes value)
{
    store_lanes((float *)row + first, value);
}

/* Scores of a row, of which it sees the first `seen`, become weights; the others become 0, up to a
 * whole step of `count` keys. Returns the sum of the weights. */
SL_INLINE float weigh_row(const few_state *s, uint64_t row, uint64_t seen, uint64_t count,
                          const row_form form)
{
    const float *scores = floats_at(s, s->room.scores + row * s->room.score_row);
    uint32_t *weights = s->few->scratch + s->room.weights + row * CHUNK;
    const lanes base = set_lanes(s->base[row]), scale = set_lanes(s->scale);
    const uint64_t end = sl_bits_round_up(count, s->few->shape.micro->terms_per_step);
    lanes sum = set_lanes(0.0f);
    for (uint64_t key = 0; key < end; key += LANES) {
        lanes value = set_lanes(0.0f);
        if (key < seen) {
            const uint32_t part = part_at(key, seen);
            const lanes exponent = load_part(scores + key, part) * scale - base;
            value = quick_exp_lanes(keep_from(set_lanes(-INFINITY), (int32_t)part, exponent),
                                    form.terms);
        }
        sum += value;
        form.store(weights, key, value);
    }
    return sum_lanes(sum);
}

static float find_largest(const float *scores, uint64_t count)
{
    lanes largest = set_lanes(-INFINITY);
    uint64_t key = 0;
    for (; key + LANES <= count; key += LANES)
        largest = max_lanes(load_lanes(scores + key), largest);
    float most = largest_lane(largest);
    for (; key < count; key++)
        most = scores[key] > most ? scores[key] : most;
    return most;
}

/* Keys first .. first + count of one row: its weights, and its sums to the new base. */
SL_INLINE void update_row(few_state *s, uint64_t row, uint64_t first, uint64_t count,
                          const row_form form)
{
    const uint64_t end = s->few->first_query + row / s->few->query_heads + 1;
    const uint64_t left = end > first ? end - first : 0, seen = left < count ? left : count;
    const float *scores = floats_at(s, s->room.scores + row * s->room.score_row);
    const float most = find_largest(scores, seen) * s->scale;
    if (most > s->base[row]) {
        const float rescale = expf(s->base[row] - most);
        float *sums = floats_at(s, s->room.sums + row * s->room.sum_row);
        for (uint64_t d = 0; d < s->few->shape.width; d++)
            sums[d] *= rescale;
        s->weight[row] *= rescale;
        s->base[row] = most;
    }
    s->weight[row] += weigh_row(s, row, seen, count, form);
}

static void update_rows_floats(few_state *s, uint64_t first, uint64_t count)
{
    for (uint64_t row = 0; row < s->row_count; row++)
        update_row(s, row, first, count, (row_form){EXACT_TERMS, lay_floats});
}

#if defined(__AVX512F__)
__attribute__((target("avx512bf16"))) static void update_rows_pairs(few_state *s, uint64_t first,
                                                                    uint64_t count)
{
    for (uint64_t row = 0; row < s->row_count; row++)
        update_row(s, row, first, count, (row_form){ROUNDED_TERMS, lay_halves});
}
#else
#define update_rows_pairs update_rows_floats
#endif

static void write_rows(const few_state *s)
{
    const sl_attention_few *few = s->few;
    const sl_type type = few->shape.type;
    for (uint64_t row = 0; row < s->row_count; row++) {
        float *sums = floats_at(s, s->room.sums + row * s->room.sum_row);
        const float inverse = 1.0f / s->weight[row];
        for (uint64_t d = 0; d < few->shape.width; d++)
            sums[d] *= inverse;
        char *y = (char *)few->y + place_of(few, row, few->y_row) * sl_type_bytes(type);
        SL_SIMD(round)(sums, y, type, few->shape.width);
    }
}

void SL_SIMD(attention_few)(const sl_attention_few *few)
{
    few_state s = {.few = few,
                   .room = sl_attention_few_room_of(&few->shape),
                   .row_count = few->query_count * few->query_heads,
                   .scale = 1.0f / sqrtf((float)few->shape.width)};
    const uint64_t end = few->first_query + few->query_count;
    for (uint64_t row = 0; row < s.row_count; row++)
        s.base[row] = -FLT_MAX;
    memset(floats_at(&s, s.room.sums), 0, s.row_count * s.room.sum_row * sizeof(float));
    lay_queries(&s);
    for (uint64_t first = 0; first < end; first += CHUNK) {
        const uint64_t count = end - first < CHUNK ? end - first : CHUNK;
        multiply_few_keys(&s, first, count);
        if (sl_attention_has_pairs(&few->shape))
            update_rows_pairs(&s, first, count);
        else
            update_rows_floats(&s, first, count);
        add_values(&s, first, count);
    }
    write_rows(&s);
}
