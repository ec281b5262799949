/* What could be wrong with the timeline of a step that has loops: it grows with the number of
 * micro-batches, leaves out what it should draw, or does not say what it left out; an event stands
 * in the wrong step, because its lane recorded it when the next was under way, or has the wrong
 * repetition or micro-batch. A plan made by hand; the test records what an engine would. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/timeline.h"
#include "scratch_dir.h"

enum { STEPS = 5, FIRST_STEP = 7, FIRST_MICRO_BATCH = 2, COMMANDS = 6, KEPT = 4 };

/* Commands 0 and 5 run once, 1 to 4 in the loop: an input, its copy, an op, and one on the host. */
typedef struct paper {
    sl_value values[1];
    sl_op ops[COMMANDS];
    sl_command commands[COMMANDS];
    sl_section sections[3];
    sl_program program;
    sl_plan plan;
    sl_engine_plan step;
    uint32_t repeat;
} paper;

static void fill_paper(paper *p, uint32_t repeat)
{
    static const sl_lane lanes[COMMANDS] = {SL_LANE_COMPUTE, SL_LANE_INPUT, SL_LANE_H2D,
                                            SL_LANE_COMPUTE, SL_LANE_HOST,  SL_LANE_COMPUTE};
    memset(p, 0, sizeof *p);
    p->repeat = repeat;
    for (uint32_t i = 0; i < COMMANDS; i++) {
        sl_op_kind kind = i == 1 ? SL_OP_INPUT : SL_OP_CLEAR;
        p->ops[i] = (sl_op){.kind = kind, .micro_batch = i % 5 ? FIRST_MICRO_BATCH : 0};
        for (int k = 1; k < SL_OPERAND_MAX; k++)
            p->ops[i].operand[k] = SL_NONE;
        p->commands[i] = (sl_command){.lane = lanes[i], .tick = i, .chunk_index = SL_NONE};
    }
    p->commands[2].kind = SL_COMMAND_COPY;
    p->commands[2].to.bytes = 64;
    snprintf(p->values[0].name, sizeof p->values[0].name, "value");
    p->sections[0] = (sl_section){0, 1, 0, 1};
    p->sections[1] = (sl_section){1, 4, FIRST_MICRO_BATCH, repeat};
    p->sections[2] = (sl_section){5, 1, 0, 1};
    p->program =
        (sl_program){.values = p->values, .value_count = 1, .ops = p->ops, .op_count = COMMANDS};
    p->plan = (sl_plan){
        .body = p->commands, .body_count = COMMANDS, .sections = p->sections, .section_count = 3};
    p->step = (sl_engine_plan){&p->program, &p->plan};
}

static void record(const sl_timeline *timeline, const paper *p, uint32_t command,
                   uint32_t repetition)
{
    static uint64_t now_ns = 1000;
    const sl_engine_observer *observer = sl_timeline_observer(timeline);
    sl_engine_event event = {0,      command,      repetition, p->commands[command].lane,
                             now_ns, now_ns + 2000};
    now_ns += 3000;
    observer->ran(observer->user, &event);
}

/* The host lane and the last op are recorded when the next step has begun, as after an early
 * return. */
static void record_step(sl_timeline *timeline, const paper *p, uint32_t step)
{
    record(timeline, p, 0, 0);
    for (uint32_t r = 0; r < p->repeat; r++) {
        for (uint32_t i = 1; i < 4; i++)
            record(timeline, p, i, r);
    }
    assert_int_equal(sl_timeline_write(timeline, FIRST_STEP + step), SL_OK);
    record(timeline, p, 5, 0);
    for (uint32_t r = 0; r < p->repeat; r++)
        record(timeline, p, 4, r);
}

typedef struct seen_event {
    uint32_t drawn[STEPS][SL_LANE_COUNT];
    uint32_t notes[STEPS][SL_LANE_COUNT];
} seen_event;

