/* What could be wrong with plans that have loops: a section is run too often or too rarely, or its
 * place in a family or a ring is that of another repetition; a wait reaches the wrong issue, so
 * that a slot is overwritten while it is read, or lanes wait for what they need not; the step's
 * micro-batch does not reach kernels, source and observer; statistics and progress count
 * wrongly; a step issues all of a long loop at once.
 *
 * The world is that of engine_loops.h, each lane made the slow one in turn; the oracle is the same
 * arithmetic in a loop.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine_loops.h"
#include "scratch_dir.h"

static void slow_down(uint32_t round)
{
    static const sl_op_kind kinds[] = {SL_OP_INPUT, SL_OP_LINEAR, SL_OP_ROUND, SL_OP_ADD,
                                       SL_OP_COUNT};
    memset(loop.sleep_us, 0, sizeof loop.sleep_us);
    if (kinds[round % 5] != SL_OP_COUNT)
        loop.sleep_us[kinds[round % 5]] = 2000;
}

/* ---- numbers ---- */

static void run_and_compare(uint32_t repeat, uint32_t steps, const char *directory)
{
    loop_world w;
    uint64_t control = 0, host_sum = 0;
    loop_world_init(&w, repeat, directory);
    w.options.guard_arenas = repeat % 2;
    sl_engine *engine = loop_open(&w);
    memset((char *)(uintptr_t)sl_engine_arena(engine, SL_TIER_HOST) +
               (size_t)LOOP_HOST_SUM_CELL * LOOP_CELL,
           0, 8);
    for (uint32_t i = 0; i < steps; i++) {
        slow_down(repeat > 100 ? 4 : i);
        if (loop_step(engine, i, &control) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_int_equal(control, loop_expect(i, repeat, &host_sum));
        assert_int_equal(loop_read_host_sum(engine), host_sum);
        assert_int_equal(loop.fills, (i + 1) * repeat);
        if (i % 4 == 3)
            assert_int_equal(sl_engine_drain(engine), SL_OK);
    }
    assert_int_equal(loop.wrong, 0);
    assert_int_equal(loop.runs[SL_OP_CLEAR], steps);
    assert_int_equal(loop.runs[SL_OP_LINEAR], steps * repeat);
    assert_int_equal(loop.runs[SL_OP_ADD], steps * repeat);
    assert_int_equal(loop.runs[SL_OP_NORM_FINISH], steps);
    sl_engine_close(engine);
}

static const uint32_t repeats[] = {1, 2, 3, 5, 40, 1000};

static void loops_when_run_give_the_numbers_of_a_plain_loop(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof repeats / sizeof repeats[0]; i++)
        run_and_compare(repeats[i], repeats[i] > 100 ? 2 : 11, NULL);
}

static void loops_when_a_family_lives_on_disk_give_the_same(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    for (size_t i = 0; i < sizeof repeats / sizeof repeats[0]; i++)
        run_and_compare(repeats[i], repeats[i] > 100 ? 2 : 11, directory.text);
    assert_int_equal(rmdir(directory.text), 0);
}

/* ---- what runs beside what ---- */

static _Atomic uint32_t copies_in;

static void count_copies(void *user, const sl_engine_event *event)
{
    const loop_world *w = user;
    if (event->command == w->index[LOOP_TOKEN_IN])
        copies_in = event->repetition + 1;
}

/* The kernel of repetition r ends only when the token of repetition r + 1 is in the other slot. */
static void rings_when_of_two_slots_are_filled_while_they_are_read(void **state)
{
    (void)state;
    enum { REPEAT = 7 };
    loop_world w;
    uint64_t control, host_sum = 0;
    sl_engine_observer observer = {count_copies, &w};
    loop_world_init(&w, REPEAT, NULL);
    w.options.observer = &observer;
    loop.copies_in = &copies_in;
    sl_engine *engine = loop_open(&w);
    for (uint32_t i = 0; i < 6; i++) {
        copies_in = 0;
        assert_int_equal(loop_step(engine, i, &control), SL_OK);
        assert_int_equal(control, loop_expect(i, REPEAT, &host_sum));
    }
    assert_int_equal(loop.wrong, 0);
    sl_engine_close(engine);
}

/* Copies and host ops read something else, and so wait for nothing of the source. */
static void inputs_when_nothing_needs_them_are_all_there_when_a_step_returns(void **state)
{
    (void)state;
    enum { REPEAT = 6 };
    loop_world w;
    uint64_t control;
    sl_place other = loop_place(SL_TIER_HOST, LOOP_HOST_SPILL, 8, 2);
    loop_world_init(&w, REPEAT, NULL);
    w.commands[w.index[LOOP_TOKEN_IN]].from = other;
    w.places[w.commands[w.index[LOOP_HOST_SUM]].first_place] = other;
    for (uint32_t i = 0; i < w.plan.wait_count; i++) {
        if (w.waits[i].command == w.index[LOOP_INPUT])
            w.waits[i].command = w.index[LOOP_CLEAR];
    }
    sl_engine *engine = loop_open(&w);
    loop.sleep_us[SL_OP_INPUT] = 20000;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(loop_step(engine, i, &control), SL_OK);
        assert_int_equal(loop.fills, (i + 1) * REPEAT);
    }
    sl_engine_close(engine);
}

