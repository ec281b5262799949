/* What could be wrong in embeddings over threads: a token outside the panel or outside the
 * vocabulary that is read or written, two rows of a token added at once or in another order, an
 * order of rows that depends on which thread was first, a digit of the sort left out, a frequent
 * token whose segment is added twice, or by the token beside it, a panel that keeps what nobody
 * writes.
 *
 * Every kernel against the one of the cpu, in four orders of threads, bit by bit. Frequent tokens
 * are summed in another order than the cpu's, so there gradients are small whole numbers, whose
 * sums are exact, and once more any numbers, within a bound. */
#include "cuda_case.h"

#include "kernels/cuda/ops.h"

enum { SHAPES = CASE_SHAPES + 4, ELEMENTS = 9000 };

/* GPT-2's widths and odd ones; wider than a block's tile in the end. */
static void draw_rows(cuda_case *c, int round)
{
    const uint64_t width = round < CASE_SHAPES ? case_size(round) : 2048 + 513 * draw_below(3);
    const uint64_t rows = case_rows(width, ELEMENTS);
    c->attrs.in = width;
    c->attrs.batch = draw_between(1, 9);
    c->attrs.seq = (rows + c->attrs.batch - 1) / c->attrs.batch;
}

static void fill_position(cuda_case *c)
{
    const uint64_t count = c->attrs.seq * c->attrs.in;
    c->scalars.position = (uint32_t)draw_below(9);
    case_random(c, 0, (int)c->type, c->scalars.position * c->attrs.in + count, 1.0f);
    case_room(c, 1, (int)c->type, c->attrs.batch * count);
}

static void draw_position(cuda_case *c, int round)
{
    draw_rows(c, round);
    fill_position(c);
}

static void embed_position_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_POSITION,
                             .run = sl_cuda_embed_position,
                             .draw = draw_position,
                             .shapes = SHAPES});
}

static void fill_position_backward(cuda_case *c)
{
    const uint64_t count = c->attrs.seq * c->attrs.in;
    case_random(c, 0, (int)c->type, c->attrs.batch * count, 1.0f);
    case_random(c, 1, SL_TYPE_FP32, count + 3 * c->attrs.in, 1.0f);
}

static void draw_position_backward(cuda_case *c, int round)
{
    draw_rows(c, round);
    fill_position_backward(c);
}

static void embed_position_backward_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_POSITION_BACKWARD,
                             .run = sl_cuda_embed_position_backward,
                             .draw = draw_position_backward,
                             .shapes = SHAPES});
}

/* A few ids have most rows; some tokens are of no panel and some of no vocabulary. */
static void fill_tokens(cuda_case *c, int operand)
{
    static const int32_t strange[] = {-1, INT32_MIN, INT32_MAX, -100};
    const uint64_t first = c->attrs.first_id, ids = c->attrs.id_count;
    int32_t *tokens = case_ids(c, operand, c->attrs.batch * c->attrs.seq, first + ids + 9);
    for (uint64_t i = 0; i < c->attrs.batch * c->attrs.seq; i++) {
        const uint64_t chance = draw_below(16);
        if (chance == 0)
            tokens[i] = strange[draw_below(4)];
        else if (chance < 8)
            tokens[i] = (int32_t)(first + draw_below(ids) / (1 + draw_below(ids)));
        else if (chance < 14)
            tokens[i] = (int32_t)(first + draw_below(ids));
    }
}

static void draw_panel(cuda_case *c, uint64_t most)
{
    c->attrs.first_id = draw_below(2) * draw_below(100);
    c->attrs.id_count = draw_between(1, most);
    c->attrs.valid_id_count = c->attrs.first_id + c->attrs.id_count;
}

static void fill_panel(cuda_case *c)
{
    draw_panel(c, 30);
    fill_tokens(c, 0);
    case_random(c, 1, (int)c->type, c->attrs.id_count * c->attrs.in, 1.0f);
    case_random(c, 2, (int)c->type, c->attrs.batch * c->attrs.seq * c->attrs.in, 1.0f);
}

static void draw_tokens(cuda_case *c, int round)
{
    draw_rows(c, round);
    fill_panel(c);
}

static void embed_tokens_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_TOKENS,
                             .run = sl_cuda_embed_tokens,
                             .draw = draw_tokens,
                             .shapes = SHAPES});
}

/* dx and dpanel; whole numbers up to 8 where `is_whole`. */
static void fill_gradient(cuda_case *c, bool is_whole)
{
    const uint64_t count = c->attrs.batch * c->attrs.seq * c->attrs.in;
    c->attrs.adds_output = (uint32_t)draw_below(2);
    void *dx = case_random(c, 1, (int)c->type, count, 1.0f);
    float *dpanel = (float *)case_random(c, 2, SL_TYPE_FP32, c->attrs.id_count * c->attrs.in, 1.0f);
    for (uint64_t i = 0; is_whole && i < count; i++)
        case_store((int)c->type, dx, i, (double)draw_below(17) - 8);
    for (uint64_t i = 0; is_whole && i < c->attrs.id_count * c->attrs.in; i++)
        dpanel[i] = (float)draw_below(17) - 8;
}

