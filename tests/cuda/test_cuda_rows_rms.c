/* What could be wrong in the normalisation by the root of the mean square over threads: a team of
 * lanes that takes part of another team's row, a row behind the last one, a team's columns that are
 * left out of dgamma or added twice, a width that falls between the kernels, an epsilon that is not
 * the op's, dx rounded before what it held is added, an output that changes where another is
 * absent, an offset of gamma that a kernel leaves out.
 *
 * Every kernel against the one of the cpu, in four orders of threads: heads of 8 to 256 features
 * whose rows are many to a block, and widths on both sides of each kernel's reach.
 *
 * A depth is that of test_cuda_rows_norm.c: so many additions a number of a row passes through, on
 * both sides together. */
#include "cuda_case.h"

#include "kernels/cuda/ops.h"

/* Where one kernel ends and the next begins, for four elements a pack and for eight. */
static const uint64_t widths[] = {1,    2,    3,    4,    5,    7,    8,    12,   16,    24,
                                  32,   33,   64,   72,   80,   96,   100,  120,  127,   128,
                                  132,  136,  192,  250,  252,  256,  257,  260,  264,   768,
                                  1024, 1028, 1032, 2048, 2056, 4096, 4104, 8192, 12288, 12296};

enum { WIDTHS = sizeof widths / sizeof *widths, ELEMENTS = 3000, ROWS_MOST = 40 };

enum { CPU_FORWARD = 16, CPU_BACKWARD = 4 };

static double find_depth(uint64_t width, double cpu_chains)
{
    return (double)width / cpu_chains + 64 + (double)width / 256 + 24;
}

static void draw_sizes(cuda_case *c, int round)
{
    c->attrs.in = widths[round % WIDTHS];
    c->attrs.row_count = case_rows(c->attrs.in, ELEMENTS);
    if (c->attrs.row_count > ROWS_MOST)
        c->attrs.row_count = ROWS_MOST - draw_below(8);
}

/* Rows of sizes from a thousandth, where epsilon matters, to some ten; and rows of zeros. Five
 * sizes: so no team of lanes, which are a power of two, has rows of one size alone. */
static void fill_rows(cuda_case *c)
{
    static const double sizes[] = {1, 10, 1e-3, 0, 3};
    const uint64_t width = c->attrs.in, rows = c->attrs.row_count;
    const int type = (int)c->type;
    void *x = case_random(c, 0, type, rows * width, 1.0f);
    c->attrs.epsilon = rows % 2 ? 1e-5f : 1e-6f;
    c->attrs.gamma_offset = (float)draw_below(2);
    for (uint64_t row = 0; row < rows; row++)
        for (uint64_t i = row * width; i < (row + 1) * width; i++)
            case_store(type, x, i, case_load(type, x, i) * sizes[row % 5]);
}

static void fill_forward(cuda_case *c)
{
    fill_rows(c);
    case_random(c, 1, (int)c->type, c->attrs.in, 1.0f);
    case_room(c, 2, (int)c->type, c->attrs.row_count * c->attrs.in);
    case_room(c, 3, SL_TYPE_FP32, c->attrs.row_count);
}

static void draw_forward(cuda_case *c, int round)
{
    draw_sizes(c, round);
    fill_forward(c);
}

/* The size of a factor: its two terms may cancel. */
static double factor_size(const cuda_case *c, uint64_t column)
{
    return fabs(case_input(c, 1, column)) + (double)c->attrs.gamma_offset;
}

/* Squares do not cancel: the root halves the relative error of their sum. */
static double statistic_size(const cuda_case *c, uint64_t element)
{
    return find_depth(c->attrs.in, CPU_FORWARD) * (double)((float *)c->operand[3].cpu)[element];
}

static double normal_size(const cuda_case *c, uint64_t element)
{
    const double inverse = (double)((float *)c->operand[3].cpu)[element / c->attrs.in];
    return (find_depth(c->attrs.in, CPU_FORWARD) + 4) * fabs(case_input(c, 0, element) * inverse) *
           factor_size(c, element % c->attrs.in);
}

static cuda_op describe_forward(void (*draw)(cuda_case *c, int round), int shapes)
{
    return (cuda_op){.kind = SL_OP_RMSNORM,
                     .run = sl_cuda_rmsnorm,
                     .draw = draw,
                     .shapes = shapes,
                     .bound = {[2] = {.terms = 1, .magnitude = normal_size},
                               [3] = {.terms = 1, .magnitude = statistic_size}}};
}

static void rmsnorm_when_run_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_forward(draw_forward, WIDTHS);
    cuda_op_check(&op);
}

/* ---- backward ---- */

enum { X, GAMMA, STATS, DY, DX, DGAMMA };

