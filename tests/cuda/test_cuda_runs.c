/* What could be wrong when a whole run goes to a GPU: an order of work that holds on the cpu device
 * and not between CUDA streams and threads of the host; memory of the device that is read before it
 * was written; a kernel whose result depends on where its operands lie; a state that a checkpoint
 * takes from the wrong place. Whole runs train on the stand-in of the CUDA runtime, whose streams
 * are delayed by chance, under every policy, type and order; every parameter and both moments must
 * come out with the same bits, near those of the cpu device, and the stand-in must have seen no
 * misuse. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda/cublaslt.h"
#include "cuda/include/shim_control.h"
#include "cuda/run_case.h"
#include "cuda/standin.h"
#include "sanitizer_share.h"
#include "sluice/session.h"

enum { STREAM_DEPTH_MOST = 3 * (128 + 32) }; /* src/device/cuda.c; 32: more than a call makes */

/* ---- every placement, the same bits ---- */

typedef struct placement {
    const char *name;
    const char *text[8];
    sl_policy policy; /* that must have run */
} placement;

#define DISK "disk-dir=."

static const placement placements[] = {
    {"device", {"policy=device"}, SL_POLICY_DEVICE},
    {"host", {"policy=host"}, SL_POLICY_HOST},
    {"host, little room, Adam on the device",
     {"policy=host", "adam=device", "prefetch=1"},
     SL_POLICY_HOST},
    {"static, Adam on both sides",
     {"policy=static", "offload-optimizer=0.5", "offload-grads=0.5"},
     SL_POLICY_STATIC},
    {"static, all kinds",
     {"policy=static", "offload-params=0.5", "offload-grads=1", "offload-optimizer=0.7",
      "offload-activations=0.5"},
     SL_POLICY_STATIC},
    {"static, Adam on the host",
     {"policy=static", "offload-optimizer=0.5", "adam=host"},
     SL_POLICY_STATIC},
    {"static, three tiers",
     {"policy=static", "offload-params=0.3", "nvme-params=0.3", "nvme-grads=0.5",
      "nvme-optimizer=0.5", "nvme-activations=0.4", DISK},
     SL_POLICY_STATIC},
    {"nvme", {"policy=nvme", DISK}, SL_POLICY_NVME},
    {"nvme, everything",
     {"policy=nvme", "nvme-params=1", "nvme-grads=1", "adam=device", DISK},
     SL_POLICY_NVME},
};

enum { PLACEMENT_COUNT = sizeof placements / sizeof placements[0] };

/* Behind what is fixed for all placements of a comparison. */
static run_settings join(const run_settings *base, const char *const *more)
{
    run_settings all = *base;
    int count = 0;
    while (all.text[count])
        count++;
    for (; *more && count < RUN_SETTING_MAX - 1; more++)
        all.text[count++] = *more;
    return all;
}

static run_result train_well(const char *name, const run_settings *settings)
{
    const char *fault;
    run_result result = run_train(settings);
    if (result.status != SL_OK)
        fail_msg("%s: %s", name, result.message);
    if (standin_faults(&fault) > 0)
        fail_msg("%s: misuse of CUDA: %s", name, fault);
    if (sl_shim_unloaded_count() > 0)
        fail_msg("%s: kernels were launched that were not loaded beforehand", name);
    if (standin_late_loads() > 0)
        fail_msg("%s: a library loaded %llu times behind work that had been issued", name,
                 (unsigned long long)standin_late_loads());
    if (standin_deepest_stream() > STREAM_DEPTH_MOST)
        fail_msg("%s: a stream was given %llu entries that had not run", name,
                 (unsigned long long)standin_deepest_stream());
    /* A home on the host or on disk may never be touched: what is used may visit elsewhere. */
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        assert_true(result.end.measured_peak_bytes[tier] <= result.end.planned_peak_bytes[tier]);
    if (result.end.run_steps > 0)
        assert_int_equal(result.end.planned_peak_bytes[SL_TIER_DEVICE],
                         result.end.measured_peak_bytes[SL_TIER_DEVICE]);
    return result;
}

/* The first placement with every `stride`-th of the others; all of them in the full counts, half
 * as many under sanitizers. */
