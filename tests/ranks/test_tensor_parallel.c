/* What could be wrong here: a rank computes with another's part of a tensor, a sum over ranks
 * misses a part or has one twice, the norm counts a replicated tensor on every rank, padding is not
 * zero, a policy changes the numbers of many ranks, a checkpoint depends on how many they were.
 *
 * Sessions of 2, 3 (nothing divides) and 4 ranks (one of them without heads), as threads, take
 * steps from the state of one rank. AdamW hides a wrong scale, so gradients are compared before it.
 * Tolerances: sums of at most some hundred fp32 terms in another order differ by a few units of
 * 2^-24 relative to the largest; bf16 partial sums are rounded to 2^-9 before they are sent.
 */
#define _GNU_SOURCE
#include "rank_runs.h"

static void gradients_when_split_then_are_those_of_one_rank(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    for (int way = 0; way < WAY_COUNT; way++)
        for (uint32_t size = 2; size <= RANKS_MAX; size++) {
            if (!is_full() && (size != 2 + (uint32_t)way % 3 || !is_in_share(&drawn)))
                continue;
            const char *name = "";
            const double most = compare_gradients(size, &ways[way], NULL, &name);
            print_message("way %d, %u ranks: %.2g (%s)\n", way, size, most, name);
            if (!(most <= ways[way].bound))
                fail_msg("%s is off by %g", name, most);
        }
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
    for (int way = 0; way < WAY_COUNT; way += is_full() ? 1 : 2 * SANITIZER_SHARE) {
        const char *name = "";
        const double most = compare_gradients(2 + way % 3, &ways[way], directory.text, &name);
        print_message("way %d, %d ranks: %.2g (%s)\n", way, 2 + way % 3, most, name);
        if (!(most <= ways[way].bound))
            fail_msg("%s is off by %g", name, most);
    }
    scratch_close(&directory);
}

/* ---- losses ---- */

/* Bounds are those of runs whose weights begin one unit in the last place apart, with room: fp32
 * gaps of such runs were measured at 2e-7, of ranks at 3e-7. */
static void losses_over_fifty_steps_when_split_then_stay_together(void **state)
{
    (void)state;
    for (uint32_t size = is_full() ? 2 : 3; size <= (is_full() ? RANKS_MAX : 3); size++) {
        ranks_run *one = open_run(1, on_device, NULL), *many = open_run(size, on_device, NULL);
        double most = 0;
        for (int step = 0; step < MANY_STEPS; step++) {
            one->learning_rate = many->learning_rate =
                3e-4f * (step < 10 ? 0.1f * (float)(step + 1) : 1);
            take_step(one);
            take_step(many);
            most = fmax(most, fabs(many->rank[0].loss / one->rank[0].loss - 1));
        }
        print_message("%u ranks: losses within %.2g\n", size, most);
        assert_true(most <= 2e-6);
        whole_model *model = read_model(many, SL_GROUP_PARAM); /* its padding is checked */
        free_model(model);
        close_run(one);
        close_run(many);
    }
}

/* ---- placement ---- */

static void policies_when_split_then_give_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t size = is_full() ? 2 : 3; size <= (is_full() ? RANKS_MAX : 3); size++)
        check_policies(size, "precision=fp32", NULL);
}

/* ---- activations kept together ---- */

/* Gathered are the same bits that each rank had. */
static void activations_when_partitioned_then_bits_are_the_same(void **state)
{
    (void)state;
    static const char *const base[][SETTINGS_MAX] = {
        {"policy=device", "precision=fp32", "recompute=full", NULL},
        {"policy=nvme", disk_dir, "nvme-params=1", "recompute=selective", "precision=bf16",
         "accumulate=3", "accumulation=layer", NULL},
        {"policy=host", "precision=bf16", "recompute=full", "accumulate=4", "dropout=0.1", NULL},
        {"policy=device", "precision=fp32", "recompute=none", "offload-activations=0", NULL}};
    for (size_t i = 0; i < sizeof base / sizeof base[0]; i++) {
        const char *parted[SETTINGS_MAX + 1] = {"partition-activations=true"};
        for (int s = 0; base[i][s]; s++)
            parted[s + 1] = base[i][s];
        const uint32_t size = 2 + (uint32_t)i % 3;
        ranks_run *plain = open_run(size, base[i], NULL), *run = open_run(size, parted, NULL);
        for (int step = 0; step < 2; step++) {
            take_step(plain);
            take_step(run);
        }
        whole_model *expected = read_model(plain, SL_GROUP_PARAM);
        whole_model *found = read_model(run, SL_GROUP_PARAM);
        assert_true(is_same(expected, found));
        assert_true(run->rank[0].loss == plain->rank[0].loss);
        const uint64_t turns = run->rank[0].config.accumulate;
        const uint64_t type_bytes = sl_type_bytes(run->rank[0].runtime->blueprint->task.type);
        const uint64_t hidden = 2ull * shape.context * shape.width * type_bytes;
        assert_int_equal(run->group.gathered_bytes[0] - plain->group.gathered_bytes[0],
                         2 * turns * shape.layers * hidden / size);
        assert_int_equal(run->group.reduced_bytes[0], plain->group.reduced_bytes[0]);
        free_model(expected);
        free_model(found);
        close_run(plain);
        close_run(run);
    }
}

