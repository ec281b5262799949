/* What could be wrong where ranks share the rows of the hidden states: a rank works on another's
 * rows, a gradient of a norm misses the rows of the others or counts them twice, inputs that are
 * gathered again are others than before, dropout drops other elements, a policy changes bits, more
 * is exchanged than the formula says, or the memory that this was for is not spared. As
 * test_tensor_parallel, against one rank, before AdamW. */
#define _GNU_SOURCE
#include "rank_runs.h"

#define SHARED "sequence-parallel=true"

static const char *const shared_on_device[] = {SHARED, "policy=device", "precision=fp32",
                                               "recompute=none", NULL};
static const char *const shared_on_host[] = {
    SHARED, "policy=host", "precision=fp32", "accumulate=3", "recompute=selective", NULL};
static const char *const shared_on_disk[] = {
    SHARED,          "policy=nvme",        disk_dir,
    "nvme-params=1", "recompute=full",     "precision=fp32",
    "accumulate=3",  "accumulation=layer", NULL};
static const char *const shared_dropping[] = {SHARED,        "policy=device", "precision=fp32",
                                              "dropout=0.2", "accumulate=2",  NULL};
static const char *const shared_bf16[] = {SHARED, "policy=device", "precision=bf16", NULL};
static const char *const shared_bf16_on_disk[] = {
    SHARED, "policy=nvme", disk_dir, "nvme-params=1", "precision=bf16", "accumulate=2", NULL};

static const char *const shared_masked[] = {
    SHARED, "policy=device", "precision=fp32", "accumulate=2", "prompt-key=p", "response-key=r",
    NULL};

/* Ranks that a way is run with; of two rows of a micro-batch, two ranks drop whole ones. */
static const struct shared_way {
    struct way way;
    uint32_t sizes; /* a set of 1 << size */
} shared_ways[] = {{{shared_on_device, fp32_bound}, 1 << 2 | 1 << 3 | 1 << 4},
                   {{shared_on_host, fp32_bound}, 1 << 2 | 1 << 3 | 1 << 4},
                   {{shared_on_disk, fp32_bound}, 1 << 2 | 1 << 3 | 1 << 4},
                   {{shared_dropping, fp32_bound}, 1 << 2},
                   {{shared_bf16, bf16_bound}, 1 << 2 | 1 << 3 | 1 << 4},
                   {{shared_bf16_on_disk, bf16_bound}, 1 << 2 | 1 << 3 | 1 << 4},
                   {{shared_masked, fp32_bound}, 1 << 2 | 1 << 4}};

enum { SHARED_WAY_COUNT = sizeof shared_ways / sizeof shared_ways[0] };

static void gradients_when_rows_are_shared_then_are_those_of_one_rank(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < SHARED_WAY_COUNT; i++)
        for (uint32_t size = 2; size <= RANKS_MAX; size++) {
            const struct shared_way *it = &shared_ways[i];
            const bool is_drawn = size == 2 + i % 3 || it->sizes == 1 << 2;
            if (!(it->sizes >> size & 1) || (!is_full() && (!is_drawn || !is_in_share(&drawn))))
                continue;
            const char *name = "";
            const double most = compare_gradients(size, &it->way, NULL, &name);
            print_message("way %u, %u ranks: %.2g (%s)\n", i, size, most, name);
            if (!(most <= it->way.bound))
                fail_msg("%s is off by %g", name, most);
        }
}

static void gradients_when_from_a_later_state_then_are_those_of_one_rank(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    ranks_run *run = open_run(2, shared_on_device, NULL);
    for (int step = 0; step < MANY_STEPS; step++)
        take_step(run);
    save_run(run, directory.text);
    close_run(run);
    for (uint32_t i = 0; i < SHARED_WAY_COUNT; i += is_full() ? 1 : 4) {
        const char *name = "";
        const double most = compare_gradients(2, &shared_ways[i].way, directory.text, &name);
        print_message("way %u: %.2g (%s)\n", i, most, name);
        if (!(most <= shared_ways[i].way.bound))
            fail_msg("%s is off by %g", name, most);
    }
    scratch_close(&directory);
}

/* The sums of the forward pass have the same terms in the same order, whoever keeps the rows. */
static void loss_when_rows_are_shared_then_is_that_of_ranks_that_do_not(void **state)
{
    (void)state;
    static const char *const apart[] = {"policy=device", "precision=bf16", NULL};
    static const char *const apart_masked[] = {"policy=device", "precision=fp32", "accumulate=2",
                                               "prompt-key=p",  "response-key=r", NULL};
    static const char *const *const pairs[][2] = {{shared_bf16, apart},
                                                  {shared_masked, apart_masked}};
    for (uint32_t size = 2; size <= (SANITIZER_SHARE > 1 ? 2 : RANKS_MAX); size++)
        for (uint32_t i = 0; i < 2; i++) {
            ranks_run *shared = open_run(size, pairs[i][0], NULL),
                      *whole = open_run(size, pairs[i][1], NULL);
            take_step(shared);
            take_step(whole);
            assert_true(shared->rank[0].loss == whole->rank[0].loss);
            assert_true(shared->rank[0].counted == whole->rank[0].counted);
            close_run(shared);
            close_run(whole);
        }
}

