/* What could be wrong with a timeline: it is no JSON, or not what viewers read; commands are
 * missing, told twice or in the wrong step; a lane does two things at once; bytes are not those of
 * the log; counters of memory are not the plan's; it changes the numbers. Runs the built command
 * and reads the file. */
#define _GNU_SOURCE
#include "command_run.h"
#include "report_page.h"
#include "sanitizer_share.h"

#include <stdbool.h>
#include <stdint.h>

/* The same plan for all three commands, whatever the machine has. */
#define SMALL TINY "--vocab 300 --device cpu "

enum { STEPS = 3, LANES = 8, H2D = 1, D2H = 2, TIERS = 3, KINDS = 8 };

static const char *const tier_names[TIERS] = {"device", "host", "disk"};

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

/* ---- counters of memory ---- */

typedef struct live_bytes {
    json_int_t of[TIERS][KINDS];
} live_bytes;

static json_int_t item(const json_t *array, size_t index)
{
    const json_t *value = json_array_get(array, index);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* What is alive at a tick, added up from the address map of a report: what lies where, from when
 * till when. Timelines and tables have sums of their own. */
static live_bytes add_up_map(const json_t *memory, json_int_t tick)
{
    enum { KIND = 0, BYTES = 2, FIRST = 3, LAST = 4, IS_PERMANENT = 5 };
    live_bytes live = {0};
    for (int tier = 0; tier < TIERS; tier++) {
        const json_t *from = json_object_get(memory, tier_names[tier]);
        const json_t *regions = json_object_get(from, "regions");
        size_t index;
        json_t *region;
        assert_int_equal(json_array_size(regions), number_of(from, "all_regions"));
        json_array_foreach((json_t *)regions, index, region)
        {
            json_int_t first = item(region, FIRST), last = item(region, LAST);
            bool is_in = first <= last ? first <= tick && tick <= last /* or around the end */
                                       : first <= tick || tick <= last;
            assert_in_range(item(region, KIND), 0, KINDS - 1);
            if (is_in || item(region, IS_PERMANENT))
                live.of[tier][item(region, KIND)] += item(region, BYTES);
        }
    }
    return live;
}

static json_int_t sum_of(const json_int_t kinds[KINDS])
{
    json_int_t sum = 0;
    for (int kind = 0; kind < KINDS; kind++)
        sum += kinds[kind];
    return sum;
}

/* A counter's new value takes the place of its last one; all kinds, in their order. */
static void take_counter(const json_t *event, live_bytes *now)
{
    char name[32];
    int tier = 0;
    for (; tier < TIERS; tier++) {
        snprintf(name, sizeof name, "%s bytes", tier_names[tier]);
        if (strcmp(name, json_string_value(json_object_get(event, "name"))) == 0)
            break;
    }
    assert_in_range(tier, 0, TIERS - 1);
    const char *key;
    json_t *value;
    int kind = 0;
    json_object_foreach(json_object_get(event, "args"), key, value)
    {
        assert_in_range(kind, 0, KINDS - 1);
        now->of[tier][kind++] = json_integer_value(value);
    }
    assert_int_equal(kind, KINDS);
}

static void keep_most(const live_bytes *now, live_bytes *most)
{
    for (int tier = 0; tier < TIERS; tier++)
        if (sum_of(now->of[tier]) > sum_of(most->of[tier]))
            memcpy(most->of[tier], now->of[tier], sizeof now->of[tier]);
}

/* Holds the counters, at every op of the compute lane, to the map; out_most is the fullest that
 * each tier was. Returns how many ops there were. */
static uint32_t compare_counters(const char *name, const json_t *memory, live_bytes *out_most)
{
    json_error_t error;
    size_t index;
    uint32_t ops = 0;
    live_bytes now = {0};
    double counted_us = 0;
    json_t *event, *events = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_array(events))
        fail_msg("%s: %d: %s", name, error.line, error.text);
    *out_most = now;
    json_array_foreach(events, index, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        if (strcmp(kind, "C") == 0) {
            take_counter(event, &now);
            keep_most(&now, out_most);
            counted_us = number_of(event, "ts");
        }
        if (strcmp(kind, "X") != 0 || number_of(event, "tid") != 0)
            continue;
        assert_true(counted_us <= number_of(event, "ts"));
        const json_t *tick = json_object_get(json_object_get(event, "args"), "tick");
        const live_bytes planned = add_up_map(memory, json_integer_value(tick));
        if (memcmp(&now, &planned, sizeof now) != 0)
            fail_msg("tick %d: %lld bytes on the device and %lld on the host are counted, %lld and "
                     "%lld are planned",
                     (int)json_integer_value(tick), sum_of(now.of[0]), sum_of(now.of[1]),
                     sum_of(planned.of[0]), sum_of(planned.of[1]));
        ops++;
    }
    json_decref(events);
    return ops;
}

