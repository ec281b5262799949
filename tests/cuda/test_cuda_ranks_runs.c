/* What could be wrong when ranks train on GPUs: a collective that starts before what it reads is
 * there, or is overtaken by what overwrites it; a sum in another order, an element that is rounded
 * once more; scratch that reaches into other memory, or is not in the plan; a rank that goes on
 * with what an aborted exchange left; ranks that share a GPU. Ranks are threads with a device each,
 * over the stand-ins of CUDA and NCCL, whose work is late by chance and whose order is checked;
 * what they compute is compared with one rank's on a device, with the ranks' of the cpu device, and
 * among policies and stages of ZeRO. */
#define _GNU_SOURCE
#define RANK_RUNS_CHOOSES_SHAPE
#include "gpu_ranks_case.h"

/* A Qwen 2 with biases: on four ranks two share a key head. A head's bias is no multiple of sixteen
 * bytes. */
static const sl_model_shape gpt2 = {RANK_RUNS_LAYERS, 40, 5, 24, 600},
                            qwen2 = {.layers = RANK_RUNS_LAYERS,
                                     .width = 40,
                                     .heads = 4,
                                     .context = 24,
                                     .vocab = 600,
                                     .architecture = SL_ARCHITECTURE_QWEN2,
                                     .kv_heads = 2,
                                     .head = 10,
                                     .ffn = 70};

static int begin_gpt2(void **state)
{
    shape = gpt2;
    return begin(state);
}

static int begin_qwen2(void **state)
{
    shape = qwen2;
    sl_model_shape_complete(&shape);
    return begin(state);
}

/* ---- layouts ---- */

typedef struct layout {
    uint32_t tp, dp;
    const char *settings[8];
    double bound;
    bool is_quick;
} layout;

#define FP32 "precision=fp32"
#define BF16 "precision=bf16"
/* The device would update some chunks, and their gradients would not come home to be compared. */
#define HOST_ALL "policy=host", "adam=host"
#define DISK_ALL "policy=nvme", disk_dir, "nvme-params=1"

static const layout layouts[] = {
    {2, 1, {FP32}, fp32_bound, true},
    {3, 1, {FP32, HOST_ALL, "accumulate=2"}, fp32_bound, true},
    {1, 2, {FP32, "zero=1", HOST_ALL}, fp32_bound, true},
    {2, 2, {FP32, "zero=1", DISK_ALL}, fp32_bound, true},
    {2, 1, {BF16, "sequence-parallel=true"}, bf16_bound, true},
    {3, 1, {BF16, "split-layout=colossal", HOST_ALL}, bf16_bound, true},
    {2, 1, {FP32, "partition-activations=true", "recompute=full"}, fp32_bound, false},
    {1, 3, {BF16, "zero=0", "accumulate=2"}, bf16_bound, false},
    {1, 2, {BF16, "zero=3"}, bf16_bound, true},
    {1, 2, {BF16, "zero=2", DISK_ALL}, bf16_bound, false},
    {2, 2, {BF16, "zero=1", "accumulate=2"}, bf16_bound, false},
    {4, 1, {FP32, "split-layout=colossal", "sequence-parallel=true"}, fp32_bound, false},
    {3, 1, {FP32, "sequence-parallel=true", DISK_ALL}, fp32_bound, false},
};

enum { LAYOUT_COUNT = sizeof layouts / sizeof layouts[0] };

static const char *describe(const layout *it)
{
    static char text[256];
    size_t used = (size_t)snprintf(text, sizeof text, "tp %u, dp %u", it->tp, it->dp);
    for (const char *const *setting = it->settings; *setting && used < sizeof text; setting++)
        used += (size_t)snprintf(text + used, sizeof text - used, ", %s", *setting);
    return text;
}

