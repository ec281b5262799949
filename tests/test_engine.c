/* What could be wrong in the engine: a command gets the wrong address, attributes, flags or
 * scalars; a wait is lost, or one of the previous iteration is taken from the wrong one; a step
 * returns before its outputs are there; a prologue is forgotten or run too often; a failure of a
 * lane is lost, loses its message or hangs; numbers in the statistics are invented; a bad plan is
 * not refused.
 *
 * tests/engine_world.h has two plans written by hand and kernels that compute with whole numbers,
 * so that one stale word anywhere changes the result; the oracle is the same arithmetic in a loop.
 * Over 500 lines because the plans that must be refused stand here, one fault each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine_world.h"

static uint32_t rounds(uint32_t quick)
{
    return getenv("SL_TEST_FULL") ? quick * 20 : quick;
}

static sl_engine *open_world(world *w)
{
    sl_engine *engine = NULL;
    sl_status status = sl_engine_open_with(&w->options, &fake_kernels, &engine);
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
    return engine;
}

static void write_numbers(sl_engine *engine, sl_group group, uint32_t chunk, uint64_t number)
{
    uint64_t words[CHUNK_WORDS];
    write_chunk_number(words, number);
    /* in two parts, so that the offset counts */
    assert_int_equal(sl_engine_write_chunk(engine, group, chunk, 0, 1000, words), SL_OK);
    assert_int_equal(
        sl_engine_write_chunk(engine, group, chunk, 1000, CHUNK_BYTES - 1000, (char *)words + 1000),
        SL_OK);
}

static uint64_t read_number(sl_engine *engine, sl_group group, uint32_t chunk)
{
    uint64_t words[CHUNK_WORDS];
    assert_int_equal(sl_engine_read_chunk(engine, group, chunk, 0, 4000, words), SL_OK);
    assert_int_equal(
        sl_engine_read_chunk(engine, group, chunk, 4000, CHUNK_BYTES - 4000, (char *)words + 4000),
        SL_OK);
    return read_chunk_number(words);
}

static void start_numbers(sl_engine *engine, world_numbers *numbers)
{
    *numbers = (world_numbers){{11, 22}, {0, 0}};
    write_numbers(engine, SL_GROUP_PARAM, 0, 11);
    write_numbers(engine, SL_GROUP_PARAM, 1, 22);
}

static void check_numbers(sl_engine *engine, const world_numbers *numbers)
{
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        assert_int_equal(read_number(engine, SL_GROUP_PARAM, chunk), numbers->param[chunk]);
        assert_int_equal(read_number(engine, SL_GROUP_MOMENT1, chunk), numbers->moment[chunk]);
        assert_int_equal(read_number(engine, SL_GROUP_MOMENT2, chunk), 0);
    }
    assert_int_equal(fakes.wrong, 0);
}

/* One step of `plan`; returns its output. */
static sl_status step(sl_engine *engine, uint32_t plan, uint64_t token, uint32_t position,
                      uint64_t *out_output)
{
    sl_step_scalars scalars = {.learning_rate = 0.5f, .position = position};
    *(uint64_t *)sl_engine_input(engine, plan, 0) = token;
    SL_TRY(sl_engine_step(engine, plan, &scalars));
    *out_output = *(const uint64_t *)sl_engine_output(engine, plan, SL_OUTPUT_CONTROL);
    return SL_OK;
}