/* Statistics as the forward kernel leaves them, of the rounded x. */
static void fill_statistics(cuda_case *c)
{
    const uint64_t width = c->attrs.in;
    float *stats = (float *)case_room(c, STATS, SL_TYPE_FP32, c->attrs.row_count);
    for (uint64_t row = 0; row < c->attrs.row_count; row++) {
        double square = 0;
        for (uint64_t i = 0; i < width; i++)
            square += pow(case_input(c, X, row * width + i), 2) / (double)width;
        stats[row] = (float)(1 / sqrt(square + (double)c->attrs.epsilon));
    }
}

static void fill_backward(cuda_case *c)
{
    const uint64_t width = c->attrs.in, count = c->attrs.row_count * width;
    const sl_type stored[] = {SL_TYPE_FP32, SL_TYPE_FP32, c->type};
    const uint64_t way = draw_below(3); /* added to, written, rounded */
    c->attrs.adds_output = (uint32_t)draw_below(2);
    c->attrs.adds_gradient = way == 0;
    c->attrs.grad_type = (uint16_t)stored[way];
    fill_rows(c);
    case_random(c, GAMMA, (int)c->type, width, 1.0f);
    fill_statistics(c);
    case_random(c, DY, (int)c->type, count, 0.01f); /* by 1 / sqrt(epsilon) it is in fp16's reach */
    case_random(c, DX, (int)c->type, count, 1.0f);
    case_random(c, DGAMMA, stored[way], width, 1.0f);
}

static void draw_backward(cuda_case *c, int round)
{
    draw_sizes(c, round);
    fill_backward(c);
}

static double normal_at(const cuda_case *c, uint64_t element)
{
    return case_input(c, X, element) *
           (double)((const float *)c->operand[STATS].input)[element / c->attrs.in];
}

/* The mean size of dy gamma times the normalised x over a row; kept for the next element, which is
 * mostly of the same row. */
static double find_row_size(const cuda_case *c, uint64_t row)
{
    static double kept;
    static uint64_t kept_row, kept_draw = UINT64_MAX;
    const uint64_t width = c->attrs.in;
    if (kept_row != row || kept_draw != draw_count) {
        kept_row = row;
        kept_draw = draw_count;
        kept = 0;
        for (uint64_t i = row * width; i < (row + 1) * width; i++)
            kept += fabs(case_input(c, DY, i) * normal_at(c, i)) * factor_size(c, i - row * width) /
                    (double)width;
    }
    return kept;
}

/* dx = (dy gamma - normal mean(dy gamma normal)) inverse, and what it held. */
static double slope_size(const cuda_case *c, uint64_t element)
{
    const uint64_t row = element / c->attrs.in;
    const double inverse = (double)((const float *)c->operand[STATS].input)[row];
    const double d = fabs(case_input(c, DY, element)) * factor_size(c, element % c->attrs.in);
    const double old = c->attrs.adds_output ? fabs(case_input(c, DX, element)) : 0;
    return (find_depth(c->attrs.in, CPU_BACKWARD) + 8) * inverse *
               (d + fabs(normal_at(c, element)) * find_row_size(c, row)) +
           8 * old;
}

/* A sum over rows: every row is one addition on each side, and three roundings make its term. */
static double gamma_size(const cuda_case *c, uint64_t column)
{
    double size = c->attrs.adds_gradient ? fabs(case_input(c, DGAMMA, column)) : 0;
    for (uint64_t row = 0; row < c->attrs.row_count; row++) {
        const uint64_t i = row * c->attrs.in + column;
        size += fabs(case_input(c, DY, i) * normal_at(c, i));
    }
    return (2 * (double)c->attrs.row_count + 8) * size;
}

static cuda_op describe_backward(void (*draw)(cuda_case *c, int round), int shapes)
{
    return (cuda_op){.kind = SL_OP_RMSNORM_BACKWARD,
                     .run = sl_cuda_rmsnorm_backward,
                     .workspace_bytes = sl_cuda_rmsnorm_backward_workspace_bytes,
                     .draw = draw,
                     .shapes = shapes,
                     .bound = {[DX] = {.terms = 1, .magnitude = slope_size},
                               [DGAMMA] = {.terms = 1, .magnitude = gamma_size}}};
}

static void rmsnorm_backward_when_run_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_backward(draw_backward, WIDTHS);
    cuda_op_check(&op);
}

/* Heads: several rows a team of lanes, and a last group that is short. */
static void draw_many_rows(cuda_case *c, int round)
{
    static const uint64_t heads[] = {128, 64, 256, 8, 80, 3};
    c->attrs.in = heads[round];
    c->attrs.row_count = c->attrs.in > 100 ? 133 + draw_below(20) : 300 + draw_below(100);
    fill_backward(c);
}

