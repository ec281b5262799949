/* What could be wrong in layer normalisation over threads: a variance that cancels, a sum that
 * leaves out the lanes past a row's end or takes them twice, a barrier between a sum and its reuse
 * that is missing, a width that falls between the kernels, the last rows of a block or a group, a
 * column whose groups are added twice or not at all, dx rounded before what it held is added, an
 * output that changes where another is absent.
 *
 * Every kernel against the one of the cpu, in four orders of threads: widths on both sides of each
 * kernel's reach, rows far from zero, more groups of rows than a warp adds.
 *
 * Where a bound speaks of a depth: so many additions a number of a row passes through, on both
 * sides together, so a sum is off by at most depth * UNIT * (the sum of sizes). A thread of a row
 * holds at most 64 numbers, or every 256th of a row that is wider than all; its warp and its block
 * add less than 24. The cpu has chains of every 16th number, backward of every 4th, at least. */
#include "cuda_case.h"

#include "kernels/cuda/ops.h"

/* Where one kernel ends and the next begins, for four elements a pack and for eight. */
static const uint64_t widths[] = {1,    2,    3,    4,    5,    7,     8,     12,    16,   24,
                                  31,   32,   33,   64,   100,  248,   256,   257,   768,  770,
                                  1000, 1024, 1028, 1032, 1600, 1601,  2048,  2052,  2056, 3000,
                                  4096, 4100, 4104, 5120, 8192, 12288, 12289, 12296, 13000};

enum { WIDTHS = sizeof widths / sizeof *widths, ELEMENTS = 3000, ROWS_MOST = 30 };

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

/* Rows whose mean is up to 100 deviations from zero. */
static void fill_rows(cuda_case *c, int operand)
{
    const uint64_t width = c->attrs.in, rows = c->attrs.row_count;
    void *x = case_random(c, operand, c->type, rows * width, 1.0f);
    for (uint64_t row = 0; row < rows; row++) {
        const double middle = row % 3 ? (double)draw_between(0, 200) - 100 : 0;
        for (uint64_t i = row * width; i < (row + 1) * width; i++)
            case_store((int)c->type, x, i, case_load((int)c->type, x, i) + middle);
    }
}

static void fill_layernorm(cuda_case *c)
{
    fill_rows(c, 0);
    case_random(c, 1, c->type, c->attrs.in, 1.0f);
    case_random(c, 2, c->type, c->attrs.in, 1.0f);
    case_room(c, 3, c->type, c->attrs.row_count * c->attrs.in);
    case_room(c, 4, SL_TYPE_FP32, c->attrs.row_count * 2);
}

static void draw_layernorm(cuda_case *c, int round)
{
    draw_sizes(c, round);
    fill_layernorm(c);
}

/* The mean is off by depth * UNIT times the mean size, which |mean| + deviation bounds. What that
 * does to the variance is of second order; its own sum is of depth as well, and its root halves it.
 */
static double statistic_size(const cuda_case *c, uint64_t element)
{
    const float *stats = (const float *)c->operand[4].cpu + element / 2 * 2;
    const double deviation = 1 / (double)stats[1];
    return find_depth(c->attrs.in, CPU_FORWARD) *
           (element % 2 ? (double)stats[1] : fabs((double)stats[0]) + deviation);
}

/* y = (x - mean) inverse gamma + beta, with the errors of both statistics. */
static double normal_size(const cuda_case *c, uint64_t element)
{
    const uint64_t row = element / c->attrs.in, column = element % c->attrs.in;
    const float *stats = (const float *)c->operand[4].cpu + row * 2;
    const double inverse = (double)stats[1], mean = (double)stats[0];
    const double distance = fabs(case_input(c, 0, element) - mean);
    const double gamma = fabs(case_input(c, 1, column)), beta = fabs(case_input(c, 2, column));
    return (find_depth(c->attrs.in, CPU_FORWARD) + 8) *
           (gamma * inverse * (fabs(mean) + 1 / inverse + distance) + beta);
}

static cuda_op describe_forward(void (*draw)(cuda_case *c, int round), int shapes)
{
    return (cuda_op){.kind = SL_OP_LAYERNORM,
                     .run = sl_cuda_layernorm,
                     .draw = draw,
                     .shapes = shapes,
                     .bound = {[3] = {.terms = 1, .magnitude = normal_size},
                               [4] = {.terms = 1, .magnitude = statistic_size}}};
}

static void layernorm_when_run_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_forward(draw_layernorm, WIDTHS);
    cuda_op_check(&op);
}

