/* What could be wrong in dropout: a mask that depends on tiles, workers or instruction sets, the
 * same mask for two rows, steps, sites or heads, more or fewer elements than asked for, or those
 * that a neighbour decides, a scale that keeps no mean, a mask of the gradient that is not the
 * value's. The op is compared bit by bit with its definition, drawn by src/base/rng.c; the masks of
 * attention are read out of it by a probe: with equal scores and values that are rows of the
 * identity, y shows each weight. Of counts a bound of 5 deviations is allowed: for seeds that are
 * fixed. */
#include "kernel_case.h"
#include "kernel_reference.h"

enum { SHAPES = 20, SITES = 7, PROBE_SEQ = 96, PROBE_HEADS = 3 };

static const float probabilities[] = {0.1f, 0.5f, 0.03f, 0.9f};

static kernel_case open_dropout(const sl_op_attrs *attrs, bool has_residual)
{
    kernel_case c = {.kind = SL_OP_DROPOUT, .attrs = *attrs};
    const uint64_t count = attrs->batch * attrs->seq * attrs->in;
    c.scalars.dropout_seed = draw_below(UINT64_MAX);
    c.scalars.first_row = draw_below(1 << 20);
    case_random(&c, 0, count, 1);
    if (has_residual)
        case_random(&c, 1, count, 1);
    case_operand(&c, 2, count * sizeof(float));
    return c;
}

static void dropout_when_run_equals_the_definition(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const sl_op_attrs attrs = {.batch = draw_between(1, 3),
                                   .seq = round == 0 ? 300 : draw_between(1, 40),
                                   .in = round == 0 ? 123 : draw_between(1, 70),
                                   .dropout = probabilities[round % 4],
                                   .dropout_site = (uint32_t)draw_below(1000)};
        kernel_case c = open_dropout(&attrs, round % 2);
        const drop_call drop = {&c.attrs, &c.scalars, 0};
        const uint64_t row = attrs.seq * attrs.in, count = attrs.batch * row;
        const float *x = c.input[0], *residual = c.input[1];
        float *want = allocate(count * sizeof *want);
        for (uint64_t i = 0; i < count; i++) {
            want[i] = x[i] * (float)drop_element_factor(&drop, i / row, i % row);
            if (residual != NULL)
                want[i] = want[i] + residual[i];
        }
        case_run(&c);
        case_compare_bits(&c, 2, want);
        case_expect_unchanged(&c, 0, 2);
        free(want);
        case_close(&c);
    }
}

/* ---- masks, an element a byte ---- */

typedef struct masks {
    uint8_t *kept;
    uint64_t count;
    double mean, square; /* of the factors */
} masks;

static masks open_masks(uint64_t count)
{
    return (masks){.kept = allocate(count), .count = count};
}

static void note_factor(masks *m, uint64_t at, double factor)
{
    m->kept[at] = factor != 0;
    m->mean += factor / (double)m->count;
    m->square += factor * factor / (double)m->count;
}

/* A row of ones, dropped. */
static masks draw_elements(const sl_op_attrs *attrs, const sl_step_scalars *scalars)
{
    kernel_case c = open_dropout(attrs, false);
    masks m = open_masks(c.bytes[2] / sizeof(float));
    c.scalars = *scalars;
    for (uint64_t i = 0; i < m.count; i++)
        ((float *)c.input[0])[i] = 1.0f;
    case_run_once(&c, pools[1]);
    for (uint64_t i = 0; i < m.count; i++)
        note_factor(&m, i, (double)((float *)c.result[2])[i]);
    case_close(&c);
    return m;
}

/* Queries of zeros see all keys alike, and value k is row k of the identity. */
static masks draw_weights(const sl_op_attrs *attrs, const sl_step_scalars *scalars)
{
    const uint64_t seq = attrs->seq, width = attrs->in / attrs->heads;
    const uint64_t rows = attrs->batch * seq, in = attrs->in;
    kernel_case c = {.kind = SL_OP_ATTENTION, .attrs = *attrs, .scalars = *scalars};
    masks m = open_masks(attrs->batch * attrs->heads * seq * (seq + 1) / 2);
    float *qkv = case_operand(&c, 0, rows * 3 * in * sizeof *qkv);
    assert_true(width >= seq);
    memset(qkv, 0, c.bytes[0]);
    for (uint64_t i = 0; i < rows * attrs->heads; i++)
        qkv[i / attrs->heads * 3 * in + 2 * in + i % attrs->heads * width +
            i / attrs->heads % seq] = 1.0f;
    case_operand(&c, 1, rows * in * sizeof(float));
    case_operand(&c, 2, rows * attrs->heads * sizeof(float));
    case_run_once(&c, pools[1]);
    uint64_t at = 0;
    for (uint64_t i = 0; i < rows * attrs->heads; i++) {
        const uint64_t query = i / attrs->heads % seq;
        const float *y = (float *)c.result[1] + i / attrs->heads * in + i % attrs->heads * width;
        for (uint64_t key = 0; key <= query; key++)
            note_factor(&m, at++, (double)y[key] * (double)(query + 1));
    }
    assert_int_equal(at, m.count);
    case_close(&c);
    return m;
}

static const sl_op_attrs element_attrs = {.batch = 4, .seq = 64, .in = 96};
static const sl_op_attrs weight_attrs = {.batch = 3,
                                         .seq = PROBE_SEQ,
                                         .heads = PROBE_HEADS,
                                         .in = PROBE_HEADS * PROBE_SEQ,
                                         .out = PROBE_HEADS * PROBE_SEQ};

