/* What could be wrong in the CUDA kernels of attention's gradient: a tile of queries or keys that
 * misses a sum, the mask on either side of the diagonal, a statistic of another query, a row of
 * dqkv that nobody writes (it comes full of NaNs), columns of a wide head that two blocks share.
 * Every shape runs in four orders of threads and blocks, which must agree in every bit, and is
 * compared with the cpu's kernel within bounds: beside those of attention_case.h a gradient of a
 * weight is off relative to the sizes of both terms that it is the difference of, and ds is rounded
 * to the type before its two products. */
#include "attention_case.h"

static const attention_operands INPUTS = {0, 6, 7}, GRADIENTS = {4, 8, 9};

typedef struct gradient_bounds {
    const cuda_case *c;
    attention_shape s;
    double *qkv, *y, *lse, *dy;
    double *bound;         /* as qkv: of joined rows */
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
    const uint64_t row = (b * s.seq + query) * in + h * s.width, joined = joined_row_of(g->c);
    const uint64_t to_query = (b * s.seq + query) * joined + h * s.width;
    const uint64_t to_key = (b * s.seq + key) * joined + joined_key_of(g->c, h);
    const uint64_t to_value = to_key + g->c->attrs.out;
    const double *q = g->qkv + to_query, *k = g->qkv + to_key, *v = g->qkv + to_value;
    const double *dy = g->dy + row;
    const double scale = 1 / sqrt((double)s.width);
    double score_size, dp_size, d_size;
    const double lse = g->lse[head_index * s.seq + query];
    const double score = dot(q, k, s.width, &score_size) * scale;
    const double p = exp(score - lse);
    const double factor = reference_factor(&g->masked, query, key);
    const double dp = factor * dot(dy, v, s.width, &dp_size);
    const double d = dot(dy, g->y + row, s.width, &d_size);
    const double terms =
        (double)(2 * s.group * s.seq + 2 * s.width + 40) + 4 * (fabs(score) + fabs(lse));
    const double score_error = 2 * UNIT * (terms + 2 * (double)(s.width + 4) * score_size * scale);
    const double relative =
        expm1(score_error); /* of p: large scores are off by more than a little */
    const double p_error = (relative + weight_unit(g->c)) * p * factor + least_weight(g->c);
    const double ds_error = (relative * p + FLUSHED_WEIGHT) * (factor * dp_size + d_size) +
                            weight_unit(g->c) * fabs(p * (dp - d)) + least_weight(g->c);
    for (uint64_t i = 0; i < s.width; i++) {
        g->bound[to_query + i] += scale * ds_error * fabs(k[i]);
        g->bound[to_key + i] += scale * ds_error * fabs(q[i]);
        g->bound[to_value + i] += p_error * fabs(dy[i]);
    }
}

/* qkv, and y and lse as the cpu's kernel leaves them: the roundings of y are the gradient's own. */
static void fill_forward(cuda_case *c, float scale)
{
    const attention_shape s = shape_of(c);
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    open_inputs(c, INPUTS, scale);
    void *y = case_room(c, 1, c->type, rows * in);
    void *lse = case_room(c, 2, SL_TYPE_FP32, rows * s.heads);
    const sl_kernel_table *cpu = sl_kernels_cpu();
    const uint64_t bytes =
        sl_kernels_workspace_bytes(cpu, SL_OP_ATTENTION, &c->attrs, sl_workers_count(case_workers));
    void *workspace = guarded_open(bytes);
    const sl_kernel_call call = {.attrs = &c->attrs,
                                 .operand = {c->operand[INPUTS.q].input, y, lse,
                                             c->operand[5].input, c->operand[INPUTS.k].input,
                                             c->operand[INPUTS.v].input},
                                 .scalars = c->scalars,
                                 .workspace = workspace,
                                 .workers = case_workers};
    assert_int_equal(cpu->row[SL_OP_ATTENTION].run(&call), SL_OK);
    guarded_close(workspace, bytes);
}

static void open_gradients(cuda_case *c)
{
    const uint64_t rows = c->attrs.batch * c->attrs.seq;
    const bool is_separate = c->attrs.is_separate != 0;
    case_room(c, GRADIENTS.q, (int)c->type, rows * (is_separate ? c->attrs.in : joined_row_of(c)));
    if (!is_separate)
        return;
    case_room(c, GRADIENTS.k, (int)c->type, rows * c->attrs.out);
    case_room(c, GRADIENTS.v, (int)c->type, rows * c->attrs.out);
}

