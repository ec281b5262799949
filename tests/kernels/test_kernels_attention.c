/* What could be wrong in attention: the mask of the diagonal tile, the last tile of queries or
 * keys, a head width that no register divides, the running maximum over key tiles, gradients that
 * miss a tile, the position in the cache, the first key of a document, a weight that is dropped and
 * another that is, another key head than the query head's. Compared with plain double attention in
 * every instruction set; case_run compares worker counts bit by bit.
 *
 * Bounds: a score is off by (width + 2) * UNIT times the sum of its terms' magnitudes, so its
 * exponential by as much relative to itself (twice, for the lse is off too), and a weighted sum
 * over n keys by a further n * UNIT relative to the weighted magnitudes. */
#include "kernel_case.h"
#include "kernel_reference.h"

enum { SHAPES = 25, MASKS = 4 };

typedef struct shape {
    uint64_t batch, seq, heads, width;
    uint64_t shared; /* query heads of a key head */
} shape;

/* Features of all queries of a token, of its keys, and of all that lies in a row. */
static uint64_t queries_of(shape s)
{
    return s.heads * s.width;
}

static uint64_t keys_of(shape s)
{
    return s.heads / s.shared * s.width;
}

static uint64_t row_of(shape s)
{
    return queries_of(s) + 2 * keys_of(s);
}

/* What takes part beside causality: nothing else, documents, dropout, both. */
typedef enum mask { MASK_NONE, MASK_DOCUMENTS, MASK_DROPOUT, MASK_BOTH } mask;