/* Statistics as the forward kernel leaves them, of the rounded x. */
static void fill_statistics(cuda_case *c)
{
    const uint64_t width = c->attrs.in;
    float *stats = (float *)case_room(c, 2, SL_TYPE_FP32, c->attrs.row_count * 2);
    for (uint64_t row = 0; row < c->attrs.row_count; row++) {
        double mean = 0, variance = 0;
        for (uint64_t i = 0; i < width; i++)
            mean += case_input(c, 0, row * width + i) / (double)width;
        for (uint64_t i = 0; i < width; i++)
            variance += pow(case_input(c, 0, row * width + i) - mean, 2) / (double)width;
        stats[2 * row] = (float)mean;
        stats[2 * row + 1] = (float)(1 / sqrt(variance + 1e-5));
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
    fill_rows(c, 0);
    case_random(c, 1, c->type, width, 1.0f);
    fill_statistics(c);
    case_random(c, 3, c->type, count, 1.0f);
    case_random(c, 4, c->type, count, 1.0f);
    case_random(c, 5, stored[way], width, 1.0f);
    case_random(c, 6, stored[way], width, 1.0f);
}

static void draw_backward(cuda_case *c, int round)
{
    draw_sizes(c, round);
    fill_backward(c);
}

static double normal_at(const cuda_case *c, uint64_t element)
{
    const float *stats = (const float *)c->operand[2].input + element / c->attrs.in * 2;
    return (case_input(c, 0, element) - (double)stats[0]) * (double)stats[1];
}

/* The mean size of dy gamma over a row, and of that times the normalised x; kept for the next
 * element, which is mostly of the same row. */
static void find_row_sizes(const cuda_case *c, uint64_t row, double out_sizes[2])
{
    static double kept[2];
    static uint64_t kept_row, kept_draw = UINT64_MAX;
    const uint64_t width = c->attrs.in;
    if (kept_row != row || kept_draw != draw_count) {
        kept_row = row;
        kept_draw = draw_count;
        kept[0] = kept[1] = 0;
        for (uint64_t i = 0; i < width; i++) {
            const double d = fabs(case_input(c, 3, row * width + i) * case_input(c, 1, i));
            kept[0] += d / (double)width;
            kept[1] += d * fabs(normal_at(c, row * width + i)) / (double)width;
        }
    }
    memcpy(out_sizes, kept, sizeof kept);
}

/* dx = (dy gamma - mean(dy gamma) - normal mean(dy gamma normal)) inverse, and what it held. */
static double slope_size(const cuda_case *c, uint64_t element)
{
    const uint64_t row = element / c->attrs.in;
    const double inverse = (double)((const float *)c->operand[2].input)[2 * row + 1];
    const double d = fabs(case_input(c, 3, element) * case_input(c, 1, element % c->attrs.in));
    const double old = c->attrs.adds_output ? fabs(case_input(c, 4, element)) : 0;
    double sizes[2];
    find_row_sizes(c, row, sizes);
    return (find_depth(c->attrs.in, CPU_BACKWARD) + 8) * inverse *
               (d + sizes[0] + fabs(normal_at(c, element)) * sizes[1]) +
           8 * old;
}

/* Sums over rows: every row is one addition on each side, and four roundings make its term. */
static double column_size(const cuda_case *c, uint64_t column, bool crossed)
{
    double size = c->attrs.adds_gradient ? fabs(case_input(c, crossed ? 5 : 6, column)) : 0;
    for (uint64_t row = 0; row < c->attrs.row_count; row++) {
        const uint64_t i = row * c->attrs.in + column;
        size += fabs(case_input(c, 3, i) * (crossed ? normal_at(c, i) : 1));
    }
    return (2 * (double)c->attrs.row_count + 8) * size;
}

static double gamma_size(const cuda_case *c, uint64_t column)
{
    return column_size(c, column, true);
}

static double beta_size(const cuda_case *c, uint64_t column)
{
    return column_size(c, column, false);
}

static cuda_op describe_backward(void (*draw)(cuda_case *c, int round), int shapes)
{
    return (cuda_op){.kind = SL_OP_LAYERNORM_BACKWARD,
                     .run = sl_cuda_layernorm_backward,
                     .workspace_bytes = sl_cuda_layernorm_backward_workspace_bytes,
                     .draw = draw,
                     .shapes = shapes,
                     .bound = {[4] = {.terms = 1, .magnitude = slope_size},
                               [5] = {.terms = 1, .magnitude = gamma_size},
                               [6] = {.terms = 1, .magnitude = beta_size}}};
}

static void layernorm_backward_when_run_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_backward(draw_backward, WIDTHS);
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

static void layernorm_backward_when_rows_fill_the_threads_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_backward(draw_full_rows, 8);
    cuda_op_check(&op);
}

