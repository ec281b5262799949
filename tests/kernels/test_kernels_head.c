/* What could be wrong at the vocabulary's end of the model: padding ids that take probability, a
 * target in another panel, a masked target that counts or has a gradient, statistics that are
 * merged wrongly over panels, token ids outside the vocabulary that are read or written out of
 * bounds (the sanitizers see those), rows added in an order that depends on the workers. Panels are
 * walked as the engine does; the whole is compared with plain double softmax and with float sums in
 * row order. */
#include "kernel_case.h"

enum { SHAPES = 20 };

typedef struct head_shape {
    uint64_t batch, seq, first_row, rows; /* rows first_row .. first_row + rows of batch * seq */
    uint64_t panel, panels, valid;        /* ids of a panel, panels, ids that exist */
} head_shape;

static head_shape draw_shape(void)
{
    head_shape s = {.batch = draw_between(1, 4), .seq = draw_between(1, 20)};
    s.first_row = draw_below(s.batch * s.seq);
    s.rows = draw_between(1, s.batch * s.seq - s.first_row);
    s.panel = draw_between(1, 70);
    s.panels = draw_between(1, 4);
    s.valid = draw_between(1, s.panel * s.panels); /* whole panels may be padding */
    return s;
}

static sl_op_attrs attrs_of(head_shape s, uint64_t panel)
{
    return (sl_op_attrs){.batch = s.batch,
                         .seq = s.seq,
                         .first_row = s.first_row,
                         .row_count = s.rows,
                         .first_id = panel * s.panel,
                         .id_count = s.panel,
                         .valid_id_count = s.valid,
                         .scale = 0.25f,
                         .adds_output = panel > 0};
}

static void fill_targets(int32_t *targets, uint64_t count, uint64_t valid)
{
    for (uint64_t i = 0; i < count; i++)
        targets[i] = draw_below(4) == 0 ? -1 : (int32_t)draw_below(valid);
}

/* log of the sum of exponentials over the ids that exist, in double. */
static double find_lse(const float *logits, const head_shape *s, uint64_t row)
{
    double max = -INFINITY, sum = 0;
    for (uint64_t id = 0; id < s->valid; id++)
        max = fmax(max, (double)logits[(id / s->panel * s->rows + row) * s->panel + id % s->panel]);
    for (uint64_t id = 0; id < s->valid; id++)
        sum +=
            exp((double)logits[(id / s->panel * s->rows + row) * s->panel + id % s->panel] - max);
    return max + log(sum);
}

typedef struct head_run {
    head_shape s;
    float *logits; /* [panels, rows, panel] */
    int32_t *targets;
    float *stats;
} head_run;

static void run_stats(head_run *run, uint64_t panel)
{
    const head_shape *s = &run->s;
    kernel_case c = {.kind = SL_OP_HEAD_STATS, .attrs = attrs_of(*s, panel)};
    memcpy(case_operand(&c, 0, s->rows * s->panel * sizeof(float)),
           run->logits + panel * s->rows * s->panel, s->rows * s->panel * sizeof(float));
    memcpy(case_operand(&c, 1, s->batch * s->seq * sizeof(int32_t)), run->targets,
           s->batch * s->seq * sizeof(int32_t));
    memcpy(case_operand(&c, 2, s->rows * 4 * sizeof(float)), run->stats,
           s->rows * 4 * sizeof(float));
    case_run(&c);
    memcpy(run->stats, c.result[2], s->rows * 4 * sizeof(float));
    case_expect_unchanged(&c, 0, 2);
    case_close(&c);
}