static void step_and_check(sl_engine *engine, uint32_t plan, world_numbers *numbers, uint64_t token)
{
    uint64_t output = 0;
    uint64_t expected =
        plan == TRAIN_PLAN ? expect_train(numbers, token) : expect_forward(numbers, token);
    if (step(engine, plan, token, 0, &output) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(output, expected);
}

/* Makes one lane the slow one, differently in each round. */
static void slow_down(uint32_t round)
{
    static const sl_op_kind kinds[] = {SL_OP_LINEAR, SL_OP_LINEAR_WEIGHT_BACKWARD,
                                       SL_OP_NORM_FINISH, SL_OP_ADAMW};
    memset(fakes.sleep_us, 0, sizeof fakes.sleep_us);
    fakes.sleep_us[kinds[round % 4]] = round % 5 == 4 ? 0 : 300;
}

/* ---- numbers ---- */

static void steps_when_repeated_give_the_numbers_of_a_plain_loop(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    for (uint32_t round = 0; round < rounds(5); round++) {
        world_init(&w);
        w.options.guard_arenas = round % 2;
        sl_engine *engine = open_world(&w);
        slow_down(round);
        start_numbers(engine, &numbers);
        for (uint32_t i = 0; i < 200; i++)
            step_and_check(engine, TRAIN_PLAN, &numbers, sl_rng_below(round, 0, i, 1000));
        check_numbers(engine, &numbers);
        assert_int_equal(fakes.run_count, 200 * 5);
        sl_engine_close(engine);
    }
}

static void plans_when_switched_at_random_see_each_others_results(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    fakes.sleep_us[SL_OP_ADAMW] = 300; /* the host lane is still at work when a plan changes */
    for (uint32_t i = 0; i < rounds(300); i++) {
        uint64_t draw = sl_rng_below(7, 1, i, 10);
        step_and_check(engine, draw < 6 ? TRAIN_PLAN : EVAL_PLAN, &numbers, i);
        if (draw == 9)
            assert_int_equal(sl_engine_drain(engine), SL_OK);
        if (draw == 8)
            assert_int_equal(read_number(engine, SL_GROUP_PARAM, 0), numbers.param[0]);
    }
    check_numbers(engine, &numbers);
    sl_engine_close(engine);
}

static void write_chunk_when_between_iterations_is_seen_by_the_next(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    for (uint64_t i = 0; i < 20; i++) {
        step_and_check(engine, EVAL_PLAN, &numbers, i);
        numbers.param[i % 2] = 1000 + i;
        write_numbers(engine, SL_GROUP_PARAM, i % 2, 1000 + i);
        step_and_check(engine, EVAL_PLAN, &numbers, i);
    }
    check_numbers(engine, &numbers);
    sl_engine_close(engine);
}

/* ---- memory ---- */

static int holds_only(const unsigned char *memory, uint64_t bytes, unsigned char value)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (memory[i] != value)
            return 0;
    }
    return 1;
}

static void open_when_guarded_clears_homes_and_nothing_else(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    w.options.guard_arenas = true;
    sl_engine *engine = open_world(&w);
    const unsigned char *device = sl_engine_arena(engine, SL_TIER_DEVICE);
    const unsigned char *host = sl_engine_arena(engine, SL_TIER_HOST);
    assert_int_equal((uintptr_t)device % 256, 0);
    assert_int_equal((uintptr_t)host % 256, 0);
    assert_true(holds_only(device, 4 * CHUNK_BYTES, 0));
    assert_true(holds_only(host, 4 * CHUNK_BYTES, 0));
    assert_memory_equal(device + DEVICE_FLAGS, fakes.flags, 2);
    assert_memory_equal(host + HOST_FLAGS, fakes.flags, 2);
    assert_true(holds_only(device + DEVICE_FLAGS + 2, CELL_BYTES - 2, 0xA5));
    assert_true(holds_only(device + DEVICE_CACHE, CELL_BYTES, 0));
    assert_true(holds_only(device + DEVICE_FIXED, DEVICE_PEAK - DEVICE_FIXED, 0xA5));
    assert_true(holds_only(host + HOST_FIXED, HOST_PEAK - HOST_FIXED, 0xA5));
    assert_null(sl_engine_arena(engine, SL_TIER_DISK));
    sl_engine_close(engine);
}

static void clear_persistent_when_called_zeroes_the_slots_alone(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    unsigned char *device = (unsigned char *)(uintptr_t)sl_engine_arena(engine, SL_TIER_DEVICE);
    memset(device + DEVICE_FLAGS, 9, DEVICE_PEAK - DEVICE_FLAGS);
    assert_int_equal(sl_engine_clear_persistent(engine), SL_OK);
    assert_true(holds_only(device + DEVICE_CACHE, CELL_BYTES, 0));
    assert_true(holds_only(device + DEVICE_FLAGS, CELL_BYTES, 9));
    assert_true(holds_only(device + DEVICE_FIXED, DEVICE_PEAK - DEVICE_FIXED, 9));
    sl_engine_close(engine);
}

