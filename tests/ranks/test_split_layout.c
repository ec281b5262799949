/* What could be wrong where ranks hold tensors by columns (ColossalAI's layout): columns land at
 * another rank's place, padding columns are not zero, the head misses rows or has them twice, a
 * gathered panel's gradient is added to another panel, a checkpoint depends on the layout. As
 * test_tensor_parallel, against one rank, before AdamW. */
#define _GNU_SOURCE
#include "engine/engine_internal.h"
#include "rank_runs.h"

#define COLUMNS "split-layout=colossal"

static const char *const columns_on_device[] = {COLUMNS, "policy=device", "precision=fp32",
                                                "recompute=none", NULL};
static const char *const columns_on_host[] = {
    COLUMNS, "policy=host", "precision=fp32", "accumulate=3", "recompute=selective", NULL};
static const char *const columns_on_disk[] = {COLUMNS,          "policy=nvme",
                                              disk_dir,         "nvme-params=1",
                                              "recompute=full", "precision=fp32",
                                              "accumulate=3",   "accumulation=layer",
                                              "dropout=0.1",    NULL};
static const char *const columns_bf16[] = {COLUMNS, "policy=device", "precision=bf16", NULL};
static const char *const columns_bf16_kept_together[] = {
    COLUMNS,         "partition-activations=true",
    "policy=nvme",   disk_dir,
    "nvme-params=1", "precision=bf16",
    "accumulate=2",  NULL};

static const struct way column_ways[] = {{columns_on_device, fp32_bound},
                                         {columns_on_host, fp32_bound},
                                         {columns_on_disk, fp32_bound},
                                         {columns_bf16, bf16_bound},
                                         {columns_bf16_kept_together, bf16_bound}};

enum { COLUMN_WAY_COUNT = sizeof column_ways / sizeof column_ways[0] };

static void gradients_when_split_by_columns_then_are_those_of_one_rank(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < COLUMN_WAY_COUNT; i++)
        for (uint32_t size = 2; size <= RANKS_MAX; size++) {
            if (!is_full() && (size != 2 + i % 3 || !is_in_share(&drawn)))
                continue;
            const char *name = "";
            const double most = compare_gradients(size, &column_ways[i], NULL, &name);
            print_message("way %u, %u ranks: %.2g (%s)\n", i, size, most, name);
            if (!(most <= column_ways[i].bound))
                fail_msg("%s is off by %g", name, most);
        }
}

/* The rows of the head are shared out, so that the masks of the others come with their stats. */
static void masks_when_split_by_columns_then_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const masked[] = {COLUMNS,        "policy=device",  "precision=fp32",
                                         "prompt-key=p", "response-key=r", NULL};
    for (uint32_t size = 2; size <= RANKS_MAX; size += 2) {
        ranks_run *one = open_run(1, masked + 1, NULL), *many = open_run(size, masked, NULL);
        take_step(one);
        take_step(many);
        assert_true(one->rank[0].counted == many->rank[0].counted && one->rank[0].counted > 0);
        assert_true(fabs(many->rank[0].loss / one->rank[0].loss - 1) <= 2e-6);
        close_run(one);
        close_run(many);
    }
}

/* A checkpoint of one layout is one of the other, byte for byte, and the way back too. */
static void checkpoint_when_layouts_change_then_is_the_same(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const scratch_path first = scratch_join(directory.text, "first");
    ranks_run *run = open_run(3, columns_on_host, NULL);
    for (int step = 0; step < MANY_STEPS; step++)
        take_step(run);
    save_run(run, first.text);
    close_run(run);
    for (uint32_t i = 0; i < COLUMN_WAY_COUNT;
         i += is_full() ? 1 : 3 * SANITIZER_SHARE) { /* after steps */
        const char *name = "";
        const double most = compare_gradients(2, &column_ways[i], first.text, &name);
        print_message("way %u after %d steps: %.2g (%s)\n", i, MANY_STEPS, most, name);
        if (!(most <= column_ways[i].bound))
            fail_msg("%s is off by %g", name, most);
    }
    for (uint32_t size = SANITIZER_SHARE > 1 ? RANKS_MAX : 1; size <= RANKS_MAX; size++) {
        char name[32];
        snprintf(name, sizeof name, "by-ids-%u", size);
        const scratch_path middle = scratch_join(directory.text, name);
        snprintf(name, sizeof name, "by-columns-%u", size);
        const scratch_path again = scratch_join(directory.text, name);
        run = open_run(size, on_disk, NULL);
        load_run(run, first.text);
        save_run(run, middle.text);
        close_run(run);
        run = open_run(1 + size % RANKS_MAX, columns_on_host, NULL);
        load_run(run, middle.text);
        save_run(run, again.text);
        close_run(run);
        assert_true(are_files_equal(first.text, middle.text, MANY_STEPS));
        assert_true(are_files_equal(first.text, again.text, MANY_STEPS));
    }
    scratch_close(&directory);
}

