/* What could be wrong here: time that is lost or invented where a wait is cut at the borders of
 * another's, a part charged to the lane in between, parts out of order (later waits are divided by
 * them), a border that counts to both sides. Waits in whole units are divided and compared with an
 * array that says for every unit who is to be charged. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "chunk/simulate/stall.h"
#include "scratch_dir.h"

enum { UNITS = 1200 };

/* Who is to be charged for each unit of time that a lane waited; SL_LANE_COUNT: it did not. */
typedef struct lane_time {
    sl_lane cause[UNITS];
    sl_stall_history history;
} lane_time;

static void clear_time(lane_time *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < UNITS; i++)
        t->cause[i] = SL_LANE_COUNT;
}

/* Spans of one to five units with gaps of none to four, over all the time, by any lane but one. */
static void draw_history(lane_time *t, sl_lane own, uint64_t *state)
{
    uint64_t at = scratch_below(state, 4);
    clear_time(t);
    for (;;) {
        uint64_t end = at + 1 + scratch_below(state, 5);
        sl_lane cause = (sl_lane)scratch_below(state, SL_LANE_COUNT);
        if (end > UNITS)
            return;
        sl_stall_span span = {(double)at, (double)end, cause == own ? SL_LANE_READ : cause};
        for (uint64_t i = at; i < end; i++)
            t->cause[i] = span.cause;
        sl_stall_remember(&t->history, &span);
        at = end + scratch_below(state, 5);
    }
}

/* From when on the history still knows. */
static double first_known(const sl_stall_history *history)
{
    if (history->count <= SL_STALL_HISTORY)
        return 0;
    return history->spans[history->count % SL_STALL_HISTORY].start;
}

static void check_parts(const lane_time *t, sl_lane waiter, const sl_stall_span *wait,
                        const sl_stall_span *parts, uint32_t count)
{
    double at = wait->start;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(parts[i].start == at && parts[i].end > at); /* no gap, none empty */
        for (; at < parts[i].end; at++) {
            sl_lane cause = t->cause[(int)at];
            bool is_known =
                cause != SL_LANE_COUNT && cause != waiter && at >= first_known(&t->history);
            assert_int_equal(parts[i].cause, is_known ? cause : wait->cause);
        }
    }
    assert_true(at == wait->end);
}

static void waits_when_divided_then_every_unit_is_charged_to_its_cause(void **state)
{
    (void)state;
    uint64_t draw = scratch_seed("stall", 11);
    lane_time t;
    for (uint64_t round = 0; round < scratch_count(300, 10000); round++) {
        sl_stall_span parts[SL_STALL_PART_MAX];
        draw_history(&t, SL_LANE_H2D, &draw);
        assert_true(t.history.count > SL_STALL_HISTORY); /* some were forgotten */
        uint64_t start = scratch_below(&draw, UNITS), end = start + scratch_below(&draw, 60);
        if (round % 10 == 0)
            start = 0, end = UNITS; /* across all of it */
        end = end > UNITS ? UNITS : end;
        sl_stall_span wait = {(double)start, (double)end, SL_LANE_H2D};
        uint32_t count = sl_stall_divide(&t.history, SL_LANE_COMPUTE, &wait, parts);
        check_parts(&t, SL_LANE_COMPUTE, &wait, parts, count);
    }
}

static void wait_when_nothing_is_remembered_then_stays_whole(void **state)
{
    (void)state;
    static const sl_stall_history nothing;
    sl_stall_span wait = {3, 5, SL_LANE_D2H}, parts[SL_STALL_PART_MAX];
    assert_int_equal(sl_stall_divide(&nothing, SL_LANE_COMPUTE, &wait, parts), 1);
    assert_true(parts[0].start == 3 && parts[0].end == 5 && parts[0].cause == SL_LANE_D2H);
    wait.end = wait.start;
    assert_int_equal(sl_stall_divide(&nothing, SL_LANE_COMPUTE, &wait, parts), 0);
}

/* ---- in a simulation ---- */

/* Each iteration reads for 3 s, copies for 1 s and computes for 2 s, one after the other: nothing
 * may start before the op of the iteration before is done. */
static void stall_when_the_disk_stands_behind_the_copy_then_is_the_disks(void **state)
{
    (void)state;
    enum { UNIT = 1000 };
    sl_op ops[1] = {{.kind = SL_OP_CLEAR, .attrs = {.element_count = UNIT}}};
    sl_value values[1] = {{.kind = SL_VALUE_CHUNK}};
    sl_program program = {.ops = ops, .op_count = 1, .values = values, .value_count = 1};
    sl_wait waits[] = {{2, 0}, {0, 0}, {1, 0}};
    sl_command body[] = {
        {.kind = SL_COMMAND_COPY, .lane = SL_LANE_READ, .from.bytes = 3 * UNIT, .wait_count = 1},
        {.kind = SL_COMMAND_COPY,
         .lane = SL_LANE_H2D,
         .from.bytes = UNIT,
         .first_wait = 1,
         .wait_count = 1},
        {.kind = SL_COMMAND_RUN, .lane = SL_LANE_COMPUTE, .first_wait = 2, .wait_count = 1},
    };
    sl_section section = {0, 3, 0, 1};
    sl_plan plan = {.body = body,
                    .body_count = 3,
                    .sections = &section,
                    .section_count = 1,
                    .waits = waits,
                    .wait_count = 3};
    sl_machine machine = {.name = "test"};
    sl_simulation found;
    machine.op[SL_OP_CLEAR][SL_TYPE_FP32].seconds = 2;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        machine.copy_rate[lane] = UNIT;
    assert_int_equal(sl_plan_simulate(&program, &plan, &machine, &found), SL_OK);
    assert_true(found.step_seconds == 6);
    assert_true(found.stall_seconds[SL_LANE_READ] == 3);
    assert_true(found.stall_seconds[SL_LANE_H2D] == 1);
}

/* Periods of more spans than are kept, and of fewer; whatever was remembered before. */
static void spans_that_are_repeated_are_as_if_they_were_remembered_one_by_one(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 500; round++) {
        const uint64_t before = scratch_below(&random, 300), spans = scratch_below(&random, 300);
        const uint32_t times = (uint32_t)scratch_below(&random, 400);
        const double seconds = 3.0 * (double)spans + 1;
        sl_stall_history expected = {.count = 0}, found;
        for (uint64_t i = 0; i < before; i++)
            sl_stall_remember(&expected, &(sl_stall_span){(double)i, (double)i + 1, SL_LANE_READ});
        found = expected;
        for (uint32_t period = 0; period <= times; period++)
            for (uint64_t i = 0; i < spans; i++) {
                const double start = 1000 + period * seconds + 3.0 * (double)i;
                const sl_stall_span span = {start, start + 2, (sl_lane)(i % SL_LANE_COUNT)};
                sl_stall_remember(&expected, &span);
                if (period == 0)
                    sl_stall_remember(&found, &span);
            }
        sl_stall_repeat(&found, before, seconds, times);
        assert_int_equal(found.count, expected.count);
        for (int i = 0; i < SL_STALL_HISTORY; i++) {
            assert_true(found.spans[i].start == expected.spans[i].start);
            assert_true(found.spans[i].end == expected.spans[i].end);
            assert_int_equal(found.spans[i].cause, expected.spans[i].cause);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_when_divided_then_every_unit_is_charged_to_its_cause),
        cmocka_unit_test(wait_when_nothing_is_remembered_then_stays_whole),
        cmocka_unit_test(stall_when_the_disk_stands_behind_the_copy_then_is_the_disks),
        cmocka_unit_test(spans_that_are_repeated_are_as_if_they_were_remembered_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
