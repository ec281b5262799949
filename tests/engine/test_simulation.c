/* What could be wrong in the order of things, and would show in one run of a million: a wait that
 * is missing, or refers to the wrong issue; memory used again too early; a failure that is
 * overtaken or lost; a wait for what never comes; a limit that a stopped process exceeds without a
 * fault of the disk.
 *
 * The real engine and the real store run real plans of tiny models on a simulated device
 * (simulation.h) and disk (store_double.h): in one thread, in virtual time, with random latencies,
 * stops and, for half of the seeds, one fault. Checked after each event: what simulation.h says. At
 * the end: the bits are those of the plainest run on the cpu device, or an error says what failed,
 * which only a seed with a fault may have; everything is closed; virtual time has ended.
 *
 * 1,000 seeds, 50,000 full; SL_TEST_SEED=N runs seed N alone, as it ran before. Plans with a wait
 * left out must be found within 1,000 seeds. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include "offload/store_double.h"
#include "sanitizer_share.h"
#include "simulation.h"
#include "training_run.h"

enum {
    STEPS = 2,
    PLANS = 24,
    NUMBERS_COUNT = 6,
    PLANTED = 8,
    PLANTED_SEEDS = 1000,
    DISK_REQUESTS = 60, /* faults hit one of the first so many */
    KERNEL_CALLS = 300,
    DEVICE_CALLS = 3000,
    WORDS_BYTES = 1024
};

/* What defines the results. */
typedef struct numbers {
    sl_type type;
    uint32_t micro_batches;
    float clip;
} numbers;

static const numbers all_numbers[NUMBERS_COUNT] = {
    {SL_TYPE_FP32, 1, 0.25f}, {SL_TYPE_BF16, 4, 0.25f}, {SL_TYPE_FP32, 3, 0.0f},
    {SL_TYPE_BF16, 1, 0.0f},  {SL_TYPE_FP16, 2, 0.25f}, {SL_TYPE_FP32, 5, 0.25f}};

typedef struct sim_case {
    plan_case c;
    sl_plan *plan;
    float clip;
    sl_hash_value expected;
} sim_case;

static sim_case cases[PLANS];
static const sl_engine_target one_worker = {.worker_count = 1};

static void need_ok(sl_status status, const char *what)
{
    if (status == SL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, sl_status_message());
    abort();
}

/* ---- plans ---- */

/* A few chunks, of which the largest tensor fills two blocks. */
static void fix_model(plan_case *c, const numbers *it, uint64_t seed)
{
    c->shape = (sl_model_shape){.layers = 2, .width = 32, .heads = 2, .context = 16, .vocab = 60};
    c->chunk_elements = SL_BLOCK_ELEMENTS * (2 + seed % 7);
    sl_type grad_type = c->emit.grad_type;
    c->emit = (sl_model_options){
        .batch = 2, .seq = 16, .tp_size = 1, .mode = SL_MODEL_LOSS, .type = it->type};
    c->step.micro_batch_count = it->micro_batches;
    c->step.update_early = c->step.update_early && it->clip == 0.0f;
    bool may_round = it->micro_batches == 1 || c->step.accumulation == SL_ACCUMULATE_LAYER;
    c->emit.grad_type = may_round && grad_type != SL_TYPE_FP32 ? it->type : SL_TYPE_FP32;
    c->request.workspace = sl_engine_workspace_bytes;
    c->request.workspace_context = &one_worker;
}

static sl_status run_steps(training_run *run, sl_hash_value *out_digest)
{
    sl_hash_stream *hash = NULL;
    SL_TRY(sl_hash_open(&hash));
    sl_status status = training_run_steps(run, STEPS, hash);
    if (status == SL_OK)
        status = training_run_hash_states(run, hash);
    *out_digest = sl_hash_digest(hash);
    sl_hash_close(hash);
    return status;
}

/* Everything on the device, on the cpu device of the library. */
static sl_hash_value train_plainly(const numbers *it)
{
    plan_case c = {.step = {.accumulation = SL_ACCUMULATE_MICRO, .recompute = SL_RECOMPUTE_NONE},
                   .policy = {.policy = SL_POLICY_DEVICE}};
    sl_shortage shortage;
    sl_plan *plan = NULL;
    training_run run;
    sl_hash_value digest;
    fix_model(&c, it, 0);
    need_ok(plan_case_build(&c), "a plain plan");
    need_ok(sl_plan_build(&c.request, &plan, &shortage), "a plain plan");
    need_ok(training_run_open(&c, plan, 1, false, &run), "a plain run");
    run.clip = it->clip;
    need_ok(run_steps(&run, &digest), "a plain run");
    training_run_close(&run);
    plan_case_close(&c);
    return digest;
}

