/* What could be wrong here: a rank computes the rows of another, the loss is a mean over its own
 * rows alone, a sum over ranks misses a gradient or has one twice, the norm counts every replica, a
 * rank updates another's shard or keeps its own update to itself, a ZeRO stage or a policy changes
 * the numbers, a checkpoint depends on how many ranks there were.
 *
 * Sessions as threads, over the communicators of a run, take steps from the state of one rank that
 * computes all their micro-batches. AdamW hides a wrong scale, so gradients are compared before it.
 * Tolerances: as those of split tensors, see test_tensor_parallel.c.
 */
#define _GNU_SOURCE
#include "rank_runs.h"

static const struct layout {
    uint32_t tp, dp;
    const char *zero;
} layouts[] = {{1, 2, "zero=0"}, {1, 3, "zero=1"}, {1, 4, "zero=0"}, {2, 2, "zero=1"},
               {1, 2, "zero=1"}, {2, 2, "zero=0"}, {1, 3, "zero=0"}, {1, 4, "zero=1"},
               {1, 2, "zero=2"}, {2, 2, "zero=2"}, {1, 3, "zero=2"}, {1, 4, "zero=2"},
               {1, 2, "zero=3"}, {2, 2, "zero=3"}, {1, 3, "zero=3"}, {1, 4, "zero=3"}};

enum { LAYOUT_COUNT = sizeof layouts / sizeof layouts[0] };

/* `settings`, then two of the test's own; NULL is left out. */
static const char *const *join(const char *const *settings, const char *first, const char *second)
{
    static const char *joined[SETTINGS_MAX + 2];
    const char *const own[] = {first, second};
    size_t count = 0;
    for (; *settings; settings++)
        joined[count++] = *settings;
    for (int i = 0; i < 2; i++)
        if (own[i])
            joined[count++] = own[i];
    joined[count] = NULL;
    return joined;
}

static ranks_run *open_many(const struct layout *layout, const char *const *settings, damage plant)
{
    return open_layout(layout->tp, layout->dp, join(settings, layout->zero, NULL), 1, plant);
}

/* All micro-batches of the ranks on one. */
static ranks_run *open_one(const struct layout *layout, const char *const *settings)
{
    return open_layout(1, 1, settings, layout->dp, NULL);
}

static void check_gradients(const struct layout *layout, int way, const char *directory)
{
    const char *name = "";
    const double most = compare_runs(open_one(layout, ways[way].settings),
                                     open_many(layout, ways[way].settings, NULL), directory, &name);
    print_message("way %d, tp %u, dp %u, %s: %.2g (%s)\n", way, layout->tp, layout->dp,
                  layout->zero, most, name);
    if (!(most <= ways[way].bound))
        fail_msg("%s is off by %g", name, most);
}

static void gradients_when_rows_are_shared_then_are_those_of_one_rank(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    for (int way = 0; way < WAY_COUNT; way++)
        for (int l = 0; l < LAYOUT_COUNT; l++)
            if (is_full() || ((l == way || l == LAYOUT_COUNT - 1 - way) && is_in_share(&drawn)))
                check_gradients(&layouts[l], way, NULL);
}

static void gradients_when_from_a_later_state_then_are_those_of_one_rank(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    ranks_run *one = open_run(1, on_device, NULL);
    for (int step = 0; step < MANY_STEPS; step++)
        take_step(one);
    save_run(one, directory.text);
    close_run(one);
    for (int way = 0; way < WAY_COUNT; way++)
        for (int l = 0; l < LAYOUT_COUNT; l++)
            if (is_full() || (way % 3 == 1 && l == 3 + way))
                check_gradients(&layouts[l], way, directory.text);
    scratch_close(&directory);
}

/* Ranks and micro-batches have unequal numbers of tokens that count: the mean is over all of them.
 */
