/* Plans recorded once, planned again: what could be wrong here is a planner that still gives right
 * plans, but worse ones. corpus/plans.txt holds a configuration and what was planned for it a line:
 * peaks, live peaks, moved bytes, simulated time. Each is planned again and may not be worse than
 * the limits below allow. A line of a refusal (fits 0) has the budget that it asked for in the
 * column of that tier's peak.
 *
 * Budgets: nine tenths of the way from the least that works to all that is wanted; two fifths; and
 * 2 % above the least. Workspaces are made up (plan_case_workspace) and machines are the default
 * ones, so nothing of kernels or of this machine matters.
 *
 * test_corpus --record FILE plans corpus_bases with budgets chosen anew and writes FILE.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "corpus_bases.h"
#include "plan_cases.h"

/* The columns of a line, all of them whole numbers. The last columns are what was planned. */
#define CORPUS_COLUMNS(X)                                                                          \
    X(layers)                                                                                      \
    X(width)                                                                                       \
    X(heads)                                                                                       \
    X(context)                                                                                     \
    X(vocab)                                                                                       \
    X(batch)                                                                                       \
    X(type)                                                                                        \
    X(gpu)                                                                                         \
    X(recompute)                                                                                   \
    X(accumulation)                                                                                \
    X(micro_batches)                                                                               \
    X(policy)                                                                                      \
    X(param_host)                                                                                  \
    X(state_host)                                                                                  \
    X(param_disk)                                                                                  \
    X(state_disk)                                                                                  \
    X(activation_host)                                                                             \
    X(activation_disk)                                                                             \
    X(adam)                                                                                        \
    X(early)                                                                                       \
    X(budget_device)                                                                               \
    X(budget_host)                                                                                 \
    X(budget_disk)                                                                                 \
    X(fits)                                                                                        \
    X(peak_device)                                                                                 \
    X(peak_host)                                                                                   \
    X(peak_disk)                                                                                   \
    X(live_device)                                                                                 \
    X(live_host)                                                                                   \
    X(live_disk)                                                                                   \
    X(h2d)                                                                                         \
    X(d2h)                                                                                         \
    X(read)                                                                                        \
    X(write)                                                                                       \
    X(ns)

typedef enum column {
#define X(name) COLUMN_##name,
    CORPUS_COLUMNS(X)
#undef X
        COLUMN_COUNT
} column;

static const char *const column_names[] = {
#define X(name) #name,
    CORPUS_COLUMNS(X)
#undef X
};

typedef struct row {
    uint64_t cell[COLUMN_COUNT];
} row;

enum { ROWS_MAX = 200, TIGHT_PERCENT = 2 };

/* ---- from a row to a plan ---- */

static void fill_policy(const uint64_t *cell, plan_case *c)
{
    c->policy = (sl_policy_options){.policy = (sl_policy)cell[COLUMN_policy],
                                    .update = (sl_update_place)cell[COLUMN_adam]};
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        bool is_param = group == SL_GROUP_PARAM;
        c->policy.host_fraction[group] =
            (double)cell[is_param ? COLUMN_param_host : COLUMN_state_host] / 100;
        c->policy.disk_fraction[group] =
            (double)cell[is_param ? COLUMN_param_disk : COLUMN_state_disk] / 100;
    }
}

static void open_case(const row *it, plan_case *c)
{
    const uint64_t *cell = it->cell;
    sl_type type = (sl_type)cell[COLUMN_type];
    *c = (plan_case){.shape = {(uint32_t)cell[COLUMN_layers], (uint32_t)cell[COLUMN_width],
                               (uint32_t)cell[COLUMN_heads], (uint32_t)cell[COLUMN_context],
                               (uint32_t)cell[COLUMN_vocab]},
                     .step = {.micro_batch_count = (uint32_t)cell[COLUMN_micro_batches],
                              .accumulation = (sl_accumulation)cell[COLUMN_accumulation],
                              .recompute = (sl_recompute)cell[COLUMN_recompute],
                              .update_early = cell[COLUMN_early]},
                     .request = {.prefetch = SL_PREFETCH_AUTO,
                                 .host_activations = (double)cell[COLUMN_activation_host] / 100,
                                 .disk_activations = (double)cell[COLUMN_activation_disk] / 100}};
    bool may_round = c->step.micro_batch_count == 1 || c->step.accumulation == SL_ACCUMULATE_LAYER;
    c->emit = (sl_model_options){.batch = (uint32_t)cell[COLUMN_batch],
                                 .seq = c->shape.context,
                                 .tp_size = 1,
                                 .type = type,
                                 .grad_type = may_round ? type : SL_TYPE_FP32};
    if (cell[COLUMN_gpu])
        c->emit.head_logits = sl_model_gpu_head_logits(type);
    fill_policy(cell, c);
    if (plan_case_build(c) != SL_OK)
        fail_msg("%s", sl_status_message());
    c->machine = cell[COLUMN_gpu] ? sl_machine_default_gpu(0, 8) : sl_machine_default(4);
}

