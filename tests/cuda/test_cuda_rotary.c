/* What could be wrong in rotary positions: a pair of two other features, a sine of the wrong sign,
 * a head whose piece is left out or turned by another head's thread, a position of another token, a
 * position beyond the table. The kernel must give the cpu's bits: heads of odd and whole numbers of
 * packs, more heads than a thread turns, rows from the first position on, behind a cache, and of
 * documents. */
#include "cuda_case.h"

enum { X, TABLE, Y, POSITIONS };

enum { WIDTHS = 10 };

/* Of documents, or any; some are none of the table, and read its last row. */
static void fill_positions(cuda_case *c, int round)
{
    const uint64_t rows = c->attrs.batch * c->attrs.seq;
    int32_t *positions = case_ids(c, POSITIONS, rows, c->attrs.cache_rows);
    if (round % 8 == 3) {
        positions[0] = -1;
        positions[rows - 1] = (int32_t)c->attrs.cache_rows;
    }
}

static void draw_sizes(cuda_case *c, int round)
{
    static const uint64_t widths[WIDTHS] = {64, 80, 128, 96, 256, 2, 6, 30, 100, 16};
    static const uint64_t heads[] = {1, 3, 4, 5, 8, 2, 7};
    c->attrs.batch = 1 + (uint64_t)round % 2;
    c->attrs.seq = 1 + (uint64_t)round * 5 % 23;
    c->attrs.heads = heads[round % 7];
    c->attrs.out = widths[round % WIDTHS];
    c->attrs.in = c->attrs.heads * c->attrs.out;
    c->attrs.negates = (uint32_t)round / 2 % 2;
}

static void draw_rotary(cuda_case *c, int round)
{
    draw_sizes(c, round);
    const uint64_t count = c->attrs.batch * c->attrs.seq * c->attrs.in;
    const bool is_cached = round % 4 == 1;
    c->scalars.position = is_cached ? (uint32_t)draw_below(40) : 0;
    c->attrs.cache_rows = c->scalars.position + c->attrs.seq + draw_below(9);
    case_random(c, X, (int)c->type, count, 1.0f);
    case_random(c, TABLE, SL_TYPE_FP32, c->attrs.cache_rows * c->attrs.out, 0.5f);
    case_room(c, Y, (int)c->type, count);
    if (round % 4 == 3)
        fill_positions(c, round);
}

static void rotary_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    enum { SHAPES = 80 }; /* of two kinds of heads */
    cuda_op_check(&(cuda_op){.kind = SL_OP_ROTARY,
                             .run = sl_cuda_rotary,
                             .draw = draw_rotary,
                             .shapes = SHAPES,
                             .orders = 2});
}

static void rotary_when_shapes_do_not_fit_fails(void **state)
{
    (void)state;
    float some[64] = {0};
    sl_op_attrs attrs = {.batch = 1, .seq = 2, .in = 6, .out = 3, .heads = 2, .cache_rows = 2};
    sl_kernel_call call = {.attrs = &attrs, .operand = {some, some, some}};
    assert_int_equal(sl_cuda_rotary(&call), SL_ERROR_INTERNAL); /* an odd width */
    attrs.out = 4;
    assert_int_equal(sl_cuda_rotary(&call), SL_ERROR_INTERNAL); /* no whole heads */
    attrs.in = 8;
    call.scalars.position = 1;
    assert_int_equal(sl_cuda_rotary(&call), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "table"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rotary_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(rotary_when_shapes_do_not_fit_fails),
};

CUDA_CASE_MAIN(tests)
