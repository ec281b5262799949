/* What could be wrong here: a stage computes another's layers, or hands on what belongs to another
 * micro-batch; stages wait for each other for ever; the tied embedding misses a part of its
 * gradient or counts twice in the norm, or its two copies drift apart; a placement, a type or the
 * number of micro-batches changes the bits; the plan grows with them; a checkpoint depends on the
 * stages.
 *
 * Sessions as threads, over the communicators of a run. Stages change no sum: everything equals one
 * rank in micro order bit for bit. With tensor- and data-parallel ranks: tolerances as theirs.
 */
#define _GNU_SOURCE
#define RANK_RUNS_LAYERS 5 /* uneven on 2, 3 and 4 stages */
#define RANK_THREADS_MAX 8
#include "rank_runs.h"

static const char *const ways_of_stages[][SETTINGS_MAX] = {
    {"policy=device", "precision=fp32", "accumulate=4", NULL},
    {"policy=host", "precision=bf16", "accumulate=9", "recompute=full", NULL},
    {"policy=nvme", disk_dir, "nvme-params=1", "precision=bf16", "accumulate=3", NULL},
    {"policy=host", "precision=fp32", "accumulate=1", "dropout=0.2", NULL},
    {"policy=nvme", disk_dir, "nvme-params=1", "precision=fp32", "accumulate=2",
     "recompute=selective", NULL},
    {"policy=host", "precision=fp32", "accumulate=64", NULL},
    {"policy=device", "precision=bf16", "accumulate=1", "clip=0", "nonfinite=stop", NULL}};

enum { WAYS = sizeof ways_of_stages / sizeof ways_of_stages[0] };

/* One rank adds micro-batch by micro-batch, as stages do. */
static ranks_run *open_one(const char *const *settings)
{
    const char *in_micro_order[SETTINGS_MAX];
    int count = 0;
    for (; settings[count]; count++)
        in_micro_order[count] = settings[count];
    in_micro_order[count++] = "accumulation=micro";
    in_micro_order[count] = NULL;
    return open_layout(1, 1, in_micro_order, 1, NULL);
}

static void check_models(ranks_run *one, ranks_run *many, uint32_t stages, int way)
{
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_MOMENT1, SL_GROUP_MOMENT2};
    for (int i = 0; i < 3; i++) {
        whole_model *a = read_model(one, groups[i]), *b = read_model(many, groups[i]);
        if (!is_same(a, b))
            fail_msg("%u stages, way %d: %s differs", stages, way, sl_group_name(groups[i]));
        free_model(a);
        free_model(b);
    }
}

static void check_bits(uint32_t stages, int way)
{
    ranks_run *one = open_one(ways_of_stages[way]);
    ranks_run *many = open_stages(1, 1, stages, ways_of_stages[way], 1, NULL);
    for (int step = 0; step < 3; step++) {
        take_step(one);
        take_step(many);
        if (memcmp(&one->rank[0].loss, &many->rank[0].loss, sizeof(double)) != 0 ||
            memcmp(&one->rank[0].control.grad_norm, &many->rank[0].control.grad_norm,
                   sizeof(float)) != 0)
            fail_msg("%u stages, way %d, step %d: loss %.17g and %.17g, norm %.9g and %.9g", stages,
                     way, step, one->rank[0].loss, many->rank[0].loss,
                     (double)one->rank[0].control.grad_norm,
                     (double)many->rank[0].control.grad_norm);
    }
    check_models(one, many, stages, way);
    close_run(one);
    close_run(many);
}

static void steps_when_layers_are_on_stages_then_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (uint32_t stages = 2; stages <= 4; stages++)
        for (int way = 0; way < WAYS; way++)
            if (is_full() || way % 3 == (int)stages % 3 || way < 2)
                check_bits(stages, way);
}

static void gradients_when_ranks_form_a_cube_then_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const zeros[] = {"zero=0", "zero=1", "zero=2", "zero=3"};
    for (int z = 0; z < 4; z++) {
        const char *name = "";
        const char *const settings[] = {"policy=host",
                                        "precision=fp32",
                                        "accumulate=3",
                                        "accumulation=micro",
                                        z == 1 ? "sequence-parallel=true" : zeros[z],
                                        NULL};
        const char *const with_zero[] = {settings[0], settings[1], settings[2], settings[3],
                                         settings[4], zeros[z],    NULL};
        const double most = compare_runs(open_layout(1, 1, settings, 2, NULL),
                                         open_stages(2, 2, 2, with_zero, 1, NULL), NULL, &name);
        print_message("2 x 2 x 2, %s: %.2g (%s)\n", zeros[z], most, name);
        if (!(most <= fp32_bound))
            fail_msg("%s: %s is off by %g", zeros[z], name, most);
    }
}