static void rmsnorm_backward_when_rows_are_many_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op op = describe_backward(draw_many_rows, 6);
    op.orders = 2;
    cuda_op_check(&op);
}

/* Every pack of every thread: the widest rows of each kernel, several of them in a group. */
static void draw_full_rows(cuda_case *c, int round)
{
    static const uint64_t widest[] = {1024, 2048, 4096, 12288};
    c->attrs.in = widest[round / 2];
    c->attrs.row_count = 3;
    fill_backward(c);
    c->attrs.adds_output = (uint32_t)round % 2;
}

static void rmsnorm_backward_when_rows_fill_the_threads_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_backward(draw_full_rows, 8);
    cuda_op_check(&op);
}

/* ---- few rows of many widths ---- */

enum { KERNELS = 7 };

/* Rows of each kernel's widths in turn: up to 128, 256, 1024, 2048, 4096 and 12288 in packs, and
 * any. */
static void draw_small_sizes(cuda_case *c, int round)
{
    static const uint64_t first[KERNELS] = {8, 136, 264, 1032, 2056, 4104, 3};
    static const uint64_t step[KERNELS] = {8, 8, 24, 8, 8, 8, 30};
    static const uint64_t width_count[KERNELS] = {16, 16, 32, 32, 32, 32, 32};
    const uint64_t kernel = (uint64_t)round % KERNELS, n = (uint64_t)round / KERNELS;
    c->attrs.in = first[kernel] + n % width_count[kernel] * step[kernel];
    c->attrs.row_count = kernel < 2 ? 1 + n * 5 % 37 : kernel < 4 ? 1 + n % 3 : 1 + n % 2;
}

static void draw_small_forward(cuda_case *c, int round)
{
    draw_small_sizes(c, round);
    fill_forward(c);
}

static void draw_small_backward(cuda_case *c, int round)
{
    draw_small_sizes(c, round);
    fill_backward(c);
}

static void rmsnorm_when_each_kernel_has_its_widths_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op op = describe_forward(draw_small_forward, KERNELS * CASE_EACH);
    op.orders = 1;
    cuda_op_check(&op);
}

static void rmsnorm_backward_when_each_kernel_has_its_widths_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op op = describe_backward(draw_small_backward, KERNELS * CASE_EACH);
    op.orders = 1;
    cuda_op_check(&op);
}

/* ---- absent outputs ---- */

/* Both kernels leave the bits that they left in `full`, which has run. */
static void check_without(const cuda_case *full, int absent)
{
    cuda_case c = *full;
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        cuda_operand *o = &c.operand[i];
        if (i == absent)
            *o = (cuda_operand){0};
        o->cpu = o->bytes > 0 ? guarded_open(o->bytes) : NULL;
        o->cuda = o->bytes > 0 ? guarded_open(o->bytes) : NULL;
    }
    cuda_case_run(&c);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const cuda_operand *o = &c.operand[i], *want = &full->operand[i];
        if (o->bytes > 0 && (memcmp(o->cpu, want->cpu, o->bytes) != 0 ||
                             memcmp(o->cuda, want->cuda, o->bytes) != 0))
            fail_msg("%s: operand %d has other bits without operand %d", case_shape(&c), i, absent);
        guarded_close(o->cpu, o->bytes);
        guarded_close(o->cuda, o->bytes);
    }
}

static void rmsnorm_backward_when_an_output_is_absent_leaves_the_other_as_it_was(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < CASE_EACH * KERNELS; round++) {
            cuda_case full = {.kind = SL_OP_RMSNORM_BACKWARD,
                              .run = sl_cuda_rmsnorm_backward,
                              .orders = 1,
                              .type = (sl_type)type,
                              .attrs = {.type = (uint16_t)type}};
            draw_small_backward(&full, round);
            full.workspace_bytes =
                sl_cuda_rmsnorm_backward_workspace_bytes(full.kind, &full.attrs, 0);
            cuda_case_run(&full);
            check_without(&full, round / KERNELS % 2 ? DX : DGAMMA);
            case_close(&full);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rmsnorm_when_run_matches_the_cpu),
    cmocka_unit_test(rmsnorm_backward_when_run_matches_the_cpu),
    cmocka_unit_test(rmsnorm_backward_when_rows_are_many_matches_the_cpu),
    cmocka_unit_test(rmsnorm_backward_when_rows_fill_the_threads_matches_the_cpu),
    cmocka_unit_test(rmsnorm_when_each_kernel_has_its_widths_matches_the_cpu),
    cmocka_unit_test(rmsnorm_backward_when_each_kernel_has_its_widths_matches_the_cpu),
    cmocka_unit_test(rmsnorm_backward_when_an_output_is_absent_leaves_the_other_as_it_was),
};

CUDA_CASE_MAIN(tests)
