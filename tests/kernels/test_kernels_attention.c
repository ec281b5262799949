/* What could be wrong in attention: the mask of the diagonal tile, the last tile of queries or
 * keys, a head width that no register divides, the running maximum over key tiles, gradients that
 * miss a tile, the position in the cache, the first key of a document, a weight that is dropped and
 * another that is. Compared with plain double attention in every instruction
 * set; case_run compares worker counts bit by bit.
 *
 * Bounds: a score is off by (width + 2) * UNIT times the sum of its terms' magnitudes, so its
 * exponential by as much relative to itself (twice, for the lse is off too), and a weighted sum
 * over n keys by a further n * UNIT relative to the weighted magnitudes. */
#include "kernel_case.h"
#include "kernel_reference.h"

enum { SHAPES = 20, MASKS = 4 };

typedef struct shape {
    uint64_t batch, seq, heads, width;
} shape;

/* What takes part beside causality: nothing else, documents, dropout, both. */
typedef enum mask { MASK_NONE, MASK_DOCUMENTS, MASK_DROPOUT, MASK_BOTH } mask;

static shape draw_shape(int round)
{
    static const shape fixed[] = {{1, 1, 1, 1},   {1, 1, 3, 5},   {2, 64, 1, 16}, {1, 65, 2, 5},
                                  {1, 63, 1, 64}, {1, 130, 1, 7}, {1, 193, 1, 64}};
    if (round < (int)(sizeof fixed / sizeof *fixed))
        return fixed[round];
    return (shape){draw_between(1, 3), draw_between(1, 100), draw_between(1, 3),
                   draw_between(1, 40)};
}

static double *widen(const float *values, uint64_t count)
{
    double *wide = calloc(count, sizeof *wide);
    assert_non_null(wide);
    for (uint64_t i = 0; values && i < count; i++)
        wide[i] = (double)values[i];
    return wide;
}

static sl_op_attrs attrs_of(shape s)
{
    return (sl_op_attrs){.batch = s.batch, .seq = s.seq, .heads = s.heads, .in = s.heads * s.width};
}

/* Documents of any length, and for the same queries of two ranks other weights. */
static void set_mask(kernel_case *c, mask which, int operand)
{
    const uint64_t seq = c->attrs.seq, longest = draw_between(1, seq);
    c->scalars.dropout_seed = draw_below(UINT64_MAX);
    c->scalars.first_row = draw_below(1000000);
    c->attrs.dropout_site = (uint32_t)draw_below(100);
    c->attrs.rank_index = (uint16_t)draw_below(2);
    if (which & MASK_DROPOUT)
        c->attrs.dropout = 0.1f + 0.1f * (float)draw_below(5);
    if (!(which & MASK_DOCUMENTS))
        return;
    int32_t *positions = case_operand(c, operand, c->attrs.batch * seq * sizeof *positions);
    uint64_t left = 0;
    for (uint64_t i = 0; i < c->attrs.batch * seq; i++) {
        const bool begins = i % seq == 0 || left == 0;
        if (begins)
            left = draw_between(1, longest);
        left--;
        positions[i] = begins ? 0 : positions[i - 1] + 1;
    }
}

/* What the reference has to know of a case; `operand`: of its positions. */
typedef struct masked_call {
    drop_call drop;
    const int32_t *positions;
} masked_call;

static masked_call mask_of(const kernel_case *c, int operand)
{
    return (masked_call){{&c->attrs, &c->scalars, 0}, c->input[operand]};
}

static reference_head head_of(shape s, const double *qkv, uint64_t b, uint64_t h,
                              const masked_call *masked)
{
    const uint64_t in = s.heads * s.width;
    const double *q = qkv + b * s.seq * 3 * in + h * s.width;
    reference_head head = {q, q + in, q + 2 * in, 3 * in, s.seq, 0, s.width};
    head.positions = masked->positions != NULL ? masked->positions + b * s.seq : NULL;
    head.drop = &masked->drop;
    head.row = b;
    head.head = h;
    return head;
}

static void attention_when_run_equals_the_definition(void **state)
{
    (void)state;
    for (int round = 0; round < MASKS * rounds(SHAPES); round++) {
        const shape s = draw_shape(round / MASKS);
        const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
        kernel_case c = {.kind = SL_OP_ATTENTION, .attrs = attrs_of(s)};
        set_mask(&c, (mask)(round % MASKS), 3);
        const masked_call masked = mask_of(&c, 3);
        double *qkv =
            widen(case_random(&c, 0, rows * 3 * in, round / MASKS % 2 ? 1 : 3), rows * 3 * in);
        case_operand(&c, 1, rows * in * sizeof(float));
        case_operand(&c, 2, s.heads * rows * sizeof(float));
        case_run(&c);
        double *y = widen(NULL, rows * in), *bound = widen(NULL, rows * in);
        double *lse = widen(NULL, s.heads * rows), *lse_bound = widen(NULL, s.heads * rows);
        for (uint64_t i = 0; i < s.batch * s.heads * s.seq; i++) {
            const uint64_t b = i / s.seq / s.heads, h = i / s.seq % s.heads, t = i % s.seq;
            const reference_head head = head_of(s, qkv, b, h, &masked);
            const uint64_t at = (b * s.seq + t) * in + h * s.width;
            double score;
            reference_attend(&head, t, y + at, bound + at, lse + i, &score);
            const double score_error = (double)(s.width + 4) * UNIT * score;
            lse_bound[i] = score_error + UNIT * ((double)t + 16 + 2 * fabs(lse[i]));
            for (uint64_t d = 0; d < s.width; d++)
                bound[at + d] *= 2 * score_error + UNIT * (2 * (double)t + 32 + 4 * fabs(lse[i]));
        }
        case_compare(&c, 1, y, bound);
        case_compare(&c, 2, lse, lse_bound);
        case_expect_unchanged(&c, 0, 1);
        void *all[] = {qkv, y, bound, lse, lse_bound};
        for (int i = 0; i < 5; i++)
            free(all[i]);
        case_close(&c);
    }
}