static void slots_when_asked_for_are_the_plans_places(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    const char *host = sl_engine_arena(engine, SL_TIER_HOST);
    assert_ptr_equal(sl_engine_input(engine, TRAIN_PLAN, 0), host + HOST_INPUT);
    assert_ptr_equal(sl_engine_output(engine, EVAL_PLAN, SL_OUTPUT_CONTROL), host + HOST_OUTPUT);
    assert_null(sl_engine_input(engine, TRAIN_PLAN, 1));
    assert_null(sl_engine_input(engine, 2, 0));
    assert_null(sl_engine_output(engine, TRAIN_PLAN, SL_OUTPUT_LOSS)); /* nobody writes it */
    assert_null(sl_engine_output(engine, TRAIN_PLAN, 2));
    sl_engine_close(engine);
}

static void warm_up_when_opening_covers_each_op_and_lane_once(void **state)
{
    (void)state;
    world w;
    world_init(&w);
    sl_engine *engine = open_world(&w);
    /* forward (in two plans, once), backward, finish, two updates of different first blocks */
    assert_int_equal(fakes.warm_count, 5);
    assert_int_equal(fakes.wrong, 0);
    sl_engine_close(engine);
}

static void chunk_access_when_outside_is_refused(void **state)
{
    (void)state;
    world w;
    char data[16];
    world_init(&w);
    sl_engine *engine = open_world(&w);
    const uint64_t too_far[][2] = {
        {CHUNK_BYTES - 15, 16}, {CHUNK_BYTES + 1, 0}, {UINT64_MAX, 16}, {0, UINT64_MAX}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            sl_engine_read_chunk(engine, SL_GROUP_PARAM, 1, too_far[i][0], too_far[i][1], data),
            SL_ERROR_INTERNAL);
        assert_int_equal(
            sl_engine_write_chunk(engine, SL_GROUP_PARAM, 0, too_far[i][0], too_far[i][1], data),
            SL_ERROR_INTERNAL);
    }
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, 2, 0, 16, data),
                     SL_ERROR_INTERNAL);
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_MASTER, 0, 0, 16, data),
                     SL_ERROR_INTERNAL);
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_COUNT, 0, 0, 16, data),
                     SL_ERROR_INTERNAL);
    sl_engine_close(engine);
}

/* ---- failures ---- */

static void expect_dead(sl_engine *engine, const char *message)
{
    uint64_t output, data;
    assert_int_equal(step(engine, TRAIN_PLAN, 1, 0, &output), SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), message));
    assert_int_equal(sl_engine_drain(engine), SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), message));
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, 0, 8, &data),
                     SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), message));
}

static void step_when_a_kernel_fails_returns_its_message_for_good(void **state)
{
    (void)state;
    static const sl_op_kind kinds[] = {SL_OP_LINEAR, SL_OP_LINEAR_WEIGHT_BACKWARD,
                                       SL_OP_NORM_FINISH};
    for (int k = 0; k < 3; k++) {
        world w;
        char message[64];
        uint64_t output = 0;
        world_init(&w);
        sl_engine *engine = open_world(&w);
        fakes.fail_kind = kinds[k];
        fakes.fail_position = 6;
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
        output = 0x1234;
        assert_int_equal(step(engine, TRAIN_PLAN, 6, 6, &output), SL_ERROR_NONFINITE);
        assert_int_equal(output, 0x1234);
        snprintf(message, sizeof message, "kernel %d fails at 6", (int)kinds[k]);
        assert_non_null(strstr(sl_status_message(), message));
        assert_non_null(strstr(sl_status_message(), "compute lane"));
        expect_dead(engine, message);
        sl_engine_close(engine);
    }
}

/* The step itself does not wait for the host lane, so its failure may come one call later. */
static void host_lane_when_it_fails_comes_back_from_drain_or_the_next_step(void **state)
{
    (void)state;
    world w;
    uint64_t output;
    world_init(&w);
    w.train_body[8] = w.train_body[5]; /* only the host lane updates */
    w.train_body[8].tick = 2;
    sl_engine *engine = open_world(&w);
    fakes.fail_kind = SL_OP_ADAMW;
    fakes.fail_position = 2;
    fakes.sleep_us[SL_OP_ADAMW] = 3000;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    sl_status status = step(engine, TRAIN_PLAN, 2, 2, &output);
    if (status == SL_OK) /* on a machine that does not stop for 3 ms */
        status = sl_engine_drain(engine);
    assert_int_equal(status, SL_ERROR_NONFINITE);
    assert_non_null(strstr(sl_status_message(), "op 3 (adamw) on the host lane: kernel"));
    expect_dead(engine, "fails at 2");
    sl_engine_close(engine);
}