static shape draw_shape(int round)
{
    static const shape fixed[] = {{1, 1, 1, 1, 1},    {1, 1, 3, 5, 3},     {2, 64, 1, 16, 1},
                                  {1, 65, 2, 5, 2},   {1, 63, 1, 64, 1},   {1, 130, 1, 7, 1},
                                  {1, 193, 2, 64, 1}, {1, 300, 4, 20, 2},  {1, 576, 1, 8, 1},
                                  {1, 70, 2, 80, 2},  {1, 130, 2, 128, 2}, {1, 65, 1, 256, 1}};
    if (round < (int)(sizeof fixed / sizeof *fixed))
        return fixed[round];
    const uint64_t shared = draw_between(1, 3);
    return (shape){draw_between(1, 3), draw_between(1, 100), shared * draw_between(1, 2),
                   draw_between(1, 40), shared};
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
    return (sl_op_attrs){
        .batch = s.batch, .seq = s.seq, .heads = s.heads, .in = queries_of(s), .out = keys_of(s)};
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
    const double *row = qkv + b * s.seq * row_of(s);
    const double *k = row + queries_of(s) + h / s.shared * s.width;
    reference_head head = {row + h * s.width, k, k + keys_of(s), row_of(s), s.seq, 0, s.width};
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
        double *qkv = widen(case_random(&c, 0, rows * row_of(s), round / MASKS % 2 ? 1 : 3),
                            rows * row_of(s));
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
    double *want, *bound; /* as qkv */
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
    const double terms =
        (double)(2 * s.shared * s.seq + 2 * s.width + 40) + 4 * (fabs(score) + fabs(lse));
    const double relative = UNIT * (terms + 2 * (double)(s.width + 4) * score_size);
    const double ds_size = p * (factor * dp_size + d_size);
    const uint64_t to_query = (b * s.seq + query) * row_of(s) + h * s.width;
    const uint64_t to_key = (b * s.seq + key) * row_of(s) + in + h / s.shared * s.width;
    const uint64_t to_value = to_key + keys_of(s);
    for (uint64_t i = 0; i < s.width; i++) {
        const double k = head.k[key * head.stride + i], q = head.q[query * head.stride + i];
        r->want[to_query + i] += scale * ds * k;
        r->bound[to_query + i] += relative * fabs(scale * ds_size * k);
        r->want[to_key + i] += scale * ds * q;
        r->bound[to_key + i] += relative * fabs(scale * ds_size * q);
        r->want[to_value + i] += p * factor * r->dy[row + i];
        r->bound[to_value + i] += relative * fabs(p * factor * r->dy[row + i]);
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
        r.qkv = widen(case_random(&c, 0, rows * row_of(s), 1), rows * row_of(s));
        float *y = case_operand(&c, 1, rows * in * sizeof(float));
        float *lse = case_operand(&c, 2, s.heads * rows * sizeof(float));
        r.dy = widen(case_random(&c, 3, rows * in, 1), rows * in);
        case_operand(&c, 4, rows * row_of(s) * sizeof(float));
        r.y = widen(NULL, rows * in);
        r.lse = widen(NULL, s.heads * rows);
        r.want = widen(NULL, rows * row_of(s));
        r.bound = widen(NULL, rows * row_of(s));
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
    const uint64_t keys = keys_of(s);
    float *want = allocate(c->bytes[1]);
    memcpy(want, c->input[1], c->bytes[1]);
    const float *qkv = c->input[0];
    for (uint64_t i = 0; i < 2 * s.batch * s.seq; i++) {
        const uint64_t which = i / (s.batch * s.seq), row = i % (s.batch * s.seq);
        const uint64_t b = row / s.seq, t = row % s.seq;
        memcpy(want + ((which * s.batch + b) * cache_rows + position + t) * keys,
               qkv + row * row_of(s) + queries_of(s) + which * keys, keys * sizeof *want);
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
        const uint64_t position = draw_below(round % 5 ? 100 : 1100),
                       cache_rows = position + s.seq + draw_below(5);
        kernel_case c = {.kind = SL_OP_ATTENTION_CACHED, .attrs = attrs_of(s)};
        c.attrs.cache_rows = cache_rows;
        c.scalars.position = (uint32_t)position;
        double *qkv = widen(case_random(&c, 0, rows * row_of(s), 1), rows * row_of(s));
        const uint64_t keys = keys_of(s), cache_count = 2 * s.batch * cache_rows * keys;
        case_random(&c, 1, cache_count, 1);
        case_operand(&c, 2, rows * in * sizeof(float));
        case_run(&c);
        expect_appended(&c, s, position, cache_rows);
        double *cache = widen(c.result[1], cache_count), *y = widen(NULL, rows * in);
        double *bound = widen(NULL, rows * in), lse, score;
        for (uint64_t i = 0; i < rows * s.heads; i++) {
            const uint64_t b = i / s.seq / s.heads, h = i / s.seq % s.heads, t = i % s.seq;
            const double *k = cache + b * cache_rows * keys + h / s.shared * s.width;
            const uint64_t at = (b * s.seq + t) * in + h * s.width;
            /* reference_attend wants one stride for q, k and v: give it the query alone. */
            const reference_head head = {qkv + (b * s.seq + t) * row_of(s) + h * s.width,
                                         k,
                                         k + s.batch * cache_rows * keys,
                                         keys,
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

/* ---- half precision */

/* The tensors of one call in fp32, and the same in half precision. */
typedef struct half_pair {
    kernel_case full, half;
} half_pair;

static void open_pair(half_pair *p, sl_op_kind kind, shape s, sl_type type)
{
    p->full = (kernel_case){.kind = kind, .attrs = attrs_of(s)};
    p->half = p->full;
    p->half.attrs.type = (uint16_t)type;
}

/* The mask of one call, in both types. */
static void mask_pair(half_pair *p, mask which, int operand)
{
    set_mask(&p->full, which, operand);
    const uint16_t type = p->half.attrs.type;
    p->half.attrs = p->full.attrs;
    p->half.attrs.type = type;
    p->half.scalars = p->full.scalars;
    if (p->full.input[operand] != NULL)
        copy_operand(&p->half, operand, p->full.input[operand], p->full.bytes[operand]);
}

/* The mask of another call. */
static void copy_mask(kernel_case *to, int operand, const kernel_case *from, int from_operand)
{
    to->attrs = from->attrs;
    to->scalars = from->scalars;
    if (from->input[from_operand] != NULL)
        copy_operand(to, operand, from->input[from_operand], from->bytes[from_operand]);
}

/* Numbers that half precision holds. */
static void fill_pair(half_pair *p, int operand, uint64_t count)
{
    float *wide = case_random(&p->full, operand, count, 1);
    uint16_t *narrow = case_operand(&p->half, operand, count * sizeof *narrow);
    for (uint64_t i = 0; i < count; i++) {
        narrow[i] = to_half((sl_type)p->half.attrs.type, wide[i]);
        wide[i] = from_half((sl_type)p->half.attrs.type, narrow[i]);
    }
}

static void room_pair(half_pair *p, int operand, uint64_t count)
{
    case_operand(&p->full, operand, count * sizeof(float));
    case_operand(&p->half, operand, count * sizeof(uint16_t));
}

/* Each row of a result in half precision is the one in fp32, but for the rounding of what is summed
 * and of the result: an unit of 8 bits, or of 11. */
static void expect_near(const half_pair *p, int operand, uint64_t rows, uint64_t width)
{
    const sl_type type = (sl_type)p->half.attrs.type;
    const double unit = type == SL_TYPE_BF16 ? 0x1p-7 : 0x1p-10;
    double largest = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t row = 0; row < rows; row++) {
            double size = 0, error = 0;
            for (uint64_t i = row * width; i < (row + 1) * width; i++) {
                const double want = (double)((float *)p->full.result[operand])[i];
                const double got =
                    (double)from_half(type, ((uint16_t *)p->half.result[operand])[i]);
                size += want * want;
                error += (got - want) * (got - want);
            }
            largest = pass == 0 && size > largest ? size : largest;
            if (pass == 1 && !(sqrt(error) <= unit * (sqrt(size) + sqrt(largest) / 2)))
                fail_msg("%s: operand %d, row %llu is off by %g of %g", sl_simd_current()->isa,
                         operand, (unsigned long long)row, sqrt(error), sqrt(size));
        }
}

static void attention_when_in_half_precision_is_near_fp32(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * rounds(SHAPES); round++) {
        const sl_type type = round % 2 ? SL_TYPE_BF16 : SL_TYPE_FP16;
        const shape s = draw_shape(round / 2);
        const uint64_t rows = s.batch * s.seq, in = queries_of(s);
        half_pair forward, back;
        open_pair(&forward, SL_OP_ATTENTION, s, type);
        mask_pair(&forward, (mask)(round / 2 % MASKS), 3);
        fill_pair(&forward, 0, rows * row_of(s));
        room_pair(&forward, 1, rows * in);
        case_operand(&forward.full, 2, rows * s.heads * sizeof(float));
        case_operand(&forward.half, 2, rows * s.heads * sizeof(float));
        case_run(&forward.full);
        case_run(&forward.half);
        expect_near(&forward, 1, rows, in);
        open_pair(&back, SL_OP_ATTENTION_BACKWARD, s, type);
        copy_mask(&back.full, 5, &forward.full, 3);
        copy_mask(&back.half, 5, &forward.half, 3);
        const uint64_t counts[] = {rows * row_of(s), rows * in};
        for (int i = 0; i < 2; i++) {
            copy_operand(&back.full, i, forward.full.result[i], counts[i] * sizeof(float));
            copy_operand(&back.half, i, forward.half.result[i], counts[i] * sizeof(uint16_t));
        }
        copy_operand(&back.full, 2, forward.full.result[2], rows * s.heads * sizeof(float));
        copy_operand(&back.half, 2, forward.half.result[2], rows * s.heads * sizeof(float));
        fill_pair(&back, 3, rows * in);
        room_pair(&back, 4, rows * row_of(s));
        case_run(&back.full);
        case_run(&back.half);
        expect_near(&back, 4, rows, row_of(s));
        case_close(&forward.full);
        case_close(&forward.half);
        case_close(&back.full);
        case_close(&back.half);
    }
}

/* ---- numbers at the edge of a type */

/* One call of attention and of its backward op with the same tensors, of any type. */
typedef struct edge_case {
    shape s;
    kernel_case forward, back;
} edge_case;

static void store_number(kernel_case *c, int operand, uint64_t at, float value)
{
    if (c->attrs.type == SL_TYPE_FP32)
        ((float *)c->input[operand])[at] = value;
    else
        ((uint16_t *)c->input[operand])[at] = to_half((sl_type)c->attrs.type, value);
}

static float number_of(const kernel_case *c, const void *numbers, uint64_t at)
{
    return c->attrs.type == SL_TYPE_FP32
               ? ((const float *)numbers)[at]
               : from_half((sl_type)c->attrs.type, ((const uint16_t *)numbers)[at]);
}

/* Queries and keys of size `scale`, values and dy of size 1. */
static edge_case open_edge(shape s, sl_type type, float scale)
{
    edge_case e = {.s = s,
                   .forward = {.kind = SL_OP_ATTENTION, .attrs = attrs_of(s)},
                   .back = {.kind = SL_OP_ATTENTION_BACKWARD, .attrs = attrs_of(s)}};
    const uint64_t rows = s.batch * s.seq, values_at = queries_of(s) + keys_of(s);
    const uint64_t count = rows * row_of(s), in = queries_of(s), bytes = sl_type_bytes(type);
    e.forward.attrs.type = e.back.attrs.type = (uint16_t)type;
    case_operand(&e.forward, 0, count * bytes);
    case_operand(&e.forward, 1, rows * in * bytes);
    case_operand(&e.forward, 2, rows * s.heads * sizeof(float));
    case_operand(&e.back, 3, rows * in * bytes);
    case_operand(&e.back, 4, count * bytes);
    draw_count++;
    for (uint64_t i = 0; i < count; i++)
        store_number(&e.forward, 0, i,
                     sl_rng_normal(test_seed, draw_count, i) *
                         (i % row_of(s) < values_at ? scale : 1.0f));
    for (uint64_t i = 0; i < rows * in; i++)
        store_number(&e.back, 3, i, sl_rng_normal(test_seed, draw_count, count + i));
    return e;
}

static void run_edge(edge_case *e)
{
    case_run(&e->forward);
    copy_operand(&e->back, 0, e->forward.input[0], e->forward.bytes[0]);
    copy_operand(&e->back, 1, e->forward.result[1], e->forward.bytes[1]);
    copy_operand(&e->back, 2, e->forward.result[2], e->forward.bytes[2]);
    case_run(&e->back);
}

static void close_edge(edge_case *e)
{
    case_close(&e->forward);
    case_close(&e->back);
}

static uint64_t count_finite(const kernel_case *c, int operand)
{
    uint64_t finite = 0;
    const uint64_t count = c->bytes[operand] / sl_type_bytes((sl_type)c->attrs.type);
    for (uint64_t i = 0; i < count; i++)
        finite += isfinite(number_of(c, c->result[operand], i)) != 0;
    return finite;
}

/* Logits of hundreds: a weight of a query that is not there must not overflow. */
static void attention_when_logits_are_large_is_finite(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 63, 65, 129};
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int l = 0; l < 4; l++) {
            edge_case e = open_edge((shape){1, lengths[l], 2, 64, 2}, (sl_type)type, 16.0f);
            run_edge(&e);
            const uint64_t rows = lengths[l];
            assert_int_equal(count_finite(&e.forward, 1), rows * queries_of(e.s));
            assert_int_equal(count_finite(&e.back, 4), rows * row_of(e.s));
            close_edge(&e);
        }
}

/* Scores that no exponential holds: the largest has weight 1. */
static void attention_when_scores_are_huge_takes_the_largest(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const shape s = {1, 67, 1, 48, 1}; /* whose scale is no power of 2 */
        edge_case e = open_edge(s, (sl_type)type, type == SL_TYPE_FP16 ? 1.2e4f : 1e16f);
        run_edge(&e);
        for (uint64_t t = 0; t < s.seq; t++) {
            uint64_t largest = 0;
            double most = -INFINITY;
            for (uint64_t key = 0; key <= t; key++) {
                double score = 0;
                for (uint64_t d = 0; d < s.width; d++)
                    score += (double)number_of(&e.forward, e.forward.input[0], t * row_of(s) + d) *
                             (double)number_of(&e.forward, e.forward.input[0],
                                               key * row_of(s) + s.width + d);
                largest = score > most ? key : largest;
                most = score > most ? score : most;
            }
            for (uint64_t d = 0; d < s.width; d++)
                assert_true(number_of(&e.forward, e.forward.result[1], t * s.width + d) ==
                            number_of(&e.forward, e.forward.input[0],
                                      largest * row_of(s) + 2 * s.width + d));
        }
        assert_int_equal(count_finite(&e.back, 4), s.seq * row_of(s));
        close_edge(&e);
    }
}