static void check_stats(const head_run *run)
{
    const head_shape *s = &run->s;
    for (uint64_t row = 0; row < s->rows; row++) {
        const float *stats = run->stats + row * 4;
        const bool is_masked = run->targets[s->first_row + row] < 0;
        const uint64_t id = is_masked ? 0 : (uint64_t)run->targets[s->first_row + row];
        const float target =
            run->logits[(id / s->panel * s->rows + row) * s->panel + id % s->panel];
        assert_true(stats[2] == (is_masked ? 0.0f : target) &&
                    stats[3] == (is_masked ? 1.0f : 0.0f));
        /* Arguments of the exponential are below 40 in size and rounded once, sums have `valid`
         * terms, and each panel rescales once. */
        const double bound = UNIT * (double)(s->valid + 60 * s->panels);
        const double lse = (double)stats[0] + log((double)stats[1]);
        assert_true(fabs(lse - find_lse(run->logits, s, row)) <= bound);
    }
}

static void check_loss(const head_run *run)
{
    const head_shape *s = &run->s;
    for (uint32_t add = 0; add < 2; add++) {
        kernel_case c = {.kind = SL_OP_HEAD_LOSS, .attrs = attrs_of(*s, add)};
        memcpy(case_operand(&c, 0, s->rows * 4 * sizeof(float)), run->stats,
               s->rows * 4 * sizeof(float));
        *(double *)case_operand(&c, 1, sizeof(double)) = 3.5;
        *(double *)case_operand(&c, 2, sizeof(double)) = 7;
        case_run(&c);
        long double want = add ? 3.5L : 0.0L, size = fabsl(want);
        double counted = add ? 7 : 0;
        for (uint64_t row = 0; row < s->rows; row++) {
            const float *stats = run->stats + row * 4;
            if (run->targets[s->first_row + row] < 0)
                continue;
            counted++;
            long double term = logl((long double)stats[1]) + (long double)stats[0];
            want += term - (long double)stats[2];
            size += fabsl(term) + fabsl((long double)stats[2]);
        }
        const double got = *(double *)c.result[1];
        assert_true(*(double *)c.result[2] == counted);
        assert_true(fabsl((long double)got - want) <= (long double)(s->rows + 4) * 0x1p-53L * size);
        case_close(&c);
    }
}

static void check_gradient(const head_run *run, uint64_t panel)
{
    const head_shape *s = &run->s;
    const uint64_t count = s->rows * s->panel;
    kernel_case c = {.kind = SL_OP_HEAD_LOGITS_BACKWARD, .attrs = attrs_of(*s, panel)};
    c.scalars.loss_scale = 8.0f;
    memcpy(case_operand(&c, 0, s->batch * s->seq * sizeof(int32_t)), run->targets,
           s->batch * s->seq * sizeof(int32_t));
    memcpy(case_operand(&c, 1, s->rows * 4 * sizeof(float)), run->stats,
           s->rows * 4 * sizeof(float));
    float *logits = case_operand(&c, 2, count * sizeof(float));
    memcpy(logits, run->logits + panel * count, count * sizeof(float));
    case_run(&c);
    double *want = calloc(count, sizeof *want), *bound = calloc(count, sizeof *bound);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t row = i / s->panel, id = panel * s->panel + i % s->panel;
        if (id >= s->valid || run->targets[s->first_row + row] < 0)
            continue;
        const double lse = find_lse(run->logits, s, row);
        const double p = exp((double)logits[i] - lse);
        const bool hit = id == (uint64_t)run->targets[s->first_row + row];
        want[i] = 2 * (p - hit);
        bound[i] = UNIT * 2 * ((double)(s->valid + 60 * s->panels + 60) * p + hit);
    }
    case_compare(&c, 2, want, bound);
    case_expect_unchanged(&c, 0, 2);
    free(want);
    free(bound);
    case_close(&c);
}