/* One rank takes as many micro-batches as all of them together. */
static void compare_with_one(const layout *it)
{
    const char *name = "", *one[8] = {0};
    int count = 0;
    for (const char *const *setting = it->settings; *setting; setting++)
        if (strncmp(*setting, "zero", 4) != 0)
            one[count++] = *setting;
    const double apart =
        compare_runs(open_layout(1, 1, one, it->dp, NULL),
                     open_layout(it->tp, it->dp, it->settings, 1, NULL), NULL, &name);
    if (!(apart <= it->bound))
        fail_msg("%s: %s is %.2g apart", describe(it), name, apart);
}

static void gradients_when_of_ranks_are_near_those_of_one(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++)
        if (is_full() || layouts[i].is_quick)
            compare_with_one(&layouts[i]);
}

/* The sum over the ranks of one key head: in fp32, and rounded to what is sent. Roundings average
 * over 40 elements and more; a bias has ten. */
static void gradients_when_ranks_share_key_heads_are_near_those_of_one(void **state)
{
    (void)state;
    static const layout shared[] = {
        {4, 1, {FP32, HOST_ALL}, fp32_bound, true},
        {4, 1, {BF16, "accumulate=2"}, 3 * bf16_bound, true},
    };
    for (int i = 0; i < 2; i++)
        compare_with_one(&shared[i]);
}

/* ---- beside the cpu device, and the plan ---- */

/* Its names outlive the session. */
static whole_model *keep_model(ranks_run *run, sl_group group)
{
    whole_model *model = read_model(run, group);
    for (uint32_t i = 0; i < model->count; i++)
        model->tensors[i].name = strdup(model->tensors[i].name);
    return model;
}

static void drop_model(whole_model *model)
{
    for (uint32_t i = 0; i < model->count; i++)
        free((void *)(uintptr_t)model->tensors[i].name);
    free_model(model);
}

static whole_model *train(const layout *it, bool is_gpu, double *out_loss)
{
    choose_device(is_gpu);
    ranks_run *run = open_layout(it->tp, it->dp, it->settings, 1, NULL);
    for (int step = 0; step < 3; step++)
        take_step(run);
    check_peaks(run);
    *out_loss = run->rank[0].loss;
    whole_model *model = keep_model(run, SL_GROUP_STATE2);
    close_run(run);
    return model;
}

static void steps_when_of_a_gpu_are_near_those_of_the_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++) {
        const layout *it = &layouts[i];
        const char *name = "";
        double cpu_loss, gpu_loss;
        if (!is_full() && i % (SANITIZER_SHARE > 1 ? 12 : 6) != 0)
            continue;
        whole_model *expected = train(it, false, &cpu_loss), *found = train(it, true, &gpu_loss);
        const double loss_bound = it->bound == fp32_bound ? 2e-6 : 2e-3;
        assert_true(fabs(gpu_loss / cpu_loss - 1) <= loss_bound);
        const double apart = find_distance(expected, found, &name);
        if (!(apart <= 4 * it->bound)) /* squares, of three steps */
            fail_msg("%s: %s is %.2g apart", describe(it), name, apart);
        drop_model(expected);
        drop_model(found);
    }
}

/* ---- the same bits ---- */

static whole_model *take_bits(uint32_t tp, uint32_t dp, const char *const *settings)
{
    ranks_run *run = open_layout(tp, dp, settings, 1, NULL);
    take_step(run);
    take_step(run);
    whole_model *model = keep_model(run, SL_GROUP_STATE1);
    close_run(run);
    return model;
}

static void compare_bits(uint32_t tp, uint32_t dp, const char *const *const *all, int count)
{
    whole_model *first = take_bits(tp, dp, all[0]);
    for (int i = 1; i < count; i++) {
        whole_model *other = take_bits(tp, dp, all[i]);
        if (!is_same(first, other))
            fail_msg("tp %u, dp %u: %s %s differs from %s %s", tp, dp, all[i][0], all[i][1],
                     all[0][0], all[0][1]);
        drop_model(other);
    }
    drop_model(first);
}