/* Fewer rows than make a token a frequent one: any numbers, added in row order. */
static void draw_seldom(cuda_case *c, int round)
{
    draw_rows(c, round);
    draw_panel(c, 30);
    fill_tokens(c, 0);
    fill_gradient(c, false);
}

static void embed_tokens_backward_when_run_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_TOKENS_BACKWARD,
                             .run = sl_cuda_embed_tokens_backward,
                             .workspace_bytes = sl_cuda_embed_tokens_backward_workspace_bytes,
                             .draw = draw_seldom,
                             .shapes = SHAPES});
}

/* Runs that begin and end anywhere beside multiples of a segment: lengths around these, in turn,
 * the rows then shuffled. */
static void fill_runs(cuda_case *c)
{
    static const uint64_t lengths[] = {127, 1,   128, 129, 63, 191, 192,
                                       193, 449, 64,  300, 0,  128, 65};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    const uint64_t ids = c->attrs.id_count, count = c->attrs.batch * c->attrs.seq;
    int32_t *tokens = case_ids(c, 0, count, 1);
    uint64_t id = 0, left = lengths[draw_below(LENGTHS)], next = draw_below(LENGTHS);
    for (uint64_t i = 0; i < count; i++) {
        for (; left == 0 && id + 1 < ids; id++)
            left = lengths[next++ % LENGTHS];
        left -= left > 0;
        tokens[i] = (int32_t)(c->attrs.first_id + id) + (draw_below(50) == 0 ? 1 : 0);
    }
    for (uint64_t i = count - 1; i > 0; i--) {
        const uint64_t other = draw_below(i + 1);
        const int32_t token = tokens[i];
        tokens[i] = tokens[other];
        tokens[other] = token;
    }
}

static void draw_frequent_shape(cuda_case *c, int round)
{
    static const uint64_t widths[] = {1, 8, 5, 16, 12, 33, 24};
    c->attrs.in = round == 11 ? 1600 : round == 12 ? 768 : widths[round % 7];
    c->attrs.batch = draw_between(1, 2);
    c->attrs.seq = round % 5 == 0 ? 128 * draw_between(1, 4) : draw_between(130, 900);
    draw_panel(c, round % 3 ? 12 : 2);
    fill_runs(c);
}

static void draw_frequent(cuda_case *c, int round)
{
    draw_frequent_shape(c, round);
    fill_gradient(c, true);
}

static void embed_tokens_backward_when_tokens_are_frequent_leaves_none_out(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_TOKENS_BACKWARD,
                             .run = sl_cuda_embed_tokens_backward,
                             .workspace_bytes = sl_cuda_embed_tokens_backward_workspace_bytes,
                             .draw = draw_frequent,
                             .shapes = 33});
}

static void draw_frequent_any(cuda_case *c, int round)
{
    draw_frequent_shape(c, round);
    fill_gradient(c, false);
}

/* Each row of the token is one addition on either side. */
static double rows_size(const cuda_case *c, uint64_t element)
{
    const uint64_t width = c->attrs.in, id = c->attrs.first_id + element / width;
    double size = c->attrs.adds_output ? fabs(case_input(c, 2, element)) : 0, rows = 0;
    for (uint64_t row = 0; row < c->attrs.batch * c->attrs.seq; row++)
        if (case_input(c, 0, row) == (double)id) {
            size += fabs(case_input(c, 1, row * width + element % width));
            rows++;
        }
    return 2 * rows * size;
}

static void embed_tokens_backward_when_tokens_are_frequent_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_TOKENS_BACKWARD,
                             .run = sl_cuda_embed_tokens_backward,
                             .workspace_bytes = sl_cuda_embed_tokens_backward_workspace_bytes,
                             .draw = draw_frequent_any,
                             .shapes = 8,
                             .bound = {[2] = {.terms = 1, .magnitude = rows_size}}});
}

/* Panels of one, two and three digits, and where a digit is just full; as many rows as one block
 * orders. */
static void draw_large_panel(cuda_case *c, int round)
{
    static const uint64_t ids[] = {255, 256, 257, 511, 700};
    const bool is_largest = round % 6 == 5 && c->type == SL_TYPE_FP32; /* once: it has the time */
    c->attrs.in = is_largest ? 1 : 9;
    c->attrs.id_count = is_largest ? 65536 : ids[round % 5];
    c->attrs.batch = 1;
    c->attrs.seq = draw_between(200, 700);
    if (round == 13 && c->type == SL_TYPE_FP32) {
        c->attrs.in = 1;
        c->attrs.seq = 8192;
    }
    c->attrs.first_id = draw_below(300);
    c->attrs.valid_id_count = c->attrs.first_id + c->attrs.id_count;
    fill_tokens(c, 0);
    fill_gradient(c, true);
}