/* What is not a number stays one, so that a loss scale is found too large. */
static void attention_when_a_number_is_not_finite_shows_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int part = 0; part < 3; part++) {
            const shape s = {1, 100, 1, 32, 1};
            edge_case e = open_edge(s, (sl_type)type, 1.0f);
            const uint64_t last = s.seq - 1;
            store_number(&e.forward, 0, last * row_of(s) + (uint64_t)part * s.width + 3,
                         part == 1 ? NAN : INFINITY);
            run_edge(&e);
            uint64_t finite = 0; /* of the last query's result, which sees the last key */
            for (uint64_t d = 0; d < s.width; d++)
                finite +=
                    isfinite(number_of(&e.forward, e.forward.result[1], last * s.width + d)) != 0;
            assert_int_equal(finite, part == 2 ? s.width - 1 : 0);
            assert_true(count_finite(&e.back, 4) < s.seq * row_of(s));
            close_edge(&e);
        }
}

/* A few queries of a cache, and more of them. */
static void cached_attention_when_in_half_precision_is_near_fp32(void **state)
{
    (void)state;
    for (int round = 0; round < 4 * rounds(SHAPES); round++) {
        const sl_type type = round % 2 ? SL_TYPE_BF16 : SL_TYPE_FP16;
        shape s = draw_shape(round / 4);
        s.seq = round / 2 % 2 ? draw_between(1, 4) : s.seq;
        const uint64_t rows = s.batch * s.seq, position = draw_below(700);
        const uint64_t cache_rows = position + s.seq + draw_below(5);
        half_pair p;
        open_pair(&p, SL_OP_ATTENTION_CACHED, s, type);
        p.full.attrs.cache_rows = p.half.attrs.cache_rows = cache_rows;
        p.full.scalars.position = p.half.scalars.position = (uint32_t)position;
        fill_pair(&p, 0, rows * row_of(s));
        fill_pair(&p, 1, 2 * s.batch * cache_rows * keys_of(s));
        room_pair(&p, 2, rows * queries_of(s));
        case_run(&p.full);
        case_run(&p.half);
        expect_near(&p, 2, rows, queries_of(s));
        case_close(&p.full);
        case_close(&p.half);
    }
}