/* Four sums of [B, T, C] a layer, one of the embedding and one of what the head leaves. */
static void traffic_when_counted_is_that_of_the_formula(void **state)
{
    (void)state;
    ranks_run *run = open_run(2, on_device, NULL);
    take_step(run);
    const uint64_t hidden = 2ull * shape.context * shape.width * sizeof(float);
    assert_int_equal(run->group.reduced_bytes[0], (4 * shape.layers + 2) * hidden);
    assert_int_equal(run->group.reduced_bytes[1], run->group.reduced_bytes[0]);
    close_run(run);
}

/* ---- planted faults ---- */

static void count_all_blocks(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    for (uint32_t t = 0; t < blueprint->layout->tensor_count; t++)
        blueprint->layout->tensor_flags[t] |= SL_BLOCK_COUNTS;
}

static void add_bias_everywhere(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_LINEAR)
            program->ops[o].attrs.rank_index = 0;
}

static void double_gradients(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_HEAD_LOGITS_BACKWARD)
            program->ops[o].attrs.scale *= 2;
}

/* What the step before left stays, and is added to. */
static void double_norm_gradient(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++) {
        sl_op *op = &program->ops[o];
        if (op->kind == SL_OP_CLEAR_PADDING)
            op->attrs.element_count = 0;
        if (op->kind == SL_OP_LAYERNORM_BACKWARD)
            op->attrs.adds_gradient = 1;
    }
}

/* Distance of gradients and norm of a damaged run of two ranks after two steps. The parameters have
 * first values all the time: the learning rate is 0. */
static double find_damage(damage plant, uint64_t dropped)
{
    const char *name = "";
    ranks_run *one = open_run(1, on_device, NULL), *many = open_run(2, on_device, plant);
    one->learning_rate = many->learning_rate = 0;
    many->group.dropped = dropped;
    for (int step = 0; step < 2; step++) {
        run_all(one, step_rank);
        run_all(many, step_rank);
    }
    whole_model *expected = read_model(one, SL_GROUP_GRAD),
                *found = read_model(many, SL_GROUP_GRAD);
    const double norm =
        fabs((double)many->rank[0].control.grad_norm / (double)one->rank[0].control.grad_norm - 1);
    const double most = fmax(norm, find_distance(expected, found, &name));
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
    assert_true(find_damage(count_all_blocks, 0) > 100 * fp32_bound);
    assert_true(find_damage(double_gradients, 0) > 100 * fp32_bound);
    assert_true(find_damage(double_norm_gradient, 0) > 100 * fp32_bound);
    for (uint64_t dropped = 11; dropped <= 20; dropped += 3) /* of the second step */
        assert_true(find_damage(NULL, dropped) > 100 * fp32_bound);
}

/* First biases are zero, so the fault shows once they are not. */
static void bias_when_added_on_every_rank_then_is_found(void **state)
{
    (void)state;
    ranks_run *one = open_run(1, on_device, NULL),
              *many = open_run(2, on_device, add_bias_everywhere);
    one->learning_rate = many->learning_rate = 1e-2f;
    for (int step = 0; step < 3; step++) {
        run_all(one, step_rank);
        run_all(many, step_rank);
    }
    assert_true(fabs(many->rank[0].loss / one->rank[0].loss - 1) > 1e-4);
    close_run(one);
    close_run(many);
}

/* ---- what is not a number ---- */

/* One id's row on the last rank: its logits are those of no target, and are in every sum. */
static void loss_when_a_rank_has_nan_then_is_nan(void **state)
{
    (void)state;
    ranks_run *run = open_run(2, on_device, NULL);
    const sl_runtime *runtime = run->rank[1].runtime;
    float row[64];
    for (uint64_t i = 0; i < shape.width; i++)
        row[i] = NAN;
    for (uint32_t i = 0; i < runtime->tensor_count; i++)
        if (strcmp(runtime->tensors[i].name, "wte.weight") == 0) {
            assert_int_equal(runtime->io.write(runtime->io.user, SL_GROUP_PARAM, i, 3 * shape.width,
                                               shape.width, row),
                             SL_OK);
            break;
        }
    run_all(run, step_rank);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_true(isnan(run->rank[rank].loss));
        assert_true(isnan(run->rank[rank].control.grad_norm));
        assert_int_equal(run->rank[rank].control.skip, 1);
    }
    close_run(run);
}

/* ---- checkpoints ---- */

/* Saved by any number of ranks and loaded by any other, the tensors are those of the first, byte
 * for byte, and the next step's loss is that of one rank. */