static void compare_placements(const char *name, const run_settings *base, int stride)
{
    run_result first = {0};
    stride = (int)scratch_count((uint64_t)stride * (SANITIZER_SHARE > 1 ? 2 : 1), 1);
    for (int i = 0; i < PLACEMENT_COUNT; i = i == 0 ? stride : i + stride) {
        char label[256];
        run_settings settings = join(base, placements[i].text);
        snprintf(label, sizeof label, "%s, %s", name, placements[i].name);
        run_result result = train_well(label, &settings);
        assert_int_equal(result.choice.placement.policy, placements[i].policy);
        if (i == 0)
            first = result;
        else if (!run_same(&first, &result))
            fail_msg("%s: not the bits of %s (loss %.17g, not %.17g)", label, placements[0].name,
                     result.last_loss, first.last_loss);
    }
}

static void policies_when_in_each_type_then_give_the_same_bits(void **state)
{
    (void)state;
    compare_placements("bf16", &RUN_SETTINGS("device=cuda", "precision=bf16", "steps=3"), 1);
    compare_placements("fp32", &RUN_SETTINGS("device=cuda", "precision=fp32", "steps=2"), 4);
    compare_placements("fp16", &RUN_SETTINGS("device=cuda", "precision=fp16", "steps=2"), 5);
    compare_placements(
        "muon", &RUN_SETTINGS("device=cuda", "precision=bf16", "optimizer=muon", "steps=2"), 5);
}

/* Recomputation and the order of accumulation change which commands there are, not the numbers. */
static void orders_when_they_differ_then_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const ways[][4] = {
        {"recompute=none", "accumulation=micro", "policy=device"},
        {"recompute=selective", "accumulation=micro", "policy=host"},
        {"recompute=full", "accumulation=layer", "policy=host"},
        {"recompute=none", "accumulation=layer", "policy=static"},
        {"recompute=full", "accumulation=micro", "policy=device"},
    };
    run_settings base =
        RUN_SETTINGS("device=cuda", "precision=bf16", "steps=2", "accumulate=2", "micro-batch=1");
    run_result first = {0};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        run_settings settings = join(&base, ways[i]);
        run_result result = train_well(ways[i][0], &settings);
        if (i == 0)
            first = result;
        else if (!run_same(&first, &result))
            fail_msg("%s, %s: not the bits of the first order", ways[i][0], ways[i][1]);
    }
}

/* Each chunk is updated as soon as its gradient is complete. */
static void updates_when_early_then_give_the_same_bits(void **state)
{
    (void)state;
    run_settings base = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=2", "clip=0");
    compare_placements("early updates", &base, 3);
}

static void auto_when_the_budget_is_small_then_picks_a_plan_with_the_same_bits(void **state)
{
    (void)state;
    run_settings base = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=3");
    const char *const whole[] = {"policy=device", NULL};
    const char *const tight[] = {"policy=auto", "device-memory=700K", NULL};
    run_settings a = join(&base, whole), b = join(&base, tight);
    run_result on_device = train_well("device", &a), chosen = train_well("auto", &b);
    assert_true(run_same(&on_device, &chosen));
    assert_int_not_equal(chosen.choice.placement.policy, SL_POLICY_DEVICE);
    assert_true(chosen.end.planned_peak_bytes[SL_TIER_DEVICE] <= 700 << 10);
}

/* Of the pieces of host memory, CUDA locks the first alone. */
static void memory_when_locked_in_part_then_gives_the_same_bits(void **state)
{
    (void)state;
    run_settings base = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=2", "accumulate=2");
    const char *const ways[][6] = {{"policy=host"}, {"policy=nvme", "nvme-params=1", DISK}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        standin_machine machine = standin_default();
        run_settings settings = join(&base, ways[i]);
        standin_reset(&machine);
        run_result locked = train_well("locked", &settings);
        machine.lockable_bytes = 200000;
        standin_reset(&machine);
        run_result in_part = train_well("locked in part", &settings);
        assert_true(run_same(&locked, &in_part));
    }
}

/* Words in memory are another way to wait, no other numbers; products of another kernel differ by
 * the order of sums. */