/* ---- q, k and v in three operands */

/* The operands of a call that are q, k and v, or their gradients: joined, and the two of k and v.
 */
typedef struct parts_of {
    int joined, k, v;
} parts_of;

/* Element `at` of row `row` of a joined operand: which part has it, and where. */
static void find_part(shape s, uint64_t row, uint64_t at, int *out_part, uint64_t *out_at)
{
    const uint64_t queries = queries_of(s), keys = keys_of(s);
    *out_part = at < queries ? 0 : at < queries + keys ? 1 : 2;
    *out_at = *out_part == 0 ? row * queries + at : row * keys + (at - queries) % keys;
}

/* Gives `apart` the parts of operand `of.joined` of `joined`, or compares them with its results. */
static void visit_parts(kernel_case *joined, kernel_case *apart, shape s, parts_of of,
                        bool compares)
{
    const int operands[] = {of.joined, of.k, of.v};
    const uint64_t rows = s.batch * s.seq, size = sl_type_bytes((sl_type)joined->attrs.type);
    for (int i = 0; i < 3 && !compares; i++)
        case_operand(apart, operands[i], rows * (i == 0 ? queries_of(s) : keys_of(s)) * size);
    for (uint64_t e = 0; e < rows * row_of(s); e++) {
        int part;
        uint64_t at;
        find_part(s, e / row_of(s), e % row_of(s), &part, &at);
        const char *from = (char *)(compares ? joined->result : joined->input)[of.joined];
        char *to = (char *)(compares ? apart->result : apart->input)[operands[part]];
        if (!compares)
            memcpy(to + at * size, from + e * size, size);
        else if (memcmp(to + at * size, from + e * size, size) != 0)
            fail_msg("%s: op %d, operand %d: other bits than in one operand",
                     sl_simd_current()->isa, (int)joined->kind, operands[part]);
    }
}

