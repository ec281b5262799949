/* What could be wrong when CUDA fails in the middle of a run: a result that nobody looks at, so
 * that the run goes on with numbers that are wrong; a wait for work that will never run; memory or
 * streams that stay behind; a message that does not say where. Each call of a small run fails once,
 * as a refusal, as a failed launch, and as an error that breaks the context for good: the run must
 * end with a failure that says something, or with the same bits as without; never hang, and leave
 * nothing behind. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda/run_case.h"
#include "cuda/standin.h"
#include "sanitizer_share.h"

enum {
    HANG_S = 250,
    OUT_OF_MEMORY = 2,
    NOT_PERMITTED = 800,
    LAUNCH_FAILURE = 719,
    BAD_ADDRESS = 700
};

/* One layer; the moments are updated on the host, so every lane has work. */
static const run_settings small = {{"layers=1", "width=32", "heads=2", "context=8", "vocab=257",
                                    "micro-batch=1", "lr=0.01", "threads=1", "quiet=true",
                                    "device=cuda", "precision=bf16", "policy=host", "steps=2",
                                    "device-memory=4M", "host-memory=16M"}};

static void start_over(uint64_t seed)
{
    standin_machine machine = standin_default();
    machine.seed = seed;
    machine.delay_us = 20;
    standin_reset(&machine);
}

static run_result run_watched(const run_settings *settings)
{
    alarm(HANG_S); /* ends the program */
    run_result result = run_train(settings);
    alarm(0);
    return result;
}

static void check_nothing_is_left(const char *name)
{
    const char *fault = "";
    standin_counts live = standin_live();
    if (live.allocations + live.streams + live.events + live.registrations > 0)
        fail_msg("%s: %d allocations, %d streams, %d events, %d registrations are left", name,
                 (int)live.allocations, (int)live.streams, (int)live.events,
                 (int)live.registrations);
    if (standin_faults(&fault) > 0)
        fail_msg("%s: misuse of CUDA: %s", name, fault);
}

/* What must fail, each somewhere in a run: opening, memory, streams, what orders them, copies and
 * kernels. An event is made for each of a thousand borders, so calls are not drawn from all. */
static const char *const calls[] = {
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaDeviceGetPCIBusId",
    "cudaSetDevice",
    "cudaFree",
    "cudaMemGetInfo",
    "cudaDriverGetVersion",
    "cudaGetDriverEntryPointByVersion",
    "cudaMalloc",
    "cudaMemsetAsync",
    "cudaHostAlloc",
    "cudaHostGetDevicePointer",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
    "cudaStreamWaitEvent",
    "cudaStreamQuery",
    "cuStreamWaitValue32",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventRecord",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaEventElapsedTime",
    "cudaMemcpyAsync",
    "block_norm_add",
    "norm_finish",
    "token_order_scan",
    "token_order_bounds",
};

enum { CALL_COUNT = sizeof calls / sizeof calls[0] };

static int call_index(const char *name)
{
    int index = 0;
    while (strcmp(calls[index], name) != 0)
        index++;
    return index;
}

typedef struct sweep {
    const run_result *good; /* of a run without failures */
    uint64_t counts[CALL_COUNT];
    const char *error_name;
    int error;
    void (*inject)(const char *call, uint64_t nth, int error); /* the stand-in's */
    uint64_t runs, survived, missed;
} sweep;

static void fail_one(sweep *s, const char *call, uint64_t nth)
{
    char name[256];
    start_over(nth);
    s->inject(call, nth, s->error);
    run_result result = run_watched(&small);
    snprintf(name, sizeof name, "%s in %s number %d", s->error_name, call, (int)nth);
    bool was_reached = strcmp(standin_failed_call(), call) == 0; /* some calls depend on timing */
    if (!was_reached && result.status != SL_OK)
        fail_msg("%s: was not reached, but: %s", name, result.message);
    s->missed += !was_reached;
    if (result.status == SL_OK && !run_same(&result, s->good))
        fail_msg("%s: the run went on with other numbers", name);
    bool is_refusal = result.status == SL_ERROR_SYSTEM ||
                      (result.status == SL_ERROR_FIT && strcmp(call, "cudaMalloc") == 0);
    if (result.status != SL_OK && (!is_refusal || strlen(result.message) < 20))
        fail_msg("%s: status %d: \"%s\"", name, (int)result.status, result.message);
    check_nothing_is_left(name);
    s->survived += was_reached && result.status == SL_OK;
    s->runs++;
}

/* Some numbers of each call, spread over the run, another one in each sweep. */
static void fail_each(sweep *s, uint64_t per_call)
{
    uint64_t draw = 7 + (uint64_t)s->error;
    s->runs = s->survived = s->missed = 0;
    for (int i = 0; i < CALL_COUNT; i++) {
        uint64_t stride = (s->counts[i] + per_call - 1) / per_call;
        for (uint64_t first = 0; first < s->counts[i]; first += stride) {
            uint64_t left = s->counts[i] - first;
            fail_one(s, calls[i], first + 1 + scratch_below(&draw, left < stride ? left : stride));
        }
    }
    print_message("%s: %d runs, %d went on, %d never came there\n", s->error_name, (int)s->runs,
                  (int)s->survived, (int)s->missed);
    assert_true(s->missed < s->runs / 4);
}

static void count_calls(run_result *good, uint64_t counts[CALL_COUNT])
{
    start_over(1);
    *good = run_watched(&small);
    if (good->status != SL_OK)
        fail_msg("%s", good->message);
    for (int i = 0; i < CALL_COUNT; i++) {
        counts[i] = standin_calls(calls[i]);
        if (counts[i] == 0)
            fail_msg("a run does not call %s", calls[i]);
    }
}