static void bits_when_policies_and_stages_differ_are_the_same(void **state)
{
    (void)state;
    static const char *const device[] = {"zero=0", "policy=device", BF16, "accumulate=2", NULL},
                             *const host[] = {"zero=1", "policy=host", BF16, "accumulate=2", NULL},
                             *const on_drive[] = {"zero=2", DISK_ALL, BF16, "accumulate=2", NULL},
                             *const layer[] = {"zero=1",      "policy=host",
                                               BF16,          "accumulate=2",
                                               "adam=device", "accumulation=layer",
                                               NULL},
                             *const *const all[] = {device, host, on_drive, layer};
    compare_bits(1, 2, all, 4);
    static const char *const whole[] = {"policy=device", FP32, "recompute=full", NULL},
                             *const parts[] = {"policy=host", FP32, "recompute=full",
                                               "partition-activations=true", NULL},
                             *const *const both[] = {whole, parts};
    compare_bits(2, 1, both, 2);
}

/* ---- bytes ---- */

static uint64_t count_data_bytes(const ranks_run *run)
{
    uint64_t sent = 0;
    for (uint32_t rank = 0; rank < run->size; rank++)
        sent += sl_comm_sent_bytes(run->rank[rank].others.world, SL_COMM_DATA);
    return sent;
}

/* As on the cpu device: 2 psi (N - 1) / N a rank, and one record of the norm. */
static void traffic_when_counted_is_that_of_the_formula(void **state)
{
    (void)state;
    static const char *const stages[][4] = {{"zero=0", BF16, "policy=device"},
                                            {"zero=1", BF16, "policy=device"}};
    for (int i = 0; i < 2; i++) {
        ranks_run *run = open_layout(1, 3, stages[i], 1, NULL);
        const sl_layout *it = run->rank[0].runtime->blueprint->layout;
        const uint64_t psi = it->block_count * SL_BLOCK_ELEMENTS, n = run->size;
        const uint64_t before = count_data_bytes(run);
        take_step(run);
        assert_int_equal(count_data_bytes(run) - before,
                         2 * psi * (n - 1) * sizeof(uint16_t) + n * (n - 1) * sizeof(sl_norm_sum));
        close_run(run);
    }
}

/* ---- windows ---- */

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