/* A case of the same call whose q, k and v are apart; other operands are copied. */
static kernel_case open_apart(kernel_case *joined, shape s, parts_of of)
{
    kernel_case apart = {.kind = joined->kind, .attrs = joined->attrs, .scalars = joined->scalars};
    apart.attrs.is_separate = 1;
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (joined->bytes[i] > 0 && i != of.joined)
            copy_operand(&apart, i, joined->input[i], joined->bytes[i]);
    visit_parts(joined, &apart, s, of, false);
    return apart;
}

static void expect_same(const kernel_case *joined, const kernel_case *apart, int operand)
{
    if (memcmp(joined->result[operand], apart->result[operand], joined->bytes[operand]) != 0)
        fail_msg("%s: op %d, operand %d: other bits than with q, k and v in one operand",
                 sl_simd_current()->isa, (int)joined->kind, operand);
}

static void compare_apart(shape s, sl_type type, mask which)
{
    const parts_of inputs = {0, 4, 5}, back_inputs = {0, 6, 7}, gradients = {4, 8, 9};
    edge_case e = open_edge(s, type, 1.0f);
    set_mask(&e.forward, which, 3);
    copy_mask(&e.back, 5, &e.forward, 3);
    run_edge(&e);
    kernel_case forward = open_apart(&e.forward, s, inputs);
    case_run(&forward);
    expect_same(&e.forward, &forward, 1);
    expect_same(&e.forward, &forward, 2);
    kernel_case back = open_apart(&e.back, s, back_inputs);
    free(back.input[gradients.joined]);
    free(back.result[gradients.joined]);
    visit_parts(&e.back, &back, s, gradients, false);
    case_run(&back);
    visit_parts(&e.back, &back, s, gradients, true);
    case_close(&forward);
    case_close(&back);
    close_edge(&e);
}

