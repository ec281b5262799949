/* What could be wrong with `sluice profile`: sums that do not add up; a plan told that is not the
 * one that train runs; a file of the run that is touched; an end that is not in good order. Runs
 * the built command and reads its JSON. */
#define _GNU_SOURCE
#include "command_run.h"

#include <stdbool.h>
#include <stdint.h>

#define SMALL TINY "--vocab 300 --device cpu "

static const char *const tiers[] = {"device", "host", "disk"};
static const char *const lanes[] = {"compute", "h2d",   "d2h",  "host",
                                    "read",    "write", "comm", "input"};

static json_t *read_object(const char *name)
{
    json_error_t error;
    json_t *object = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object))
        fail_msg("%s: %s", name, error.text);
    return object;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("%s is not a number", key);
    return json_number_value(value);
}

static const json_t *at(const json_t *object, const char *key, const char *inner)
{
    const json_t *value = json_object_get(json_object_get(object, key), inner);
    if (!value)
        fail_msg("%s.%s is missing", key, inner);
    return value;
}

static double sum_of(const json_t *object, const char *const *keys)
{
    double sum = 0;
    for (; *keys; keys++)
        sum += number_of(object, *keys);
    return sum;
}

static double sum_items(const json_t *array, const char *key)
{
    double sum = 0;
    size_t index;
    json_t *item;
    json_array_foreach((json_t *)array, index, item) sum += number_of(item, key);
    return sum;
}

static void check_tiers(const json_t *profile, const json_t *plan)
{
    static const char *const parts[] = {"param",      "grad",      "master",  "moment1", "moment2",
                                        "activation", "workspace", "staging", "holes",   NULL};
    for (int i = 0; i < 3; i++) {
        const json_t *tier = at(profile, "tiers", tiers[i]);
        double peak = number_of(tier, "planned_peak_bytes");
        assert_true(sum_of(tier, parts) == peak);
        assert_true(peak == number_of(at(plan, "tiers", tiers[i]), "peak_bytes"));
        assert_true(sum_items(json_object_get(tier, "objects_at_peak"), "bytes") ==
                    number_of(tier, "live_peak_bytes"));
        assert_true(number_of(tier, "beyond_plan_bytes") == 0);
        assert_true(number_of(tier, "measured_peak_bytes") <= peak);
        if (i < 2 && peak > 0) /* slots are aligned: the last bytes of an arena may be padding */
            assert_true(number_of(tier, "measured_peak_bytes") > peak - 4096);
    }
}

static void check_lanes(const json_t *profile, const json_t *plan)
{
    double step_ms = number_of(profile, "step_ms"), waits_ms = 0;
    const json_t *compute = at(profile, "lanes", "compute");
    for (int i = 0; i < 8; i++) {
        const json_t *lane = at(profile, "lanes", lanes[i]);
        const json_t *planned =
            json_object_get(json_object_get(plan, "moved_bytes_per_step"), lanes[i]);
        waits_ms +=
            number_of(at(compute, "wait_ms", lanes[i]) ? json_object_get(compute, "wait_ms") : NULL,
                      lanes[i]);
        if (planned)
            assert_true(number_of(lane, "moved_bytes") == json_number_value(planned));
    }
    double whole = number_of(compute, "busy_ms") + waits_ms + number_of(profile, "gap_ms");
    assert_true(fabs(whole - step_ms) < 1e-6 * step_ms);
    assert_true(fabs(waits_ms - number_of(profile, "stall_ms")) < 1e-6 * step_ms);
    assert_true(number_of(profile, "explained_share") > 0);
    assert_true(number_of(profile, "explained_share") < 1 + 1e-9);
    assert_true(sum_items(json_object_get(profile, "ops"), "ms") > 0);
}