static json_int_t number(const json_t *args, const char *key)
{
    const json_t *value = json_object_get(args, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static void check_drawn(const paper *p, const json_t *event, const json_t *args)
{
    json_int_t repetition = number(args, "repetition"), tick = number(args, "tick");
    bool is_loop = p->repeat > 1 && tick >= 1 && tick <= 4;
    assert_int_equal(repetition >= 0, is_loop);
    if (is_loop) {
        assert_int_equal(number(args, "micro_batch"), FIRST_MICRO_BATCH + repetition);
        assert_true(repetition < 2 || repetition + 2 >= p->repeat);
    }
    assert_int_equal(number(args, "bytes"), tick == 2 ? 64 : -1);
    assert_int_equal(number(event, "tid"), p->commands[tick].lane);
}

static void check_note(const paper *p, const json_t *event)
{
    char text[64];
    snprintf(text, sizeof text, "%u repetitions left out", p->repeat - KEPT);
    assert_string_equal(json_string_value(json_object_get(event, "name")), text);
}

static void read_events(const paper *p, const char *name, seen_event *seen)
{
    size_t index;
    json_error_t error;
    json_t *event, *events = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_array(events))
        fail_msg("%s: %s", name, error.text);
    json_array_foreach(events, index, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        const json_t *args = json_object_get(event, "args");
        json_int_t lane = number(event, "tid"), step = number(args, "step") - FIRST_STEP;
        if (strcmp(kind, "M") == 0)
            continue;
        assert_in_range(step, 0, STEPS - 1);
        if (strcmp(kind, "i") == 0) {
            check_note(p, event);
            seen->notes[step][lane]++;
        } else {
            check_drawn(p, event, args);
            seen->drawn[step][lane]++;
        }
    }
    json_decref(events);
}

/* Returns the size of the file. */
static long draw_and_check(uint32_t repeat)
{
    paper p;
    seen_event seen = {0};
    sl_timeline *timeline = NULL;
    scratch_path directory = scratch_open();
    scratch_path file = scratch_join(directory.text, "trace");
    uint32_t kept = repeat < KEPT ? repeat : KEPT;
    struct stat info;
    fill_paper(&p, repeat);
    FILE *stream = fopen(file.text, "we");
    assert_non_null(stream);
    assert_int_equal(sl_timeline_open(stream, file.text, &p.step, &timeline), SL_OK);
    assert_true(sl_timeline_is_empty(timeline));
    for (uint32_t step = 0; step < STEPS; step++)
        record_step(timeline, &p, step);
    assert_int_equal(sl_timeline_write(timeline, FIRST_STEP + STEPS - 1), SL_OK);
    assert_false(sl_timeline_is_empty(timeline));
    assert_int_equal(sl_timeline_finish(timeline), SL_OK);
    sl_timeline_close(timeline);
    assert_int_equal(fclose(stream), 0);
    read_events(&p, file.text, &seen);
    assert_int_equal(stat(file.text, &info), 0);
    for (int step = 0; step < STEPS; step++) {
        for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
            bool is_used = lane == SL_LANE_COMPUTE || lane == SL_LANE_H2D || lane == SL_LANE_HOST ||
                           lane == SL_LANE_INPUT;
            uint32_t drawn = is_used ? kept + (lane == SL_LANE_COMPUTE ? 2 : 0) : 0;
            assert_int_equal(seen.drawn[step][lane], drawn);
            assert_int_equal(seen.notes[step][lane], is_used && repeat > KEPT);
        }
    }
    scratch_close(&directory);
    return (long)info.st_size;
}

static void timeline_when_a_step_has_loops_draws_their_ends(void **state)
{
    (void)state;
    for (uint32_t repeat = 1; repeat < 12; repeat++)
        (void)draw_and_check(repeat);
}

static void timeline_when_loops_are_long_is_no_longer(void **state)
{
    (void)state;
    long size = draw_and_check(512);
    assert_in_range(draw_and_check(99512), size, size + size / 4); /* by digits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeline_when_a_step_has_loops_draws_their_ends),
        cmocka_unit_test(timeline_when_loops_are_long_is_no_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
