/* What could be wrong when something fails inside of a long step: the step goes on to its end and
 * computes garbage meanwhile; it hangs, because somebody waits for what is no longer done; the
 * message does not say what failed; the source is asked again; what cannot be run is not refused.
 *
 * Each kind of lane that can fail on the processor is made to, in several repetitions of the loops
 * of engine_loops.h. How far a step went is seen from the progress it reports.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine_loops.h"
#include "offload/store_double.h"
#include "scratch_dir.h"

enum { REPEAT = 200, STEPS_BEFORE = 2, WATCHDOG_SECONDS = 250, TRIES = 5 };

typedef struct progress_log {
    uint32_t done;       /* in this step */
    uint32_t at_failure; /* reported when the failure was first seen */
    bool has_failed;
} progress_log;

static void note_progress(void *user, uint32_t plan_index, uint32_t done, uint32_t count)
{
    progress_log *t = user;
    loop_check(plan_index == 0 && count == 2 * REPEAT + 2);
    if (loop.has_failed && !t->has_failed) {
        t->has_failed = true;
        t->at_failure = done;
    }
    t->done = done;
}

static void expect_dead(sl_engine *engine, sl_status status, const char *message)
{
    uint64_t control;
    assert_int_equal(loop_step(engine, 9, &control), status);
    assert_non_null(strstr(sl_status_message(), message));
    assert_int_equal(sl_engine_drain(engine), status);
    assert_non_null(strstr(sl_status_message(), message));
}

typedef struct failure_row {
    sl_op_kind kind;
    const char *lane;
    uint32_t first; /* repetitions of the step before its loop's first */
    uint32_t ahead; /* repetitions issued when one fails, itself included, at most */
} failure_row;

/* What had begun ends, and no more: one repetition is being issued, one kernel may be starting on
 * each of two other lanes. */
static bool has_ended_at_once(const failure_row *row, uint32_t repetition, const progress_log *t)
{
    bool is_held_up = row->kind != SL_OP_ROUND || repetition + 2 < REPEAT;
    return (!t->has_failed || t->done <= t->at_failure + 1) &&
           (!is_held_up || t->done <= row->first + repetition + row->ahead) && loop.runs_after <= 2;
}

/* A failure in repetition `repetition` of its loop, which holds the lane up or does not. Returns
 * whether the step ended at once. */
static bool fail_and_check(const failure_row *row, uint32_t repetition, uint32_t sleep_us)
{
    loop_world w;
    char message[128];
    uint64_t control = 0;
    progress_log t = {0};
    sl_engine_progress progress = {note_progress, &t};
    loop_world_init(&w, REPEAT, NULL);
    w.options.progress = &progress;
    loop.fail_kind = row->kind;
    loop.fail_step = STEPS_BEFORE;
    loop.fail_repetition = repetition;
    loop.sleep_us[row->kind] = sleep_us;
    sl_engine *engine = loop_open(&w);
    for (uint32_t i = 0; i < STEPS_BEFORE; i++)
        assert_int_equal(loop_step(engine, i, &control), SL_OK);
    uint32_t fills = loop.fills;
    t = (progress_log){0};
    control = 0x1234;
    assert_int_equal(loop_step(engine, STEPS_BEFORE, &control), SL_ERROR_NONFINITE);
    assert_int_equal(control, 0x1234);
    snprintf(message, sizeof message, "op kind %d fails in %u", (int)row->kind,
             repetition + LOOP_FIRST_MICRO_BATCH);
    assert_non_null(strstr(sl_status_message(), message));
    assert_non_null(strstr(sl_status_message(), row->lane));
    const bool is_at_once = has_ended_at_once(row, repetition, &t);
    if (row->kind == SL_OP_INPUT)
        assert_int_equal(loop.fills, fills + repetition + 1);
    expect_dead(engine, SL_ERROR_NONFINITE, message);
    assert_int_equal(loop.wrong, 0);
    sl_engine_close(engine);
    return is_at_once;
}

/* A thread that the system stops between the failure and the word of it lets others run on: then
 * it is tried again. */
static void fail_until_at_once(const failure_row *row, uint32_t repetition, uint32_t sleep_us)
{
    bool is_at_once = false;
    for (int i = 0; i < TRIES && !is_at_once; i++)
        is_at_once = fail_and_check(row, repetition, sleep_us);
    assert_true(is_at_once);
}

