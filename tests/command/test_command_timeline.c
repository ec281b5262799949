/* What could be wrong with a timeline: it is no JSON, or not what viewers read; commands are
 * missing, told twice or in the wrong step; a lane does two things at once; bytes are not those of
 * the log; it changes the numbers. Runs the built command and reads the file. */
#define _GNU_SOURCE
#include "command_run.h"

#include <stdint.h>

enum { STEPS = 3, LANES = 8, H2D = 1, D2H = 2 };

typedef struct lane_sums {
    double end_us;           /* of the last event */
    uint32_t counts[STEPS];  /* events, by step */
    json_int_t bytes[STEPS]; /* copied, by step */
} lane_sums;

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* Adds one event to its lane's sums; rounding to a nanosecond may move its start a little. */
static void add_event(const json_t *event, lane_sums lanes[LANES])
{
    const json_t *args = json_object_get(event, "args");
    int tid = (int)number_of(event, "tid"), step = (int)number_of(args, "step");
    assert_in_range(tid, 0, LANES - 1);
    assert_in_range(step, 1, STEPS);
    lane_sums *lane = &lanes[tid];
    double start = number_of(event, "ts"), duration = number_of(event, "dur");
    if (start < lane->end_us - 0.002 || duration < 0)
        fail_msg("lane %d begins at %f before it ended at %f", tid, start, lane->end_us);
    lane->end_us = start + duration;
    lane->counts[step - 1]++;
    assert_true(strlen(json_string_value(json_object_get(event, "name"))) > 3);
    if (strcmp(json_string_value(json_object_get(event, "cat")), "copy") == 0)
        lane->bytes[step - 1] += json_integer_value(json_object_get(args, "bytes"));
    else
        assert_non_null(json_string_value(json_object_get(args, "phase")));
}

static uint32_t read_timeline(const char *name, lane_sums lanes[LANES])
{
    json_error_t error;
    size_t index;
    uint32_t row_names = 0;
    json_t *event, *events = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_array(events))
        fail_msg("%s: %s", name, error.text);
    json_array_foreach(events, index, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        if (strcmp(kind, "X") == 0)
            add_event(event, lanes);
        else
            row_names +=
                strcmp(json_string_value(json_object_get(event, "name")), "thread_name") == 0;
    }
    json_decref(events);
    return row_names;
}

/* Every iteration moves the same; the first step of the log counts the prologue too. */
static void compare_bytes(const lane_sums *lane, const char *key)
{
    json_t *events = read_log("log");
    json_int_t told = 0, logged = 0;
    size_t index;
    json_t *event;
    for (int step = 0; step < STEPS; step++)
        told += lane->bytes[step];
    json_array_foreach(events, index, event)
    {
        if (json_integer_value(json_object_get(event, "step")) == STEPS &&
            strcmp(kind_of(event), "step") == 0)
            logged = json_integer_value(json_object_get(event, key));
    }
    json_decref(events);
    assert_true(told > 0);
    assert_int_equal(told, STEPS * logged);
}

static void timeline_when_written_tells_every_command_once(void **state)
{
    (void)state;
    static const char *const ways[] = {"--policy device", "--policy host",
                                       "--policy nvme --disk-dir disk --accumulate 2"};
    assert_int_equal(system("mkdir -p disk"), 0);
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        lane_sums lanes[LANES] = {0};
        assert_code(sluice("train " TINY "--data text --steps %d --quiet --log-json log "
                           "--timeline trace %s",
                           STEPS, ways[way]),
                    0);
        assert_int_equal(read_timeline("trace", lanes), LANES);
        for (int lane = 0; lane < LANES; lane++)
            for (int step = 1; step < STEPS; step++)
                assert_int_equal(lanes[lane].counts[step], lanes[lane].counts[0]);
        assert_true(lanes[0].counts[0] > 20);
        compare_bytes(&lanes[H2D], "h2d_bytes");
        compare_bytes(&lanes[D2H], "d2h_bytes");
        assert_int_equal(unlink("log"), 0);
    }
}

static void timeline_when_asked_for_changes_no_number(void **state)
{
    (void)state;
    const char *common = "train " TINY "--data text --steps 3 --policy host --quiet --log-json";
    assert_code(sluice("%s plain", common), 0);
    assert_code(sluice("%s traced --timeline trace --eval-data text --eval-every 1", common), 0);
    assert_same_steps("plain", "traced", 1, 3);
    lane_sums lanes[LANES] = {0};
    assert_int_equal(read_timeline("trace", lanes), LANES);
    assert_int_equal(lanes[0].counts[0], lanes[0].counts[2]); /* evaluations are not in it */
}

static void timeline_when_it_cannot_be_written_then_74(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 1 --timeline no/such/place"), 74);
    assert_one_complaint("no/such/place");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeline_when_written_tells_every_command_once),
        cmocka_unit_test(timeline_when_asked_for_changes_no_number),
        cmocka_unit_test(timeline_when_it_cannot_be_written_then_74),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
