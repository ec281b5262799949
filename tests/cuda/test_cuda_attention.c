/* What could be wrong in the CUDA kernels of attention: the mask of the diagonal tile, the last
 * tile of queries or keys, a head width that is padded, the running maximum over key tiles, a tile
 * that is read before it has come or overwritten while others read it, a fragment in the wrong
 * lane, the position in the cache, a split of keys that is left out, a document that begins at
 * another key, a weight that the cpu does not drop. Every shape runs in four
 * orders of threads and blocks, which must agree in every bit, and is compared with the cpu's
 * kernel within bounds (attention_case.h); what scores near the limits of a type do is tested
 * apart. */
#include "attention_case.h"

static const attention_operands FORWARD = {0, 4, 5}, CACHED = {0, 3, 4};

static reference_head head_of(const cuda_case *c, const double *qkv, uint64_t head_index)
{
    const attention_shape s = shape_of(c);
    const uint64_t row = joined_row_of(c), head = head_index % s.heads;
    const double *first = qkv + head_index / s.heads * s.seq * row;
    const double *k = first + joined_key_of(c, head);
    return (reference_head){first + head * s.width, k, k + c->attrs.out, row, s.seq, 0, s.width};
}

static void open_forward(cuda_case *c, attention_shape s, float scale)
{
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    set_shape(c, s);
    open_inputs(c, FORWARD, scale);
    case_room(c, 1, c->type, rows * in);
    case_room(c, 2, SL_TYPE_FP32, rows * s.heads);
    prepare_case(c);
}

static void check_forward(cuda_case *c)
{
    const attention_shape s = shape_of(c);
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    double *qkv = widen_joined(c, FORWARD), *y_bound = zeros(rows * in);
    double *lse_bound = zeros(rows * s.heads);
    cuda_case_run(c);
    for (uint64_t i = 0; i < s.batch * s.heads * s.seq; i++) {
        const uint64_t head_index = i / s.seq, t = i % s.seq;
        drop_call drop;
        reference_head head = head_of(c, qkv, head_index);
        mask_head(c, 3, head_index, &drop, &head);
        const uint64_t row = head_index / s.heads * s.seq + t;
        bound_query(c, &head, t, y_bound + row * in + head_index % s.heads * s.width,
                    lse_bound + i);
    }
    compare_within(c, 1, y_bound);
    compare_within(c, 2, lse_bound);
    free(qkv);
    free(y_bound);
    free(lse_bound);
}

static cuda_case case_of(sl_op_kind kind, sl_kernel run, int type)
{
    cuda_case c = {.kind = kind, .run = run, .type = (sl_type)type};
    c.attrs.type = (uint16_t)type;
    c.scalars.loss_scale = 1.0f;
    return c;
}

static void attention_when_run_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(ATTENTION_SHAPES); round += ATTENTION_STEP) {
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            open_forward(&c, attention_shape_of(round), round % 2 ? 1.0f : 3.0f);
            check_forward(&c);
            case_close(&c);
        }
}

/* Tiles of keys wholly before a document are left out, others in part; weights are dropped where
 * the cpu drops them. */
static void attention_when_masked_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(MASKED_SHAPES); round += ATTENTION_STEP) {
            if (!masked_takes(type, round))
                continue;
            const attention_shape s = masked_shape_of(round);
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            c.orders = round < MASKED_SMALL ? 1 : 0;
            set_shape(&c, s);
            set_mask(&c, 1 + round / 4 % (MASKS - 1), 3);
            open_forward(&c, s, round % 2 ? 1.0f : 3.0f);
            check_forward(&c);
            case_close(&c);
        }
}

/* Scores of some ten thousand: any exponential that is not against the maximum overflows. */
static void attention_when_scores_are_large_is_near_the_cpu(void **state)
{
    (void)state;
    static const attention_shape shapes[] = {{1, 70, 1, 64}, {1, 70, 1, 33}, {1, 40, 1, 128}};
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int i = 0; i < 3; i++) {
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            open_forward(&c, shapes[i], 60.0f);
            check_forward(&c);
            case_close(&c);
        }
}