/* ---- plans ---- */

static void plans_when_micro_batches_are_more_then_are_no_longer(void **state)
{
    (void)state;
    static const char *const few[] = {"policy=host", "recompute=full", "accumulate=3", NULL};
    static const char *const many[] = {"policy=host", "recompute=full", "accumulate=512", NULL};
    ranks_run *a = open_stages(1, 1, 3, few, 1, NULL), *b = open_stages(1, 1, 3, many, 1, NULL);
    for (uint32_t rank = 0; rank < 3; rank++) {
        const sl_program *x = a->rank[rank].session->blueprint->programs[0];
        const sl_program *y = b->rank[rank].session->blueprint->programs[0];
        assert_int_equal(x->op_count, y->op_count);
    }
    close_run(a);
    close_run(b);
}

static void layers_when_they_do_not_divide_then_are_shared_out_evenly(void **state)
{
    (void)state;
    for (uint32_t stages = 1; stages <= shape.layers; stages++) {
        uint32_t next = 0;
        for (uint32_t stage = 0; stage < stages; stage++) {
            uint32_t first, end;
            sl_gpt2_stage_layers(&shape, stages, stage, &first, &end);
            assert_int_equal(first, next);
            assert_true(end - first == shape.layers / stages ||
                        end - first == shape.layers / stages + 1);
            next = end;
        }
        assert_int_equal(next, shape.layers);
    }
}

/* ---- what a wrong run would show ---- */

static void count_every_block(sl_blueprint *blueprint, uint32_t rank)
{
    const sl_layout *layout = blueprint->layout;
    (void)rank;
    memset(layout->counted_flags, 1,
           layout->chunk_count * (layout->chunk_elements / SL_BLOCK_ELEMENTS));
}

static void norm_when_a_tied_tensor_counts_twice_then_is_another(void **state)
{
    (void)state;
    ranks_run *right = open_stages(1, 1, 2, ways_of_stages[0], 1, NULL);
    ranks_run *wrong = open_stages(1, 1, 2, ways_of_stages[0], 1, count_every_block);
    take_step(right);
    take_step(wrong);
    assert_true(wrong->rank[0].control.grad_norm > right->rank[0].control.grad_norm);
    close_run(right);
    close_run(wrong);
}

/* ---- checkpoints ---- */

static void checkpoints_when_of_any_stages_then_are_equal_and_go_on_anywhere(void **state)
{
    (void)state;
    static const uint32_t layouts[][3] = {{1, 1, 2}, {1, 1, 4}, {2, 1, 3}, {1, 2, 2}, {2, 2, 2}};
    scratch_path from = scratch_open();
    ranks_run *one = open_one(ways_of_stages[0]);
    take_step(one);
    save_run(one, from.text);
    close_run(one);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const uint32_t *it = layouts[i];
        scratch_path to = scratch_open();
        ranks_run *many = open_stages(it[0], it[1], it[2], ways_of_stages[0], 1, NULL);
        load_run(many, from.text);
        save_run(many, to.text);
        if (!are_files_equal(from.text, to.text, 1))
            fail_msg("tp %u, dp %u, pp %u", it[0], it[1], it[2]);
        close_run(many);
        scratch_close(&to);
    }
    scratch_close(&from);
}

static int open_disk(void **state)
{
    (void)state;
    disk = scratch_open();
    snprintf(disk_dir, sizeof disk_dir, "disk-dir=%s", disk.text);
    return 0;
}

static int close_disk(void **state)
{
    (void)state;
    scratch_close(&disk);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_when_layers_are_on_stages_then_have_the_bits_of_one_rank),
        cmocka_unit_test(gradients_when_ranks_form_a_cube_then_are_those_of_one_rank),
        cmocka_unit_test(plans_when_micro_batches_are_more_then_are_no_longer),
        cmocka_unit_test(layers_when_they_do_not_divide_then_are_shared_out_evenly),
        cmocka_unit_test(norm_when_a_tied_tensor_counts_twice_then_is_another),
        cmocka_unit_test(checkpoints_when_of_any_stages_then_are_equal_and_go_on_anywhere),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
