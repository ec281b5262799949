/* What could be wrong here: a stage computes another's layers, or hands on what belongs to another
 * micro-batch, or takes one into memory that holds one still; it keeps more of them than its order
 * asks for; stages wait for each other for ever; the tied embedding misses a part of its
 * gradient or counts twice in the norm, or its two copies drift apart; a placement, a type or the
 * number of micro-batches changes the bits; the plan grows with them; a checkpoint depends on the
 * stages.
 *
 * Both orders of micro-batches, of a few and of as many as are loops. Sessions as threads, over the
 * communicators of a run. Stages change no sum: everything equals one
 * rank in micro order bit for bit. With tensor- and data-parallel ranks: tolerances as theirs.
 */
#define _GNU_SOURCE
#define RANK_RUNS_LAYERS 5 /* uneven on 2, 3 and 4 stages */
#define RANK_THREADS_MAX 8
#include "rank_runs.h"
#include "sanitizer_share.h"

static const char *const ways_of_stages[][SETTINGS_MAX] = {
    {"policy=device", "precision=fp32", "accumulate=4", NULL},
    {"policy=host", "precision=bf16", "accumulate=9", "recompute=full", NULL},
    {"policy=nvme", disk_dir, "nvme-params=1", "precision=bf16", "accumulate=3", NULL},
    {"policy=host", "precision=fp32", "accumulate=1", "dropout=0.2", NULL},
    {"policy=nvme", disk_dir, "nvme-params=1", "precision=fp32", "accumulate=2",
     "recompute=selective", NULL},
    {"policy=host", "precision=fp32", "accumulate=64", NULL},
    {"policy=device", "precision=bf16", "accumulate=1", "clip=0", "nonfinite=stop", NULL},
    {"policy=host", "micro-batch=16", "offload-activations=0.6", "accumulate=11", NULL},
    {"policy=nvme", disk_dir, "micro-batch=16", "nvme-activations=0.5", "accumulate=10", NULL},
    {"policy=device", "accumulate=12", "dropout=0.1", "recompute=full", NULL},
    {"policy=host", "precision=bf16", "accumulate=17", "recompute=selective", NULL},
    {"policy=host", "precision=fp32", "accumulate=4", "prompt-key=p", "response-key=r", NULL}};

typedef struct order_of_stages {
    const char *name, *schedule, *accumulation;
} order_of_stages;

static const order_of_stages orders[] = {{"1f1b", "schedule=1f1b", "accumulation=micro"},
                                         {"gpipe", "schedule=gpipe", "accumulation=micro"},
                                         {"layer", "schedule=gpipe", "accumulation=layer"}};

enum {
    WAYS = sizeof ways_of_stages / sizeof ways_of_stages[0],
    ORDERS = sizeof orders / sizeof orders[0]
};

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
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};
    for (int i = 0; i < 3; i++) {
        whole_model *a = read_model(one, groups[i]), *b = read_model(many, groups[i]);
        if (!is_same(a, b))
            fail_msg("%u stages, way %d: %s differs", stages, way, sl_group_name(groups[i]));
        free_model(a);
        free_model(b);
    }
}

static ranks_run *open_pipeline(uint32_t stages, const char *const *settings,
                                const order_of_stages *order)
{
    const char *all[SETTINGS_MAX];
    int count = 0;
    for (; settings[count]; count++)
        all[count] = settings[count];
    all[count++] = order->schedule;
    all[count++] = order->accumulation;
    all[count] = NULL;
    return open_stages(1, 1, stages, all, 1, NULL);
}

static void check_bits(uint32_t stages, int way, const order_of_stages *order)
{
    ranks_run *one = open_one(ways_of_stages[way]);
    ranks_run *many = open_pipeline(stages, ways_of_stages[way], order);
    for (int step = 0; step < 3; step++) {
        take_step(one);
        take_step(many);
        if (memcmp(&one->rank[0].loss, &many->rank[0].loss, sizeof(double)) != 0 ||
            memcmp(&one->rank[0].control.grad_norm, &many->rank[0].control.grad_norm,
                   sizeof(float)) != 0)
            fail_msg("%u stages, %s, way %d, step %d: loss %.17g and %.17g, norm %.9g and %.9g",
                     stages, order->name, way, step, one->rank[0].loss, many->rank[0].loss,
                     (double)one->rank[0].control.grad_norm,
                     (double)many->rank[0].control.grad_norm);
    }
    check_models(one, many, stages, way);
    check_peaks(many);
    close_run(one);
    close_run(many);
}

