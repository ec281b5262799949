/* What could be wrong when stages of a pipeline are on GPUs: an activation that goes before it is
 * whole, or comes over one that is still read; two exchanges of a stage that wait for each other's
 * end; neighbours that agree on the host and not on the device; a stage that goes on with what a
 * failed exchange left; algorithms of a stage that are not in the list. Ranks are
 * threads with a device each, over the stand-ins of CUDA and NCCL, whose work is late by chance and
 * whose order is checked. Stages change no sum: everything has the bits of one rank in micro order
 * on such a device, in both orders, wherever chunks are. */
#define _GNU_SOURCE
#define RANK_RUNS_LAYERS 3 /* uneven on two stages */
#include <sys/stat.h>
#include <unistd.h>

#include "gpu_ranks_case.h"
#include "run_case.h"
#include "session/algorithms.h"

#define FP32 "precision=fp32"
#define BF16 "precision=bf16"
#define DISK_ALL "policy=nvme", disk_dir, "nvme-params=1"

static const char *const stage_ways[][SETTINGS_MAX] = {
    {"policy=device", BF16, "accumulate=3", NULL},
    {"policy=host", FP32, "accumulate=5", "recompute=full", NULL},
    {DISK_ALL, BF16, "accumulate=2", NULL},
    {"policy=host", BF16, "accumulate=1", "dropout=0.2", NULL},
    {DISK_ALL, FP32, "accumulate=11", "recompute=selective", NULL},
    {"policy=host", "micro-batch=16", "offload-activations=0.6", "accumulate=10", NULL}};

static const char *const schedules[] = {"schedule=1f1b", "schedule=gpipe"};

enum { WAYS = sizeof stage_ways / sizeof stage_ways[0] };

static ranks_run *open_with(uint32_t tp, uint32_t dp, uint32_t pp, const char *const *settings,
                            const char *extra)
{
    const char *all[SETTINGS_MAX];
    int count = 0;
    for (; settings[count]; count++)
        all[count] = settings[count];
    all[count++] = extra;
    all[count] = NULL;
    return open_stages(tp, dp, pp, all, 1, NULL);
}

static void check_bits(uint32_t stages, int way, const char *schedule)
{
    char what[64];
    snprintf(what, sizeof what, "%u stages, way %d, %s", stages, way, schedule);
    compare_same_runs(open_with(1, 1, 1, stage_ways[way], "accumulation=micro"),
                      open_with(1, 1, stages, stage_ways[way], schedule), 2, what);
}

/* Quick: three of them, each policy and both orders among them. Under sanitizers the run on the
 * host is the one that is trained below. */
static bool is_chosen(uint32_t stages, int way, int schedule)
{
    return is_full() || (stages == 2 && way == 0 && schedule == 1) ||
           (SANITIZER_SHARE == 1 && stages == 2 && way == 1 && schedule == 0) ||
           (stages == 3 && way == 2 && schedule == 0);
}

static void steps_when_layers_are_on_gpus_then_have_the_bits_of_one(void **state)
{
    (void)state;
    for (uint32_t stages = 2; stages <= 3; stages++)
        for (int way = 0; way < WAYS; way++)
            for (int s = 0; s < 2; s++)
                if (is_chosen(stages, way, s))
                    check_bits(stages, way, schedules[s]);
}

/* Tensor-parallel sums, sums over rows and exchanges of stages go through one stream. Of few
 * micro-batches one rank would not write gradients to where they are read here. */
static void gradients_when_ranks_form_a_cube_then_are_those_of_one(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=host", FP32, "accumulate=8",
                                           "accumulation=micro", NULL};
    const char *name = "";
    for (uint32_t tp = 1; tp <= 2; tp++)
        for (uint32_t dp = 1; dp <= 2; dp++) {
            if (tp == dp || (dp == 2 && !is_full())) /* 2 x 2 x 2: more ranks than devices */
                continue;
            const double apart =
                compare_runs(open_layout(1, 1, settings, dp, NULL),
                             open_with(tp, dp, 2, settings, "zero=1"), NULL, &name);
            if (!(apart <= fp32_bound))
                fail_msg("tp %u, dp %u: %s is %.2g apart", tp, dp, name, apart);
        }
}

/* ---- as `train` does it ---- */

