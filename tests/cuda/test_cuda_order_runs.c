/* What could be wrong between the pieces of a whole run on a GPU: a copy, an op, a thread of the
 * host or the disk that nothing orders after what it needs, or before what gives way to it,
 * whatever the delays of one run showed. Every policy trains in fp32 and bf16, in both orders of
 * accumulation, and the checker of stream_order.h must find nothing; the same runs with one kind of
 * wait that makes no order, and with single waits of it, must be found out. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "cuda/run_case.h"
#include "cuda/standin.h"
#include "cuda/stream_order.h"
#include "sanitizer_share.h"

#define DISK "disk-dir=."

static const struct {
    const char *name;
    const char *text[8];
} placements[] = {
    {"device", {"policy=device"}},
    {"host", {"policy=host"}},
    {"static",
     {"policy=static", "offload-params=0.5", "offload-grads=1", "offload-optimizer=0.7",
      "offload-activations=0.5"}},
    {"static, three tiers",
     {"policy=static", "offload-params=0.3", "nvme-params=0.3", "nvme-grads=0.5",
      "nvme-optimizer=0.5", "nvme-activations=0.4", DISK}},
    {"nvme", {"policy=nvme", "nvme-params=1", "nvme-grads=1", DISK}},
    {"auto", {"policy=auto", "device-memory=700K"}},
};

enum { PLACEMENT_COUNT = sizeof placements / sizeof placements[0], STATIC_TIERS = 3 };

/* Two micro-batches, so that the orders of accumulation differ. */
static run_settings settle(int placement, const char *precision, const char *accumulation,
                           const char *steps)
{
    run_settings settings = RUN_SETTINGS("device=cuda", steps, "accumulate=2", "micro-batch=1",
                                         precision, accumulation);
    int count = 0;
    while (settings.text[count])
        count++;
    for (int i = 0; i < 8 && placements[placement].text[i]; i++)
        settings.text[count++] = placements[placement].text[i];
    return settings;
}

static void start_over(int late_answers)
{
    standin_machine machine = standin_default();
    machine.late_answers = late_answers;
    machine.delay_us = 50;
    standin_reset(&machine);
}

static void train_well(const char *name, const run_settings *settings)
{
    const char *text;
    const run_result result = run_train(settings);
    if (result.status != SL_OK)
        fail_msg("%s: %s", name, result.message);
    if (standin_faults(&text) > 0)
        fail_msg("%s: %s", name, text);
}

static void runs_when_under_every_policy_then_leave_no_pair_without_order(void **state)
{
    (void)state;
    static const char *const precisions[] = {"precision=bf16", "precision=fp32"};
    static const char *const accumulations[] = {"accumulation=micro", "accumulation=layer"};
    uint64_t ranges = 0, runs = 0;
    /* Of 3: every placement and combination. */
    const int stride = (int)scratch_count(SANITIZER_SHARE > 1 ? 7 : 3, 1);
    for (int i = 0; i < 4 * PLACEMENT_COUNT; i += stride) {
        char name[128];
        const char *precision = precisions[i / 2 % 2], *accumulation = accumulations[i % 2];
        const run_settings settings = settle(i / 4, precision, accumulation, "steps=2");
        snprintf(name, sizeof name, "%s, %s, %s", placements[i / 4].name, precision, accumulation);
        start_over(i % 4 != 3);
        train_well(name, &settings);
        const standin_order_counts counts = standin_count_order();
        assert_int_equal(counts.undeclared, 0);
        assert_true(counts.ranges > 1000);
        assert_true(counts.visits <= 8 * counts.ranges);
        ranges += counts.ranges;
        runs++;
    }
    print_message("%llu runs, %llu touched ranges\n", (unsigned long long)runs,
                  (unsigned long long)ranges);
}

/* More steps touch more ranges, and visit no more of those that are kept for each. */
static void cost_when_a_run_is_longer_then_grows_as_it_does(void **state)
{
    (void)state;
    standin_order_counts counts[2];
    for (int i = 0; i < 2; i++) {
        const run_settings settings = settle(STATIC_TIERS, "precision=bf16", "accumulation=micro",
                                             i == 0 ? "steps=1" : "steps=4");
        start_over(1);
        train_well("longer", &settings);
        counts[i] = standin_count_order();
    }
    assert_true(2 * counts[1].ranges > 5 * counts[0].ranges);
    assert_true(counts[1].visits * counts[0].ranges <= 2 * counts[0].visits * counts[1].ranges);
    assert_true(counts[1].kept_most <= counts[0].kept_most + counts[0].kept_most / 8);
}