static int open_cases(void **state)
{
    (void)state;
    sl_hash_value expected[NUMBERS_COUNT];
    for (int i = 0; i < NUMBERS_COUNT; i++)
        expected[i] = train_plainly(&all_numbers[i]);
    uint32_t with_disk = 0, with_loops = 0;
    for (int i = 0; i < PLANS; i++) {
        sim_case *it = &cases[i];
        uint64_t seed = 4100 + (uint64_t)i;
        it->c = i % 4 == 0 ? plan_case_choose(seed) : tiered_case_choose(seed);
        fix_model(&it->c, &all_numbers[i % NUMBERS_COUNT], seed);
        it->clip = all_numbers[i % NUMBERS_COUNT].clip;
        it->expected = expected[i % NUMBERS_COUNT];
        need_ok(plan_case_build(&it->c), "a plan");
        need_ok(plan_case_plan_tightly(&it->c, seed, &it->plan), "a plan");
        need_ok(sl_plan_verify(&it->c.request, it->plan), "a plan");
        with_disk += it->plan->moved_bytes[SL_LANE_READ] > 0;
        with_loops += it->plan->section_count > 1;
    }
    print_message("%d plans, %u read from disk, %u have loops\n", PLANS, with_disk, with_loops);
    return with_disk > 0 && with_loops > 0 ? 0 : -1;
}

static int close_cases(void **state)
{
    (void)state;
    for (int i = 0; i < PLANS; i++) {
        sl_plan_close(cases[i].plan);
        plan_case_close(&cases[i].c);
    }
    return 0;
}

/* ---- faults ---- */

static struct {
    sl_kernel_table table;
    sl_kernel run; /* of the op that fails */
    uint64_t calls, failing_call;
} kernels;

static sl_status run_or_fail(const sl_kernel_call *call)
{
    if (++kernels.calls == kernels.failing_call)
        SL_FAIL(SL_ERROR_NONFINITE, "the simulation lets a kernel fail");
    return kernels.run(call);
}

/* One op kind fails at one of its calls. */
static void arm_kernel(uint64_t *draw)
{
    sl_op_kind kind;
    do
        kind = (sl_op_kind)scratch_below(draw, SL_OP_COUNT);
    while (!kernels.table.row[kind].run);
    kernels.run = kernels.table.row[kind].run;
    kernels.table.row[kind].run = run_or_fail;
    kernels.failing_call = 1 + scratch_below(draw, KERNEL_CALLS) / 10;
}

static store_double_plan draw_disk_fault(uint64_t seed, uint64_t *draw)
{
    static const int errors[] = {EIO, ENOSPC, EAGAIN, EINTR, EINVAL};
    static const double_fault kinds[] = {DOUBLE_ERRNO,  DOUBLE_ERRNO, DOUBLE_SHORT, DOUBLE_HALF,
                                         DOUBLE_FLIP,   DOUBLE_DROP,  DOUBLE_STALE, DOUBLE_SWAP,
                                         DOUBLE_REFUSE, DOUBLE_LOST,  DOUBLE_STUCK};
    return (store_double_plan){.seed = seed,
                               .reorders = 1,
                               .kind = kinds[scratch_below(draw, sizeof kinds / sizeof *kinds)],
                               .lanes = (int)scratch_below(draw, 3),
                               .first = 1 + scratch_below(draw, DISK_REQUESTS),
                               .all_after = scratch_below(draw, 4) == 0,
                               .error = errors[scratch_below(draw, 5)],
                               .keep_bytes = 512 * (uint32_t)scratch_below(draw, 20)};
}