static void note_plan(const plan_case *c, const sl_plan *plan, row *out_row)
{
    sl_simulation simulation;
    uint64_t *cell = out_row->cell;
    for (uint32_t tier = 0; tier < SL_TIER_COUNT; tier++) {
        cell[COLUMN_peak_device + tier] = plan->peak_bytes[tier];
        cell[COLUMN_live_device + tier] = plan->live_peak_bytes[tier];
    }
    cell[COLUMN_h2d] = plan->moved_bytes[SL_LANE_H2D];
    cell[COLUMN_d2h] = plan->moved_bytes[SL_LANE_D2H];
    cell[COLUMN_read] = plan->moved_bytes[SL_LANE_READ];
    cell[COLUMN_write] = plan->moved_bytes[SL_LANE_WRITE];
    if (sl_plan_simulate(c->program, plan, &c->machine, &simulation) != SL_OK)
        fail_msg("%s", sl_status_message());
    cell[COLUMN_ns] = (uint64_t)(simulation.step_seconds * 1e9 + 0.5);
}

/* Plans with the budgets of `in` and writes a row with what came of it. */
static void plan_row(plan_case *c, const row *in, row *out_row)
{
    sl_plan *plan = NULL;
    sl_shortage shortage = {0};
    *out_row = *in;
    for (uint32_t i = COLUMN_fits; i < COLUMN_COUNT; i++)
        out_row->cell[i] = 0;
    for (uint32_t tier = 0; tier < SL_TIER_COUNT; tier++)
        c->request.budget_bytes[tier] = in->cell[COLUMN_budget_device + tier];
    sl_status status = sl_plan_build(&c->request, &plan, &shortage);
    out_row->cell[COLUMN_fits] = status == SL_OK;
    if (status == SL_OK)
        note_plan(c, plan, out_row);
    else if (status == SL_ERROR_FIT)
        out_row->cell[COLUMN_peak_device + shortage.tier] = shortage.needed_bytes;
    else
        fail_msg("%s", sl_status_message());
    sl_plan_close(plan);
}

/* ---- recording ---- */

static row row_of_base(const corpus_base *base)
{
    const sl_model_shape *shape = &corpus_shapes[base->shape];
    return (row){{[COLUMN_layers] = shape->layers,
                  [COLUMN_width] = shape->width,
                  [COLUMN_heads] = shape->heads,
                  [COLUMN_context] = shape->context,
                  [COLUMN_vocab] = shape->vocab,
                  [COLUMN_batch] = base->batch,
                  [COLUMN_type] = base->type,
                  [COLUMN_gpu] = base->is_gpu,
                  [COLUMN_recompute] = base->recompute,
                  [COLUMN_accumulation] = base->accumulation,
                  [COLUMN_micro_batches] = base->micro_batches,
                  [COLUMN_policy] = base->policy,
                  [COLUMN_param_host] = base->param_host,
                  [COLUMN_state_host] = base->state_host,
                  [COLUMN_param_disk] = base->param_disk,
                  [COLUMN_state_disk] = base->state_disk,
                  [COLUMN_activation_host] = base->activation_host,
                  [COLUMN_activation_disk] = base->activation_disk,
                  [COLUMN_adam] = base->update,
                  [COLUMN_early] = base->is_early,
                  [COLUMN_budget_device] = UINT64_MAX,
                  [COLUMN_budget_host] = UINT64_MAX,
                  [COLUMN_budget_disk] = UINT64_MAX}};
}

static void write_row(FILE *file, const row *it)
{
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        fprintf(file, "%" PRIu64 "%c", it->cell[i], i + 1 < COLUMN_COUNT ? ' ' : '\n');
}