/* Operands of the backward op at one query of one head, and what it adds to. */
typedef struct backward_reference {
    shape s;
    masked_call masked;
    double *qkv, *y, *lse, *dy;
    double *want, *bound; /* [B, T, 3 I] */
} backward_reference;

static double dot(const double *a, const double *b, uint64_t count, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
        *magnitude += fabs(a[i] * b[i]);
    }
    return sum;
}

static void add_pair(const backward_reference *r, uint64_t head_index, uint64_t query, uint64_t key)
{
    const shape s = r->s;
    const uint64_t b = head_index / s.heads, h = head_index % s.heads, in = s.heads * s.width;
    const reference_head head = head_of(s, r->qkv, b, h, &r->masked);
    const double factor = reference_factor(&head, query, key);
    const double scale = 1 / sqrt((double)s.width);
    const uint64_t row = (b * s.seq + query) * in + h * s.width;
    double score_size, dp_size, d_size;
    const double lse = r->lse[head_index * s.seq + query];
    const double score = reference_score(&head, query, key, &score_size);
    const double p = exp(score - lse);
    const double dp = factor * dot(r->dy + row, head.v + key * head.stride, s.width, &dp_size);
    const double d = dot(r->dy + row, r->y + row, s.width, &d_size);
    const double ds = p * (dp - d);
    const double terms = (double)(2 * s.seq + 2 * s.width + 40) + 4 * (fabs(score) + fabs(lse));
    const double relative = UNIT * (terms + 2 * (double)(s.width + 4) * score_size);
    const double ds_size = p * (factor * dp_size + d_size);
    const uint64_t to_query = (b * s.seq + query) * 3 * in + h * s.width;
    const uint64_t to_key = (b * s.seq + key) * 3 * in + h * s.width;
    for (uint64_t i = 0; i < s.width; i++) {
        const double k = head.k[key * head.stride + i], q = head.q[query * head.stride + i];
        r->want[to_query + i] += scale * ds * k;
        r->bound[to_query + i] += relative * fabs(scale * ds_size * k);
        r->want[to_key + in + i] += scale * ds * q;
        r->bound[to_key + in + i] += relative * fabs(scale * ds_size * q);
        r->want[to_key + 2 * in + i] += p * factor * r->dy[row + i];
        r->bound[to_key + 2 * in + i] += relative * fabs(p * factor * r->dy[row + i]);
    }
}

static uint64_t first_key_of(const backward_reference *r, uint64_t head_index, uint64_t query)
{
    const reference_head head =
        head_of(r->s, r->qkv, head_index / r->s.heads, head_index % r->s.heads, &r->masked);
    return reference_first_key(&head, query);
}

/* y and lse as the forward op leaves them. */
static void fill_forward(backward_reference *r, float *y, float *lse)
{
    const shape s = r->s;
    double *magnitude = widen(NULL, s.width), score;
    for (uint64_t i = 0; i < s.batch * s.heads * s.seq; i++) {
        const uint64_t head_index = i / s.seq, t = i % s.seq;
        const reference_head head =
            head_of(s, r->qkv, head_index / s.heads, head_index % s.heads, &r->masked);
        const uint64_t at = ((head_index / s.heads) * s.seq + t) * s.heads * s.width +
                            head_index % s.heads * s.width;
        reference_attend(&head, t, r->y + at, magnitude, r->lse + i, &score);
        lse[i] = (float)r->lse[i];
        r->lse[i] = (double)lse[i];
        for (uint64_t d = 0; d < s.width; d++) {
            y[at + d] = (float)r->y[at + d];
            r->y[at + d] = (double)y[at + d];
        }
    }
    free(magnitude);
}