/* ---- progress as it is reported ---- */

typedef struct progress_log {
    uint32_t done, count, calls;
} progress_log;

/* Each repetition has one kernel on the compute lane: at most two are issued and have not run. */
static void note_progress(void *user, uint32_t plan_index, uint32_t done, uint32_t count)
{
    progress_log *t = user;
    uint32_t computed = loop.runs[SL_OP_CLEAR] + loop.runs[SL_OP_LINEAR] + loop.runs[SL_OP_ADD] +
                        loop.runs[SL_OP_NORM_FINISH];
    loop_check(plan_index == 0 && done == t->done % count + 1);
    loop_check(computed + 2 >= ++t->calls);
    t->done = done;
    t->count = count;
}

static void progress_when_told_is_never_two_repetitions_ahead(void **state)
{
    (void)state;
    enum { REPEAT = 50, COUNT = 2 * REPEAT + 2 };
    loop_world w;
    uint64_t control;
    progress_log t = {0};
    sl_engine_progress progress = {note_progress, &t};
    loop_world_init(&w, REPEAT, NULL);
    w.options.progress = &progress;
    sl_engine *engine = loop_open(&w);
    loop.sleep_us[SL_OP_LINEAR] = loop.sleep_us[SL_OP_ADD] = 1000;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(loop_step(engine, i, &control), SL_OK);
        assert_int_equal(t.done, COUNT);
        assert_int_equal(t.count, COUNT);
        assert_int_equal(t.calls, (i + 1) * COUNT);
    }
    assert_int_equal(loop.wrong, 0);
    sl_engine_close(engine);
}

typedef struct seen_command {
    uint32_t count, next;
    uint64_t busy_ns;
} seen_command;

static seen_command seen[LOOP_ROLES];

static void note_ran(void *user, const sl_engine_event *event)
{
    const loop_world *w = user;
    seen_command *command = &seen[event->command];
    bool is_loop = w->commands[event->command].tick >= 1 && w->commands[event->command].tick <= 4;
    loop_check(w->commands[event->command].lane == event->lane && event->plan_index == 0);
    if (w->commands[event->command].kind == SL_COMMAND_RUN) {
        loop_check(event->repetition == command->next);
        command->next = is_loop ? (command->next + 1) % w->repeat : 0;
    }
    command->count++;
    command->busy_ns += event->end_ns - event->start_ns;
}

static void statistics_when_of_a_loop_count_every_repetition(void **state)
{
    (void)state;
    enum { REPEAT = 9, STEPS = 4, SLEEP_US = 1000, ALL = REPEAT * STEPS };
    loop_world w;
    uint64_t control;
    sl_engine_statistics s;
    sl_engine_observer observer = {note_ran, &w};
    memset(seen, 0, sizeof seen);
    loop_world_init(&w, REPEAT, NULL);
    w.options.observer = &observer;
    sl_engine *engine = loop_open(&w);
    loop.sleep_us[SL_OP_LINEAR] = loop.sleep_us[SL_OP_INPUT] = SLEEP_US;
    for (uint32_t i = 0; i < STEPS; i++)
        assert_int_equal(loop_step(engine, i, &control), SL_OK);
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    sl_engine_take_statistics(engine, &s);
    assert_int_equal(s.moved_bytes[SL_LANE_H2D], ALL * 8);
    assert_int_equal(s.moved_bytes[SL_LANE_D2H], STEPS * 8);
    assert_int_equal(s.moved_bytes[SL_LANE_INPUT], 0);
    /* One run of three sleeps, and never less than it was asked for. */
    assert_true(s.busy_ns[SL_LANE_INPUT] >= ALL / 3 * SLEEP_US * UINT64_C(1000));
    assert_true(s.busy_ns[SL_LANE_COMPUTE] >= ALL / 3 * SLEEP_US * UINT64_C(1000));
    assert_int_equal(s.busy_ns[SL_LANE_INPUT], seen[w.index[LOOP_INPUT]].busy_ns);
    assert_int_equal(s.measured_peak_bytes[SL_TIER_DEVICE],
                     (LOOP_DEVICE_MEMBERS + REPEAT) * LOOP_CELL);
    assert_int_equal(s.measured_peak_bytes[SL_TIER_HOST], LOOP_HOST_CONTROL * LOOP_CELL + 8);
    for (uint32_t i = 0; i < w.plan.body_count; i++) {
        bool is_once = i == w.index[LOOP_CLEAR] || i >= w.index[LOOP_FINISH];
        assert_int_equal(seen[i].count, is_once ? STEPS : ALL);
    }
    assert_int_equal(loop.wrong, 0);
    sl_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_when_run_give_the_numbers_of_a_plain_loop),
        cmocka_unit_test(loops_when_a_family_lives_on_disk_give_the_same),
        cmocka_unit_test(rings_when_of_two_slots_are_filled_while_they_are_read),
        cmocka_unit_test(inputs_when_nothing_needs_them_are_all_there_when_a_step_returns),
        cmocka_unit_test(progress_when_told_is_never_two_repetitions_ahead),
        cmocka_unit_test(statistics_when_of_a_loop_count_every_repetition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