static void check_resident(const json_t *profile)
{
    static const char *const parts[] = {"arenas", "heap",  "stacks",      "code",
                                        "files",  "rings", "unexplained", NULL};
    const json_t *resident = json_object_get(profile, "resident");
    double arenas = number_of(at(profile, "tiers", "device"), "mapped_bytes") +
                    number_of(at(profile, "tiers", "host"), "mapped_bytes");
    assert_true(sum_of(resident, parts) == number_of(resident, "total_bytes"));
    assert_true(number_of(resident, "unexplained") <= 50 << 20);
    /* whole pages exist */
    assert_true(fabs(number_of(resident, "arenas") - arenas) <= 3 * 4096);
}

static void profile_when_run_then_sums_are_exact_and_the_plan_is_trains(void **state)
{
    (void)state;
    /* At the last budget what every run writes lies at the plan's end. At 1M that is the second
     * worker's scratch of attention, and a worker that gets no tile writes none. */
    static const char *const ways[] = {
        "--policy device", "--policy host --accumulate 3",
        "--policy nvme --disk-dir disk --host-memory 3M --accumulate 2 --accumulation layer",
        "--policy static --offload-optimizer 0.5 --precision bf16 --documents reset",
        "--device-memory 1100K --recompute full"};
    assert_int_equal(system("mkdir -p disk"), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_code(sluice("plan " SMALL "--json %s", ways[i]), 0);
        json_error_t error;
        json_t *plan = json_loads(output, 0, &error);
        assert_non_null(plan);
        assert_code(sluice("profile " SMALL "--profile-steps 2 --json p.json %s", ways[i]), 0);
        assert_has(output, "bound by ");
        assert_has(output, "= planned peak");
        json_t *profile = read_object("p.json");
        assert_true(number_of(profile, "steps") == 2);
        check_tiers(profile, plan);
        check_lanes(profile, plan);
        check_resident(profile);
        json_decref(profile);
        json_decref(plan);
    }
}

/* One GiB is more than this model has, so a quarter is taken: that must change something. */
static void profile_when_told_of_budgets_then_each_is_an_answer(void **state)
{
    (void)state;
    assert_code(sluice("profile " TINY
                       "--device cpu --policy host --device-memory 64M --json p.json "
                       "--profile-steps 1 --quiet"),
                0);
    assert_string_equal(output, "");
    json_t *profile = read_object("p.json");
    const json_t *budgets = json_object_get(profile, "budgets");
    size_t index;
    json_t *item;
    assert_true(json_array_size(budgets) >= 3); /* less of two, more of the one that was given */
    json_array_foreach((json_t *)budgets, index, item)
    {
        const char *outcome = json_string_value(json_object_get(item, "outcome"));
        bool is_refused = strcmp(outcome, "does not fit") == 0;
        assert_int_equal(is_refused, json_is_null(json_object_get(item, "step_s")));
        assert_int_equal(is_refused, number_of(item, "missing_bytes") > 0);
        if (json_is_true(json_object_get(item, "more"))) {
            assert_string_equal(json_string_value(json_object_get(item, "tier")), "device");
            assert_true(number_of(item, "budget_bytes") == (64 << 20) + (1 << 30));
        }
    }
    json_decref(profile);
}

static void profile_when_run_then_logs_and_checkpoints_stay(void **state)
{
    (void)state;
    const char *options = SMALL "--save kept --log-json log --log-csv csv --tensorboard tb";
    assert_code(sluice("train %s --data text --steps 2 --quiet", options), 0);
    assert_int_equal(system("find kept log csv tb -type f | sort | xargs md5sum > before"), 0);
    assert_code(sluice("profile %s --profile-steps 1", options), 0);
    assert_code(sluice("profile %s --profile-steps 1 --resume --data text", options), 0);
    assert_int_equal(system("find kept log csv tb -type f | sort | xargs md5sum > after"), 0);
    assert_int_equal(system("cmp before after"), 0);
    assert_int_equal(system("rm -rf kept log csv tb"), 0);
    assert_code(sluice("profile %s --profile-steps 1 --timeline trace", options), 0);
    assert_int_not_equal(access("kept", F_OK), 0);
    assert_int_not_equal(access("log", F_OK), 0);
    assert_int_equal(access("trace", F_OK), 0);
}