/* Those by which NCCL is agreed on are memory of the machine, too. */
static void windows_when_measured_are_those_that_are_planned(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=device", FP32, NULL};
    ranks_run *run = open_layout(2, 2, settings, 1, NULL);
    run_all(run, share_rank);
    const sl_ranks planned = {.layout = {.tensor = 2, .data = 2, .stages = 1}};
    sl_search search;
    assert_int_equal(sl_search_init(&run->rank[0].config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    assert_int_equal(sl_ranks_share(&planned, &search), SL_OK);
    for (uint32_t rank = 0; rank < run->size; rank++)
        assert_int_equal(window_bytes[rank], search.task.window_bytes);
    assert_int_equal(search.task.window_bytes,
                     sl_comm_plan_share_bytes(4) + 4 * sl_comm_plan_share_bytes(2));
    close_run(run);
}

/* ---- order ---- */

/* Every event in turn is not waited for: what the comm lane then races with is found. */
static void wait_when_missing_before_or_behind_an_exchange_is_found(void **state)
{
    (void)state;
    static const char *const settings[] = {"policy=device", FP32, NULL};
    bool is_found = false;
    for (uint64_t nth = 3; nth < 60 && !is_found; nth += 4) {
        const char *first = NULL;
        ranks_run *run = open_layout(2, 1, settings, 1, NULL);
        standin_ignore_edge(STANDIN_EDGE_EVENT, nth);
        run_all(run, step_rank);
        standin_ignore_edge(STANDIN_EDGE_COUNT, 0);
        close_run(run);
        is_found = standin_order_faults(&first) > 0 && strstr(first, "all_reduce") != NULL;
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

static void expect_failure(const nccl_standin *how, double timeout_s, const char *says)
{
    static const char *const settings[] = {"policy=device", FP32, NULL};
    start_machine(2, 0, how);
    ranks_run *run = open_layout(2, 1, settings, 1, NULL);
    for (uint32_t rank = 0; rank < 2; rank++)
        sl_gpu_ranks_set_timeout(run->rank[rank].others.gpus, timeout_s);
    run_all(run, fail_rank);
    bool is_said = false;
    for (uint32_t rank = 0; rank < 2; rank++) {
        if (run->rank[rank].step == 0)
            fail_msg("rank %u: %s", rank, run->rank[rank].message);
        is_said |= strstr(run->rank[rank].message, says) != NULL;
    }
    if (!is_said)
        fail_msg("\"%s\" is in neither \"%s\" nor \"%s\"", says, run->rank[0].message,
                 run->rank[1].message);
    close_run(run);
}

static void failure_when_of_an_exchange_ends_the_step_on_all_ranks(void **state)
{
    (void)state;
    expect_failure(&(nccl_standin){.fail_kernel = 12}, 20, "remote process exited");
    expect_failure(&(nccl_standin){.hang_kernel = 12}, 0.3, "did not end within");
}

static void *open_on_too_few(void *argument)
{
    run_rank *it = argument;
    (void)divide_rank(it);
    if (it->status == SL_OK)
        snprintf(it->message, sizeof it->message, "opened");
    it->status = SL_OK;
    return NULL;
}

static void ranks_when_there_are_too_few_gpus_are_refused(void **state)
{
    (void)state;
    start_machine(2, 0, &(nccl_standin){.seed = 1});
    run_hooks = NULL;
    ranks_run *run = calloc(1, sizeof *run);
    sl_comm *ends[RANKS_MAX];
    *run = (ranks_run){.size = 3, .tp = 3, .dp = 1, .factor = 1};
    assert_int_equal(sl_comm_threads_open(run->size, ends), SL_OK);
    for (uint32_t rank = 0; rank < run->size; rank++) {
        run->rank[rank] = (run_rank){.run = run, .rank = rank, .tensor = rank};
        sl_ranks_adopt(ends[rank], &run->rank[rank].others);
    }
    run_all(run, open_on_too_few);
    for (uint32_t rank = 0; rank < run->size; rank++) {
        if (!strstr(run->rank[rank].message, "rank 2 has no GPU: each rank needs one of its own"))
            fail_msg("rank %u: %s", rank, run->rank[rank].message);
        sl_ranks_close(&run->rank[rank].others);
    }
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gradients_when_of_ranks_are_near_those_of_one, begin_gpt2,
                                        end),
        cmocka_unit_test_setup_teardown(gradients_when_ranks_share_key_heads_are_near_those_of_one,
                                        begin_qwen2, end),
        cmocka_unit_test_setup_teardown(steps_when_of_a_gpu_are_near_those_of_the_cpu, begin_gpt2,
                                        end),
        cmocka_unit_test_setup_teardown(bits_when_policies_and_stages_differ_are_the_same,
                                        begin_gpt2, end),
        cmocka_unit_test_setup_teardown(traffic_when_counted_is_that_of_the_formula, begin_gpt2,
                                        end),
        cmocka_unit_test_setup_teardown(windows_when_measured_are_those_that_are_planned,
                                        begin_gpt2, end),
        cmocka_unit_test_setup_teardown(wait_when_missing_before_or_behind_an_exchange_is_found,
                                        begin_gpt2, end),
        cmocka_unit_test_setup_teardown(failure_when_of_an_exchange_ends_the_step_on_all_ranks,
                                        begin_gpt2, end),
        cmocka_unit_test_setup_teardown(ranks_when_there_are_too_few_gpus_are_refused, begin_gpt2,
                                        end),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
