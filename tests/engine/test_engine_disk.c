/* What could be wrong with the engine's disk tier: a copy of the read or write lane goes to the
 * wrong place, early or late, or is not waited for; the second hop of a prologue does not wait for
 * the first; what was moved is not counted.
 *
 * The world of engine_disk_world.h has its numbers from a plain loop. The store is the real one,
 * over a transport in memory that delays and reorders, and over what this machine has. Parts of
 * chunks: test_engine_disk_parts.c. Refusals: test_engine_disk_failures.c. Faults of the disk:
 * test_engine_disk_faults.c.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine_disk_place.h"

/* ---- numbers ---- */

static void steps_when_chunks_live_on_disk_give_the_numbers_of_a_plain_loop(void **state)
{
    (void)state;
    disk_world d;
    world_numbers numbers;
    for (uint32_t round = 0; round < rounds(6); round++) {
        disk_world_init(&d, directory.text, choose_transport(round));
        d.w.options.guard_arenas = round % 3 == 1;
        d.w.parts.disk_depth = round % 5;
        sl_engine *engine = open_world(&d.w);
        fakes.sleep_us[round % 2 ? SL_OP_ADAMW : SL_OP_LINEAR] = 300;
        start_numbers(engine, &numbers);
        for (uint32_t i = 0; i < 60; i++)
            step_and_check(engine, TRAIN_PLAN, &numbers, sl_rng_below(round, 0, i, 1000));
        check_numbers(engine, &numbers);
        assert_int_equal(fakes.run_count, 60 * 5);
        sl_engine_close(engine);
    }
}

/* The prologue of evaluation brings the parameter in two hops: the second must see the first. */
static void plans_when_switched_at_random_see_each_others_results(void **state)
{
    (void)state;
    disk_world d;
    world_numbers numbers;
    disk_world_init(&d, directory.text, &store_double_ops);
    store_double.delay_us = 1000;
    sl_engine *engine = open_world(&d.w);
    start_numbers(engine, &numbers);
    for (uint32_t i = 0; i < rounds(100); i++) {
        uint64_t draw = sl_rng_below(7, 1, i, 10);
        step_and_check(engine, draw < 6 ? TRAIN_PLAN : EVAL_PLAN, &numbers, i);
        if (draw == 9)
            assert_int_equal(sl_engine_drain(engine), SL_OK);
        if (draw == 8)
            assert_int_equal(read_number(engine, SL_GROUP_PARAM, 0), numbers.param[0]);
        if (draw == 7) {
            numbers.param[0] = 1000 + i;
            write_numbers(engine, SL_GROUP_PARAM, 0, 1000 + i);
        }
    }
    check_numbers(engine, &numbers);
    sl_engine_close(engine);
}

/* ---- registered memory ---- */

static sl_transport_options registered;

static sl_status open_and_look(const sl_transport_options *options, sl_transport **out_transport)
{
    registered = *options;
    return store_double_ops.open(options, out_transport);
}

/* What is registered counts against a limit, and the arena may be much larger than what the disk
 * lanes touch of it. */
static void memory_when_the_disk_never_touches_it_is_not_registered(void **state)
{
    (void)state;
    disk_world d;
    sl_transport_ops ops = store_double_ops;
    ops.open = open_and_look;
    disk_world_init(&d, directory.text, &ops);
    d.w.train.peak_bytes[SL_TIER_HOST] += 64 * SL_PIECE_BYTES;
    sl_engine *engine = open_world(&d.w);
    const char *arena = sl_engine_arena(engine, SL_TIER_HOST);
    assert_ptr_equal(registered.buffer, arena + HOST_HOME);
    assert_int_equal(registered.buffer_bytes, DISK_HOST_PEAK - HOST_HOME);
    sl_engine_close(engine);
}

/* ---- statistics ---- */

static void count_command(void *user, const sl_engine_event *event)
{
    _Atomic uint32_t *counts = user;
    atomic_fetch_add(&counts[event->lane], 1);
}