/* The compute lane may be two repetitions ahead of the host lane, by the slots of the ring that
 * both read; behind the last of them the host lane is only waited for at the end. */
static void step_when_a_lane_fails_in_a_loop_ends_within_two_repetitions(void **state)
{
    (void)state;
    static const failure_row rows[] = {
        {SL_OP_LINEAR, "on the compute lane", 1, 2},
        {SL_OP_ROUND, "on the host lane", 1, 4},
        {SL_OP_INPUT, "(input 0 of", 1, 2},
        {SL_OP_ADD, "on the compute lane", 1 + REPEAT, 2},
    };
    static const uint32_t repetitions[] = {0, 1, 2, 7, REPEAT / 2, REPEAT - 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t k = 0; k < sizeof repetitions / sizeof repetitions[0]; k++) {
            fail_until_at_once(&rows[i], repetitions[k], 0);
            fail_until_at_once(&rows[i], repetitions[k], 300);
        }
    }
}

static void input_when_its_source_fails_names_slot_and_micro_batch(void **state)
{
    (void)state;
    loop_world w;
    uint64_t control;
    loop_world_init(&w, REPEAT, NULL);
    loop.fail_kind = SL_OP_INPUT;
    loop.fail_step = 0;
    loop.fail_repetition = 5;
    sl_engine *engine = loop_open(&w);
    assert_int_equal(loop_step(engine, 0, &control), SL_ERROR_NONFINITE);
    assert_memory_equal(sl_status_message(), "op kind", strlen("op kind"));
    assert_non_null(strstr(sl_status_message(), "(input 0 of micro-batch 8)"));
    sl_engine_close(engine);
}

/* ---- the disk ---- */

/* The lanes of the disk move one member a repetition, one request each. */
static void fail_disk_and_check(int lanes, uint32_t repetition, uint32_t first)
{
    loop_world w;
    uint64_t control;
    progress_log t = {0};
    sl_engine_progress progress = {note_progress, &t};
    scratch_path directory = scratch_open();
    loop_world_init(&w, REPEAT, directory.text);
    w.parts.transport = &store_double_ops;
    w.options.progress = &progress;
    store_double_arm((store_double_plan){.seed = 1});
    sl_engine *engine = loop_open(&w);
    assert_int_equal(loop_step(engine, 0, &control), SL_OK);
    store_double_arm((store_double_plan){.seed = 1,
                                         .kind = DOUBLE_ERRNO,
                                         .lanes = lanes,
                                         .first = repetition + 1,
                                         .all_after = 1,
                                         .error = EIO});
    assert_int_equal(loop_step(engine, 1, &control), SL_ERROR_IO);
    assert_non_null(strstr(sl_status_message(), "activation member on the"));
    /* Computation is ahead of the writes by the slots of two rings, and issuing by two more. */
    if (t.done > first + repetition + 8)
        fail_msg("%u repetitions, failure in %u", t.done, first + repetition);
    expect_dead(engine, SL_ERROR_IO, "activation member on the");
    assert_int_equal(loop.wrong, 0);
    sl_engine_close(engine);
    assert_int_equal(rmdir(directory.text), 0);
}

static void step_when_the_disk_fails_in_a_loop_ends_soon(void **state)
{
    (void)state;
    static const uint32_t repetitions[] = {0, 1, 30};
    for (size_t k = 0; k < sizeof repetitions / sizeof repetitions[0]; k++) {
        fail_disk_and_check(DOUBLE_WRITES, repetitions[k], 1);
        fail_disk_and_check(DOUBLE_READS, repetitions[k], 1 + REPEAT);
    }
}

/* ---- what is refused ---- */

static void slots_when_a_source_fills_them_are_not_the_callers(void **state)
{
    (void)state;
    loop_world w;
    loop_world_init(&w, 3, NULL);
    sl_engine *engine = loop_open(&w);
    assert_null(sl_engine_input(engine, 0, SL_INPUT_TOKENS));
    assert_non_null(sl_engine_output(engine, 0, SL_OUTPUT_CONTROL));
    sl_engine_close(engine);
}

