/* What could be wrong here: a checkpoint depends on who wrote it: a rank saves a part twice, or
 * padding, or a stale shard; a layout cannot read what another wrote, or reads a part of it; a run
 * that goes on elsewhere is another run.
 *
 * Every layout trains two steps, saves, and takes one more. Every layout, itself among them, then
 * loads what it saved and saves at once: all tensors have the same bytes. Its next loss is that of
 * the giver within a tolerance; that of the same layout has its bits, and so have the tensors
 * behind that step. Layouts differ in data, tensor and stage ranks, in ZeRO, policy, recomputation
 * and chunks; the rows of a step are the same in all. Quick: each layout gives to one other, which
 * SL_TEST_SEED draws; SL_TEST_FULL: all to all, in two types.
 */
#define _GNU_SOURCE
#include "rank_layouts.h"

enum { SAVED_STEP = 2 };

/* Of a loss over 1152 tokens, relative: of another order of sums, and of partial sums that are
 * rounded to bf16 before they are added. */
static const struct type_case {
    const char *setting;
    double bound;
} types[] = {{"precision=fp32", 2e-6}, {"precision=bf16", 2e-4}};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

typedef struct count {
    uint32_t pairs, of_two_axes,
        same; /* ordered, of different layouts; without stages; with itself */
    double most[TYPE_COUNT];
} count;

/* What a layout left for others. */
typedef struct gift {
    scratch_path saved, later; /* behind the next step */
    double next_loss;
} gift;

static gift give(int from, int type)
{
    gift it = {.saved = scratch_open(), .later = scratch_open()};
    ranks_run *run = open_rank_layout(&layouts[from], types[type].setting);
    for (int step = 0; step < SAVED_STEP; step++)
        take_step(run);
    save_run(run, it.saved.text);
    take_step(run);
    it.next_loss = run->rank[0].loss;
    save_run(run, it.later.text);
    close_run(run);
    return it;
}

static void take(const gift *it, int from, int to, int type, count *sum)
{
    char giver[LAYOUT_NAME_BYTES], taker[LAYOUT_NAME_BYTES];
    scratch_path again = scratch_open();
    ranks_run *run = open_rank_layout(&layouts[to], types[type].setting);
    name_layout(from, giver);
    name_layout(to, taker);
    load_run(run, it->saved.text);
    save_run(run, again.text);
    if (!are_files_equal(it->saved.text, again.text, SAVED_STEP))
        fail_msg("%s: %s saves other tensors than %s gave", types[type].setting, taker, giver);
    take_step(run);
    const double gap = fabs(run->rank[0].loss / it->next_loss - 1);
    if (!(gap <= types[type].bound))
        fail_msg("%s: %s from %s: the next loss is off by %g", types[type].setting, taker, giver,
                 gap);
    sum->most[type] = fmax(sum->most[type], gap);
    if (from == to) {
        save_run(run, again.text);
        if (gap > 0 || !are_files_equal(it->later.text, again.text, SAVED_STEP + 1))
            fail_msg("%s: %s does not go on as it began", types[type].setting, taker);
    }
    close_run(run);
    scratch_close(&again);
    sum->same += from == to;
    sum->pairs += from != to;
    sum->of_two_axes += from != to && layouts[from].pp == 1 && layouts[to].pp == 1;
}

/* Another layout than `from`. */
static int draw_taker(uint64_t seed, int from)
{
    const uint64_t below = sl_rng_below(seed, 11, (uint64_t)from, LAYOUT_COUNT - 1);
    return (from + 1 + (int)below) % LAYOUT_COUNT;
}

static void checkpoints_when_of_any_layout_go_on_in_any_other(void **state)
{
    (void)state;
    const char *given = getenv("SL_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    count sum = {0};
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)seed);
    for (int type = 0; type < TYPE_COUNT; type++)
        for (int from = 0; from < LAYOUT_COUNT; from++) {
            if (!is_full() && from % 4 != (2 * type + (int)(seed % 4)) % 4)
                continue;
            gift it = give(from, type);
            for (int to = 0; to < LAYOUT_COUNT; to++)
                if (is_full() || to == draw_taker(seed, from) || (to == from && to % 3 == 0))
                    take(&it, from, to, type, &sum);
            scratch_close(&it.saved);
            scratch_close(&it.later);
        }
    print_message("%d layouts: %u pairs, %u of them without stages, and %u layouts with "
                  "themselves; next losses within %.2g (fp32) and %.2g (bf16)\n",
                  LAYOUT_COUNT, sum.pairs, sum.of_two_axes, sum.same, sum.most[0], sum.most[1]);
    if (is_full())
        assert_true(sum.pairs >= 2 * 100 && sum.of_two_axes >= 2 * 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_when_of_any_layout_go_on_in_any_other)};
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
