/* What could be wrong in the CUDA kernels of attention's gradient: a tile of queries or keys that
 * misses a sum, the mask on either side of the diagonal, a statistic of another query, a row of
 * dqkv that nobody writes (it comes full of NaNs), columns of a wide head that two blocks share.
 * Every shape runs in four orders of threads and blocks, which must agree in every bit, and is
 * compared with the cpu's kernel within bounds: beside those of attention_case.h a gradient of a
 * weight is off relative to the sizes of both terms that it is the difference of, and ds is rounded
 * to the type before its two products. */
#include "attention_case.h"

typedef struct gradient_bounds {
    const cuda_case *c;
    attention_shape s;
    double *qkv, *y, *lse, *dy;
    double *bound;         /* [B, T, 3 I] */
    reference_head masked; /* of the head under way: what takes part */
    drop_call drop;
} gradient_bounds;

static double dot(const double *a, const double *b, uint64_t count, double *size)
{
    double sum = 0;
    *size = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
        *size += fabs(a[i] * b[i]);
    }
    return sum;
}

/* What one pair adds to the bounds of dq, dk and dv. */
static void add_pair(const gradient_bounds *g, uint64_t head_index, uint64_t query, uint64_t key)
{
    const attention_shape s = g->s;
    const uint64_t b = head_index / s.heads, h = head_index % s.heads, in = s.heads * s.width;
    const uint64_t row = (b * s.seq + query) * in + h * s.width;
    const uint64_t to_query = (b * s.seq + query) * 3 * in + h * s.width;
    const uint64_t to_key = (b * s.seq + key) * 3 * in + h * s.width;
    const double *q = g->qkv + to_query, *k = g->qkv + to_key + in, *v = k + in, *dy = g->dy + row;
    const double scale = 1 / sqrt((double)s.width);
    double score_size, dp_size, d_size;
    const double lse = g->lse[head_index * s.seq + query];
    const double score = dot(q, k, s.width, &score_size) * scale;
    const double p = exp(score - lse);
    const double factor = reference_factor(&g->masked, query, key);
    const double dp = factor * dot(dy, v, s.width, &dp_size);
    const double d = dot(dy, g->y + row, s.width, &d_size);
    const double terms = (double)(2 * s.seq + 2 * s.width + 40) + 4 * (fabs(score) + fabs(lse));
    const double relative = 2 * UNIT * (terms + 2 * (double)(s.width + 4) * score_size * scale);
    const double p_error = (relative + weight_unit(g->c)) * p * factor + least_weight(g->c);
    const double ds_error = relative * p * (factor * dp_size + d_size) +
                            weight_unit(g->c) * fabs(p * (dp - d)) + least_weight(g->c);
    for (uint64_t i = 0; i < s.width; i++) {
        g->bound[to_query + i] += scale * ds_error * fabs(k[i]);
        g->bound[to_key + in + i] += scale * ds_error * fabs(q[i]);
        g->bound[to_key + 2 * in + i] += p_error * fabs(dy[i]);
    }
}

/* qkv, and y and lse as the cpu's kernel leaves them: the roundings of y are the gradient's own. */
static void fill_forward(cuda_case *c, float scale)
{
    const attention_shape s = shape_of(c);
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    void *qkv = case_random(c, 0, c->type, rows * 3 * in, scale);
    void *y = case_room(c, 1, c->type, rows * in);
    void *lse = case_room(c, 2, SL_TYPE_FP32, rows * s.heads);
    const sl_kernel_table *cpu = sl_kernels_cpu();
    const uint64_t bytes =
        sl_kernels_workspace_bytes(cpu, SL_OP_ATTENTION, &c->attrs, sl_workers_count(case_workers));
    void *workspace = guarded_open(bytes);
    const sl_kernel_call call = {.attrs = &c->attrs,
                                 .operand = {qkv, y, lse, c->operand[5].input},
                                 .scalars = c->scalars,
                                 .workspace = workspace,
                                 .workers = case_workers};
    assert_int_equal(cpu->row[SL_OP_ATTENTION].run(&call), SL_OK);
    guarded_close(workspace, bytes);
}