/* The budget of a tier at a level, other budgets as in `it`: tenths of the way from the least that
 * works to all that is wanted; 0 tenths: just above the least. */
static uint64_t choose_budget(plan_case *c, const row *it, sl_tier tier, uint32_t tenths)
{
    row unlimited = *it, limited = *it, wanted, refused;
    unlimited.cell[COLUMN_budget_device + tier] = UINT64_MAX;
    plan_row(c, &unlimited, &wanted);
    limited.cell[COLUMN_budget_device + tier] = 0;
    plan_row(c, &limited, &refused);
    assert_true(wanted.cell[COLUMN_fits] && !refused.cell[COLUMN_fits]);
    uint64_t most = wanted.cell[COLUMN_peak_device + tier];
    uint64_t least = refused.cell[COLUMN_peak_device + tier];
    assert_true(least > 0);
    if (tenths == 0)
        return least + least * TIGHT_PERCENT / 100;
    return most > least ? least + (most - least) / 10 * tenths : least;
}

/* Where nothing is away from the device, its budget decides nothing. */
static bool has_levels(const corpus_base *base)
{
    return base->policy != SL_POLICY_DEVICE || base->activation_host || base->activation_disk;
}

static void record_base(const corpus_base *base, FILE *file)
{
    static const uint32_t levels[] = {9, 4, 0};
    plan_case c;
    row planned, start = row_of_base(base);
    open_case(&start, &c);
    for (size_t i = 0; i < sizeof levels / sizeof *levels && has_levels(base); i++) {
        row it = start;
        it.cell[COLUMN_budget_device] = choose_budget(&c, &it, SL_TIER_DEVICE, levels[i]);
        plan_row(&c, &it, &planned);
        if (planned.cell[COLUMN_peak_disk] > 0) {
            it.cell[COLUMN_budget_host] = choose_budget(&c, &it, SL_TIER_HOST, levels[i]);
            plan_row(&c, &it, &planned);
        }
        write_row(file, &planned);
    }
    if (!has_levels(base)) {
        plan_row(&c, &start, &planned);
        write_row(file, &planned);
        start.cell[COLUMN_budget_device] = planned.cell[COLUMN_peak_device] / 10 * 9;
        plan_row(&c, &start, &planned);
        write_row(file, &planned);
    }
    plan_case_close(&c);
}

static const char *record_path = SL_TEST_SOURCE_DIRECTORY "/corpus/plans.txt";

static void record_corpus(void **state)
{
    (void)state;
    FILE *file = fopen(record_path, "w");
    if (!file)
        fail_msg("%s cannot be written", record_path);
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        fprintf(file, "%s%c", column_names[i], i + 1 < COLUMN_COUNT ? ' ' : '\n');
    for (size_t i = 0; i < CORPUS_BASE_COUNT; i++)
        record_base(&corpus_bases[i], file);
    assert_int_equal(fclose(file), 0);
}

/* ---- comparing ---- */

/* Limits, as shares of what was recorded. Since it was recorded, layer order of several
 * micro-batches is another program: the last norm runs in the head's loop, and each loop fills its
 * inputs. Single ones of it may be off by more, their mean may not. */
static const double most_peak = 0.01, most_needed = 0.03;
static const double mean_seconds = 0.005, most_seconds = 0.03, most_seconds_by_layer = 0.2;
static const double mean_moved = 0.05, most_moved = 0.15;
enum { LEAST_MOVED = 2 << 20 }; /* of fewer bytes inputs are too large a part */

/* What came out over all rows that fit. */
typedef struct tally {
    uint32_t row_count, fault_count;
    double seconds, moved; /* sums of growths; of device and disk, the larger */
} tally;

static double growth_of(uint64_t now, uint64_t before)
{
    if (before == 0)
        return now == 0 ? 0 : 1;
    return (double)now / (double)before - 1;
}

static void check_growth(tally *all, size_t line, const char *name, double growth, double limit)
{
    if (growth <= limit)
        return;
    print_error("line %zu: %s grew by %.2f %%, %.2f %% at most\n", line, name, 100 * growth,
                100 * limit);
    all->fault_count++;
}

static uint64_t moved_by_lanes(const row *it, column first)
{
    return it->cell[first] + it->cell[first + 1];
}

static double growth_of_moves(const row *before, const row *now, column first)
{
    uint64_t moved = moved_by_lanes(now, first);
    return moved < LEAST_MOVED ? 0 : growth_of(moved, moved_by_lanes(before, first));
}