static void options_of_cuda_when_given_then_change_what_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        bool has_same_bits;
    } cases[] = {
        {"cuda-wait-value=off", true}, {"cuda-epilogue=off", false}, {"cuda-products=own", false}};
    run_settings base = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=2", "policy=host");
    run_result plain = train_well("as it is", &base);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const more[] = {cases[i].option, NULL};
        run_settings settings = join(&base, more);
        standin_machine machine = standin_default();
        standin_reset(&machine);
        standin_blas_reset();
        run_result result = train_well(cases[i].option, &settings);
        assert_int_equal(run_same(&plain, &result), cases[i].has_same_bits);
        assert_true(fabs(result.last_loss - plain.last_loss) < 1e-2 * plain.last_loss);
        assert_int_equal(standin_blas_calls("cublasLtMatmul") == 0, i == 2);
        assert_int_equal(standin_calls("cuStreamWaitValue32") == 0, i == 0);
    }
}

/* ---- what a profiler shows ---- */

enum { WATCHED_STEPS = 2 };

static bool is_of_device(const sl_command *command)
{
    return command->lane == SL_LANE_COMPUTE || command->lane == SL_LANE_H2D ||
           command->lane == SL_LANE_D2H;
}

/* How often a plan's steps issue a command of that name to the device; NULL: any. */
static uint64_t count_named(const sl_blueprint *blueprint, const char *name)
{
    const sl_plan *plan = blueprint->plans[0];
    char text[SL_COMMAND_NAME_BYTES];
    uint64_t count = 0;
    for (uint32_t i = 0; i < plan->prologue_count; i++) {
        sl_command_describe(blueprint->programs[0], &plan->prologue[i], text);
        count += is_of_device(&plan->prologue[i]) && (!name || strcmp(text, name) == 0);
    }
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        for (uint32_t i = section->first; i < section->first + section->count; i++) {
            sl_command_describe(blueprint->programs[0], &plan->body[i], text);
            if (is_of_device(&plan->body[i]) && (!name || strcmp(text, name) == 0))
                count += (uint64_t)section->repeat * WATCHED_STEPS;
        }
    }
    return count;
}

static void check_ranges(const sl_blueprint *blueprint)
{
    const sl_plan *plan = blueprint->plans[0];
    char name[SL_COMMAND_NAME_BYTES];
    for (uint32_t i = 0; i < plan->body_count; i++) {
        sl_command_describe(blueprint->programs[0], &plan->body[i], name);
        uint64_t expected = count_named(blueprint, name), found = standin_range_count(name);
        if (found != expected)
            fail_msg("%s: %d ranges, not %d", name, (int)found, (int)expected);
    }
    assert_int_equal(standin_range_count("step"), WATCHED_STEPS);
    assert_int_equal(standin_range_count(NULL), count_named(blueprint, NULL) + WATCHED_STEPS);
    assert_int_equal(standin_range_depth(), 0);
}

/* Loops of a step included, each op and copy that goes to the GPU; nothing where nobody looks. */
static void work_when_a_profiler_watches_then_has_the_names_of_the_plan(void **state)
{
    (void)state;
    static const volatile sig_atomic_t never = 0;
    const run_settings settings = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=2",
                                               "policy=host", "micro-batch=1", "accumulate=6");
    for (int is_watched = 0; is_watched <= 1; is_watched++) {
        sl_config config;
        sl_trainer trainer = {0};
        sl_blueprint *blueprint = NULL;
        sl_refusal refusal;
        run_result result = {0};
        const char *fault = "";
        standin_attach_profiler(is_watched);
        assert_int_equal(sl_config_init(&config), SL_OK);
        assert_int_equal(run_configure(&settings, &config), SL_OK);
        assert_int_equal(sl_preparation_run(&config, SL_CONFIG_TRAIN, &trainer), SL_OK);
        assert_int_equal(sl_search_find(&trainer.search, &blueprint, &refusal), SL_OK);
        assert_int_equal(sl_trainer_open(&trainer, blueprint), SL_OK);
        assert_int_equal(sl_loop_run(&trainer, &never, &result.end), SL_OK);
        if (is_watched)
            check_ranges(trainer.runtime->blueprint);
        else
            assert_int_equal(standin_range_count(NULL), 0);
        (void)sl_trainer_close(&trainer);
        sl_config_clear(&config);
        if (standin_faults(&fault) > 0)
            fail_msg("misuse: %s", fault);
    }
    standin_attach_profiler(false);
}

/* ---- what a library loads ---- */

/* The device's memory is planned to the last bytes but for some: a library's code goes there before
 * the first step, or the run is refused. */
