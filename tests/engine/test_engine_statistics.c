/* What could be wrong in the statistics: bytes, times or peaks that are invented, counted twice, or
 * booked on the wrong lane. Bytes and peaks are compared with the plan written by hand, times with
 * sleeps that never end early, and with what the observer saw. What is waited for ends only when
 * the waiting thread is seen asleep. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "asleep.h"
#include "engine_steps.h"

enum { STEPS = 20, SLEEP_US = 1000 };

typedef struct seen_lane {
    _Atomic uint64_t count, busy_ns, last_end_ns;
    _Atomic uint32_t commands; /* a bit each */
} seen_lane;

static seen_lane seen[SL_LANE_COUNT];
static _Atomic uint64_t seen_phase_ns[SL_PHASE_COUNT]; /* of the ops, by command */

/* By hand, from the world's body: 2 is forward, 3 backward, 5, 7 and 8 are updates. */
static sl_phase phase_of(uint32_t command)
{
    return command == 2 ? SL_PHASE_FORWARD : command == 3 ? SL_PHASE_BACKWARD : SL_PHASE_UPDATE;
}

static void note_ran(void *user, const sl_engine_event *event)
{
    seen_lane *own = (seen_lane *)user + event->lane;
    world_check(event->plan_index == TRAIN_PLAN);
    world_check(event->start_ns <= event->end_ns && event->start_ns >= own->last_end_ns);
    own->last_end_ns = event->end_ns;
    own->count++;
    own->busy_ns += event->end_ns - event->start_ns;
    own->commands |= 1u << event->command;
    if (event->lane == SL_LANE_COMPUTE || event->lane == SL_LANE_HOST)
        seen_phase_ns[phase_of(event->command)] += event->end_ns - event->start_ns;
}

static void check_moved(const sl_engine_statistics *statistics, uint64_t h2d, uint64_t d2h)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        uint64_t expected = lane == SL_LANE_H2D ? h2d : lane == SL_LANE_D2H ? d2h : 0;
        assert_int_equal(statistics->moved_bytes[lane], expected);
    }
}

static _Atomic pid_t last_stepper; /* the thread in the last step; 0: it has not begun */

/* The host's update before the last step sleeps after that step is seen waiting. */
static sl_status update_when_awaited(const sl_kernel_call *call)
{
    const bool is_awaited = call->attrs->first_block == 0 && call->scalars.position == STEPS - 2;
    while (is_awaited && atomic_load(&last_stepper) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (is_awaited)
        world_check(await_sleep(atomic_load(&last_stepper)));
    return fake_update(call);
}

static void statistics_when_taken_add_up(void **state)
{
    (void)state;
    const uint32_t commands[SL_LANE_COUNT] = {
        [SL_LANE_COMPUTE] = 1u << 2 | 1u << 3 | 1u << 5 | 1u << 8,
        [SL_LANE_H2D] = 1u << 0 | 1u << 1,
        [SL_LANE_D2H] = 1u << 4 | 1u << 6,
        [SL_LANE_HOST] = 1u << 7,
    };
    const uint32_t counts[SL_LANE_COUNT] = {4, 2, 2, 1};
    world w;
    uint64_t output;
    sl_engine_statistics statistics;
    sl_engine_observer observer = {note_ran, seen};
    world_init(&w);
    memset(seen, 0, sizeof seen);
    memset(seen_phase_ns, 0, sizeof seen_phase_ns);
    w.options.observer = &observer;
    sl_kernel_table kernels = fake_kernels;
    kernels.row[SL_OP_ADAMW].run = update_when_awaited;
    w.parts.kernels = &kernels;
    sl_engine *engine = open_world(&w);
    fakes.sleep_us[SL_OP_ADAMW] = SLEEP_US;
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, 0, 0);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_DEVICE], 0);
    assert_int_equal(statistics.busy_ns[SL_LANE_COMPUTE], 0); /* warming up does not count */
    for (uint32_t i = 0; i < STEPS; i++) {
        atomic_store(&last_stepper, i == STEPS - 1 ? gettid() : 0);
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    }
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, STEPS * (CHUNK_BYTES + 8), STEPS * (CHUNK_BYTES + 8));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        assert_int_equal(seen[lane].count, STEPS * counts[lane]);
        assert_int_equal(seen[lane].commands, commands[lane]);
        assert_int_equal(seen[lane].busy_ns, statistics.busy_ns[lane]);
    }
    for (int phase = 0; phase < SL_PHASE_COUNT; phase++)
        assert_int_equal(statistics.phase_ns[phase], seen_phase_ns[phase]);
    assert_true(statistics.phase_ns[SL_PHASE_UPDATE] >= STEPS * 2 * SLEEP_US * UINT64_C(1000));
    /* nanosleep never returns early: each update takes at least its sleep. */
    assert_true(statistics.busy_ns[SL_LANE_HOST] >= STEPS * SLEEP_US * UINT64_C(1000));
    assert_true(statistics.busy_ns[SL_LANE_COMPUTE] >= STEPS * SLEEP_US * UINT64_C(1000));
    /* The last step waits for the update before it, on the host. */
    assert_true(statistics.step_ns >= SLEEP_US * UINT64_C(1000));
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_DEVICE], DEVICE_PEAK);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_HOST], HOST_OUTPUT + 8);
    assert_int_equal(statistics.arena_bytes[SL_TIER_DEVICE], DEVICE_PEAK);
    assert_int_equal(statistics.arena_bytes[SL_TIER_HOST], HOST_PEAK);
    assert_int_equal(fakes.wrong, 0);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, 0, 0);
    assert_int_equal(statistics.busy_ns[SL_LANE_HOST], 0);
    assert_int_equal(statistics.phase_ns[SL_PHASE_UPDATE], 0);
    sl_engine_close(engine);
}

