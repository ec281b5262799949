/* What could be wrong at the vocabulary's end of the model over threads: padding that takes
 * probability (here it is not-a-number, so that whoever reads it is seen), a panel that is all
 * padding, a target of another panel, of padding or of nobody, the running maximum of threads that
 * saw nothing, panels merged wrongly, rows of the wrong group, a logit that is overwritten before
 * it is read, a loss that leaves out rows past a block's.
 *
 * Every kernel against the one of the cpu, in four orders of threads. */
#include "cuda_case.h"

#include "kernels/cuda/ops.h"

/* Ids of a panel: on both sides of what a warp takes, no multiple of a pack, more than one tile. */
static const uint64_t panels[] = {1,    2,    3,    4,    5,    7,    8,    9,    16,   24,
                                  31,   32,   33,   64,   65,   100,  128,  255,  256,  257,
                                  384,  513,  768,  1000, 1016, 1023, 1024, 1025, 1028, 1032,
                                  1027, 1600, 1999, 2056, 2600, 3001, 4096, 4104, 9001, 9008};

enum { PANELS = sizeof panels / sizeof *panels, ELEMENTS = 12000 };

static void draw_attrs_of(cuda_case *c, int round, uint64_t ids, uint64_t rows)
{
    c->attrs.batch = draw_between(1, 3);
    c->attrs.seq = rows + draw_below(5);
    c->attrs.row_count = rows;
    c->attrs.first_row = draw_below(c->attrs.batch * c->attrs.seq - rows + 1);
    c->attrs.id_count = ids;
    c->attrs.first_id = draw_below(3) * ids;
    c->attrs.adds_output = (uint32_t)draw_below(2);
    c->attrs.scale = 0.25f;
    c->scalars.loss_scale = 8.0f;
    const uint64_t end = c->attrs.first_id + ids;
    c->attrs.valid_id_count = round % 4 == 0 ? end + draw_below(9) /* no padding */
                              : round % 8 == 1
                                  ? draw_below(c->attrs.first_id + 1) /* nothing else */
                                  : c->attrs.first_id + draw_between(1, ids);
}

static void draw_attrs(cuda_case *c, int round)
{
    const uint64_t ids = panels[round % PANELS];
    draw_attrs_of(c, round, ids, case_rows(ids, ELEMENTS));
}

enum { KERNELS = 4 };

/* Few rows of each kernel's panels in turn: up to 1024 ids and more, in packs and not. */
static void draw_small_attrs(cuda_case *c, int round)
{
    static const uint64_t first[KERNELS] = {8, 3, 1032, 1025}, step[KERNELS] = {32, 32, 40, 34};
    const uint64_t kernel = (uint64_t)round % KERNELS, n = (uint64_t)round / KERNELS;
    draw_attrs_of(c, (int)n, first[kernel] + n % 32 * step[kernel], 1 + n % 3);
}

/* Ids that exist in the panel. */
static uint64_t count_valid(const cuda_case *c)
{
    const uint64_t first = c->attrs.first_id, valid = c->attrs.valid_id_count;
    const uint64_t left = valid > first ? valid - first : 0;
    return left < c->attrs.id_count ? left : c->attrs.id_count;
}

static void fill_logits(cuda_case *c, int operand)
{
    const uint64_t ids = c->attrs.id_count, count = c->attrs.row_count * ids;
    void *logits = case_random(c, operand, (int)c->type, count, 5.0f);
    for (uint64_t i = 0; i < count; i++)
        if (i % ids >= count_valid(c))
            case_store((int)c->type, logits, i, NAN);
}

static void fill_targets(cuda_case *c, int operand)
{
    static const int32_t strange[] = {-1, INT32_MIN, INT32_MAX};
    const uint64_t count = c->attrs.batch * c->attrs.seq;
    const uint64_t end = c->attrs.first_id + c->attrs.id_count + 3;
    int32_t *targets = case_ids(c, operand, count, end);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t chance = draw_below(8);
        if (chance == 0)
            targets[i] = strange[draw_below(3)];
        else if (chance < 6)
            targets[i] = (int32_t)(c->attrs.first_id + draw_below(c->attrs.id_count));
    }
}