static void code_when_there_is_no_room_for_it_then_the_run_is_refused_before_it_starts(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    run_settings settings = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=2", "policy=host",
                                         "device-memory=40M");
    standin_machine machine = standin_default();
    machine.context_bytes = 0;
    machine.device_bytes = 64 * MIB;
    machine.code_bytes = MIB;
    standin_reset(&machine);
    (void)train_well("with room", &settings);
    machine.code_bytes = 16 * MIB;
    standin_reset(&machine);
    run_result result = run_train(&settings);
    assert_int_equal(result.status, SL_ERROR_SYSTEM);
    if (!strstr(result.message, "preparing ") || !strstr(result.message, "--device-memory"))
        fail_msg("\"%s\"", result.message);
    assert_int_equal(result.end.run_steps, 0);
    assert_int_equal(standin_late_loads(), 0);
}

/* Of twelve layers the host holds little and the device less, all else is read from disk chunk by
 * chunk: when an op first runs, copies wait for the thread that reads, and it asks CUDA. */
static void code_when_most_comes_from_disk_then_is_loaded_before_anything_waits(void **state)
{
    (void)state;
    run_settings settings = RUN_SETTINGS(
        "device=cuda", "precision=bf16", "steps=1", "layers=12", "vocab=257", "policy=nvme",
        "nvme-params=1", "nvme-grads=1", "host-memory=2300K", "device-memory=600K", DISK);
    (void)train_well("most on disk", &settings);
}

static void library_when_it_is_missing_then_the_run_is_refused_and_says_what_would_do(void **state)
{
    (void)state;
    run_settings base = RUN_SETTINGS("device=cuda", "precision=bf16", "steps=1", "policy=device");
    const char *const own[] = {"cuda-products=own", NULL};
    run_settings asked = join(&base, own);
    standin_blas_hide(true);
    run_result refused = run_train(&base), result = run_train(&asked);
    standin_blas_hide(false);
    assert_int_equal(refused.status, SL_ERROR_SYSTEM);
    assert_non_null(strstr(refused.message, "--cuda-products own"));
    assert_int_equal(result.status, SL_OK);
}

/* ---- against the cpu device ---- */

/* Both sum in fp32, in another order. In fp32 a step's loss differs by some units of 2^-24 of its
 * size, and the update of so many steps by the learning rate times such a part; half precision
 * stores activations rounded to 2^-9 (bf16) and 2^-12 (fp16), where another order moves single
 * elements by one unit. The mean over 32 rows and more steps is closer than one element. */