static void steps_when_layers_are_on_stages_then_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    uint32_t picked = 0;
    for (uint32_t stages = 2; stages <= 4; stages++)
        for (int way = 0; way < WAYS; way++)
            for (int s = 0; s < ORDERS; s++)
                if (is_full() || ((way + s) % 3 == (int)stages % 3 && is_in_share(&picked)))
                    check_bits(stages, way, &orders[s]);
}

/* From none in a loop to many, and each remainder behind it. */
static void steps_when_micro_batches_are_any_number_then_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    static const uint32_t many[] = {64, 511, 512};
    uint32_t picked = 0;
    char accumulate[32];
    const char *const settings[] = {"policy=host", accumulate, NULL};
    for (uint32_t stages = 2; stages <= 4; stages++)
        for (uint32_t i = 1; i <= (is_full() ? 27u : 13u); i++) {
            const uint32_t count = i <= 24 ? i : many[i - 25];
            snprintf(accumulate, sizeof accumulate, "accumulate=%u", count);
            if (!is_full() && ((i + stages) % 3 != 0 || !is_in_share(&picked)))
                continue;
            ranks_run *one = open_one(settings),
                      *run = open_stages(1, 1, stages, settings, 1, NULL);
            take_step(one);
            take_step(run);
            check_models(one, run, stages, -(int)count);
            check_peaks(run);
            close_run(one);
            close_run(run);
        }
}

static void gradients_when_ranks_form_a_cube_then_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const zeros[] = {"zero=0", "zero=1", "zero=2", "zero=3"};
    for (int z = SANITIZER_SHARE > 1 ? 3 : 0; z < 4; z++) {
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

static const sl_program *program_of(const ranks_run *run, uint32_t rank)
{
    return run->rank[rank].runtime->blueprint->programs[0];
}

/* 20 and 512 leave the same remainder for one, two and three micro-batches that are kept. */
static void plans_when_micro_batches_are_more_then_are_no_longer(void **state)
{
    (void)state;
    static const char *const few[] = {"policy=host", "recompute=full", "accumulate=20", NULL};
    static const char *const many[] = {"policy=host", "recompute=full", "accumulate=512", NULL};
    for (int s = 0; s < ORDERS; s++) {
        ranks_run *a = open_pipeline(3, few, &orders[s]);
        ranks_run *b = open_pipeline(3, many, &orders[s]);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(program_of(a, rank)->op_count, program_of(b, rank)->op_count);
            assert_int_equal(program_of(a, rank)->value_count, program_of(b, rank)->value_count);
        }
        close_run(a);
        close_run(b);
    }
}

/* Micro-batches that have begun to go forward when one comes back, that one included, at most. */
static uint32_t count_kept(const sl_program *program)
{
    uint32_t begun = 0, most = 0;
    for (uint32_t s = 0; s < program->section_count; s++) {
        const sl_section *section = &program->sections[s];
        for (uint32_t r = 0; r < section->repeat; r++)
            for (uint32_t o = section->first; o < section->first + section->count; o++) {
                const sl_op *op = &program->ops[o];
                const uint32_t at = op->micro_batch + sl_section_micro_batches(section, r);
                if (op->kind == SL_OP_LINEAR && at >= begun)
                    begun = at + 1;
                if (op->kind == SL_OP_LINEAR_INPUT_BACKWARD && begun - at > most)
                    most = begun - at;
            }
    }
    return most;
}

static uint64_t count_device_bytes(const ranks_run *run, uint32_t rank)
{
    return sl_blueprint_peak_bytes(run->rank[rank].runtime->blueprint, SL_TIER_DEVICE);
}

/* min(m, p - s), however many there are; so device memory does not grow with them, once they are
 * loops: what passes from one repetition to the next has its place in all of them. */