static void checkpoint_when_ranks_change_then_is_the_same(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const scratch_path first = scratch_join(directory.text, "first");
    ranks_run *run = open_run(3, on_disk, NULL);
    for (int step = 0; step < 3; step++)
        take_step(run);
    save_run(run, first.text);
    take_step(run);
    const double next_loss = run->rank[0].loss;
    close_run(run);
    uint32_t drawn = 0;
    for (uint32_t from = 1; from <= RANKS_MAX; from++)
        for (uint32_t to = 1; to <= RANKS_MAX; to++) {
            char name[32];
            if (!is_full() && (to != from % RANKS_MAX + 1 || !is_in_share(&drawn)))
                continue;
            snprintf(name, sizeof name, "%u-%u", from, to);
            const scratch_path middle = scratch_join(directory.text, name);
            snprintf(name, sizeof name, "%u-%u-again", from, to);
            const scratch_path again = scratch_join(directory.text, name);
            run = open_run(from, from % 2 ? on_host : on_disk, NULL);
            load_run(run, first.text);
            save_run(run, middle.text);
            close_run(run);
            run = open_run(to, to % 2 ? on_disk : on_host, NULL);
            load_run(run, middle.text);
            save_run(run, again.text);
            assert_true(are_files_equal(first.text, middle.text, 3));
            assert_true(are_files_equal(first.text, again.text, 3));
            take_step(run);
            assert_true(fabs(run->rank[0].loss / next_loss - 1) < 2e-6);
            if (to == 3)
                assert_true(run->rank[0].loss == next_loss);
            close_run(run);
        }
    scratch_close(&directory);
}

/* ---- initial values ---- */

static void initial_values_when_split_then_are_those_of_one_rank(void **state)
{
    (void)state;
    ranks_run *one = open_run(1, on_device, NULL);
    whole_model *expected = read_model(one, SL_GROUP_PARAM);
    for (uint32_t size = 2; size <= RANKS_MAX; size++) {
        ranks_run *many = open_run(size, on_host, NULL);
        whole_model *found = read_model(many, SL_GROUP_PARAM);
        assert_true(is_same(expected, found));
        free_model(found);
        close_run(many);
    }
    free_model(expected);
    close_run(one);
}

/* ---- one plan ---- */

static bool is_same_plan(const sl_plan *a, const sl_plan *b)
{
    return a->body_count == b->body_count && a->place_count == b->place_count &&
           a->wait_count == b->wait_count &&
           memcmp(a->body, b->body, a->body_count * sizeof *a->body) == 0 &&
           memcmp(a->places, b->places, a->place_count * sizeof *a->places) == 0 &&
           memcmp(a->waits, b->waits, a->wait_count * sizeof *a->waits) == 0;
}

/* Ranks differ in attributes alone, which a plan does not have. */
static void plans_of_ranks_when_compared_are_one(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_COUNT; way++) {
        ranks_run *run = open_run(3, ways[way].settings, NULL);
        for (uint32_t rank = 1; rank < 3; rank++)
            assert_true(is_same_plan(run->rank[0].runtime->blueprint->plans[0],
                                     run->rank[rank].runtime->blueprint->plans[0]));
        close_run(run);
    }
}

/* What this rank does not have at hand, it refuses to run. */
static void session_when_there_are_no_other_ranks_then_is_refused(void **state)
{
    (void)state;
    sl_config config;
    sl_search search;
    sl_blueprint *blueprint;
    sl_runtime *runtime;
    sl_refusal refusal;
    const sl_engine_source source = {fill_rows, NULL};
    const sl_runtime_hooks hooks = {.source = &source};
    const ranks_run run = {.size = 2, .tp = 2, .dp = 1, .factor = 1};
    configure(&config, &run, on_device);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_OK);
    assert_int_equal(sl_runtime_open(blueprint, &hooks, &runtime), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "no other ranks"));
    sl_config_clear(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_when_split_then_are_those_of_one_rank),
        cmocka_unit_test(plans_of_ranks_when_compared_are_one),
        cmocka_unit_test(gradients_when_split_then_are_those_of_one_rank),
        cmocka_unit_test(gradients_when_from_a_later_state_then_are_those_of_one_rank),
        cmocka_unit_test(losses_over_fifty_steps_when_split_then_stay_together),
        cmocka_unit_test(policies_when_split_then_give_the_same_bits),
        cmocka_unit_test(activations_when_partitioned_then_bits_are_the_same),
        cmocka_unit_test(traffic_when_counted_is_that_of_the_formula),
        cmocka_unit_test(faults_when_planted_then_are_found),
        cmocka_unit_test(bias_when_added_on_every_rank_then_is_found),
        cmocka_unit_test(loss_when_a_rank_has_nan_then_is_nan),
        cmocka_unit_test(checkpoint_when_ranks_change_then_is_the_same),
        cmocka_unit_test(session_when_there_are_no_other_ranks_then_is_refused),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