static void masks_when_rows_are_shared_then_the_mean_is_of_one_rank(void **state)
{
    static const char *const masked[] = {
        "policy=device",  "precision=fp32", "accumulate=2", "prompt-key=p",
        "response-key=r", "clip=0.01",      "zero=0",       NULL};
    static const struct layout masks[] = {{1, 2, "zero=1"}, {2, 2, "zero=2"}, {1, 4, "zero=3"}};
    (void)state;
    for (size_t l = 0; l < sizeof masks / sizeof *masks; l += SANITIZER_SHARE) {
        const char *name = "";
        ranks_run *one = open_one(&masks[l], masked), *many = open_many(&masks[l], masked, NULL);
        one->learning_rate = many->learning_rate = 1e-3f;
        for (int step = 0; step < 2; step++) {
            take_step(one);
            take_step(many);
            const run_rank *a = &one->rank[0], *b = &many->rank[0];
            assert_true(a->counted == b->counted && a->counted > 0);
            assert_true(a->counted < 48.0 * 2 * masks[l].dp * 0.9);
            assert_true(fabs(b->loss / a->loss - 1) <= 2e-6);
            assert_true(fabs((double)b->control.clip_scale / (double)a->control.clip_scale - 1) <=
                        fp32_bound);
        }
        const double most = compare_runs(one, many, NULL, &name);
        if (!(most <= fp32_bound))
            fail_msg("tp %u, dp %u: %s is off by %g", masks[l].tp, masks[l].dp, name, most);
    }
}

static void losses_over_fifty_steps_when_rows_are_shared_then_stay_together(void **state)
{
    (void)state;
    for (int l = 3; l < (is_full() ? LAYOUT_COUNT : 4); l++) {
        ranks_run *one = open_one(&layouts[l], on_device);
        ranks_run *many = open_many(&layouts[l], on_device, NULL);
        double most = 0;
        for (int step = 0; step < MANY_STEPS; step++) {
            one->learning_rate = many->learning_rate =
                3e-4f * (step < 10 ? 0.1f * (float)(step + 1) : 1);
            take_step(one);
            take_step(many);
            most = fmax(most, fabs(many->rank[0].loss / one->rank[0].loss - 1));
        }
        print_message("tp %u, dp %u, %s: losses within %.2g\n", layouts[l].tp, layouts[l].dp,
                      layouts[l].zero, most);
        assert_true(most <= 2e-6);
        close_run(one);
        close_run(many);
    }
}

/* ---- stages and placement ---- */

static void check_same_bits(const struct layout *layout, const char *const *plain,
                            const char *const *other, const char *zero)
{
    ranks_run *first = open_layout(layout->tp, layout->dp, join(plain, "zero=0", NULL), 1, NULL);
    ranks_run *second = open_layout(layout->tp, layout->dp, join(other, zero, NULL), 1, NULL);
    for (int step = 0; step < 3; step++) {
        take_step(first);
        take_step(second);
        assert_memory_equal(&first->rank[0].loss, &second->rank[0].loss, sizeof(double));
        assert_memory_equal(&first->rank[0].control.grad_norm, &second->rank[0].control.grad_norm,
                            sizeof(float));
    }
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};
    for (int i = 0; i < 3; i++) {
        whole_model *a = read_model(first, groups[i]), *b = read_model(second, groups[i]);
        if (!is_same(a, b))
            fail_msg("tp %u, dp %u, %s, %s: %s differs", layout->tp, layout->dp, zero, *other,
                     sl_group_name(groups[i]));
        free_model(a);
        free_model(b);
    }
    close_run(first);
    close_run(second);
}