static void stages_when_they_interleave_then_keep_as_many_as_are_behind_them(void **state)
{
    (void)state;
    enum { STAGES = 4, LOOPS = 3 * STAGES + 1 };
    static const uint32_t counts[] = {512, 64, LOOPS + 1, LOOPS, LOOPS - 1, 9, 5, 4, 3, 2, 1};
    uint64_t most[STAGES] = {0};
    uint32_t picked = 0;
    char accumulate[32];
    const char *const settings[] = {"policy=device", accumulate, NULL};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (!is_in_share(&picked))
            continue;
        snprintf(accumulate, sizeof accumulate, "accumulate=%u", counts[i]);
        ranks_run *run = open_stages(1, 1, STAGES, settings, 1, NULL);
        for (uint32_t s = 0; s < STAGES; s++) {
            const uint32_t kept = counts[i] < STAGES - s ? counts[i] : STAGES - s;
            const uint64_t bytes = count_device_bytes(run, s);
            assert_int_equal(count_kept(program_of(run, s)), kept);
            most[s] = i == 0 ? bytes : most[s];
            if (counts[i] >= LOOPS ? bytes != most[s] : bytes > most[s])
                fail_msg("stage %u: %llu bytes of %u micro-batches, %llu of %u", s,
                         (unsigned long long)bytes, counts[i], (unsigned long long)most[s],
                         counts[0]);
        }
        close_run(run);
    }
}

/* Layers on stages as they are named. */
static void check_layers(const char *stages, uint32_t count, const uint32_t *ends)
{
    char setting[64];
    const char *const settings[] = {"policy=host", "accumulate=7", setting, NULL};
    const char *const plain[] = {"policy=host", "accumulate=7", NULL};
    snprintf(setting, sizeof setting, "stages=%s", stages);
    ranks_run *one = open_one(plain), *many = open_stages(1, 1, count, settings, 1, NULL);
    for (uint32_t s = 0; s < count; s++)
        assert_int_equal(many->rank[s].runtime->blueprint->task.stage_ends[s], ends[s]);
    take_step(one);
    take_step(many);
    check_models(one, many, count, -1);
    check_peaks(many);
    close_run(one);
    close_run(many);
}

static void layers_when_they_are_given_then_are_on_those_stages(void **state)
{
    (void)state;
    check_layers("1,4", 2, (const uint32_t[]){1, 5});
    check_layers("3,-1,1", 3, (const uint32_t[]){3, 4, 5});
    check_layers("-1,1", 2, (const uint32_t[]){4, 5});
    check_layers("2,1,1,1", 4, (const uint32_t[]){2, 3, 4, 5});
}

static void refuse_stages(const char *pp, const char *stages, const char *part)
{
    sl_config config;
    uint32_t ends[SL_STAGES_MAX];
    assert_int_equal(sl_config_init(&config), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, pp), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_TRAIN, stages), SL_OK);
    sl_status status = sl_stages_check(&config);
    if (status == SL_OK)
        status = sl_stages_read(&config, 6, ends);
    assert_int_equal(status, SL_ERROR_USAGE);
    if (strstr(sl_status_message(), part) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", stages, sl_status_message(), part);
    sl_config_clear(&config);
}

static void layers_when_they_are_not_the_models_then_are_refused(void **state)
{
    (void)state;
    refuse_stages("pp=2", "stages=3,4", "7 layers");
    refuse_stages("pp=2", "stages=3,2", "the model 6");
    refuse_stages("pp=3", "stages=3,3,-1", "one stage more");
    refuse_stages("pp=2", "stages=1,2,3", "--pp is 2");
    refuse_stages("pp=3", "stages=3,3", "has 2 numbers");
    refuse_stages("pp=3", "stages=-1,3,-1", "-1 once");
    refuse_stages("pp=2", "stages=6,0", "give uniform");
    refuse_stages("pp=2", "stages=3,,3", "give uniform");
    refuse_stages("pp=2", "stages=3,x", "give uniform");
    refuse_stages("pp=2", "stages=3,-2", "give uniform");
    refuse_stages("pp=2", "stages=3,99999999999999999999", "give uniform");
    refuse_stages("pp=2", "stages=", "give uniform");
    refuse_stages("pp=1", "stages=6", "give --pp");
    refuse_stages("pp=5000", "stages=cost", "up to 1024");
}