/* Scores so large that each query has one key: y is that key's value to the last bit. */
static void attention_when_scores_are_huge_takes_the_largest(void **state)
{
    (void)state;
    static const float scales[SL_TYPE_COUNT] = {1e16f, 1e16f, 1.2e4f};
    static const attention_shape shapes[] = {{1, 70, 1, 64}, {1, 70, 1, 33}, {1, 35, 1, 128}};
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int i = 0; i < 3; i++) {
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            open_forward(&c, shapes[i], scales[type]);
            cuda_case_run(&c);
            case_compare_bits(&c, 1);
            for (uint64_t j = 0; j < c.operand[2].count; j++) {
                const double got = case_load(SL_TYPE_FP32, c.operand[2].cuda, j);
                const double want = case_load(SL_TYPE_FP32, c.operand[2].cpu, j);
                assert_true(fabs(got - want) <= 1e-4 * fabs(want));
            }
            case_close(&c);
        }
}

/* ---- the cache ---- */

static void check_cached(cuda_case *c)
{
    const attention_shape s = shape_of(c);
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq, position = c->scalars.position;
    const uint64_t cache_rows = c->attrs.cache_rows, out = c->attrs.out;
    cuda_case_run(c);
    case_compare_bits(c, 1);
    double *qkv = widen_joined(c, CACHED), *y_bound = zeros(rows * in);
    double *cache = zeros(c->operand[1].count);
    for (uint64_t i = 0; i < c->operand[1].count; i++)
        cache[i] = case_load(c->type, c->operand[1].cpu, i);
    for (uint64_t i = 0; i < rows * s.heads; i++) {
        const uint64_t b = i / s.seq / s.heads, h = i / s.seq % s.heads, t = i % s.seq;
        const double *k = cache + b * cache_rows * out + h / s.group * s.width;
        const double *q = qkv + (b * s.seq + t) * joined_row_of(c) + h * s.width;
        /* One stride for q, k and v: give it the query alone. */
        const reference_head head = {
            q, k, k + s.batch * cache_rows * out, out, 1, position + t, s.width};
        bound_query(c, &head, 0, y_bound + (b * s.seq + t) * in + h * s.width, NULL);
    }
    compare_within(c, 2, y_bound);
    free(qkv);
    free(y_bound);
    free(cache);
}

static void open_cached(cuda_case *c, attention_shape s, uint64_t position, uint64_t spare_rows)
{
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    set_shape(c, s);
    c->scalars.position = (uint32_t)position;
    c->attrs.cache_rows = position + s.seq + spare_rows;
    open_inputs(c, CACHED, 1.0f);
    case_random(c, 1, c->type, 2 * s.batch * c->attrs.cache_rows * c->attrs.out, 1.0f);
    case_room(c, 2, c->type, rows * in);
    prepare_case(c);
}

/* A third decodes one token, a third a few, and a third fills the cache with many. */
static void cached_attention_when_run_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(ATTENTION_SHAPES); round += ATTENTION_STEP) {
            static const uint64_t positions[] = {0, 1, 127, 128, 129, 300, 63, 64, 655, 256};
            attention_shape s = attention_shape_of(round);
            s.seq = round % 3 == 0 ? 1 : round % 3 == 1 ? 1 + (uint64_t)round % 9 : s.seq;
            cuda_case c = case_of(SL_OP_ATTENTION_CACHED, sl_cuda_attention_cached, type);
            open_cached(&c, s, round < 2 ? 0 : positions[round % 10], (uint64_t)round % 3);
            check_cached(&c);
            case_close(&c);
        }
}

/* ---- heads that share keys ---- */