/* Inputs joined, or each an operand. */
typedef enum input_form { JOINED, APART } input_form;

static cuda_case open_form(int type, attention_shape s, float scale, int mask, input_form form)
{
    cuda_case c = {
        .kind = SL_OP_ATTENTION_BACKWARD, .run = sl_cuda_attention_backward, .type = (sl_type)type};
    c.attrs.type = (uint16_t)type;
    c.attrs.is_separate = form;
    c.scalars.loss_scale = 1.0f;
    set_shape(&c, s);
    set_mask(&c, mask, 5);
    fill_forward(&c, scale);
    case_random(&c, 3, type, s.batch * s.seq * c.attrs.in, 1.0f);
    open_gradients(&c);
    prepare_case(&c);
    return c;
}

static cuda_case open_masked_backward(int type, attention_shape s, float scale, int mask)
{
    return open_form(type, s, scale, mask, JOINED);
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
    g.qkv = widen_joined(c, INPUTS);
    g.y = widen(c, 1);
    g.lse = widen(c, 2);
    g.dy = widen(c, 3);
    g.bound = zeros(s.batch * s.seq * joined_row_of(c));
    for (uint64_t head = 0; head < s.batch * s.heads; head++) {
        mask_head(c, 5, head, &g.drop, &g.masked);
        for (uint64_t query = 0; query < s.seq; query++)
            for (uint64_t key = reference_first_key(&g.masked, query); key <= query; key++)
                add_pair(&g, head, query, key);
    }
    compare_joined_within(c, GRADIENTS, g.bound);
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

/* Keys that heads share get terms of all of them; joined and apart, with each of the masks. */
static void attention_backward_when_heads_share_keys_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(GROUPED_SHAPES); round += ATTENTION_STEP) {
            cuda_case c = open_form(type, grouped_shape_of(round), 1.0f, (round / 2 + type) % MASKS,
                                    round % 2 ? APART : JOINED);
            check_backward(&c);
            case_close(&c);
        }
}

/* One head a head of keys, as with GPT-2, but apart: the kernels are the same, so are the bits. */
static void attention_backward_when_inputs_are_apart_gives_the_bits_of_joined_ones(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const attention_shape s = attention_shape_of(10 + type);
        cuda_case joined = open_form(type, s, 1.0f, MASK_NONE, JOINED);
        cuda_case apart = open_form(type, s, 1.0f, MASK_NONE, APART);
        const uint64_t width = joined_row_of(&joined), count = s.batch * s.seq * width;
        uint64_t from, to;
        for (uint64_t i = 0; i < count; i++) {
            const int source = locate_joined(&joined, INPUTS, i / width, i % width, &from);
            const int target = locate_joined(&apart, INPUTS, i / width, i % width, &to);
            case_store(type, apart.operand[target].input, to, case_input(&joined, source, from));
        }
        for (int i = 1; i < 4; i++) /* y, lse, dy */
            memcpy(apart.operand[i].input, joined.operand[i].input, joined.operand[i].bytes);
        cuda_case_run(&joined);
        cuda_case_run(&apart);
        for (uint64_t i = 0; i < count; i++) {
            const int source = locate_joined(&joined, GRADIENTS, i / width, i % width, &from);
            const int target = locate_joined(&apart, GRADIENTS, i / width, i % width, &to);
            assert_true(case_load(type, joined.operand[source].cuda, from) ==
                        case_load(type, apart.operand[target].cuda, to));
        }
        case_close(&joined);
        case_close(&apart);
    }
}

/* Each kernel of shared keys, with masks and without. */
static void attention_backward_when_each_shared_kernel_has_its_widths_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(2 * ATTENTION_SMALL); round++) {
            const int shape = round / 2, mask = round % 2 ? 1 + shape % (MASKS - 1) : MASK_NONE;
            if (!is_small_shape_of(type, shape))
                continue;
            cuda_case c = open_form(type, small_grouped_shape_of(shape), 1.0f, mask,
                                    shape % 3 ? APART : JOINED);
            c.orders = 1;
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
    cmocka_unit_test(attention_backward_when_heads_share_keys_is_near_the_cpu),
    cmocka_unit_test(attention_backward_when_inputs_are_apart_gives_the_bits_of_joined_ones),
    cmocka_unit_test(attention_backward_when_each_shared_kernel_has_its_widths_is_near_the_cpu),
    cmocka_unit_test(attention_backward_when_each_kernel_has_its_widths_is_near_the_cpu),
};

CUDA_CASE_MAIN(tests)