/* Half of the seeds have none. */
static void arm_faults(uint64_t seed, bool may_fail, sim_faults *out_faults)
{
    uint64_t draw = seed * 2654435761u + 99;
    uint64_t kind = may_fail ? scratch_below(&draw, 8) : 0;
    store_double_plan disk = {.seed = seed, .reorders = 1};
    kernels.table = *sl_kernels_cpu();
    kernels.calls = kernels.failing_call = 0;
    *out_faults = (sim_faults){0};
    if (kind == 4 || kind == 5)
        disk = draw_disk_fault(seed, &draw);
    else if (kind == 6)
        arm_kernel(&draw);
    else if (kind == 7 && scratch_below(&draw, 2))
        out_faults->refused_call = 1 + scratch_below(&draw, DEVICE_CALLS);
    else if (kind == 7)
        out_faults->failing_copy = 1 + scratch_below(&draw, DEVICE_CALLS / 10);
    disk.delay_us = 1u << scratch_below(&draw, 20);
    store_double_arm(disk);
}

static bool was_any_fault_hit(const sim_faults *faults)
{
    return store_double_hits > 0 ||
           (kernels.failing_call > 0 && kernels.calls >= kernels.failing_call) ||
           (faults->refused_call > 0 && simulation.call_count >= faults->refused_call) ||
           (faults->failing_copy > 0 && simulation.copy_count >= faults->failing_copy);
}

/* ---- one seed ---- */

static struct {
    uint64_t runs, failures_said, events, commands;
} seen;

static uint64_t budget_of(const sl_plan *plan)
{
    enum { ROUNDED_UP = 8192 };
    return plan->peak_bytes[SL_TIER_DEVICE] + plan->peak_bytes[SL_TIER_HOST] + ROUNDED_UP;
}

static sl_status run_simulated(sim_case *it, sl_hash_value *out_digest)
{
    const training_run_settings settings = {
        .worker_count = 1,
        .parts = {.device = &sim_device_ops,
                  .kernels = &kernels.table,
                  .transport = &store_double_ops,
                  .repetitions_ahead = 1 + (uint32_t)sim_below(4)}};
    training_run run;
    sl_status status = training_run_open_with(&it->c, it->plan, &settings, &run);
    run.plan = NULL; /* goes on living */
    run.clip = it->clip;
    if (status == SL_OK)
        status = run_steps(&run, out_digest);
    char message[WORDS_BYTES];
    snprintf(message, sizeof message, "%s", sl_status_message());
    training_run_close(&run);
    return status == SL_OK ? SL_OK : sl_status_fail(status, "%s", message);
}

/* True if all is as it must be; else what is wrong is in `out_words`. */
static bool run_seed(uint64_t seed, sim_case *it, bool may_fail, char *out_words)
{
    sim_faults faults;
    sl_hash_value digest = {0};
    arm_faults(seed, may_fail, &faults);
    simulation.ranges.program = it->c.program;
    simulation.ranges.plan = it->plan;
    simulation_start(seed, budget_of(it->plan), faults);
    sl_status status = run_simulated(it, &digest);
    bool was_hit = was_any_fault_hit(&faults);
    simulation.may_keep_memory = store_double_hits > 0 && (store_double.kind == DOUBLE_STUCK ||
                                                           store_double.kind == DOUBLE_LOST);
    simulation_end();
    seen.runs++;
    seen.events += simulation.events;
    seen.commands += simulation.ranges.entered;
    seen.failures_said += status != SL_OK && was_hit;
    bool is_same = digest.high == it->expected.high && digest.low == it->expected.low;
    bool is_known =
        status == SL_ERROR_IO || status == SL_ERROR_SYSTEM || status == SL_ERROR_NONFINITE;
    out_words[0] = '\0';
    if (sim_is_broken())
        snprintf(out_words, WORDS_BYTES, "%s", simulation.breach);
    else if (status == SL_OK && !is_same)
        snprintf(out_words, WORDS_BYTES, "other bits");
    else if (status != SL_OK && !was_hit)
        snprintf(out_words, WORDS_BYTES, "a failure without a fault: %s", sl_status_message());
    else if (status != SL_OK && (!is_known || strlen(sl_status_message()) < 10))
        snprintf(out_words, WORDS_BYTES, "status %d: %s", (int)status, sl_status_message());
    return out_words[0] == '\0';
}

static uint64_t seed_now;

static void say_seed(int number)
{
    char words[96];
    int length = snprintf(words, sizeof words, "signal %d in seed %llu\n", number,
                          (unsigned long long)seed_now);
    (void)!write(STDERR_FILENO, words, (size_t)length);
    signal(number, SIG_DFL);
    raise(number);
}