static void head_when_walked_by_panels_is_a_softmax(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        head_run run = {.s = draw_shape()};
        const head_shape *s = &run.s;
        const uint64_t count = s->panels * s->rows * s->panel;
        run.logits = allocate(count * sizeof(float));
        run.targets = allocate(s->batch * s->seq * sizeof(int32_t));
        run.stats = allocate(s->rows * 4 * sizeof(float));
        memset(run.stats, 0xff, s->rows * 4 * sizeof(float));
        for (uint64_t i = 0; i < count; i++)
            run.logits[i] = 4 * sl_rng_normal(test_seed, 77 + (uint64_t)round, i);
        fill_targets(run.targets, s->batch * s->seq, s->valid);
        for (uint64_t panel = 0; panel < s->panels; panel++)
            run_stats(&run, panel);
        check_stats(&run);
        check_loss(&run);
        for (uint64_t panel = 0; panel < s->panels; panel++)
            check_gradient(&run, panel);
        free(run.logits);
        free(run.targets);
        free(run.stats);
    }
}

/* Targets that no id answers to, padding included: no logit is theirs, and the softmax alone has a
 * gradient; those below 0 are masked, and nothing has one. */
static void head_when_targets_do_not_exist_ignores_them(void **state)
{
    (void)state;
    enum { ROWS = 5, IDS = 40, VALID = 33 };
    static const int32_t strange[ROWS] = {-1, VALID, IDS - 1, INT32_MIN, INT32_MAX};
    const sl_op_attrs attrs = {.batch = 1,
                               .seq = ROWS,
                               .row_count = ROWS,
                               .id_count = IDS,
                               .valid_id_count = VALID,
                               .scale = 1.0f};
    kernel_case stats = {.kind = SL_OP_HEAD_STATS, .attrs = attrs};
    float *logits = case_random(&stats, 0, ROWS * IDS, 1);
    memcpy(case_operand(&stats, 1, sizeof strange), strange, sizeof strange);
    case_operand(&stats, 2, ROWS * 4 * sizeof(float));
    case_run(&stats);
    kernel_case back = {.kind = SL_OP_HEAD_LOGITS_BACKWARD, .attrs = attrs};
    back.scalars.loss_scale = 1.0f;
    memcpy(case_operand(&back, 0, sizeof strange), strange, sizeof strange);
    memcpy(case_operand(&back, 1, ROWS * 4 * sizeof(float)), stats.result[2],
           ROWS * 4 * sizeof(float));
    memcpy(case_operand(&back, 2, ROWS * IDS * sizeof(float)), logits, ROWS * IDS * sizeof(float));
    case_run(&back);
    const float *gradient = back.result[2];
    for (int i = 0; i < ROWS * IDS; i++)
        assert_true(i % IDS < VALID && strange[i / IDS] >= 0 ? gradient[i] > 0.0f
                                                             : gradient[i] == 0.0f);
    for (int row = 0; row < ROWS; row++)
        assert_true(((float *)stats.result[2])[row * 4 + 2] == 0.0f);
    case_close(&stats);
    case_close(&back);
}

/* Some tokens lie outside the vocabulary: they must be nobody's row. */
static void fill_tokens(int32_t *tokens, uint64_t count, uint64_t ids)
{
    static const int32_t strange[] = {-1, INT32_MIN, INT32_MAX, -100};
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = draw_below(8) ? (int32_t)draw_below(ids) : strange[draw_below(4)];
}

static void embed_tokens_when_run_add_the_panel(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 120), in = draw_between(1, 150);
        const uint64_t first = draw_below(20), ids = draw_between(1, 20);
        kernel_case c = {.kind = SL_OP_EMBED_TOKENS,
                         .attrs = {.batch = rows,
                                   .seq = 1,
                                   .in = in,
                                   .first_id = first,
                                   .id_count = ids,
                                   .valid_id_count = 40}};
        int32_t *tokens = case_operand(&c, 0, rows * sizeof *tokens);
        fill_tokens(tokens, rows, 40);
        float *panel = case_random(&c, 1, ids * in, 1), *x = case_random(&c, 2, rows * in, 1);
        case_run(&c);
        float *want = allocate(rows * in * sizeof *want);
        for (uint64_t i = 0; i < rows * in; i++) {
            const int64_t row = (int64_t)tokens[i / in] - (int64_t)first;
            const bool here = row >= 0 && row < (int64_t)ids;
            want[i] = here ? x[i] + panel[(uint64_t)row * in + i % in] : x[i];
        }
        case_compare_bits(&c, 2, want);
        free(want);
        case_close(&c);
    }
}