/* Of panels before: maxima on both sides of this panel's; now and then of nothing but padding. */
static void fill_stats(cuda_case *c, int operand)
{
    float *stats = (float *)case_room(c, operand, SL_TYPE_FP32, c->attrs.row_count * 4);
    for (uint64_t row = 0; row < c->attrs.row_count; row++, stats += 4) {
        const bool is_empty = draw_below(6) == 0;
        stats[0] = is_empty ? -INFINITY : (float)draw_below(40) - 5;
        stats[1] = is_empty ? 0.0f : 1.0f + (float)draw_below(100) / 8;
        stats[2] = is_empty ? 0.0f : (float)draw_below(100) / 16 - 3;
        stats[3] = 0.0f;
    }
}

static void fill_panel(cuda_case *c)
{
    fill_logits(c, 0);
    fill_targets(c, 1);
    fill_stats(c, 2);
}

static void draw_stats(cuda_case *c, int round)
{
    draw_attrs(c, round);
    fill_panel(c);
}

static void draw_small_stats(cuda_case *c, int round)
{
    draw_small_attrs(c, round);
    fill_panel(c);
}

/* The sum alone may be off. Its terms pass through an addition for every 4 logits of the cpu's
 * lanes and every 32 of a warp's, and half a dozen more; an exponential is off by a unit or two on
 * either side, and its argument, of a size below 40 that counts the less the larger it is, by one
 * rounding; whenever a thread finds a larger logit it rescales, with errors of the same size. */
static double sum_size(const cuda_case *c, uint64_t element)
{
    const double valid = (double)count_valid(c);
    if (element % 4 != 1)
        return 0;
    return (valid / 4 + valid / 32 + 100) * (double)((const float *)c->operand[2].cpu)[element];
}

static void head_stats_when_run_match_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_STATS,
                             .run = sl_cuda_head_stats,
                             .draw = draw_stats,
                             .shapes = PANELS,
                             .bound = {[2] = {.terms = 1, .magnitude = sum_size}}});
}

/* One logit that is not a number or infinite must spoil the row's sum, in whichever thread; those
 * that are minus infinity have no share, not even where a thread or the row has no others. */
static void draw_spoiled(cuda_case *c, int round)
{
    static const double spoilers[] = {NAN, INFINITY};
    const uint64_t ids = round % 2 ? 40 : 1300;
    c->attrs = (sl_op_attrs){.batch = 1, .seq = 4, .row_count = 4, .type = c->attrs.type};
    c->attrs.id_count = c->attrs.valid_id_count = ids;
    fill_logits(c, 0);
    void *logits = c->operand[0].input;
    for (uint64_t row = 0; row < 2; row++)
        case_store((int)c->type, logits, row * ids + draw_below(ids), spoilers[row]);
    for (uint64_t i = 2 * ids; i < 4 * ids; i++)
        if (i % ids != 11 || i > 3 * ids)
            case_store((int)c->type, logits, i, -INFINITY);
    fill_targets(c, 1);
    case_room(c, 2, SL_TYPE_FP32, 16);
}

static void head_stats_when_logits_are_not_finite_match_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_STATS,
                             .run = sl_cuda_head_stats,
                             .draw = draw_spoiled,
                             .shapes = 6,
                             .bound = {[2] = {.terms = 1, .magnitude = sum_size}}});
}

static void fill_loss(cuda_case *c)
{
    float *stats = (float *)case_room(c, 0, SL_TYPE_FP32, c->attrs.row_count * 4);
    for (uint64_t i = 0; i < c->attrs.row_count * 4; i++)
        stats[i] = i % 4 == 1   ? 1.0f + (float)draw_below(5000) / 16
                   : i % 4 == 3 ? (float)(draw_below(4) == 0) /* masked */
                                : (float)draw_below(999) / 64;
    *(double *)case_room(c, 1, CASE_DOUBLE, 1) = 3.5;
    if (draw_below(3) > 0)
        *(double *)case_room(c, 2, CASE_DOUBLE, 1) = 7.0;
}

static void draw_loss(cuda_case *c, int round)
{
    static const uint64_t rows[] = {1, 2, 31, 32, 255, 256, 257, 640, 1023, 1024, 1025, 2048, 5000};
    c->attrs.row_count = round % 3 ? draw_between(1, 1500) : rows[round / 3 % 13];
    c->attrs.adds_output = (uint32_t)draw_below(2);
    fill_loss(c);
}

/* The rows of two to seventeen blocks, and the last ones; the op has no type, so once. */
static void draw_loss_groups(cuda_case *c, int round)
{
    const uint64_t n = (uint64_t)round, full = c->type == SL_TYPE_FP32 ? 1 + n / 2 % 16 : 0;
    c->attrs.row_count = 1024 * full + 1 + 33 * n % 1024;
    c->attrs.adds_output = (uint32_t)n % 2;
    fill_loss(c);
}