static void losses_when_trained_then_follow_the_cpu_device(void **state)
{
    (void)state;
    static const struct {
        const char *precision;
        double tolerance;
    } cases[] = {{"precision=fp32", 1e-5}, {"precision=bf16", 1e-2}, {"precision=fp16", 2e-3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_settings base = RUN_SETTINGS("steps=4", "policy=host", cases[i].precision);
        const char *const cuda[] = {"device=cuda", NULL}, *const cpu[] = {"device=cpu", NULL};
        run_settings a = join(&base, cuda), b = join(&base, cpu);
        run_result here = train_well("cuda", &a), there = train_well("cpu", &b);
        double error = fabs(here.last_loss - there.last_loss);
        print_message("%s: loss %.7f, on the cpu device %.7f\n", cases[i].precision, here.last_loss,
                      there.last_loss);
        assert_true(here.last_loss < here.first_loss - 0.05); /* it learns at all */
        assert_true(error <= cases[i].tolerance * there.last_loss);
    }
}

/* ---- checkpoints ---- */

/* What was saved on one device is there on the other, to the bit, and goes on from it. */
static void cross(const char *from, const char *to, const char *save)
{
    run_settings base = RUN_SETTINGS("precision=bf16", save, "save-every=1");
    const char *const first[] = {from, "steps=2", "policy=host", NULL};
    const char *const look[] = {to, "steps=2", "resume=true", "policy=device", NULL};
    const char *const more[] = {to, "steps=4", "resume=true", "policy=host", NULL};
    run_settings a = join(&base, first), b = join(&base, look), c = join(&base, more);
    run_result saved = train_well(from, &a), loaded = train_well(to, &b), gone_on = {0};
    assert_memory_equal(&saved.digest, &loaded.digest, sizeof saved.digest);
    gone_on = train_well(to, &c);
    assert_int_equal(gone_on.end.step, 4);
    assert_true(gone_on.last_loss < saved.first_loss);
}

static void checkpoints_when_resumed_on_the_other_device_then_go_on_from_the_same_bits(void **state)
{
    (void)state;
    cross("device=cuda", "device=cpu", "save=from-cuda");
    cross("device=cpu", "device=cuda", "save=from-cpu");
}

/* ---- what "auto" is ---- */

static void device_when_auto_then_is_the_gpu_and_computes_in_bf16(void **state)
{
    (void)state;
    sl_config config;
    assert_int_equal(sl_config_init(&config), SL_OK);
    assert_int_equal(run_configure(&RUN_SETTINGS("steps=1"), &config), SL_OK);
    assert_string_equal(config.device, "cuda:0");
    assert_int_equal(config.precision, SL_CONFIG_BF16);
    sl_config_clear(&config);
    assert_int_equal(sl_config_init(&config), SL_OK);
    assert_int_equal(run_configure(&RUN_SETTINGS("device=cuda:1"), &config), SL_ERROR_SYSTEM);
    sl_config_clear(&config);
}

static void device_when_there_is_none_then_auto_is_the_cpu_and_a_plan_needs_memory(void **state)
{
    (void)state;
    standin_machine none = standin_default();
    none.device_count = 0;
    standin_reset(&none);
    sl_config config;
    sl_search search;
    sl_model_shape shape;
    assert_int_equal(sl_config_init(&config), SL_OK);
    assert_int_equal(run_configure(&RUN_SETTINGS("steps=1"), &config), SL_OK);
    assert_string_equal(config.device, "cpu");
    assert_int_equal(config.precision, SL_CONFIG_FP32);
    assert_int_equal(sl_config_shape(&config, NULL, 300, &shape), SL_OK);
    assert_int_equal(sl_config_fit_model(&config, &shape), SL_OK);
    assert_int_equal(sl_config_assign(&config, SL_CONFIG_PLAN, "device=cuda"), SL_OK);
    assert_int_equal(sl_config_check(&config, SL_CONFIG_PLAN), SL_OK);
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "--device-memory"));
    config.device_memory = 64 << 20;
    assert_int_equal(sl_search_init(&config, SL_WORK_TRAIN, &shape, &search), SL_OK);
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    assert_int_equal(sl_search_find(&search, &blueprint, &refusal), SL_OK);
    assert_int_equal(blueprint->budget_bytes[SL_TIER_DEVICE], 64 << 20);
    sl_blueprint_close(blueprint);
    sl_config_clear(&config);
}

/* ---- views ---- */

static sl_status give_rows(void *user, uint64_t first_row, uint32_t row_count, uint32_t token_count,
                           int32_t *out_tokens)
{
    (void)user;
    for (uint32_t i = 0; i < row_count * token_count; i++)
        out_tokens[i] = (int32_t)((first_row + i) % 257);
    return SL_OK;
}