static void losses_over_fifty_steps_then_stay_together(void **state)
{
    (void)state;
    ranks_run *one = open_run(1, on_device, NULL), *many = open_run(3, shared_on_device, NULL);
    double most = 0;
    for (int step = 0; step < MANY_STEPS; step++) {
        take_step(one);
        take_step(many);
        most = fmax(most, fabs(many->rank[0].loss / one->rank[0].loss - 1));
    }
    print_message("losses within %.2g\n", most);
    assert_true(most <= 2e-6);
    free_model(read_model(many, SL_GROUP_PARAM)); /* replicated tensors are the same everywhere */
    close_run(one);
    close_run(many);
}

static void policies_when_rows_are_shared_then_give_the_same_bits(void **state)
{
    (void)state;
    check_policies(3, "precision=bf16", SHARED);
}

/* A layer scatters the sums of two products forward and of two inputs backward. It gathers two
 * inputs forward, the same again backward, and two gradients. */
static void traffic_when_counted_is_that_of_the_formula(void **state)
{
    (void)state;
    ranks_run *run = open_run(2, shared_on_device, NULL);
    take_step(run);
    const rank_group *group = &run->group;
    const uint64_t hidden = 2ull * shape.context * shape.width * sizeof(float);
    const uint64_t norms = (2 * shape.layers + 1) * 2 * shape.width * sizeof(float);
    const uint64_t stats = 2ull * shape.context * 4 * sizeof(float) + sizeof(sl_norm_sum);
    assert_int_equal(group->scattered_bytes[0], (4 * shape.layers + 2) * hidden);
    assert_int_equal(group->gathered_bytes[0], (6 * shape.layers + 2) * hidden / 2 + stats);
    assert_int_equal(group->reduced_bytes[0], norms);
    close_run(run);
}

static uint64_t activation_bytes(const ranks_run *run)
{
    return run->rank[0].runtime->blueprint->plans[0]->kind_bytes[SL_TIER_DEVICE]
                                                                [SL_MEMORY_ACTIVATION];
}

static void memory_when_rows_are_shared_then_is_less(void **state)
{
    (void)state;
    static const char *const apart[] = {"policy=device", "precision=fp32", "recompute=none", NULL};
    ranks_run *shared = open_run(4, shared_on_device, NULL), *whole = open_run(4, apart, NULL);
    print_message("activations %llu of %llu bytes\n", (unsigned long long)activation_bytes(shared),
                  (unsigned long long)activation_bytes(whole));
    assert_true(activation_bytes(shared) < activation_bytes(whole) * 3 / 4);
    close_run(shared);
    close_run(whole);
}

/* ---- planted faults ---- */

/* Gradients of norms stay those of this rank's rows. */
static void leave_norms_partial(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_ALL_REDUCE_TENSOR)
            program->ops[o].attrs.element_count = 0;
}

static void add_positions_everywhere(sl_blueprint *blueprint, uint32_t rank)
{
    (void)rank;
    sl_program *program = blueprint->programs[0];
    for (uint32_t o = 0; o < program->op_count; o++)
        if (program->ops[o].kind == SL_OP_EMBED_POSITION)
            program->ops[o].attrs.rank_index = 0;
}

static double find_damage(damage plant, uint64_t dropped)
{
    const char *name = "";
    ranks_run *one = open_run(1, on_device, NULL), *many = open_run(2, shared_on_device, plant);
    many->group.dropped = dropped;
    run_all(one, step_rank);
    run_all(many, step_rank);
    double most = 0;
    whole_model *expected = read_model(one, SL_GROUP_GRAD);
    if (!plant) {
        whole_model *found = read_model(many, SL_GROUP_GRAD);
        most = find_distance(expected, found, &name);
        free_model(found);
    }
    most = fmax(
        most,
        fabs((double)many->rank[0].control.grad_norm / (double)one->rank[0].control.grad_norm - 1));
    free_model(expected);
    close_run(one);
    close_run(many);
    return most;
}

static void faults_when_planted_then_are_found(void **state)
{
    (void)state;
    assert_true(find_damage(NULL, 0) <= fp32_bound);
    assert_true(find_damage(leave_norms_partial, 0) > 10 * fp32_bound);
    assert_true(find_damage(add_positions_everywhere, 0) > 100 * fp32_bound);
    for (uint64_t dropped = 1; dropped <= 5; dropped += 2)
        assert_true(find_damage(NULL, dropped) > 100 * fp32_bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_when_rows_are_shared_then_are_those_of_one_rank),
        cmocka_unit_test(gradients_when_from_a_later_state_then_are_those_of_one_rank),
        cmocka_unit_test(loss_when_rows_are_shared_then_is_that_of_ranks_that_do_not),
        cmocka_unit_test(losses_over_fifty_steps_then_stay_together),
        cmocka_unit_test(policies_when_rows_are_shared_then_give_the_same_bits),
        cmocka_unit_test(traffic_when_counted_is_that_of_the_formula),
        cmocka_unit_test(memory_when_rows_are_shared_then_is_less),
        cmocka_unit_test(faults_when_planted_then_are_found),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