static cuda_case open_masked_backward(int type, attention_shape s, float scale, int mask)
{
    cuda_case c = {
        .kind = SL_OP_ATTENTION_BACKWARD, .run = sl_cuda_attention_backward, .type = (sl_type)type};
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    c.attrs.type = (uint16_t)type;
    c.scalars.loss_scale = 1.0f;
    set_shape(&c, s);
    set_mask(&c, mask, 5);
    fill_forward(&c, scale);
    case_random(&c, 3, type, rows * in, 1.0f);
    case_room(&c, 4, type, rows * 3 * in);
    prepare_case(&c);
    return c;
}

static cuda_case open_backward(int type, attention_shape s, float scale)
{
    return open_masked_backward(type, s, scale, MASK_NONE);
}

static void check_backward(cuda_case *c)
{
    const attention_shape s = shape_of(c);
    gradient_bounds g = {.c = c, .s = s};
    cuda_case_run(c);
    g.qkv = widen(c, 0);
    g.y = widen(c, 1);
    g.lse = widen(c, 2);
    g.dy = widen(c, 3);
    g.bound = zeros(c->operand[4].count);
    for (uint64_t head = 0; head < s.batch * s.heads; head++) {
        mask_head(c, 5, head, &g.drop, &g.masked);
        for (uint64_t query = 0; query < s.seq; query++)
            for (uint64_t key = reference_first_key(&g.masked, query); key <= query; key++)
                add_pair(&g, head, query, key);
    }
    compare_within(c, 4, g.bound);
    double *all[] = {g.qkv, g.y, g.lse, g.dy, g.bound};
    for (int i = 0; i < 5; i++)
        free(all[i]);
}

static void attention_backward_when_run_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(ATTENTION_SHAPES); round += ATTENTION_STEP) {
            cuda_case c = open_backward(type, attention_shape_of(round), round % 2 ? 1.0f : 2.0f);
            check_backward(&c);
            case_close(&c);
        }
}

/* As forward; and tiles of queries wholly behind a document are left out. */
static void attention_backward_when_masked_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(MASKED_SHAPES); round += ATTENTION_STEP) {
            if (!masked_takes(type, round))
                continue;
            cuda_case c = open_masked_backward(
                type, masked_shape_of(round), round % 2 ? 1.0f : 2.0f, 1 + round / 4 % (MASKS - 1));
            c.orders = round < MASKED_SMALL ? 1 : 0;
            check_backward(&c);
            case_close(&c);
        }
}

/* Scores of some ten thousand, where weights are recomputed from an lse of that size. */
static void attention_backward_when_scores_are_large_is_near_the_cpu(void **state)
{
    (void)state;
    static const attention_shape shapes[] = {{1, 70, 1, 64}, {1, 70, 1, 33}};
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int i = 0; i < 2; i++) {
            cuda_case c = open_backward(type, shapes[i], 60.0f);
            check_backward(&c);
            case_close(&c);
        }
}

static void attention_backward_when_each_kernel_has_its_widths_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(ATTENTION_SMALL); round++) {
            if (!is_small_shape_of(type, round))
                continue;
            cuda_case c = open_backward(type, small_attention_shape_of(round), 1.0f);
            c.orders = 1;
            check_backward(&c);
            case_close(&c);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(attention_backward_when_run_is_near_the_cpu),
    cmocka_unit_test(attention_backward_when_masked_is_near_the_cpu),
    cmocka_unit_test(attention_backward_when_scores_are_large_is_near_the_cpu),
    cmocka_unit_test(attention_backward_when_each_kernel_has_its_widths_is_near_the_cpu),
};

CUDA_CASE_MAIN(tests)