/* Joined and apart, with each of the masks. */
static void attention_when_heads_share_keys_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(GROUPED_SHAPES); round += ATTENTION_STEP) {
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            c.attrs.is_separate = round % 2;
            set_shape(&c, grouped_shape_of(round));
            set_mask(&c, (round / 2 + type) % MASKS, 3);
            open_forward(&c, grouped_shape_of(round), 1.0f);
            check_forward(&c);
            case_close(&c);
        }
}

/* Each kernel of shared keys, with masks and without. */
static void attention_when_each_shared_kernel_has_its_widths_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(2 * ATTENTION_SMALL); round++) {
            const int shape = round / 2, mask = round % 2 ? 1 + shape % (MASKS - 1) : MASK_NONE;
            if (!is_small_shape_of(type, shape))
                continue;
            const attention_shape s = small_grouped_shape_of(shape);
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            c.orders = 1;
            c.attrs.is_separate = shape % 3 != 0;
            set_shape(&c, s);
            set_mask(&c, mask, 3);
            open_forward(&c, s, 1.0f);
            check_forward(&c);
            case_close(&c);
        }
}

static void cached_attention_when_heads_share_keys_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(GROUPED_SHAPES); round += ATTENTION_STEP) {
            static const uint64_t positions[] = {0, 1, 127, 129, 40};
            attention_shape s = grouped_shape_of(round);
            s.seq = round % 3 == 0 ? 1 : round % 3 == 1 ? 2 + (uint64_t)round % 7 : s.seq;
            cuda_case c = case_of(SL_OP_ATTENTION_CACHED, sl_cuda_attention_cached, type);
            c.attrs.is_separate = round % 2;
            open_cached(&c, s, positions[round % 5], (uint64_t)round % 3);
            check_cached(&c);
            case_close(&c);
        }
}

/* One head a head of keys, as with GPT-2, but apart: the kernels are the same, so are the bits. */
static void attention_when_inputs_are_apart_gives_the_bits_of_joined_ones(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const attention_shape s = attention_shape_of(10 + type);
        const uint64_t rows = s.batch * s.seq, in = s.heads * s.width;
        cuda_case joined = case_of(SL_OP_ATTENTION, sl_cuda_attention, type), apart = joined;
        open_forward(&joined, s, 1.0f);
        apart.attrs.is_separate = 1;
        open_forward(&apart, s, 1.0f);
        for (uint64_t i = 0; i < rows * 3 * in; i++) {
            uint64_t from, to;
            const int source = locate_joined(&joined, FORWARD, i / 3 / in, i % (3 * in), &from);
            const int target = locate_joined(&apart, FORWARD, i / 3 / in, i % (3 * in), &to);
            case_store(type, apart.operand[target].input, to, case_input(&joined, source, from));
        }
        cuda_case_run(&joined);
        cuda_case_run(&apart);
        for (int i = 1; i < 3; i++)
            assert_memory_equal(apart.operand[i].cuda, joined.operand[i].cuda,
                                apart.operand[i].bytes);
        case_close(&joined);
        case_close(&apart);
    }
}

/* ---- few rows of many widths ---- */

static void attention_when_each_kernel_has_its_widths_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(ATTENTION_SMALL); round++) {
            if (!is_small_shape_of(type, round))
                continue;
            cuda_case c = case_of(SL_OP_ATTENTION, sl_cuda_attention, type);
            c.orders = 1;
            open_forward(&c, small_attention_shape_of(round), 1.0f);
            check_forward(&c);
            case_close(&c);
        }
}

enum { SPLIT_MOST = 8 }; /* queries that split their keys (kernels/cuda/attention.cuh) */

/* One token more or a few, to few keys or to more than one split of them. */
static void cached_attention_when_each_kernel_has_its_widths_is_near_the_cpu(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(ATTENTION_SMALL); round++) {
            attention_shape s = small_attention_shape_of(round);
            const uint64_t n = (uint64_t)(round / ATTENTION_KERNELS);
            s.seq = 1 + s.seq % SPLIT_MOST;
            cuda_case c = case_of(SL_OP_ATTENTION_CACHED, sl_cuda_attention_cached, type);
            c.orders = 1;
            open_cached(&c, s, n % 11 == 10 ? 130 : n % 7, n % 3);
            check_cached(&c);
            case_close(&c);
        }
}