typedef struct train_rank {
    const run_settings *settings;
    uint32_t rank;
    sl_config config;
    sl_trainer trainer;
    run_result result;
} train_rank;

static sl_status train(train_rank *it)
{
    SL_TRY(run_configure(it->settings, &it->config));
    SL_TRY(sl_preparation_run(&it->config, SL_CONFIG_TRAIN, &it->trainer));
    return run_loop(&it->trainer, &it->result);
}

static void *train_stage(void *argument)
{
    train_rank *it = argument;
    enter_rank(it->rank);
    it->result.status = train(it);
    if (it->result.status != SL_OK)
        snprintf(it->result.message, sizeof it->result.message, "%s", sl_status_message());
    sl_trainer_leave_ranks(&it->trainer, it->result.status);
    (void)sl_trainer_close(&it->trainer);
    sl_config_clear(&it->config);
    leave_rank(it->rank);
    return NULL;
}

/* Returns the last loss, which all stages tell alike. */
static double train_stages(uint32_t stages, const run_settings *settings)
{
    static train_rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    sl_comm *ends[RANKS_MAX];
    memset(ranks, 0, sizeof ranks);
    assert_int_equal(sl_comm_threads_open(stages, ends), SL_OK);
    start_threads();
    for (uint32_t i = 0; i < stages; i++) {
        ranks[i].settings = settings;
        ranks[i].rank = i;
        assert_int_equal(sl_config_init(&ranks[i].config), SL_OK);
        sl_ranks_adopt(ends[i], &ranks[i].trainer.ranks);
        assert_int_equal(pthread_create(&threads[i], NULL, train_stage, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < stages; i++)
        pthread_join(threads[i], NULL);
    join_threads();
    for (uint32_t i = 0; i < stages; i++) {
        if (ranks[i].result.status != SL_OK)
            fail_msg("stage %u of %u: %s", i, stages, ranks[i].result.message);
        assert_true(ranks[i].result.last_loss == ranks[0].result.last_loss);
    }
    return ranks[0].result.last_loss;
}

#define TRAINED(...)                                                                               \
    RUN_SETTINGS("layers=3", "threads=1", "device=cuda", "device-memory=64M", "host-memory=64M",   \
                 "steps=2", "precision=bf16", "accumulate=3", "overwrite=true", __VA_ARGS__)

static void compare_checkpoints(const char *what)
{
    static const char *const names[] = {"model", "moment1", "moment2"};
    for (int i = 0; i < 3; i++) {
        char one[64], many[64];
        snprintf(one, sizeof one, "one/step-00000002/%s.safetensors", names[i]);
        snprintf(many, sizeof many, "many/step-00000002/%s.safetensors", names[i]);
        if (!scratch_is_same(one, many))
            fail_msg("%s: %s differs", what, names[i]);
    }
}

static void runs_when_trained_in_stages_leave_the_checkpoint_of_one(void **state)
{
    (void)state;
    static const struct {
        uint32_t stages;
        const char *what;
        run_settings settings;
    } runs[] = {
        {2, "host, 1f1b", TRAINED("save=many", "pp=2", "policy=host")},
        {3, "disk, gpipe",
         TRAINED("save=many", "pp=3", "policy=nvme", "nvme-params=1", "disk-dir=drive",
                 "schedule=gpipe")},
        {3, "host, 1f1b", TRAINED("save=many", "pp=3", "policy=host")},
        {2, "disk, gpipe",
         TRAINED("save=many", "pp=2", "policy=nvme", "nvme-params=1", "disk-dir=drive",
                 "schedule=gpipe")},
        {2, "disk, 1f1b",
         TRAINED("save=many", "pp=2", "policy=nvme", "nvme-params=1", "disk-dir=drive")},
        {3, "device, gpipe", TRAINED("save=many", "pp=3", "policy=device", "schedule=gpipe")}};
    const run_result one = run_train(&TRAINED("save=one", "policy=host", "accumulation=micro"));
    if (one.status != SL_OK)
        fail_msg("%s", one.message);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        if (i >= (SANITIZER_SHARE > 1 ? 1 : 2) && !is_full())
            break;
        assert_true(train_stages(runs[i].stages, &runs[i].settings) == one.last_loss);
        compare_checkpoints(runs[i].what);
    }
}

/* ---- bytes ---- */

/* Each of a step's micro-batches goes there and back between neighbours; the first and the last
 * stage give each other the gradient of what is tied; and all have a record of the norm. */
static void traffic_when_counted_is_what_passes_between_neighbours(void **state)
{
    (void)state;
    enum { STAGES = 3, MICRO_BATCHES = 5 };
    static const char *const settings[] = {"policy=device", FP32, "accumulate=5", NULL};
    const uint64_t activation = 2 * 24 * 40 * sizeof(float);
    uint64_t before = 0, after = 0, tied = 0;
    ranks_run *run = open_stages(1, 1, STAGES, settings, 1, NULL);
    for (uint32_t rank = 0; rank < STAGES; rank++)
        before += sl_comm_sent_bytes(run->rank[rank].others.world, SL_COMM_STAGES);
    take_step(run);
    for (uint32_t rank = 0; rank < STAGES; rank++)
        after += sl_comm_sent_bytes(run->rank[rank].others.world, SL_COMM_STAGES);
    const sl_program *program = run->rank[0].runtime->blueprint->programs[PLAN_STEP];
    for (uint32_t i = 0; i < program->tensor_count; i++)
        if (strcmp(program->tensors[i].name, "wte.weight") == 0)
            tied += program->tensors[i].shape[0] * program->tensors[i].shape[1] * sizeof(float);
    assert_int_equal(after - before, (STAGES - 1) * 2 * MICRO_BATCHES * activation + 2 * tied +
                                         STAGES * (STAGES - 1) * sizeof(sl_norm_sum));
    close_run(run);
}

static uint64_t window_bytes[RANKS_MAX];

static void *share_rank(void *argument)
{
    run_rank *it = argument;
    sl_search search;
    keep_status(it, sl_search_init(&it->config, SL_WORK_TRAIN, &shape, &search));
    if (it->status == SL_OK)
        keep_status(it, sl_ranks_share(&it->others, &search));
    window_bytes[it->rank] = search.task.window_bytes;
    return NULL;
}

static void windows_when_measured_are_those_that_are_planned(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=device", FP32, NULL};
    ranks_run *run = open_stages(1, 1, 3, settings, 1, NULL);
    run_all(run, share_rank);
    const sl_ranks planned = {.layout = {.tensor = 1, .data = 1, .stages = 3}};
    sl_search search;
    assert_int_equal(sl_search_init(&run->rank[0].config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(sl_ranks_share(&planned, &search), SL_OK);
    for (uint32_t rank = 0; rank < run->size; rank++)
        assert_int_equal(window_bytes[rank], search.task.window_bytes);
    assert_int_equal(search.task.window_bytes, 3 * sl_comm_plan_share_bytes(3));
    close_run(run);
}

/* ---- the list of algorithms ---- */

static char *own_lines[RANKS_MAX];

static void *keep_rank(void *argument)
{
    run_rank *it = argument;
    sl_status status = sl_algorithms_keep(&it->others, it->runtime);
    if (status == SL_OK)
        status = sl_engine_list_algorithms(it->runtime->engine, "", "\n", &own_lines[it->rank]);
    keep_status(it, status);
    return NULL;
}

/* The last stage has products of the head, which the first one lacks. */
static void algorithms_when_stages_have_their_own_are_all_in_one_list(void **state)
{
    (void)state;
    enum { STAGES = 3 };
    static const char *const settings[] = {"policy=device", FP32, NULL};
    char list[1 << 16] = "";
    setenv("XDG_CONFIG_HOME", disk.text, 1);
    ranks_run *run = open_stages(1, 1, STAGES, settings, 1, NULL);
    run_all(run, keep_rank);
    FILE *file = fopen("sluice/algorithms-cuda.txt", "r");
    assert_non_null(file);
    assert_true(fread(list, 1, sizeof list - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    for (uint32_t rank = 0; rank < STAGES; rank++)
        for (char *rest, *line = strtok_r(own_lines[rank], "\n", &rest); line;
             line = strtok_r(NULL, "\n", &rest))
            if (!strstr(list, line))
                fail_msg("the list lacks a line of stage %u: %s", rank, line);
    for (uint32_t rank = 0; rank < STAGES; rank++)
        free(own_lines[rank]);
    assert_int_equal(unlink("sluice/algorithms-cuda.txt"), 0);
    unsetenv("XDG_CONFIG_HOME");
    close_run(run);
}

/* ---- order ---- */

/* Every event in turn is not waited for: what an exchange then races with is found. */
static void wait_when_missing_before_or_behind_an_exchange_is_found(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=device", FP32, "accumulate=2", NULL};
    bool is_found = false;
    for (uint64_t nth = 3; nth < 60 && !is_found; nth += 2) {
        const char *first = NULL;
        ranks_run *run = open_stages(1, 1, 2, settings, 1, NULL);
        standin_ignore_edge(STANDIN_EDGE_EVENT, nth);
        run_all(run, step_rank);
        standin_ignore_edge(STANDIN_EDGE_COUNT, 0);
        close_run(run);
        is_found = standin_order_faults(&first) > 0 && strstr(first, "exchange") != NULL;
        standin_forget_order_faults();
    }
    assert_true(is_found);
}

/* ---- failures ---- */

static void *fail_rank(void *argument)
{
    run_rank *it = argument;
    (void)step_rank(it);
    sl_ranks_leave(&it->others, it->status);
    if (it->status != SL_OK)
        snprintf(it->message, sizeof it->message, "%s", sl_status_message());
    else
        snprintf(it->message, sizeof it->message, "nothing was noticed");
    it->step = it->status != SL_OK; /* so that run_all does not give up */
    it->status = SL_OK;
    return NULL;
}

static void expect_failure(const nccl_standin *how, double timeout_s, const char *schedule,
                           const char *says)
{
    static const char *const settings[] = {"policy=host", FP32, "accumulate=4", NULL};
    start_machine(3, 0, how);
    ranks_run *run = open_with(1, 1, 3, settings, schedule);
    for (uint32_t rank = 0; rank < 3; rank++)
        sl_gpu_ranks_set_timeout(run->rank[rank].others.gpus, timeout_s);
    run_all(run, fail_rank);
    bool is_said = false;
    for (uint32_t rank = 0; rank < 3; rank++) {
        if (run->rank[rank].step == 0)
            fail_msg("stage %u: %s", rank, run->rank[rank].message);
        is_said |= strstr(run->rank[rank].message, says) != NULL;
    }
    if (!is_said)
        fail_msg("\"%s\" is in none of \"%s\", \"%s\", \"%s\"", says, run->rank[0].message,
                 run->rank[1].message, run->rank[2].message);
    close_run(run);
}

static void failure_when_of_an_exchange_ends_the_step_on_all_stages(void **state)
{
    (void)state;
    for (int s = 0; s < 2; s++) {
        expect_failure(&(nccl_standin){.fail_kernel = 9}, 20, schedules[s],
                       "remote process exited");
        expect_failure(&(nccl_standin){.hang_kernel = 10}, 0.3, schedules[s], "did not end within");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(runs_when_trained_in_stages_leave_the_checkpoint_of_one,
                                        begin, end),
        cmocka_unit_test_setup_teardown(steps_when_layers_are_on_gpus_then_have_the_bits_of_one,
                                        begin, end),
        cmocka_unit_test_setup_teardown(gradients_when_ranks_form_a_cube_then_are_those_of_one,
                                        begin, end),
        cmocka_unit_test_setup_teardown(traffic_when_counted_is_what_passes_between_neighbours,
                                        begin, end),
        cmocka_unit_test_setup_teardown(windows_when_measured_are_those_that_are_planned, begin,
                                        end),
        cmocka_unit_test_setup_teardown(algorithms_when_stages_have_their_own_are_all_in_one_list,
                                        begin, end),
        cmocka_unit_test_setup_teardown(wait_when_missing_before_or_behind_an_exchange_is_found,
                                        begin, end),
        cmocka_unit_test_setup_teardown(failure_when_of_an_exchange_ends_the_step_on_all_stages,
                                        begin, end),
    };
    disk = scratch_open();
    snprintf(disk_dir, sizeof disk_dir, "disk-dir=%s", disk.text);
    scratch_need(chdir(disk.text) == 0 && mkdir("drive", 0700) == 0, "a directory");
    run_write_text();
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&disk);
    return failures;
}