/* Each against everything on the device at stage 0. */
static void stages_and_policies_when_changed_then_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const fp32[] = {"policy=device", "precision=fp32", "accumulate=3", NULL};
    static const char *const bf16[] = {"policy=device", "precision=bf16", "accumulate=3", NULL};
    static const char *const others[][SETTINGS_MAX] = {
        {"policy=device", "accumulate=3", NULL},
        {"policy=host", "accumulate=3", "prefetch=2", NULL},
        {"policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1", "recompute=full", "accumulate=3",
         "accumulation=layer", "chunk-size=40960", NULL},
        {"policy=static", disk_dir, "nvme-params=0.5", "offload-optimizer=0.5",
         "recompute=selective", "accumulate=3", "threads=2", "adam=host", NULL}};
    static const char *const zeros[] = {"zero=1", "zero=3", "zero=2"};
    int number = 0;
    uint32_t drawn = 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        for (int half = 0; half < 2; half++)
            for (int z = 0; z < 3; z++, number++) {
                const char *settings[SETTINGS_MAX + 2];
                const struct layout *layout = &layouts[(number + number / 5) % 4];
                memcpy(settings, join(others[i], half ? "precision=bf16" : "precision=fp32", NULL),
                       sizeof settings);
                if (is_full() || (number % 5 == 3 && is_in_share(&drawn)))
                    check_same_bits(layout, half ? bf16 : fp32, settings, zeros[z]);
            }
}

/* Without clipping a chunk is updated as soon as its gradient is there, in the same bits. */
static void update_when_early_then_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const early[] = {
        "policy=host",    "precision=fp32", "accumulate=3",   "clip=0",
        "nonfinite=stop", "adam=device",    "recompute=none", NULL};
    static const char *const plain[] = {"policy=device", "precision=fp32", "accumulate=3",
                                        "clip=0",        "nonfinite=stop", NULL};
    check_same_bits(&layouts[1], plain, early, "zero=1");
    check_same_bits(&layouts[1], plain, early, "zero=2");
    check_same_bits(&layouts[1], plain, early, "zero=3");
}

/* ---- what it costs ---- */

static const char *const by_layer[] = {"policy=host", "precision=fp32", "accumulate=3",
                                       "accumulation=layer", NULL};

static uint64_t count_sent(const ranks_run *run)
{
    uint64_t sent = 0;
    for (uint32_t rank = 0; rank < run->size; rank++)
        sent += sl_comm_sent_bytes(run->rank[rank].others.world, SL_COMM_DATA);
    return sent;
}

/* Bytes of whole chunks that a plan gathers in a step. */
static uint64_t count_gathered(const sl_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            if (program->ops[o].kind == SL_OP_ALL_GATHER_SHARD)
                bytes += section.repeat * program->values[program->ops[o].operand[1]].bytes;
    }
    return bytes;
}

/* Takes a step. Of the chunks' elements, psi of them, a rank sends (N - 1) / N for a sum or a
 * gather, in the compute type, and one record of the norm. Returns how often psi is gathered. */
static uint64_t check_traffic(const struct layout *layout, const char *const *settings)
{
    ranks_run *run = open_many(layout, settings, NULL);
    const sl_blueprint *blueprint = run->rank[0].runtime->blueprint;
    const uint64_t n = run->size, psi_bytes = blueprint->layout->block_count * SL_BLOCK_ELEMENTS *
                                              sl_type_bytes(SL_TYPE_BF16);
    const bool is_sharded = strcmp(layout->zero, "zero=3") == 0;
    const uint64_t gathered = is_sharded ? count_gathered(blueprint->programs[0]) : psi_bytes;
    const uint64_t before = count_sent(run);
    take_step(run);
    const uint64_t sent = count_sent(run) - before;
    print_message("dp %u, %s: %llu bytes, %llu bytes of chunks gathered\n", layout->dp,
                  layout->zero, (unsigned long long)sent, (unsigned long long)gathered);
    assert_int_equal(sent, (n - 1) * (psi_bytes + gathered + n * sizeof(sl_norm_sum)));
    close_run(run);
    return gathered / psi_bytes;
}

static void check_traffic_without_room(const struct layout *layout)
{
    char budget[48];
    const char *const *settings = join(bf16_on_device, layout->zero, NULL);
    const uint64_t needed = find_needed_device(layout->tp, layout->dp, settings);
    snprintf(budget, sizeof budget, "device-memory=%llu", (unsigned long long)needed);
    assert_true(check_traffic(layout, join(bf16_on_device, budget, NULL)) >= 2);
}