/* The fullest that a timeline shows is the peak that profile's table has, kind by kind, and that
 * `plan` prints. */
static void compare_peaks(const live_bytes *most, const json_t *plan)
{
    static const char *const kinds[KINDS] = {"param",   "grad",       "master",    "moment1",
                                             "moment2", "activation", "workspace", "staging"};
    json_error_t error;
    json_t *profile = json_load_file("p.json", JSON_REJECT_DUPLICATES, &error);
    assert_non_null(profile);
    for (int i = 0; i < TIERS; i++) {
        const json_t *measured = json_object_get(json_object_get(profile, "tiers"), tier_names[i]);
        const json_t *planned = json_object_get(json_object_get(plan, "tiers"), tier_names[i]);
        json_int_t sum = sum_of(most->of[i]);
        assert_true((double)sum == number_of(measured, "live_peak_bytes"));
        assert_true((double)sum == number_of(planned, "live_peak_bytes"));
        assert_true((double)sum + number_of(measured, "holes") == number_of(planned, "peak_bytes"));
        for (int kind = 0; kind < KINDS; kind++)
            assert_true((double)most->of[i][kind] == number_of(measured, kinds[kind]));
    }
    json_decref(profile);
}

static void counters_when_compared_with_the_plan_then_equal_at_every_op(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy device",
        "--policy host --recompute full",
        "--policy nvme --disk-dir disk --host-memory 3M --accumulate 5",
        "--policy nvme --disk-dir disk --accumulate 4 --accumulation layer",
        "--policy nvme --disk-dir disk --nvme-params 1 --nvme-grads 1 --precision bf16 "
        "--host-memory 4M",
        "--policy static --disk-dir disk --offload-optimizer 0.5 --nvme-optimizer 0.25 "
        "--accumulate 2",
        "--policy host --device-memory 1M --offload-activations 1 --precision bf16"};
    assert_int_equal(system("mkdir -p disk"), 0);
    const size_t stride = SANITIZER_SHARE > 1 ? 4 : 1;
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way += stride) {
        live_bytes most, trained;
        json_error_t error;
        assert_code(sluice("plan " SMALL "--json --report page.html %s", ways[way]), 0);
        json_t *plan = json_loads(output, 0, &error), *page = read_page("page.html");
        assert_non_null(plan);
        const json_t *memory = json_object_get(json_object_get(page, "account"), "memory");
        assert_code(sluice("profile " SMALL "--profile-steps 2 --quiet --json p.json "
                           "--timeline trace %s",
                           ways[way]),
                    0);
        assert_true(compare_counters("trace", memory, &most) > 40);
        compare_peaks(&most, plan);
        assert_code(
            sluice("train " SMALL "--data text --steps 2 --quiet --timeline trained %s", ways[way]),
            0);
        assert_true(compare_counters("trained", memory, &trained) > 40);
        assert_memory_equal(&trained, &most, sizeof most);
        json_decref(page);
        json_decref(plan);
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
        cmocka_unit_test(counters_when_compared_with_the_plan_then_equal_at_every_op),
        cmocka_unit_test(timeline_when_asked_for_changes_no_number),
        cmocka_unit_test(timeline_when_it_cannot_be_written_then_74),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