static void embed_tokens_backward_when_the_panel_is_large_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_TOKENS_BACKWARD,
                             .run = sl_cuda_embed_tokens_backward,
                             .workspace_bytes = sl_cuda_embed_tokens_backward_workspace_bytes,
                             .draw = draw_large_panel,
                             .shapes = 14});
}

/* More chunks of rows than two warps scan at once, and more rows than one block orders. */
static void draw_many_rows(cuda_case *c, int round)
{
    (void)round;
    c->attrs.in = 1;
    c->attrs.batch = 2;
    c->attrs.seq = c->type == SL_TYPE_FP32 ? 8500 : 500; /* once: it has the time */
    draw_panel(c, 200);
    if (c->type == SL_TYPE_FP32)
        c->attrs.id_count = 700, c->attrs.valid_id_count = c->attrs.first_id + 700;
    fill_tokens(c, 0);
    fill_gradient(c, true);
}

static void embed_tokens_backward_when_rows_are_many_gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_EMBED_TOKENS_BACKWARD,
                             .run = sl_cuda_embed_tokens_backward,
                             .workspace_bytes = sl_cuda_embed_tokens_backward_workspace_bytes,
                             .draw = draw_many_rows,
                             .shapes = 1});
}

/* ---- few rows of many widths ---- */

enum { KERNELS = 2, SMALL_BATCH_MOST = 9, SMALL_SEQS = 5 };

/* Rows in packs, and of an odd number of elements, in turn. */
static void draw_small_rows(cuda_case *c, int round)
{
    const uint64_t n = (uint64_t)round / KERNELS;
    c->attrs.in = round % KERNELS == 0 ? 8 + 8 * (n % 32) : 1 + 2 * (n % 32);
    c->attrs.batch = 1 + n % SMALL_BATCH_MOST;
    c->attrs.seq = 1 + 2 * (n % SMALL_SEQS);
}

static void draw_small_position(cuda_case *c, int round)
{
    draw_small_rows(c, round);
    fill_position(c);
}

static void draw_small_position_backward(cuda_case *c, int round)
{
    draw_small_rows(c, round);
    fill_position_backward(c);
}

static void draw_small_tokens(cuda_case *c, int round)
{
    draw_small_rows(c, round);
    fill_panel(c);
}

static void draw_small_seldom(cuda_case *c, int round)
{
    draw_small_rows(c, round);
    draw_panel(c, 30);
    fill_tokens(c, 0);
    fill_gradient(c, false);
}

/* So many rows of a few tokens that some are frequent. */
static void draw_small_frequent(cuda_case *c, int round)
{
    const uint64_t n = (uint64_t)round / KERNELS;
    c->attrs.in = round % KERNELS == 0 ? 8 + 8 * (n % 4) : 1 + 2 * (n % 8);
    c->attrs.batch = 1;
    c->attrs.seq = 130 + 9 * n;
    draw_panel(c, 2 + n % 11);
    fill_runs(c);
    fill_gradient(c, true);
}

static void embeddings_when_each_kernel_has_its_widths_give_the_bits_of_the_cpu(void **state)
{
    (void)state;
    cuda_op op = {.kind = SL_OP_EMBED_POSITION,
                  .run = sl_cuda_embed_position,
                  .draw = draw_small_position,
                  .shapes = KERNELS * CASE_EACH,
                  .orders = 1};
    cuda_op_check(&op);
    op.kind = SL_OP_EMBED_POSITION_BACKWARD;
    op.run = sl_cuda_embed_position_backward;
    op.draw = draw_small_position_backward;
    cuda_op_check(&op);
    op.kind = SL_OP_EMBED_TOKENS;
    op.run = sl_cuda_embed_tokens;
    op.draw = draw_small_tokens;
    cuda_op_check(&op);
    op.kind = SL_OP_EMBED_TOKENS_BACKWARD;
    op.run = sl_cuda_embed_tokens_backward;
    op.workspace_bytes = sl_cuda_embed_tokens_backward_workspace_bytes;
    op.draw = draw_small_seldom;
    cuda_op_check(&op);
    op.draw = draw_small_frequent;
    cuda_op_check(&op);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(embed_position_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(embed_position_backward_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(embed_tokens_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(embed_tokens_backward_when_run_gives_the_bits_of_the_cpu),
    cmocka_unit_test(embed_tokens_backward_when_tokens_are_frequent_leaves_none_out),
    cmocka_unit_test(embed_tokens_backward_when_tokens_are_frequent_matches_the_cpu),
    cmocka_unit_test(embed_tokens_backward_when_the_panel_is_large_gives_the_bits_of_the_cpu),
    cmocka_unit_test(embed_tokens_backward_when_rows_are_many_gives_the_bits_of_the_cpu),
    cmocka_unit_test(embeddings_when_each_kernel_has_its_widths_give_the_bits_of_the_cpu),
};

CUDA_CASE_MAIN(tests)