/* In double: an addition for every row on either side, a few roundings for every term, which is of
 * the size of its parts. */
static double loss_size(const cuda_case *c, uint64_t element)
{
    double size = case_input(c, 1, element);
    for (uint64_t row = 0; row < c->attrs.row_count; row++)
        size += case_input(c, 0, 4 * row) + case_input(c, 0, 4 * row + 2) +
                fabs(log(case_input(c, 0, 4 * row + 1)));
    return 0x1p-29 * (2 * (double)c->attrs.row_count + 8) * size;
}

static void head_loss_when_run_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_LOSS,
                             .run = sl_cuda_head_loss,
                             .workspace_bytes = sl_cuda_head_loss_workspace_bytes,
                             .draw = draw_loss,
                             .shapes = 39,
                             .bound = {[1] = {.terms = 1, .magnitude = loss_size}}});
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_LOSS,
                             .run = sl_cuda_head_loss,
                             .workspace_bytes = sl_cuda_head_loss_workspace_bytes,
                             .draw = draw_loss_groups,
                             .shapes = CASE_EACH,
                             .orders = 1,
                             .bound = {[1] = {.terms = 1, .magnitude = loss_size}}});
}

/* Statistics of all panels: the largest logit of these at least. */
static void fill_backward(cuda_case *c)
{
    fill_targets(c, 0);
    fill_stats(c, 1);
    fill_logits(c, 2);
    for (uint64_t row = 0; row < c->attrs.row_count; row++) {
        float *stats = (float *)c->operand[1].input + 4 * row;
        stats[0] = fmaxf(stats[0], -5.0f);
        stats[1] = fmaxf(stats[1], 1.0f);
        for (uint64_t i = 0; i < count_valid(c); i++)
            stats[0] = fmaxf(stats[0], (float)case_input(c, 2, row * c->attrs.id_count + i));
    }
}

static void draw_backward(cuda_case *c, int round)
{
    draw_attrs(c, round);
    fill_backward(c);
}

static void draw_small_backward(cuda_case *c, int round)
{
    draw_small_attrs(c, round);
    fill_backward(c);
}

/* Both sides take the exponential of the same number and multiply with the same one; a target has
 * the scale taken off. */
static double slope_size(const cuda_case *c, uint64_t element)
{
    const double scale = (double)c->attrs.scale * (double)c->scalars.loss_scale;
    const uint64_t row = element / c->attrs.id_count, column = element % c->attrs.id_count;
    const double target = case_input(c, 0, c->attrs.first_row + row);
    const bool is_hit = (double)(c->attrs.first_id + column) == target;
    return fabs(case_load((int)c->type, c->operand[2].cpu, element)) + (is_hit ? 2 * scale : 0);
}

static void head_logits_backward_when_run_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_LOGITS_BACKWARD,
                             .run = sl_cuda_head_logits_backward,
                             .draw = draw_backward,
                             .shapes = PANELS,
                             .bound = {[2] = {.terms = 8, .magnitude = slope_size}}});
}

static void head_when_each_kernel_has_its_panels_matches_the_cpu(void **state)
{
    (void)state;
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_STATS,
                             .run = sl_cuda_head_stats,
                             .draw = draw_small_stats,
                             .shapes = KERNELS * CASE_EACH,
                             .orders = 1,
                             .bound = {[2] = {.terms = 1, .magnitude = sum_size}}});
    cuda_op_check(&(cuda_op){.kind = SL_OP_HEAD_LOGITS_BACKWARD,
                             .run = sl_cuda_head_logits_backward,
                             .draw = draw_small_backward,
                             .shapes = KERNELS * CASE_EACH,
                             .orders = 1,
                             .bound = {[2] = {.terms = 8, .magnitude = slope_size}}});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(head_stats_when_run_match_the_cpu),
    cmocka_unit_test(head_stats_when_logits_are_not_finite_match_the_cpu),
    cmocka_unit_test(head_loss_when_run_matches_the_cpu),
    cmocka_unit_test(head_logits_backward_when_run_matches_the_cpu),
    cmocka_unit_test(head_when_each_kernel_has_its_panels_matches_the_cpu),
};

CUDA_CASE_MAIN(tests)