/* ---- statistics ---- */

typedef struct seen_lane {
    _Atomic uint64_t count, busy_ns, last_end_ns;
    _Atomic uint32_t commands; /* a bit each */
} seen_lane;

static seen_lane seen[SL_LANE_COUNT];

static void note_ran(void *user, sl_lane lane, uint32_t command, uint64_t start_ns, uint64_t end_ns)
{
    seen_lane *own = (seen_lane *)user + lane;
    world_check(start_ns <= end_ns && start_ns >= own->last_end_ns);
    own->last_end_ns = end_ns;
    own->count++;
    own->busy_ns += end_ns - start_ns;
    own->commands |= 1u << command;
}

static void check_moved(const sl_engine_statistics *statistics, uint64_t h2d, uint64_t d2h)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        uint64_t expected = lane == SL_LANE_H2D ? h2d : lane == SL_LANE_D2H ? d2h : 0;
        assert_int_equal(statistics->moved_bytes[lane], expected);
    }
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
    enum { STEPS = 20, SLEEP_US = 1000 };
    world w;
    uint64_t output;
    sl_engine_statistics statistics;
    sl_engine_observer observer = {note_ran, seen};
    world_init(&w);
    memset(seen, 0, sizeof seen);
    w.options.observer = &observer;
    sl_engine *engine = open_world(&w);
    fakes.sleep_us[SL_OP_ADAMW] = SLEEP_US;
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, 0, 0);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_DEVICE], 0);
    assert_int_equal(statistics.busy_ns[SL_LANE_COMPUTE], 0); /* warming up does not count */
    for (uint32_t i = 0; i < STEPS; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, STEPS * (CHUNK_BYTES + 8), STEPS * (CHUNK_BYTES + 8));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        assert_int_equal(seen[lane].count, STEPS * counts[lane]);
        assert_int_equal(seen[lane].commands, commands[lane]);
        assert_int_equal(seen[lane].busy_ns, statistics.busy_ns[lane]);
    }
    /* nanosleep never returns early: each update takes at least its sleep. */
    assert_true(statistics.busy_ns[SL_LANE_HOST] >= STEPS * SLEEP_US * UINT64_C(1000));
    assert_true(statistics.busy_ns[SL_LANE_COMPUTE] >= STEPS * SLEEP_US * UINT64_C(1000));
    assert_true(statistics.step_ns >= SLEEP_US * UINT64_C(1000)); /* of the update on the device */
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_DEVICE], DEVICE_PEAK);
    assert_int_equal(statistics.measured_peak_bytes[SL_TIER_HOST], HOST_OUTPUT + 8);
    assert_int_equal(statistics.arena_bytes[SL_TIER_DEVICE], DEVICE_PEAK);
    assert_int_equal(statistics.arena_bytes[SL_TIER_HOST], HOST_PEAK);
    assert_int_equal(fakes.wrong, 0);
    sl_engine_take_statistics(engine, &statistics);
    check_moved(&statistics, 0, 0);
    assert_int_equal(statistics.busy_ns[SL_LANE_HOST], 0);
    sl_engine_close(engine);
}

/* The host update takes 4 ms, the device's work of an iteration none: forward waits for the copy of
 * the parameters, which waits for the update. */