static void attention_when_q_k_and_v_are_apart_has_the_same_bits(void **state)
{
    (void)state;
    for (int round = 0; round < SL_TYPE_COUNT * rounds(SHAPES); round++)
        compare_apart(draw_shape(round / SL_TYPE_COUNT), (sl_type)(round % SL_TYPE_COUNT),
                      (mask)(round / 2 % MASKS));
}

static void cached_attention_when_q_k_and_v_are_apart_has_the_same_bits(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * rounds(SHAPES); round++) {
        const parts_of inputs = {0, 3, 4};
        shape s = draw_shape(round / 2);
        s.seq = round % 2 ? 1 : s.seq;
        const uint64_t rows = s.batch * s.seq, position = draw_below(100);
        kernel_case joined = {.kind = SL_OP_ATTENTION_CACHED, .attrs = attrs_of(s)};
        joined.attrs.cache_rows = position + s.seq + draw_below(5);
        joined.scalars.position = (uint32_t)position;
        case_random(&joined, 0, rows * row_of(s), 1);
        case_random(&joined, 1, 2 * s.batch * joined.attrs.cache_rows * keys_of(s), 1);
        case_operand(&joined, 2, rows * queries_of(s) * sizeof(float));
        kernel_case apart = open_apart(&joined, s, inputs);
        case_run(&joined);
        case_run(&apart);
        expect_same(&joined, &apart, 1);
        expect_same(&joined, &apart, 2);
        case_close(&joined);
        case_close(&apart);
    }
}

static void attention_when_heads_do_not_divide_fails(void **state)
{
    (void)state;
    float some[64] = {0};
    sl_op_attrs attrs = {.batch = 1, .seq = 1, .in = 7, .out = 7, .heads = 2};
    sl_kernel_call call = {.attrs = &attrs, .workers = pools[0], .operand = {some, some, some}};
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ATTENTION].run(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.batch = 1, .seq = 1, .in = 12, .out = 8, .heads = 3};
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ATTENTION].run(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.batch = 1, .seq = 2, .in = 2, .out = 2, .heads = 1, .cache_rows = 1};
    assert_int_equal(sl_kernels_cpu()->row[SL_OP_ATTENTION_CACHED].run(&call), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "cache"));
}

/* The table of pairs with the micro-kernel for AMX over emulated tiles (amx_emulated.c), where the
 * processor has the instructions. */
static const sl_simd *find_emulated(void)
{
#ifdef SL_TEST_EMULATES_AMX
    extern const sl_micro_kernel emulated_amx_micro_kernel;
    static sl_simd table;
    for (uint32_t i = 0; i < sl_simd_usable_count(); i++)
        if (strcmp(sl_simd_usable(i)->isa, "avx512_bf16") == 0) {
            table = *sl_simd_usable(i);
            table.isa = "amx, emulated";
            table.micro_kernel[SL_TYPE_BF16] = &emulated_amx_micro_kernel;
            return &table;
        }
#endif
    return NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_when_run_equals_the_definition),
        cmocka_unit_test(attention_backward_when_run_equals_the_derivative),
        cmocka_unit_test(cached_attention_when_run_sees_the_cache),
        cmocka_unit_test(attention_when_in_half_precision_is_near_fp32),
        cmocka_unit_test(attention_when_logits_are_large_is_finite),
        cmocka_unit_test(attention_when_scores_are_huge_takes_the_largest),
        cmocka_unit_test(attention_when_a_number_is_not_finite_shows_it),
        cmocka_unit_test(cached_attention_when_in_half_precision_is_near_fp32),
        cmocka_unit_test(attention_when_q_k_and_v_are_apart_has_the_same_bits),
        cmocka_unit_test(cached_attention_when_q_k_and_v_are_apart_has_the_same_bits),
        cmocka_unit_test(attention_when_heads_do_not_divide_fails),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA_AND(find_emulated(), tests, failures);
    return failures;
}