/* More rows than 8 a group, and a last group that is short. */
static void draw_many_rows(cuda_case *c, int round)
{
    const bool is_largest = round == 0 && c->type == SL_TYPE_BF16; /* once: it has the time */
    c->attrs.in = round == 0 ? 8 : 3;
    c->attrs.row_count = is_largest ? 8 * 512 + 5 : 100 + draw_below(100);
    fill_backward(c);
}

static void layernorm_backward_when_groups_are_many_matches_the_cpu(void **state)
{
    (void)state;
    const cuda_op op = describe_backward(draw_many_rows, 2);
    cuda_op_check(&op);
}

/* ---- few rows of many widths ---- */

enum { KERNELS = 5 };

/* Rows of each kernel's widths in turn: up to 1024, 2048, 4096 and 12288 in packs, and any. */
static void draw_small_sizes(cuda_case *c, int round)
{
    static const uint64_t first[KERNELS] = {8, 1032, 2056, 4104, 3};
    static const uint64_t step[KERNELS] = {32, 8, 8, 8, 30};
    const uint64_t kernel = (uint64_t)round % KERNELS, n = (uint64_t)round / KERNELS;
    c->attrs.in = first[kernel] + n % 32 * step[kernel];
    c->attrs.row_count = 1 + n % 3;
}

static void draw_small_layernorm(cuda_case *c, int round)
{
    draw_small_sizes(c, round);
    fill_layernorm(c);
}

static void draw_small_backward(cuda_case *c, int round)
{
    draw_small_sizes(c, round);
    fill_backward(c);
}

static void layernorm_when_each_kernel_has_its_widths_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op op = describe_forward(draw_small_layernorm, KERNELS * CASE_EACH);
    op.orders = 1;
    cuda_op_check(&op);
}

static void layernorm_backward_when_each_kernel_has_its_widths_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op op = describe_backward(draw_small_backward, KERNELS * CASE_EACH);
    op.orders = 1;
    cuda_op_check(&op);
}

/* ---- absent outputs ---- */

static cuda_case open_backward(sl_type type, int round)
{
    cuda_case c = {.kind = SL_OP_LAYERNORM_BACKWARD,
                   .run = sl_cuda_layernorm_backward,
                   .orders = 1,
                   .type = type,
                   .attrs = {.type = (uint16_t)type}};
    draw_small_sizes(&c, round);
    c.attrs.row_count = c.attrs.in < 2000 ? 11 : 3; /* two groups, or one */
    fill_backward(&c);
    c.workspace_bytes =
        sl_cuda_layernorm_backward_workspace_bytes(SL_OP_LAYERNORM_BACKWARD, &c.attrs, 0);
    return c;
}

/* Both kernels leave the bits that they left in `full`, which has run. */
static void check_without(const cuda_case *full, uint32_t absent)
{
    cuda_case c = *full;
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        cuda_operand *o = &c.operand[i];
        if (absent >> i & 1)
            *o = (cuda_operand){0};
        o->cpu = o->bytes > 0 ? guarded_open(o->bytes) : NULL;
        o->cuda = o->bytes > 0 ? guarded_open(o->bytes) : NULL;
    }
    cuda_case_run(&c);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const cuda_operand *o = &c.operand[i], *want = &full->operand[i];
        if (o->bytes > 0 && (memcmp(o->cpu, want->cpu, o->bytes) != 0 ||
                             memcmp(o->cuda, want->cuda, o->bytes) != 0))
            fail_msg("%s: operand %d has other bits without operands %#x", case_shape(&c), i,
                     absent);
        guarded_close(o->cpu, o->bytes);
        guarded_close(o->cuda, o->bytes);
    }
}

static void layernorm_backward_when_outputs_are_absent_leaves_the_others_as_they_were(void **state)
{
    (void)state;
    enum { DX = 4, ALL = 7 };
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < CASE_EACH * KERNELS; round++) {
            const uint32_t absent = 1 + (uint32_t)(round / KERNELS) % 3;
            cuda_case full = open_backward((sl_type)type, round);
            cuda_case_run(&full);
            check_without(&full, absent << DX);
            check_without(&full, (ALL - absent) << DX);
            case_close(&full);
        }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(layernorm_when_run_matches_the_cpu),
    cmocka_unit_test(layernorm_backward_when_run_matches_the_cpu),
    cmocka_unit_test(layernorm_backward_when_rows_fill_the_threads_matches_the_cpu),
    cmocka_unit_test(layernorm_backward_when_groups_are_many_matches_the_cpu),
    cmocka_unit_test(layernorm_when_each_kernel_has_its_widths_matches_the_cpu),
    cmocka_unit_test(layernorm_backward_when_each_kernel_has_its_widths_matches_the_cpu),
    cmocka_unit_test(layernorm_backward_when_outputs_are_absent_leaves_the_others_as_they_were),
};

CUDA_CASE_MAIN(tests)