/* ---- planted ---- */

/* Runs with an edge that makes no order; returns what was found. */
static uint64_t count_found(standin_edge edge, uint64_t nth, const run_settings *settings)
{
    start_over(1);
    standin_ignore_edge(edge, nth);
    const run_result result = run_train(settings);
    assert_int_equal(result.status, SL_OK);
    const uint64_t count = standin_order_faults(NULL);
    standin_forget_order_faults();
    assert_int_equal(standin_faults(NULL), 0);
    return count;
}

static const char *const edge_names[STANDIN_EDGE_COUNT] = {
    [STANDIN_EDGE_EVENT] = "a stream for an event",
    [STANDIN_EDGE_WORD] = "a stream for a word",
    [STANDIN_EDGE_EVENT_THREAD] = "a thread for an event",
    [STANDIN_EDGE_STREAM_THREAD] = "a thread for a stream",
    [STANDIN_EDGE_MARK] = "a host stream for a mark",
    [STANDIN_EDGE_MARK_THREAD] = "a thread for a mark",
    [STANDIN_EDGE_QUEUE_THREAD] = "a thread for a host stream",
};

static void waits_when_a_kind_makes_no_order_then_the_run_is_found_out(void **state)
{
    (void)state;
    for (int edge = 0; edge < STANDIN_EDGE_COUNT; edge++) {
        run_settings settings =
            settle(STATIC_TIERS, "precision=bf16", "accumulation=micro", "steps=1");
        int count = 0;
        while (settings.text[count])
            count++;
        if (edge == STANDIN_EDGE_MARK_THREAD)
            settings.text[count] = "cuda-wait-value=off";
        const uint64_t found = count_found((standin_edge)edge, 0, &settings);
        print_message("no wait of %s: %llu pairs\n", edge_names[edge], (unsigned long long)found);
        assert_true(found > 0);
    }
}

/* Not every wait is the only one that orders what it orders: a lane's next wait for a later command
 * may cover it. Most are. */
static void waits_when_a_single_one_is_missing_then_most_runs_are_found_out(void **state)
{
    (void)state;
    static const standin_edge edges[] = {STANDIN_EDGE_EVENT, STANDIN_EDGE_WORD, STANDIN_EDGE_MARK,
                                         STANDIN_EDGE_EVENT_THREAD};
    const run_settings settings =
        settle(STATIC_TIERS, "precision=bf16", "accumulation=micro", "steps=1");
    uint64_t state_of_draws = scratch_seed("waits", 1), found = 0;
    const uint64_t count = scratch_count(8, 400);
    uint64_t edge_counts[4];
    start_over(1);
    train_well("as it is", &settings);
    for (int i = 0; i < 4; i++)
        edge_counts[i] = standin_count_edges(edges[i]);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t nth = 1 + scratch_below(&state_of_draws, edge_counts[i % 4]);
        found += count_found(edges[i % 4], nth, &settings) > 0;
    }
    print_message("single waits: %llu of %llu found; there are %llu, %llu, %llu and %llu\n",
                  (unsigned long long)found, (unsigned long long)count,
                  (unsigned long long)edge_counts[0], (unsigned long long)edge_counts[1],
                  (unsigned long long)edge_counts[2], (unsigned long long)edge_counts[3]);
    assert_true(found * 2 > count);
}

/* ---- set-up ---- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_when_under_every_policy_then_leave_no_pair_without_order),
        cmocka_unit_test(cost_when_a_run_is_longer_then_grows_as_it_does),
        cmocka_unit_test(waits_when_a_kind_makes_no_order_then_the_run_is_found_out),
        cmocka_unit_test(waits_when_a_single_one_is_missing_then_most_runs_are_found_out),
    };
    return cmocka_run_group_tests_name("order of runs", tests, enter_with_text, leave_scratch);
}