static void stalls_when_the_host_is_slow_name_the_lane_waited_for(void **state)
{
    (void)state;
    enum { STEPS = 10, SLEEP_US = 4000 };
    world w;
    uint64_t output;
    sl_engine_statistics statistics;
    world_init(&w);
    w.train_body[8] = w.train_body[5];
    sl_engine *engine = open_world(&w);
    fakes.sleep_us[SL_OP_ADAMW] = SLEEP_US;
    for (uint32_t i = 0; i < STEPS; i++)
        assert_int_equal(step(engine, TRAIN_PLAN, i, i, &output), SL_OK);
    sl_engine_take_statistics(engine, &statistics);
    /* Every step but the first stalls for a whole update, less what issuing took: say a
     * quarter. */
    assert_true(statistics.stall_ns[SL_LANE_H2D] >= (STEPS - 1) * SLEEP_US * UINT64_C(250));
    assert_int_equal(statistics.stall_ns[SL_LANE_HOST], 0);
    assert_int_equal(statistics.stall_ns[SL_LANE_COMPUTE], 0);
    sl_engine_close(engine);
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

/* ---- plans that must be refused ---- */

static void break_place(world *w)
{
    w->places[4].offset = DEVICE_PEAK - 7;
}
static void break_tier(world *w)
{
    w->places[4].tier = SL_TIER_DISK;
}
static void break_workspace(world *w)
{
    w->places[5].bytes = UINT64_MAX;
}
static void break_copy(world *w)
{
    w->train_body[4].to.bytes--;
}
static void break_lane(world *w)
{
    w->train_body[4].lane = SL_LANE_WRITE;
}
static void break_tick(world *w)
{
    w->train_body[2].tick = 5;
}
static void break_op(world *w)
{
    w->ops[2].kind = SL_OP_ALL_REDUCE; /* has no fake kernel */
}
static void break_wait(world *w)
{
    w->waits[3].command = 2; /* of command 2, delta 0: itself */
}
static void break_wait_range(world *w)
{
    w->train_body[2].first_wait = WAIT_COUNT - 1;
}
static void break_place_range(world *w)
{
    w->train_body[8].first_place = PLACE_COUNT - 5;
}
static void break_flags(world *w)
{
    w->homes.flags_bytes[SL_TIER_HOST] = 0;
}
static void break_home(world *w)
{
    w->homes.fixed_bytes[SL_TIER_DISK] = 1;
}
static void break_slot(world *w)
{
    w->train_body[6].to.tier = SL_TIER_DEVICE;
}
static void break_prologue(world *w)
{
    w->eval_prologue[0].kind = SL_COMMAND_RUN;
}
static void break_workers(world *w)
{
    w->options.worker_count = 0;
}
static void break_plans(world *w)
{
    w->options.plan_count = 0;
}

static void open_when_a_plan_is_broken_fails_and_frees(void **state)
{
    (void)state;
    void (*const breaks[])(world *) = {
        break_place, break_tier,        break_workspace,  break_copy,    break_lane, break_tick,
        break_op,    break_wait,        break_wait_range, break_flags,   break_home, break_slot,
        break_plans, break_place_range, break_prologue,   break_workers,
    };
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        world w;
        sl_engine *engine = NULL;
        world_init(&w);
        breaks[i](&w);
        (void)sl_status_fail(SL_ERROR_USAGE, "%s", "");
        sl_status status = sl_engine_open_with(&w.options, &fake_kernels, &engine);
        if (status == SL_OK || engine || sl_status_message()[0] == '\0')
            fail_msg("break %zu was accepted", i);
    }
    sl_engine_close(NULL);
}

static void step_when_there_is_no_such_plan_fails(void **state)
{
    (void)state;
    world w;
    world_numbers numbers;
    sl_step_scalars scalars = {.learning_rate = 0.5f};
    world_init(&w);
    sl_engine *engine = open_world(&w);
    start_numbers(engine, &numbers);
    assert_int_equal(sl_engine_step(engine, 2, &scalars), SL_ERROR_INTERNAL);
    step_and_check(engine, TRAIN_PLAN, &numbers, 3); /* and nothing is broken by it */
    sl_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_when_repeated_give_the_numbers_of_a_plain_loop),
        cmocka_unit_test(plans_when_switched_at_random_see_each_others_results),
        cmocka_unit_test(write_chunk_when_between_iterations_is_seen_by_the_next),
        cmocka_unit_test(open_when_guarded_clears_homes_and_nothing_else),
        cmocka_unit_test(clear_persistent_when_called_zeroes_the_slots_alone),
        cmocka_unit_test(slots_when_asked_for_are_the_plans_places),
        cmocka_unit_test(warm_up_when_opening_covers_each_op_and_lane_once),
        cmocka_unit_test(chunk_access_when_outside_is_refused),
        cmocka_unit_test(step_when_a_kernel_fails_returns_its_message_for_good),
        cmocka_unit_test(host_lane_when_it_fails_comes_back_from_drain_or_the_next_step),
        cmocka_unit_test(statistics_when_taken_add_up),
        cmocka_unit_test(stalls_when_the_host_is_slow_name_the_lane_waited_for),
        cmocka_unit_test(prologue_when_a_plan_goes_on_is_not_run_again),
        cmocka_unit_test(open_when_a_plan_is_broken_fails_and_frees),
        cmocka_unit_test(step_when_there_is_no_such_plan_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