static void attention_backward_when_run_equals_the_derivative(void **state)
{
    (void)state;
    for (int round = 0; round < MASKS * rounds(SHAPES); round++) {
        const shape s = draw_shape(round / MASKS);
        const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
        kernel_case c = {.kind = SL_OP_ATTENTION_BACKWARD, .attrs = attrs_of(s)};
        set_mask(&c, (mask)(round % MASKS), 5);
        backward_reference r = {.s = s, .masked = mask_of(&c, 5)};
        r.qkv = widen(case_random(&c, 0, rows * 3 * in, 1), rows * 3 * in);
        float *y = case_operand(&c, 1, rows * in * sizeof(float));
        float *lse = case_operand(&c, 2, s.heads * rows * sizeof(float));
        r.dy = widen(case_random(&c, 3, rows * in, 1), rows * in);
        case_operand(&c, 4, rows * 3 * in * sizeof(float));
        r.y = widen(NULL, rows * in);
        r.lse = widen(NULL, s.heads * rows);
        r.want = widen(NULL, rows * 3 * in);
        r.bound = widen(NULL, rows * 3 * in);
        fill_forward(&r, y, lse);
        for (uint64_t head = 0; head < s.batch * s.heads; head++)
            for (uint64_t query = 0; query < s.seq; query++)
                for (uint64_t key = first_key_of(&r, head, query); key <= query; key++)
                    add_pair(&r, head, query, key);
        case_run(&c);
        case_compare(&c, 4, r.want, r.bound);
        case_expect_unchanged(&c, 0, 4);
        void *all[] = {r.qkv, r.dy, r.y, r.lse, r.want, r.bound};
        for (int i = 0; i < 6; i++)
            free(all[i]);
        case_close(&c);
    }
}

static void expect_appended(const kernel_case *c, shape s, uint64_t position, uint64_t cache_rows)
{
    const uint64_t in = s.heads * s.width;
    float *want = allocate(c->bytes[1]);
    memcpy(want, c->input[1], c->bytes[1]);
    const float *qkv = c->input[0];
    for (uint64_t i = 0; i < 2 * s.batch * s.seq; i++) {
        const uint64_t which = i / (s.batch * s.seq), row = i % (s.batch * s.seq);
        const uint64_t b = row / s.seq, t = row % s.seq;
        memcpy(want + ((which * s.batch + b) * cache_rows + position + t) * in,
               qkv + row * 3 * in + (1 + which) * in, in * sizeof *want);
    }
    case_compare_bits(c, 1, want);
    free(want);
}

static void cached_attention_when_run_sees_the_cache(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        shape s = draw_shape(round);
        s.seq = round % 2 ? 1 : s.seq;
        const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
        const uint64_t position = draw_below(100), cache_rows = position + s.seq + draw_below(5);
        kernel_case c = {.kind = SL_OP_ATTENTION_CACHED, .attrs = attrs_of(s)};
        c.attrs.cache_rows = cache_rows;
        c.scalars.position = (uint32_t)position;
        double *qkv = widen(case_random(&c, 0, rows * 3 * in, 1), rows * 3 * in);
        const uint64_t cache_count = 2 * s.batch * cache_rows * in;
        case_random(&c, 1, cache_count, 1);
        case_operand(&c, 2, rows * in * sizeof(float));
        case_run(&c);
        expect_appended(&c, s, position, cache_rows);
        double *cache = widen(c.result[1], cache_count), *y = widen(NULL, rows * in);
        double *bound = widen(NULL, rows * in), lse, score;
        for (uint64_t i = 0; i < rows * s.heads; i++) {
            const uint64_t b = i / s.seq / s.heads, h = i / s.seq % s.heads, t = i % s.seq;
            const double *k = cache + b * cache_rows * in + h * s.width;
            const uint64_t at = (b * s.seq + t) * in + h * s.width;
            /* reference_attend wants one stride for q, k and v: give it the query alone. */
            const reference_head head = {qkv + (b * s.seq + t) * 3 * in + h * s.width,
                                         k,
                                         k + s.batch * cache_rows * in,
                                         in,
                                         1,
                                         position + t,
                                         s.width};
            reference_attend(&head, 0, y + at, bound + at, &lse, &score);
            for (uint64_t d = 0; d < s.width; d++)
                bound[at + d] *= UNIT * (2 * (double)(s.width + 4) * score +
                                         2 * (double)cache_rows + 32 + 4 * fabs(lse));
        }
        case_compare(&c, 2, y, bound);
        void *all[] = {qkv, cache, y, bound};
        for (int i = 0; i < 4; i++)
            free(all[i]);
        case_close(&c);
    }
}

static void attention_when_heads_do_not_divide_fails(void **state)
{
    (void)state;
    float some[64] = {0};
    sl_op_attrs attrs = {.batch = 1, .seq = 1, .in = 7, .heads = 2};
    sl_kernel_call call = {.attrs = &attrs, .workers = pools[0], .operand = {some, some, some}};
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ATTENTION].run(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.batch = 1, .seq = 2, .in = 2, .heads = 1, .cache_rows = 1};
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ATTENTION_CACHED].run(&call), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "cache"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_when_run_equals_the_definition),
        cmocka_unit_test(attention_backward_when_run_equals_the_derivative),
        cmocka_unit_test(cached_attention_when_run_sees_the_cache),
        cmocka_unit_test(attention_when_heads_do_not_divide_fails),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