static void profile_when_interrupted_then_tells_what_it_measured(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "timeout --preserve-status -s INT 2 '%s' profile " TINY
             "--device cpu --profile-steps 1000000 --json p.json >out 2>err </dev/null",
             binary);
    assert_int_equal(unlink("p.json"), 0);
    int status = system(command);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    read_text("out", output);
    read_complaint("err");
    if (strstr(complaint, "leaving: no step was measured yet")) /* a machine that is very slow */
        return;
    assert_has(complaint, "stopping after this step");
    assert_has(output, "stopped by a signal");
    if (strstr(output, "before a step was measured"))
        return;
    json_t *profile = read_object("p.json");
    assert_true(json_is_true(json_object_get(profile, "was_stopped")));
    assert_true(number_of(profile, "steps") >= 1 && number_of(profile, "steps") < 1000000);
    json_decref(profile);
}

static void profile_when_it_cannot_be_written_then_74_and_what_was_there_stays(void **state)
{
    (void)state;
    assert_code(sluice("profile " SMALL "--profile-steps 1 --quiet --json /dev/full"), 74);
    assert_has(complaint, "/dev/full");
    assert_code(sluice("profile " SMALL "--profile-steps 1 --json nowhere/p.json"), 74);
    assert_one_complaint("nowhere/p.json");
    assert_int_equal(system("printf '{\\n  \"steps\": \"mine\"\\n}\\n' > p.json"), 0);
    assert_code(sluice("profile " SMALL "--device-memory 1K --json p.json"), 69);
    assert_int_equal(system("grep -q mine p.json"), 0);
    assert_int_equal(system("echo precious > data"), 0);
    assert_code(sluice("profile " SMALL "--profile-steps 1 --json data"), 64);
    assert_int_equal(system("grep -q precious data"), 0);
}

/* As the other commands that print JSON, whose --json takes no value. */
static void profile_when_json_goes_to_standard_output_then_it_is_alone_there(void **state)
{
    (void)state;
    assert_code(sluice("profile " SMALL "--profile-steps 1 --json -"), 0);
    json_t *profile = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(profile);
    assert_true(json_is_integer(json_object_get(profile, "steps")));
    json_decref(profile);
    assert_int_equal(access("./-", F_OK), -1);
}

static void profile_when_options_are_wrong_then_64(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"profile " SMALL "--profile-steps 0", "profile-steps"},
        {"profile " SMALL "--json", "--json needs a value"},
        {"profile " SMALL "--policy nvme", "--disk-dir"},
        {"profile", "--model is missing"},
        {"profile " SMALL "--json one --report one", "another output"},
        {"profile " SMALL "--tp 2", "sluice launch -n 2"},
        {"train " SMALL "--data text --profile-steps 2", "profile-steps"},
        {"plan " SMALL "--profile-steps 2", "profile-steps"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_code(sluice("%s", wrong[i][0]), 64);
        assert_one_complaint(wrong[i][1]);
    }
    assert_int_equal(system("echo '{\"json\": true, \"profile\": {\"profile_steps\": 1, \"json\": "
                            "\"from-file.json\"}}' > options.json"),
                     0);
    assert_code(sluice("profile " SMALL "--config options.json --quiet"), 0);
    assert_int_equal(access("from-file.json", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(profile_when_run_then_sums_are_exact_and_the_plan_is_trains),
        cmocka_unit_test(profile_when_told_of_budgets_then_each_is_an_answer),
        cmocka_unit_test(profile_when_run_then_logs_and_checkpoints_stay),
        cmocka_unit_test(profile_when_interrupted_then_tells_what_it_measured),
        cmocka_unit_test(profile_when_it_cannot_be_written_then_74_and_what_was_there_stays),
        cmocka_unit_test(profile_when_json_goes_to_standard_output_then_it_is_alone_there),
        cmocka_unit_test(profile_when_options_are_wrong_then_64),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