static sl_session *open_session(const char *policy)
{
    const char *const settings[] = {
        "device", "cuda",          "policy", policy,  "precision",   "fp32",    "layers",
        "1",      "width",         "32",     "heads", "2",           "context", "16",
        "vocab",  "257",           "steps",  "2",     "micro-batch", "2",       "threads",
        "1",      "device-memory", "64M",    NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    assert_int_equal(sl_options_open(&options), SL_OK);
    assert_int_equal(sl_options_set_all(options, settings), SL_OK);
    assert_int_equal(sl_options_set(options, "host-memory", "64M"), SL_OK);
    sl_options_set_rows(options, give_rows, NULL);
    if (sl_session_open(options, &session) != SL_OK || sl_session_step(session, NULL) != SL_OK)
        fail_msg("%s", sl_status_message());
    sl_options_close(options);
    return session;
}

/* The processor reads the host's memory, and not the GPU's. */
static void views_when_on_a_gpu_then_are_those_of_the_host_alone(void **state)
{
    (void)state;
    float copy[32];
    sl_tensor_view view = {.size = sizeof view};
    sl_session *session = open_session("device");
    assert_int_equal(sl_session_view(session, "ln_f.weight", SL_STATE_MOMENT1, &view),
                     SL_ERROR_USAGE);
    assert_string_equal(sl_status_message(), "ln_f.weight is in the memory of the device, which "
                                             "the processor cannot read: read a copy");
    assert_int_equal(sl_session_close(session), SL_OK);
    session = open_session("host");
    assert_int_equal(sl_session_view(session, "ln_f.weight", SL_STATE_MOMENT1, &view), SL_OK);
    assert_int_equal(sl_session_read(session, "ln_f.weight", SL_STATE_MOMENT1, copy, 32), SL_OK);
    assert_memory_equal(view.elements, copy, sizeof copy);
    assert_int_equal(sl_session_close(session), SL_OK);
}

/* ---- budgets ---- */

static void draw(const run_settings *settings, sl_search *search, sl_blueprint **out_blueprint,
                 sl_refusal *refusal, sl_status expected)
{
    static sl_config config; /* a search borrows its directories */
    sl_model_shape shape;
    assert_int_equal(sl_config_init(&config), SL_OK);
    if (run_configure(settings, &config) != SL_OK ||
        sl_config_shape(&config, NULL, 300, &shape) != SL_OK ||
        sl_config_fit_model(&config, &shape) != SL_OK ||
        sl_search_init(&config, SL_WORK_TRAIN, &shape, search) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(sl_search_find(search, out_blueprint, refusal), expected);
    sl_config_clear(&config);
}

/* Memory of its own: what one takes, the other keeps. */
static void budgets_when_unset_then_device_and_host_are_counted_apart(void **state)
{
    (void)state;
    sl_search search;
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    standin_machine machine = standin_default();
    machine.device_bytes = UINT64_C(1) << 30;
    machine.context_bytes = UINT64_C(100) << 20;
    standin_reset(&machine);
    draw(&RUN_SETTINGS("device=cuda", "policy=host"), &search, &blueprint, &refusal, SL_OK);
    uint64_t free_bytes = machine.device_bytes - machine.context_bytes;
    assert_int_equal(search.task.device_info.free_bytes, free_bytes);
    assert_int_equal(blueprint->budget_bytes[SL_TIER_DEVICE], free_bytes - free_bytes / 8);
    assert_int_equal(blueprint->budget_bytes[SL_TIER_HOST], search.task.shared_bytes);
    assert_false(blueprint->machine.shares_cores);
    sl_blueprint_close(blueprint);
    draw(&RUN_SETTINGS("device=cuda", "policy=host", "host-memory=100M"), &search, &blueprint,
         &refusal, SL_OK);
    assert_int_equal(blueprint->budget_bytes[SL_TIER_DEVICE], free_bytes - free_bytes / 8);
    assert_int_equal(blueprint->budget_bytes[SL_TIER_HOST], 100 << 20);
    sl_blueprint_close(blueprint);
}

/* 50304 logits a row: 32 Mi of them on a processor, 1 GiB on a GPU. */
static void head_when_on_a_gpu_goes_over_larger_groups(void **state)
{
    (void)state;
    static const struct {
        const char *device, *precision;
        uint64_t rows;
    } cases[] = {{"device=cpu", "precision=bf16", 640},
                 {"device=cuda", "precision=bf16", 10624},
                 {"device=cuda", "precision=fp32", 5248}};
    standin_machine machine = standin_default();
    machine.device_bytes = UINT64_C(4) << 30;
    standin_reset(&machine);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_search search;
        sl_blueprint *blueprint = NULL;
        sl_refusal refusal;
        uint64_t rows = 0;
        draw(&RUN_SETTINGS(cases[i].device, cases[i].precision, "policy=device", "vocab=50257",
                           "context=1024", "micro-batch=16", "chunk-size=auto"),
             &search, &blueprint, &refusal, SL_OK);
        const sl_program *step = blueprint->programs[0];
        for (uint32_t o = 0; o < step->op_count && rows == 0; o++)
            rows = step->ops[o].kind == SL_OP_HEAD_LOGITS ? step->ops[o].attrs.row_count : 0;
        assert_int_equal(rows, cases[i].rows);
        sl_blueprint_close(blueprint);
    }
}

/* The whole host may be taken, but not more of the device than it has. */
static void suggestion_when_the_device_is_small_then_is_the_host_or_beyond_the_machine(void **state)
{
    (void)state;
    sl_search search;
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    standin_machine machine = standin_default();
    machine.device_bytes = 32 << 20;
    machine.context_bytes = 0;
    standin_reset(&machine);
    draw(&RUN_SETTINGS("device=cuda", "policy=device", "width=256", "layers=4", "chunk-size=auto"),
         &search, &blueprint, &refusal, SL_ERROR_FIT);
    bool has_host = false;
    for (uint32_t i = 0; i < refusal.suggestion_count; i++) {
        has_host = has_host || strstr(refusal.suggestions[i].options, "--policy host");
        assert_false(refusal.suggestions[i].is_beyond_machine);
    }
    assert_true(has_host);
    draw(&RUN_SETTINGS("device=cuda", "policy=host", "width=256", "micro-batch=1", "context=4096",
                       "layers=4", "recompute=full", "chunk-size=auto"),
         &search, &blueprint, &refusal, SL_ERROR_FIT);
    assert_non_null(strstr(refusal.suggestions[0].options, "--device-memory"));
    assert_true(refusal.suggestions[0].is_beyond_machine);
}

/* The device's share of the updates of what lives on the host. */
static double find_device_share(const sl_policy_options *chosen)
{
    if (chosen->update == SL_UPDATE_SHARED)
        return 1 - chosen->host_updates;
    return chosen->update == SL_UPDATE_DEVICE;
}

/* One worker updates at 25 GB/s where the link carries 55 each way; many leave it behind. */
static void updates_when_the_host_is_slow_then_run_on_the_device_unless_told_otherwise(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"threads=1", "adam=auto"}, {"threads=64", "adam=auto"}, {"threads=1", "adam=host"}};
    double share[3];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_search search;
        sl_blueprint *blueprint = NULL;
        sl_refusal refusal;
        draw(&RUN_SETTINGS("device=cuda", "policy=host", "width=768", "heads=12", "layers=6",
                           "chunk-size=auto", "precision=bf16", "device-memory=300M", cases[i][0],
                           cases[i][1]),
             &search, &blueprint, &refusal, SL_OK);
        share[i] = find_device_share(&blueprint->choice.placement);
        sl_blueprint_close(blueprint);
    }
    if (!(share[0] > 0.5 && share[1] < share[0] && share[2] == 0))
        fail_msg("the device updates %g beside one worker, %g beside many", share[0], share[1]);
}