static void embed_tokens_backward_when_run_adds_the_sum_of_rows_in_order(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t rows = draw_between(1, 120), in = draw_between(1, 150);
        const uint64_t first = draw_below(20), ids = draw_between(1, 20);
        kernel_case c = {.kind = SL_OP_EMBED_TOKENS_BACKWARD,
                         .attrs = {.batch = 1,
                                   .seq = rows,
                                   .in = in,
                                   .first_id = first,
                                   .id_count = ids,
                                   .valid_id_count = 40,
                                   .adds_output = round % 2}};
        int32_t *tokens = case_operand(&c, 0, rows * sizeof *tokens);
        fill_tokens(tokens, rows, 40);
        float *dx = case_random(&c, 1, rows * in, 1), *old = case_random(&c, 2, ids * in, 1);
        case_run(&c);
        float *want = allocate(ids * in * sizeof *want);
        for (uint64_t i = 0; i < ids * in; i++)
            want[i] = 0.0f;
        for (uint64_t row = 0; row < rows; row++) {
            const int64_t id = (int64_t)tokens[row] - (int64_t)first;
            for (uint64_t i = 0; id >= 0 && id < (int64_t)ids && i < in; i++)
                want[(uint64_t)id * in + i] += dx[row * in + i];
        }
        for (uint64_t i = 0; i < ids * in && round % 2; i++)
            want[i] = old[i] + want[i]; /* which is old[i] where no row has the token */
        case_compare_bits(&c, 2, want);
        free(want);
        case_close(&c);
    }
}

static void positions_when_embedded_and_back_are_exact(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++) {
        const uint64_t batch = draw_between(1, 4), seq = draw_between(1, 70);
        const uint64_t in = draw_between(1, 150), position = draw_below(9),
                       count = batch * seq * in;
        const sl_op_attrs attrs = {.batch = batch, .seq = seq, .in = in};
        float *want = allocate(count * sizeof *want);
        kernel_case c = {.kind = SL_OP_EMBED_POSITION, .attrs = attrs};
        c.scalars.position = (uint32_t)position;
        float *wpe = case_random(&c, 0, (position + seq) * in, 1);
        case_operand(&c, 1, count * sizeof(float));
        case_run(&c);
        for (uint64_t i = 0; i < count; i++)
            want[i] = wpe[position * in + i % (seq * in)];
        case_compare_bits(&c, 1, want);
        case_close(&c);

        kernel_case back = {.kind = SL_OP_EMBED_POSITION_BACKWARD, .attrs = attrs};
        float *dx = case_random(&back, 0, count, 1);
        float *dwpe = case_random(&back, 1, (seq + 3) * in, 1);
        float *sums = allocate((seq + 3) * in * sizeof *sums);
        case_run(&back);
        for (uint64_t i = 0; i < (seq + 3) * in; i++) {
            float sum = i < seq * in ? dx[i] : 0.0f;
            for (uint64_t b = 1; i < seq * in && b < batch; b++)
                sum += dx[b * seq * in + i];
            sums[i] = i < seq * in ? dwpe[i] + sum : dwpe[i];
        }
        case_compare_bits(&back, 1, sums);
        case_close(&back);
        free(want);
        free(sums);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_when_walked_by_panels_is_a_softmax),
        cmocka_unit_test(head_when_targets_do_not_exist_ignores_them),
        cmocka_unit_test(embed_tokens_when_run_add_the_panel),
        cmocka_unit_test(embed_tokens_backward_when_run_adds_the_sum_of_rows_in_order),
        cmocka_unit_test(positions_when_embedded_and_back_are_exact),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