static void no_source(loop_world *w)
{
    w->options.source = NULL;
}
static void no_function(loop_world *w)
{
    w->source.fill = NULL;
}
static void break_lane(loop_world *w)
{
    w->commands[w->index[LOOP_INPUT]].lane = SL_LANE_COMPUTE;
}
static void break_host_lane(loop_world *w)
{
    w->commands[w->index[LOOP_INPUT]].lane = SL_LANE_HOST;
}
static void break_op(loop_world *w)
{
    w->commands[w->index[LOOP_HOST_SUM]].lane = SL_LANE_INPUT;
}
static void break_copy(loop_world *w)
{
    w->commands[w->index[LOOP_TOKEN_IN]].lane = SL_LANE_INPUT;
}
static void break_tier(loop_world *w)
{
    w->places[w->commands[w->index[LOOP_INPUT]].first_place].tier = SL_TIER_DEVICE;
}
static void break_value(loop_world *w)
{
    w->ops[1].operand[0] = LOOP_VALUE_MEMBER;
}
static void break_operand(loop_world *w)
{
    w->ops[1].operand[0] = SL_NONE;
}
static void break_bytes(loop_world *w)
{
    w->places[w->commands[w->index[LOOP_INPUT]].first_place].bytes = 0;
}
static void break_member(loop_world *w)
{
    w->places[w->commands[w->index[LOOP_SUM]].first_place].slots++;
}
static void break_control(loop_world *w)
{
    sl_place *place = &w->commands[w->index[LOOP_CONTROL_OUT]].to;
    *place = loop_place(SL_TIER_HOST, LOOP_HOST_SPILL, 8, 2);
}
static void break_repeat(loop_world *w)
{
    w->sections[1].repeat = UINT32_MAX;
}
static void break_order(loop_world *w)
{
    sl_section section = w->sections[1];
    w->sections[1] = w->sections[2];
    w->sections[2] = section;
}
static void break_overlap(loop_world *w)
{
    w->sections[1].count++;
}

static void open_when_a_loop_is_broken_fails(void **state)
{
    (void)state;
    static const struct {
        void (*apply)(loop_world *);
        sl_status status;
    } breaks[] = {
        {no_source, SL_ERROR_USAGE},        {no_function, SL_ERROR_USAGE},
        {break_lane, SL_ERROR_INTERNAL},    {break_host_lane, SL_ERROR_INTERNAL},
        {break_op, SL_ERROR_INTERNAL},      {break_copy, SL_ERROR_INTERNAL},
        {break_tier, SL_ERROR_INTERNAL},    {break_value, SL_ERROR_INTERNAL},
        {break_operand, SL_ERROR_INTERNAL}, {break_bytes, SL_ERROR_INTERNAL},
        {break_member, SL_ERROR_INTERNAL},  {break_control, SL_ERROR_INTERNAL},
        {break_repeat, SL_ERROR_INTERNAL},  {break_order, SL_ERROR_INTERNAL},
        {break_overlap, SL_ERROR_INTERNAL},
    };
    for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
        loop_world w;
        sl_engine *engine = NULL;
        loop_world_init(&w, 3, NULL);
        breaks[i].apply(&w);
        if (sl_engine_open_with(&w.options, &w.parts, &engine) != breaks[i].status || engine)
            fail_msg("break %zu: %s", i, sl_status_message());
    }
}

/* Slots on disk have no checksum in common, and those in memory start on a page. */
static void open_when_slots_on_disk_are_broken_fails(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    for (int i = 0; i < 4; i++) {
        loop_world w;
        sl_engine *engine = NULL;
        loop_world_init(&w, 3, directory.text);
        sl_command *write = &w.commands[w.index[LOOP_SPILL_WRITE]];
        sl_place *place = i % 2 ? &write->from : &write->to;
        if (i < 2)
            place->stride += i == 0 ? SL_DIRECT_ALIGNMENT : 256;
        else
            place->slots += 8;
        assert_int_equal(sl_engine_open_with(&w.options, &w.parts, &engine), SL_ERROR_INTERNAL);
        assert_null(engine);
    }
    assert_int_equal(rmdir(directory.text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_a_lane_fails_in_a_loop_ends_within_two_repetitions),
        cmocka_unit_test(input_when_its_source_fails_names_slot_and_micro_batch),
        cmocka_unit_test(step_when_the_disk_fails_in_a_loop_ends_soon),
        cmocka_unit_test(slots_when_a_source_fills_them_are_not_the_callers),
        cmocka_unit_test(open_when_a_loop_is_broken_fails),
        cmocka_unit_test(open_when_slots_on_disk_are_broken_fails),
    };
    alarm(WATCHDOG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