/* ---- set-up ---- */

static int start_over(void **state)
{
    (void)state;
    standin_machine machine = standin_default();
    machine.seed = scratch_seed("streams", 1);
    standin_reset(&machine);
    return 0;
}

int main(void)
{
#define AFRESH(test) cmocka_unit_test_setup(test, start_over)
    const struct CMUnitTest tests[] = {
        AFRESH(policies_when_in_each_type_then_give_the_same_bits),
        AFRESH(orders_when_they_differ_then_give_the_same_bits),
        AFRESH(updates_when_early_then_give_the_same_bits),
        AFRESH(auto_when_the_budget_is_small_then_picks_a_plan_with_the_same_bits),
        AFRESH(memory_when_locked_in_part_then_gives_the_same_bits),
        AFRESH(options_of_cuda_when_given_then_change_what_they_say),
        AFRESH(work_when_a_profiler_watches_then_has_the_names_of_the_plan),
        AFRESH(code_when_there_is_no_room_for_it_then_the_run_is_refused_before_it_starts),
        AFRESH(code_when_most_comes_from_disk_then_is_loaded_before_anything_waits),
        AFRESH(library_when_it_is_missing_then_the_run_is_refused_and_says_what_would_do),
        AFRESH(losses_when_trained_then_follow_the_cpu_device),
        AFRESH(checkpoints_when_resumed_on_the_other_device_then_go_on_from_the_same_bits),
        AFRESH(views_when_on_a_gpu_then_are_those_of_the_host_alone),
        AFRESH(budgets_when_unset_then_device_and_host_are_counted_apart),
        AFRESH(head_when_on_a_gpu_goes_over_larger_groups),
        AFRESH(suggestion_when_the_device_is_small_then_is_the_host_or_beyond_the_machine),
        AFRESH(updates_when_the_host_is_slow_then_run_on_the_device_unless_told_otherwise),
        AFRESH(device_when_auto_then_is_the_gpu_and_computes_in_bf16),
        AFRESH(device_when_there_is_none_then_auto_is_the_cpu_and_a_plan_needs_memory),
    };
    return cmocka_run_group_tests_name("runs", tests, enter_with_text, leave_scratch);
}