enum { SLOW_STEPS = 10, SLOW_US = 4000, SLOW_TRIES = 10 };

static sl_engine_statistics measure_slow_host(void)
{
    world w;
    uint64_t output;
    sl_engine_statistics statistics;
    world_init(&w);
    update_on_host_only(&w);
    sl_engine *engine = open_world(&w);
    fakes.sleep_us[SL_OP_ADAMW] = SLOW_US;
    for (uint32_t i = 0; i < SLOW_STEPS; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    assert_int_equal(statistics.stall_ns[SL_LANE_COMPUTE], 0);
    sl_engine_close(engine);
    return statistics;
}

/* Every step but the first stalls for a whole update, less what issuing took: say a quarter. The
 * copy itself moves bytes that fit a cache line. */
static bool names_the_host(const sl_engine_statistics *statistics)
{
    return statistics->stall_ns[SL_LANE_HOST] >= (SLOW_STEPS - 1) * SLOW_US * UINT64_C(250) &&
           statistics->stall_ns[SL_LANE_H2D] < statistics->stall_ns[SL_LANE_HOST] / 4;
}

/* The host update takes 4 ms, the device's work of an iteration none: forward waits for the copy of
 * the parameters, which waits for the update. What is slow is named, not what stands between. On a
 * machine that is busy elsewhere the copy's thread may be what is waited for: then once more. */
static void stalls_when_the_host_is_slow_name_the_lane_waited_for(void **state)
{
    (void)state;
    bool is_named = false;
    for (int i = 0; i < SLOW_TRIES && !is_named; i++) {
        sl_engine_statistics statistics = measure_slow_host();
        is_named = names_the_host(&statistics);
    }
    assert_true(is_named);
}

static void prologue_when_a_plan_goes_on_is_not_run_again(void **state)
{
    (void)state;
    world w;
    uint64_t output;
    sl_engine_statistics statistics;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(step(engine, EVAL_PLAN, i, i, &output), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, CHUNK_BYTES + 3 * 8, 3 * 8);
    assert_int_equal(step(engine, EVAL_PLAN, 0, 0, &output), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, 8, 8);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    assert_int_equal(step(engine, EVAL_PLAN, 0, 0, &output), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, CHUNK_BYTES + 8, 8);
    sl_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_when_taken_add_up),
        cmocka_unit_test(stalls_when_the_host_is_slow_name_the_lane_waited_for),
        cmocka_unit_test(prologue_when_a_plan_goes_on_is_not_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