/* Mean 1 and variance p / (1 - p), as many draws allow. */
static void expect_moments(const masks *m, double p)
{
    const double variance = p / (1 - p), count = (double)m->count;
    const double fourth = p + pow(p, 4) / pow(1 - p, 3); /* of the factor less 1 */
    const double spread = sqrt((fourth - variance * variance) / count);
    if (!(fabs(m->mean - 1) <= 5 * sqrt(variance / count) + 1e-6))
        fail_msg("p %g: mean %g of %g elements", p, m->mean, count);
    const double found = m->square - 2 * m->mean + 1;
    if (!(fabs(found - variance) <= 5 * spread + 1e-6 * (1 + variance)))
        fail_msg("p %g: variance %g, not %g", p, found, variance);
}

static void masks_when_drawn_have_mean_one_and_the_variance_of_each_site(void **state)
{
    (void)state;
    for (uint32_t site = 0; site < SITES; site++)
        for (int i = 0; i < 4; i++) {
            const sl_step_scalars scalars = {.dropout_seed = 5, .first_row = 1000 * site};
            sl_op_attrs attrs = site % 2 ? weight_attrs : element_attrs;
            attrs.dropout = probabilities[i];
            attrs.dropout_site = site;
            masks m = site % 2 ? draw_weights(&attrs, &scalars) : draw_elements(&attrs, &scalars);
            expect_moments(&m, (double)attrs.dropout);
            free(m.kept);
        }
}

/* With p = 1/2 two masks that have nothing to do with each other agree in half of their elements.
 */
static void expect_apart(const uint8_t *a, const uint8_t *b, uint64_t count, const char *what)
{
    uint64_t equal = 0;
    for (uint64_t i = 0; i < count; i++)
        equal += a[i] == b[i];
    if (fabs((double)equal - (double)count / 2) > 2.5 * sqrt((double)count))
        fail_msg("%s: %llu of %llu elements agree", what, (unsigned long long)equal,
                 (unsigned long long)count);
}

typedef masks draw_masks(const sl_op_attrs *attrs, const sl_step_scalars *scalars);

static void compare_masks(draw_masks *draw, sl_op_attrs attrs)
{
    const sl_step_scalars scalars = {.dropout_seed = 5, .first_row = 8};
    sl_step_scalars seed = scalars, step = scalars;
    sl_op_attrs site = attrs;
    seed.dropout_seed = UINT64_C(5) << 32;
    step.first_row += attrs.batch;
    site.dropout_site++;
    masks one = draw(&attrs, &scalars), again = draw(&attrs, &scalars);
    masks others[] = {draw(&attrs, &seed), draw(&attrs, &step), draw(&site, &scalars)};
    static const char *const names[] = {"another seed", "another step", "another site"};
    assert_memory_equal(one.kept, again.kept, one.count);
    for (int i = 0; i < 3; i++)
        expect_apart(one.kept, others[i].kept, one.count, names[i]);
    const uint64_t row = one.count / attrs.batch;
    expect_apart(one.kept, one.kept + row, row, "another row");
    expect_apart(one.kept, one.kept + 1, one.count - 1, "the next element");
    expect_apart(one.kept, one.kept + 8, one.count - 8, "the element 8 behind");
    /* Row 1 of these is row 0 of a step that begins with it: how rows are dealt does not matter. */
    step.first_row = scalars.first_row + 1;
    masks later = draw(&attrs, &step);
    assert_memory_equal(one.kept + row, later.kept, row * (attrs.batch - 1));
    masks *all[] = {&one, &again, &others[0], &others[1], &others[2], &later};
    for (int i = 0; i < 6; i++)
        free(all[i]->kept);
}

static void masks_when_seed_step_site_or_row_differ_have_nothing_in_common(void **state)
{
    (void)state;
    sl_op_attrs elements = element_attrs, weights = weight_attrs;
    elements.dropout = weights.dropout = 0.5f;
    elements.dropout_site = weights.dropout_site = 2;
    compare_masks(draw_elements, elements);
    compare_masks(draw_weights, weights);
}

/* A kernel sees micro-batches one at a time: the rows behind each other are those of one batch. */
static void masks_when_micro_batches_are_smaller_are_the_same_rows(void **state)
{
    (void)state;
    const sl_step_scalars scalars = {.dropout_seed = 3, .first_row = 50};
    sl_op_attrs whole = element_attrs, half = element_attrs;
    whole.dropout = half.dropout = 0.3f;
    half.batch = whole.batch / 2;
    masks all = draw_elements(&whole, &scalars);
    float *x = allocate(all.count * sizeof *x), *y = allocate(all.count * sizeof *y);
    for (uint64_t i = 0; i < all.count; i++)
        x[i] = 1.0f;
    for (uint32_t micro_batch = 0; micro_batch < 2; micro_batch++) {
        const uint64_t at = micro_batch * all.count / 2;
        const sl_kernel_call call = {.attrs = &half,
                                     .operand = {x + at, NULL, y + at},
                                     .workers = pools[0],
                                     .scalars = scalars,
                                     .micro_batch = micro_batch};
        assert_int_equal(sl_kernels_cpu()->row[SL_OP_DROPOUT].run(&call), SL_OK);
    }
    for (uint64_t i = 0; i < all.count; i++)
        assert_int_equal(y[i] != 0, all.kept[i]);
    free(x);
    free(y);
    free(all.kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_when_run_equals_the_definition),
        cmocka_unit_test(masks_when_drawn_have_mean_one_and_the_variance_of_each_site),
        cmocka_unit_test(masks_when_seed_step_site_or_row_differ_have_nothing_in_common),
        cmocka_unit_test(masks_when_micro_batches_are_smaller_are_the_same_rows),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