static void initial_values_when_split_by_columns_then_are_those_of_one_rank(void **state)
{
    (void)state;
    ranks_run *one = open_run(1, on_device, NULL);
    whole_model *expected = read_model(one, SL_GROUP_PARAM);
    for (uint32_t size = 2; size <= RANKS_MAX; size++) {
        ranks_run *many = open_run(size, columns_on_device, NULL);
        whole_model *found = read_model(many, SL_GROUP_PARAM);
        assert_true(is_same(expected, found));
        free_model(found);
        close_run(many);
    }
    free_model(expected);
    close_run(one);
}

static void policies_when_split_by_columns_then_give_the_same_bits(void **state)
{
    (void)state;
    check_policies(3, "precision=bf16", COLUMNS);
}

/* ---- planted faults ---- */

/* The loss is that of this rank's rows alone, as if there were no others. */
static void forget_other_rows(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_HEAD_LOGITS_BACKWARD)
            program->ops[o].attrs.scale *= 2;
}

static double find_damage(damage plant, uint64_t dropped)
{
    const char *name = "";
    ranks_run *one = open_run(1, on_device, NULL), *many = open_run(2, columns_on_device, plant);
    many->group.dropped = dropped;
    run_all(one, step_rank);
    run_all(many, step_rank);
    whole_model *expected = read_model(one, SL_GROUP_GRAD);
    whole_model *found = read_model(many, SL_GROUP_GRAD);
    const double most = find_distance(expected, found, &name);
    free_model(expected);
    free_model(found);
    close_run(one);
    close_run(many);
    return most;
}

static void faults_when_planted_then_are_found(void **state)
{
    (void)state;
    assert_true(find_damage(NULL, 0) <= fp32_bound);
    assert_true(find_damage(forget_other_rows, 0) > 100 * fp32_bound);
}

/* Columns of all ranks are gathered in the workspace; only a sum of them needs a part more. */
static void workspace_when_columns_are_gathered_then_holds_a_part_a_rank(void **state)
{
    (void)state;
    const sl_op_attrs attrs = {.row_count = 7, .out = 5, .in = 18, .type = SL_TYPE_BF16};
    const sl_engine_target target = {.device = SL_DEVICE_CPU, .worker_count = 1, .rank_count = 4};
    const uint64_t part = 7 * 5 * 2;
    assert_int_equal(sl_collectives_workspace_bytes(SL_OP_GATHER_COLUMNS, &attrs, &target),
                     4 * part);
    assert_int_equal(sl_collectives_workspace_bytes(SL_OP_SCATTER_COLUMNS, &attrs, &target),
                     5 * part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_when_split_by_columns_then_are_those_of_one_rank),
        cmocka_unit_test(gradients_when_split_by_columns_then_are_those_of_one_rank),
        cmocka_unit_test(masks_when_split_by_columns_then_are_those_of_one_rank),
        cmocka_unit_test(policies_when_split_by_columns_then_give_the_same_bits),
        cmocka_unit_test(checkpoint_when_layouts_change_then_is_the_same),
        cmocka_unit_test(workspace_when_columns_are_gathered_then_holds_a_part_a_rank),
        cmocka_unit_test(faults_when_planted_then_are_found),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