/* At stage 3 parameters travel once a step where all chunks stay whole for the backward pass, and
 * again for the backward pass where the device is short. */
static void traffic_when_counted_is_that_of_the_plan(void **state)
{
    (void)state;
    for (int l = 0; l < LAYOUT_COUNT; l++) {
        if (layouts[l].tp > 1)
            continue;
        assert_int_equal(check_traffic(&layouts[l], bf16_on_device), 1);
        if (strcmp(layouts[l].zero, "zero=3") == 0)
            check_traffic_without_room(&layouts[l]);
    }
}

/* What all chunks of a group take on one rank. */
static uint64_t count_home_bytes(const ranks_run *run, sl_group group)
{
    const sl_layout *layout = run->rank[0].runtime->blueprint->layout;
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < layout->chunk_count; c++)
        bytes += sl_layout_chunk_bytes(layout, group, c);
    return bytes;
}

/* On every rank, and what a stage shards is a share of what it was. */
static void memory_when_measured_is_that_of_the_plan(void **state)
{
    (void)state;
    static const char *const zeros[] = {"zero=0", "zero=1", "zero=2", "zero=3"};
    uint64_t moment_bytes[4] = {0}, grad_bytes[4] = {0}, param_bytes[4] = {0};
    for (int z = 0; z < 4; z++) {
        const struct layout layout = {1, 4, zeros[z]};
        ranks_run *run = open_many(&layout, z == 1 ? on_host : by_layer, NULL);
        take_step(run);
        for (uint32_t rank = 0; rank < run->size; rank++) {
            const sl_blueprint *blueprint = run->rank[rank].runtime->blueprint;
            sl_engine_statistics statistics;
            sl_engine_take_statistics(run->rank[rank].runtime->engine, &statistics);
            for (int tier = 0; tier < SL_TIER_COUNT; tier++)
                assert_int_equal(statistics.measured_peak_bytes[tier],
                                 sl_blueprint_peak_bytes(blueprint, (sl_tier)tier));
        }
        moment_bytes[z] = count_home_bytes(run, SL_GROUP_STATE1);
        grad_bytes[z] = count_home_bytes(run, SL_GROUP_GRAD);
        param_bytes[z] = count_home_bytes(run, SL_GROUP_PARAM);
        close_run(run);
    }
    assert_true(moment_bytes[1] < moment_bytes[0] / 3);
    assert_true(grad_bytes[1] >= grad_bytes[0] && grad_bytes[2] < grad_bytes[0] / 3);
    assert_true(param_bytes[2] >= param_bytes[0] && param_bytes[3] < param_bytes[0] / 3);
}

/* In micro order the sum of all micro-batches lives all step: whole, with homes. */
static void gradients_when_micro_batches_add_up_in_them_then_stay_whole(void **state)
{
    (void)state;
    static const char *const by_micro_batch[] = {"policy=host", "precision=fp32", "accumulate=3",
                                                 "accumulation=micro", NULL};
    const struct layout layout = {1, 2, "zero=2"};
    ranks_run *run = open_many(&layout, by_micro_batch, NULL);
    assert_true(count_home_bytes(run, SL_GROUP_GRAD) > count_home_bytes(run, SL_GROUP_STATE1));
    close_run(run);
    check_same_bits(&layout, on_host, by_micro_batch, "zero=2");
}

/* ---- planted faults ---- */

static void count_all_blocks(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    blueprint->layout->counts_shard_alone = false;
    for (uint32_t t = 0; t < blueprint->layout->tensor_count; t++)
        blueprint->layout->tensor_flags[t] |= SL_BLOCK_COUNTS;
}

/* The loss as a mean over the rows of one rank. */
static void forget_data_ranks(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    const sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_HEAD_LOGITS_BACKWARD)
            program->ops[o].attrs.scale *= (float)program->dp_size;
}