static void sweep_with(sweep s)
{
    run_result good;
    s.good = &good;
    count_calls(&good, s.counts);
    fail_each(&s, scratch_count(1, 12));
}

static void calls_when_refused_then_the_run_ends_or_gives_the_same_bits(void **state)
{
    (void)state;
    sweep_with((sweep){
        .error_name = "out of memory", .error = OUT_OF_MEMORY, .inject = standin_fail_call});
    if (SANITIZER_SHARE == 1) /* the same places, by another code */
        sweep_with((sweep){
            .error_name = "not permitted", .error = NOT_PERMITTED, .inject = standin_fail_call});
}

/* A host stream that cannot ask whether the GPU is done waits all the same: streams behind it
 * overwrite what the GPU still reads. */
static void wait_of_a_host_stream_when_a_call_fails_then_still_orders_what_follows(void **state)
{
    (void)state;
    static const char *const waiting[] = {"cudaSetDevice", "cudaEventQuery",
                                          "cudaEventSynchronize"};
    run_result good;
    sweep s = {.error_name = "no memory to wait with",
               .error = OUT_OF_MEMORY,
               .inject = standin_fail_call,
               .good = &good};
    count_calls(&good, s.counts);
    for (int i = 0; i < 3; i++) {
        uint64_t count = s.counts[call_index(waiting[i])], most = scratch_count(3, 40);
        for (uint64_t nth = 1; nth <= count; nth += 1 + count / most)
            fail_one(&s, waiting[i], nth);
    }
    print_message("%d runs, %d went on\n", (int)s.runs, (int)s.survived);
}

/* What is queued still runs: it may not find its memory gone, nor wait for what nobody issues. */
static void calls_when_all_later_ones_are_refused_then_the_run_ends_and_nothing_hangs(void **state)
{
    (void)state;
    sweep_with((sweep){
        .error_name = "all not permitted", .error = NOT_PERMITTED, .inject = standin_refuse_calls});
}

static void context_when_it_breaks_then_the_run_ends_and_nothing_hangs(void **state)
{
    (void)state;
    sweep_with((sweep){
        .error_name = "launch failure", .error = LAUNCH_FAILURE, .inject = standin_break_call});
    if (SANITIZER_SHARE == 1)
        sweep_with((sweep){
            .error_name = "illegal address", .error = BAD_ADDRESS, .inject = standin_break_call});
}

/* At the end of each step the control thread asks until what it is about to read is there. Few of
 * the questions are these, so the sweeps above can miss that nobody looks at the answer. True: the
 * question number `nth` of a run was one. */
static bool fail_question(uint64_t nth)
{
    start_over(1);
    standin_fail_call("cudaEventQuery", nth, LAUNCH_FAILURE);
    run_result result = run_watched(&small);
    check_nothing_is_left("a wait for a step");
    return strncmp(result.message, "an op or copy before op", 23) == 0;
}

static void wait_for_a_step_when_it_fails_then_the_run_ends_and_says_for_what(void **state)
{
    (void)state;
    enum { ROUNDS = 8, RUNS_A_ROUND = 100 };
    run_result good = {0};
    uint64_t counts[CALL_COUNT], runs = 0;
    bool is_named = false;
    count_calls(&good, counts);
    const uint64_t count = counts[call_index("cudaEventQuery")];
    for (uint64_t round = 0; round < ROUNDS && !is_named; round++) /* which they are varies */
        for (uint64_t nth = 1 + round; nth <= count && !is_named;
             nth += 1 + count / RUNS_A_ROUND, runs++)
            is_named = fail_question(nth);
    print_message("%d runs, of %d questions\n", (int)runs, (int)count);
    assert_true(is_named);
}

/* The norm is finished once a step. What was saved before is whole: the run goes
 * on from there with the bits of one that never failed. */
static void launch_when_it_breaks_the_context_then_names_the_op_and_nothing_is_lost(void **state)
{
    (void)state;
    run_settings settings = small;
    int last = 0;
    while (settings.text[last])
        last++;
    settings.text[last++] = "save=saved";
    settings.text[last++] = "save-every=1";
    settings.text[last] = "steps=3";
    start_over(1);
    run_settings plain = small;
    plain.text[last - 2] = "steps=3";
    run_result good = run_watched(&plain);
    assert_int_equal(good.status, SL_OK);
    start_over(2);
    standin_break_call("norm_finish", 3, BAD_ADDRESS);
    run_result broken = run_watched(&settings);
    assert_int_equal(broken.status, SL_ERROR_SYSTEM);
    if (!strstr(broken.message, "(norm_finish)"))
        fail_msg("\"%s\" does not name the op", broken.message);
    print_message("%s\n", broken.message);
    check_nothing_is_left("a broken context");
    start_over(3);
    settings.text[last + 1] = "resume=true";
    run_result resumed = run_watched(&settings);
    if (resumed.status != SL_OK)
        fail_msg("%s", resumed.message);
    assert_true(run_same(&good, &resumed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_when_refused_then_the_run_ends_or_gives_the_same_bits),
        cmocka_unit_test(wait_of_a_host_stream_when_a_call_fails_then_still_orders_what_follows),
        cmocka_unit_test(calls_when_all_later_ones_are_refused_then_the_run_ends_and_nothing_hangs),
        cmocka_unit_test(context_when_it_breaks_then_the_run_ends_and_nothing_hangs),
        cmocka_unit_test(wait_for_a_step_when_it_fails_then_the_run_ends_and_says_for_what),
        cmocka_unit_test(launch_when_it_breaks_the_context_then_names_the_op_and_nothing_is_lost),
    };
    return cmocka_run_group_tests_name("faults", tests, enter_with_text, leave_scratch);
}