static void compare_row(tally *all, size_t line, const row *before, const row *now)
{
    bool did_fit = before->cell[COLUMN_fits], fits = now->cell[COLUMN_fits];
    if (!did_fit && fits)
        return;
    if (did_fit && !fits) {
        print_error("line %zu: is refused now: %s\n", line, sl_status_message());
        all->fault_count++;
    }
    for (uint32_t i = 0; i < SL_TIER_COUNT && did_fit == fits; i++) {
        bool is_given = fits && before->cell[COLUMN_budget_device + i] != UINT64_MAX;
        uint64_t now_peak = now->cell[COLUMN_peak_device + i];
        if (!is_given) /* else the plan may take all that it has */
            check_growth(all, line, column_names[COLUMN_peak_device + i],
                         growth_of(now_peak, before->cell[COLUMN_peak_device + i]),
                         fits ? most_peak : most_needed);
    }
    if (!did_fit || !fits)
        return;
    double seconds = growth_of(now->cell[COLUMN_ns], before->cell[COLUMN_ns]);
    double link = growth_of_moves(before, now, COLUMN_h2d);
    double disk = growth_of_moves(before, now, COLUMN_read);
    bool is_by_layer = before->cell[COLUMN_accumulation] == SL_ACCUMULATE_LAYER &&
                       before->cell[COLUMN_micro_batches] > 1;
    check_growth(all, line, "step", seconds, is_by_layer ? most_seconds_by_layer : most_seconds);
    check_growth(all, line, "traffic of the device", link, most_moved);
    check_growth(all, line, "traffic of the disk", disk, most_moved);
    all->row_count++;
    all->seconds += seconds;
    all->moved += disk > link ? disk : link;
}

static bool read_row(FILE *file, row *out_row)
{
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (fscanf(file, "%" SCNu64, &out_row->cell[i]) != 1)
            return false;
    return true;
}

static void skip_header(FILE *file)
{
    char name[32];
    for (uint32_t i = 0; i < COLUMN_COUNT; i++)
        if (fscanf(file, "%31s", name) != 1 || strcmp(name, column_names[i]) != 0)
            fail_msg("the header lacks column %s", column_names[i]);
}

static size_t read_corpus(row *rows)
{
    static const char path[] = SL_TEST_SOURCE_DIRECTORY "/corpus/plans.txt";
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    size_t count = 0;
    skip_header(file);
    while (count < ROWS_MAX && read_row(file, &rows[count]))
        count++;
    assert_true(count < ROWS_MAX && feof(file));
    fclose(file);
    return count;
}

/* Up to the budgets; rows of equal programs follow each other. */
static bool has_same_program(const row *a, const row *b)
{
    return memcmp(a->cell, b->cell, COLUMN_budget_device * sizeof *a->cell) == 0;
}

static void plans_are_no_worse_than_those_recorded(void **state)
{
    (void)state;
    static row rows[ROWS_MAX];
    size_t count = read_corpus(rows);
    tally all = {0};
    plan_case c;
    assert_true(count >= CORPUS_BASE_COUNT);
    for (size_t i = 0; i < count; i++) {
        row now;
        if (i == 0 || !has_same_program(&rows[i - 1], &rows[i]))
            open_case(&rows[i], &c);
        plan_row(&c, &rows[i], &now);
        compare_row(&all, i + 2, &rows[i], &now);
        if (i + 1 == count || !has_same_program(&rows[i], &rows[i + 1]))
            plan_case_close(&c);
    }
    assert_true(all.row_count > count / 2);
    print_message("%zu plans; on average, the step %+.3f %%, traffic %+.3f %%\n", count,
                  100 * all.seconds / all.row_count, 100 * all.moved / all.row_count);
    check_growth(&all, 0, "mean step", all.seconds / all.row_count, mean_seconds);
    check_growth(&all, 0, "mean traffic", all.moved / all.row_count, mean_moved);
    assert_int_equal(all.fault_count, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest recording[] = {cmocka_unit_test(record_corpus)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_no_worse_than_those_recorded),
    };
    if (argc == 3 && strcmp(argv[1], "--record") == 0) {
        record_path = argv[2];
        return cmocka_run_group_tests_name("corpus, recording", recording, NULL, NULL);
    }
    return cmocka_run_group_tests_name("corpus", tests, NULL, NULL);
}