/* Against all ways to share out, of random costs. */
static void layers_when_balanced_then_no_way_has_a_faster_slowest_stage(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 200; n++) {
        const uint32_t stages = 2 + (uint32_t)(n % 3), layers = stages + (uint32_t)(n / 3 % 7);
        const sl_stages_costs costs = {(double)sl_rng_below(7, n, 0, 50), 10,
                                       (double)sl_rng_below(7, n, 1, 60)};
        uint32_t ends[4], way_count = 1;
        double best = INFINITY, balanced = 0;
        sl_stages_balance(&costs, layers, stages, ends);
        assert_int_equal(ends[stages - 1], layers);
        for (uint32_t s = 0; s < stages; s++)
            balanced = fmax(balanced, costs.layer * (ends[s] - (s > 0 ? ends[s - 1] : 0)) +
                                          (s == 0 ? costs.embedding : 0) +
                                          (s + 1 == stages ? costs.head : 0));
        for (uint32_t s = 0; s < stages; s++)
            way_count *= layers;
        for (uint32_t way = 0; way < way_count; way++) {
            uint32_t sum = 0, rest = way;
            double slowest = 0;
            for (uint32_t s = 0; s < stages; s++, rest /= layers) {
                const uint32_t count = 1 + rest % layers;
                sum += count;
                slowest = fmax(slowest, costs.layer * count + (s == 0 ? costs.embedding : 0) +
                                            (s + 1 == stages ? costs.head : 0));
            }
            if (sum == layers)
                best = fmin(best, slowest);
        }
        if (balanced != best)
            fail_msg("%u layers on %u stages, costs %g, %g, %g: %g, best %g", layers, stages,
                     costs.embedding, costs.layer, costs.head, balanced, best);
    }
}

/* The small model's head costs more than a layer, so the last stage has fewer. */
static void layers_when_shared_by_cost_then_are_fewer_beside_the_head(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=device", "accumulate=3", "stages=cost", NULL};
    ranks_run *run = open_stages(1, 1, 2, settings, 1, NULL);
    const uint32_t *ends = run->rank[0].runtime->blueprint->task.stage_ends;
    assert_int_equal(ends[1], shape.layers);
    assert_true(ends[0] > shape.layers / 2);
    take_step(run);
    close_run(run);
}

static void layers_when_they_do_not_divide_then_are_shared_out_evenly(void **state)
{
    (void)state;
    for (uint32_t stages = 1; stages <= shape.layers; stages++) {
        uint32_t next = 0;
        for (uint32_t stage = 0; stage < stages; stage++) {
            uint32_t first, end;
            sl_model_shape_stage(&shape, stages, stage, &first, &end);
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
    (void)rank;
    blueprint->layout->counts_shard_alone = false;
    for (uint32_t t = 0; t < blueprint->layout->tensor_count; t++)
        blueprint->layout->tensor_flags[t] |= SL_BLOCK_COUNTS;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_when_layers_are_on_stages_then_have_the_bits_of_one_rank),
        cmocka_unit_test(steps_when_micro_batches_are_any_number_then_have_the_bits_of_one_rank),
        cmocka_unit_test(stages_when_they_interleave_then_keep_as_many_as_are_behind_them),
        cmocka_unit_test(gradients_when_ranks_form_a_cube_then_are_those_of_one_rank),
        cmocka_unit_test(plans_when_micro_batches_are_more_then_are_no_longer),
        cmocka_unit_test(layers_when_they_do_not_divide_then_are_shared_out_evenly),
        cmocka_unit_test(layers_when_they_are_given_then_are_on_those_stages),
        cmocka_unit_test(layers_when_they_are_not_the_models_then_are_refused),
        cmocka_unit_test(layers_when_balanced_then_no_way_has_a_faster_slowest_stage),
        cmocka_unit_test(layers_when_shared_by_cost_then_are_fewer_beside_the_head),
        cmocka_unit_test(norm_when_a_tied_tensor_counts_twice_then_is_another),
        cmocka_unit_test(checkpoints_when_of_any_stages_then_are_equal_and_go_on_anywhere),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