static void double_one_rank(sl_blueprint *blueprint, uint32_t rank)
{
    if (rank == 1)
        forget_data_ranks(blueprint, rank);
}

static double find_damage(const struct layout *layout, damage plant)
{
    const char *name = "";
    return compare_runs(open_one(layout, on_device), open_many(layout, on_device, plant), NULL,
                        &name);
}

static void faults_when_planted_then_are_found(void **state)
{
    (void)state;
    for (int l = 0; l < (SANITIZER_SHARE > 1 ? 1 : 2); l++) {
        assert_true(find_damage(&layouts[l], NULL) <= fp32_bound);
        assert_true(find_damage(&layouts[l], count_all_blocks) > 100 * fp32_bound);
        assert_true(find_damage(&layouts[l], forget_data_ranks) > 100 * fp32_bound);
        assert_true(find_damage(&layouts[l], double_one_rank) > 100 * fp32_bound);
    }
}

/* ---- checkpoints ---- */

/* Saved by any layout and loaded by any other, the tensors are those of the first, byte for byte;
 * the next losses are within the tolerance, and in the same layout the same. */
static void checkpoint_when_the_layout_changes_then_is_the_same(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const scratch_path first = scratch_join(directory.text, "first");
    const char *const *const settings[] = {bf16_on_disk, on_host};
    uint32_t drawn = 0;
    for (int s = 0; s < 2; s++) {
        ranks_run *run = open_many(&layouts[3], settings[s], NULL);
        for (int step = 0; step < 3 + s; step++)
            take_step(run);
        save_run(run, first.text);
        take_step(run);
        const double next_loss = run->rank[0].loss;
        close_run(run);
        for (int from = 0; from < LAYOUT_COUNT; from++)
            for (int to = 0; to < LAYOUT_COUNT; to++) {
                char name[64];
                if (!is_full() &&
                    (to != (from + 3) % LAYOUT_COUNT || from % 2 != s || !is_in_share(&drawn)))
                    continue;
                snprintf(name, sizeof name, "%d-%d-%d", s, from, to);
                const scratch_path middle = scratch_join(directory.text, name);
                snprintf(name, sizeof name, "%d-%d-%d-again", s, from, to);
                const scratch_path again = scratch_join(directory.text, name);
                ranks_run *giver = open_many(&layouts[from], settings[s], NULL);
                load_run(giver, first.text);
                save_run(giver, middle.text);
                close_run(giver);
                ranks_run *taker = open_many(&layouts[to], settings[s], NULL);
                load_run(taker, middle.text);
                save_run(taker, again.text);
                assert_true(are_files_equal(first.text, middle.text, 3 + s));
                assert_true(are_files_equal(first.text, again.text, 3 + s));
                take_step(taker);
                if (to == 3)
                    assert_memory_equal(&taker->rank[0].loss, &next_loss, sizeof next_loss);
                close_run(taker);
            }
    }
    scratch_close(&directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_rows_are_shared_then_are_those_of_one_rank),
        cmocka_unit_test(masks_when_rows_are_shared_then_the_mean_is_of_one_rank),
        cmocka_unit_test(gradients_when_from_a_later_state_then_are_those_of_one_rank),
        cmocka_unit_test(losses_over_fifty_steps_when_rows_are_shared_then_stay_together),
        cmocka_unit_test(stages_and_policies_when_changed_then_give_the_same_bits),
        cmocka_unit_test(update_when_early_then_gives_the_same_bits),
        cmocka_unit_test(traffic_when_counted_is_that_of_the_plan),
        cmocka_unit_test(memory_when_measured_is_that_of_the_plan),
        cmocka_unit_test(gradients_when_micro_batches_add_up_in_them_then_stay_whole),
        cmocka_unit_test(faults_when_planted_then_are_found),
        cmocka_unit_test(checkpoint_when_the_layout_changes_then_is_the_same),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