/* ---- what is refused ---- */

static void attention_when_heads_do_not_divide_fails(void **state)
{
    (void)state;
    float some[64] = {0};
    sl_op_attrs attrs = {.batch = 1, .seq = 1, .in = 7, .out = 7, .heads = 2};
    const sl_kernel_call call = {.attrs = &attrs, .operand = {some, some, some, some, some}};
    assert_int_equal(sl_cuda_attention(&call), SL_ERROR_INTERNAL);
    assert_int_equal(sl_cuda_attention_backward(&call), SL_ERROR_INTERNAL);
    assert_int_equal(sl_cuda_attention_cached(&call), SL_ERROR_INTERNAL);
    attrs = (sl_op_attrs){.batch = 1, .seq = 1, .in = 6, .out = 4, .heads = 3}; /* 3 on 2 */
    assert_int_equal(sl_cuda_attention(&call), SL_ERROR_INTERNAL);
    attrs.out = 3; /* a head and a half */
    assert_int_equal(sl_cuda_attention_backward(&call), SL_ERROR_INTERNAL);
    attrs.out = 0;
    assert_int_equal(sl_cuda_attention_cached(&call), SL_ERROR_INTERNAL);
    attrs.heads = 0;
    assert_int_equal(sl_cuda_attention(&call), SL_ERROR_INTERNAL);
    assert_int_equal(sl_cuda_attention_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &attrs, 0), 0);
    assert_int_equal(sl_cuda_attention_prepare(SL_OP_ATTENTION, &attrs), SL_OK);
    attrs = (sl_op_attrs){.batch = 1, .seq = 2, .in = 2, .out = 2, .heads = 1, .cache_rows = 1};
    assert_int_equal(sl_cuda_attention_cached(&call), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "cache"));
}

static void workspace_when_asked_for_is_of_whole_lines(void **state)
{
    (void)state;
    const sl_op_attrs attrs = {
        .batch = 2, .seq = 5, .heads = 3, .in = 24, .out = 24, .cache_rows = 300};
    assert_int_equal(sl_cuda_attention_workspace_bytes(SL_OP_ATTENTION, &attrs, 0), 0);
    assert_int_equal(sl_cuda_attention_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &attrs, 0), 256);
    /* 2 * 3 heads, 5 queries, 3 splits of 128 keys, 8 + 2 floats: 3600 bytes */
    assert_int_equal(sl_cuda_attention_workspace_bytes(SL_OP_ATTENTION_CACHED, &attrs, 0), 3840);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(attention_when_run_is_near_the_cpu),
    cmocka_unit_test(attention_when_masked_is_near_the_cpu),
    cmocka_unit_test(attention_when_scores_are_large_is_near_the_cpu),
    cmocka_unit_test(attention_when_scores_are_huge_takes_the_largest),
    cmocka_unit_test(cached_attention_when_run_is_near_the_cpu),
    cmocka_unit_test(attention_when_heads_share_keys_is_near_the_cpu),
    cmocka_unit_test(attention_when_each_shared_kernel_has_its_widths_is_near_the_cpu),
    cmocka_unit_test(cached_attention_when_heads_share_keys_is_near_the_cpu),
    cmocka_unit_test(attention_when_inputs_are_apart_gives_the_bits_of_joined_ones),
    cmocka_unit_test(attention_when_each_kernel_has_its_widths_is_near_the_cpu),
    cmocka_unit_test(cached_attention_when_each_kernel_has_its_widths_is_near_the_cpu),
    cmocka_unit_test(attention_when_heads_do_not_divide_fails),
    cmocka_unit_test(workspace_when_asked_for_is_of_whole_lines),
};

CUDA_CASE_MAIN(tests)