/* ---- tests ---- */

static void seeds_when_latencies_and_faults_are_random_then_bits_are_equal_or_an_error(void **state)
{
    (void)state;
    char words[WORDS_BYTES];
    bool is_one = getenv("SL_TEST_SEED") != NULL;
    uint64_t first = scratch_seed("simulation", 1);
    uint64_t count = is_one ? 1 : scratch_count(1000, 50000) / SANITIZER_SHARE;
    memset(&seen, 0, sizeof seen);
    for (seed_now = first; seed_now < first + count; seed_now++)
        if (!run_seed(seed_now, &cases[seed_now % PLANS], true, words))
            fail_msg("SL_TEST_SEED=%llu: %s", (unsigned long long)seed_now, words);
    print_message("%llu runs, %llu ended with an error; %llu events, %llu commands\n",
                  (unsigned long long)seen.runs, (unsigned long long)seen.failures_said,
                  (unsigned long long)seen.events, (unsigned long long)seen.commands);
    assert_true(is_one || (seen.failures_said > 0 && seen.commands > 0));
}

/* The second time while another run takes its memory, or seems to. */
static void seed_when_run_again_then_replays(void **state)
{
    (void)state;
    char words[WORDS_BYTES], lock[64]; /* of src/device/host.c */
    snprintf(lock, sizeof lock, "/dev/shm/sluice-memory-%u", (unsigned)geteuid());
    for (uint64_t seed = 5; seed < 25; seed++) {
        uint64_t events[2], random[2];
        for (int i = 0; i < 2; i++) {
            int other = i == 0 ? -1 : open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            assert_true(i == 0 || (other >= 0 && flock(other, LOCK_SH) == 0));
            (void)run_seed(seed, &cases[seed % PLANS], true, words);
            assert_true(i == 0 || close(other) == 0);
            events[i] = simulation.events;
            random[i] = simulation.random;
        }
        assert_int_equal(events[0], events[1]);
        assert_int_equal(random[0], random[1]);
    }
}

/* Leaves out a wait of a plan, one without which the verifier rejects it; returns its command. */
static sl_command *drop_wait(sim_case *it, uint64_t *draw, sl_wait *out_wait)
{
    for (;;) {
        sl_command *command = &it->plan->body[scratch_below(draw, it->plan->body_count)];
        if (command->wait_count == 0)
            continue;
        sl_wait *waits = &it->plan->waits[command->first_wait];
        uint32_t last = command->wait_count - 1, which = (uint32_t)scratch_below(draw, last + 1);
        *out_wait = waits[which];
        waits[which] = waits[last];
        waits[last] = *out_wait;
        command->wait_count--;
        if (sl_plan_verify(&it->c.request, it->plan) != SL_OK)
            return command;
        command->wait_count++;
    }
}

static void wait_when_left_out_of_a_plan_then_is_found(void **state)
{
    (void)state;
    char words[WORDS_BYTES];
    uint64_t draw = 77;
    for (int i = 0; i < PLANTED; i++) {
        sl_wait wait;
        sim_case *it = &cases[scratch_below(&draw, PLANS)];
        sl_command *command = drop_wait(it, &draw, &wait);
        uint32_t index = (uint32_t)(command - it->plan->body);
        seed_now = 1;
        while (seed_now <= PLANTED_SEEDS && run_seed(seed_now, it, false, words))
            seed_now++;
        command->wait_count++;
        print_message("command %u of %u without its wait for %u: after %llu seeds: %s\n", index,
                      it->plan->body_count, wait.command, (unsigned long long)seed_now, words);
        assert_true(seed_now <= PLANTED_SEEDS);
    }
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    puts("skipped: the thread sanitizer knows no fibers");
    return 77;
#endif
    signal(SIGSEGV, say_seed);
    signal(SIGABRT, say_seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seed_when_run_again_then_replays),
        cmocka_unit_test(wait_when_left_out_of_a_plan_then_is_found),
        cmocka_unit_test(
            seeds_when_latencies_and_faults_are_random_then_bits_are_equal_or_an_error),
    };
    return cmocka_run_group_tests_name("simulation", tests, open_cases, close_cases);
}