static void statistics_when_taken_count_the_disk_lanes(void **state)
{
    (void)state;
    enum { STEPS = 7 };
    static _Atomic uint32_t counts[SL_LANE_COUNT];
    const sl_engine_observer observer = {count_command, (void *)counts};
    disk_world d;
    uint64_t output, word = 3;
    sl_engine_statistics statistics;
    disk_world_init(&d, directory.text, &store_double_ops);
    store_double.delay_us = 0;
    d.w.options.observer = &observer;
    sl_engine *engine = open_world(&d.w);
    assert_int_equal(sl_engine_write_chunk(engine, SL_GROUP_PARAM, 0, 0, 8, &word), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    assert_int_equal(statistics.moved_bytes[SL_LANE_READ], 0); /* the boundary does not count */
    assert_int_equal(statistics.busy_ns[SL_LANE_WRITE], 0);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_DISK], 0);
    for (uint32_t i = 0; i < STEPS; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    assert_int_equal(statistics.moved_bytes[SL_LANE_READ], STEPS * DISK_READ_BYTES);
    assert_int_equal(statistics.moved_bytes[SL_LANE_WRITE], STEPS * DISK_WRITTEN_BYTES);
    assert_int_equal(counts[SL_LANE_READ], STEPS * 4);
    assert_int_equal(counts[SL_LANE_WRITE], STEPS * 5);
    assert_true(statistics.busy_ns[SL_LANE_READ] > 0 && statistics.busy_ns[SL_LANE_WRITE] > 0);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_DISK], DISK_PEAK);
    assert_int_equal(statistics.arena_bytes[SL_TIER_DISK], DISK_PEAK);
    assert_int_equal(statistics.arena_bytes[SL_TIER_HOST], DISK_HOST_PEAK);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_HOST], HOST_BACK + SPILL_BYTES);
    assert_non_null(strstr(sl_engine_disk_description(engine), "double"));
    sl_engine_close(engine);
}

enum { SLOW_STEPS = 6, SLOW_US = 8000, SLOW_TRIES = 10 };

/* The compute lane waits for h2d, which waits for read, and perhaps that for write: the disk's
 * lanes are named, the one that stands between is not. A request takes 0 to 8 ms, 4 on average,
 * which is 24 ms in six steps. A quarter of that is asked for. */
static bool names_the_disk(const sl_engine_statistics *statistics)
{
    const uint64_t disk_ns =
        statistics->stall_ns[SL_LANE_READ] + statistics->stall_ns[SL_LANE_WRITE];
    const uint64_t least_ns = SLOW_STEPS * SLOW_US * UINT64_C(1000) / 8;
    return disk_ns > least_ns && statistics->busy_ns[SL_LANE_READ] > least_ns &&
           statistics->stall_ns[SL_LANE_H2D] < disk_ns / 4;
}

static sl_engine_statistics measure_slow_disk(void)
{
    disk_world d;
    uint64_t output;
    sl_engine_statistics statistics;
    disk_world_init(&d, directory.text, &store_double_ops);
    store_double.delay_us = SLOW_US;
    sl_engine *engine = open_world(&d.w);
    for (uint32_t i = 0; i < SLOW_STEPS; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    sl_engine_close(engine);
    return statistics;
}

/* Forward waits for the parameter, which waits for the disk. On a machine that is busy elsewhere
 * the thread of h2d may be what is waited for: then once more. */
static void stalls_when_the_disk_is_slow_name_its_lane(void **state)
{
    (void)state;
    bool is_named = false;
    for (int i = 0; i < SLOW_TRIES && !is_named; i++) {
        const sl_engine_statistics statistics = measure_slow_disk();
        is_named = names_the_disk(&statistics);
    }
    assert_true(is_named);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(steps_when_chunks_live_on_disk_give_the_numbers_of_a_plain_loop),
        TEST(plans_when_switched_at_random_see_each_others_results),
        TEST(memory_when_the_disk_never_touches_it_is_not_registered),
        TEST(statistics_when_taken_count_the_disk_lanes),
        TEST(stalls_when_the_disk_is_slow_name_its_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
