/* What could be wrong with a report: it is not the plan that `plan --json` prints; kinds and holes
 * that are not the arena; markup in a name that becomes markup of the page; something that is
 * loaded from elsewhere; a file that grows with the micro-batches; a plan that does not fit without
 * a picture of it; a file that is lost to a mistaken path. Runs the built command and reads the
 * pages.
 */
#define _GNU_SOURCE
#include "command_run.h"
#include "report_page.h"

#include <stdint.h>
#include <sys/stat.h>

static json_int_t sum_of(const json_t *kinds)
{
    json_int_t sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)kinds, key, value) sum += json_integer_value(value);
    return sum;
}

static json_int_t count_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void check_tier(const json_t *account, const json_t *plan, const char *name)
{
    const json_t *tier = json_object_get(json_object_get(account, "memory"), name);
    const json_t *planned = json_object_get(json_object_get(plan, "tiers"), name);
    json_int_t most = 0;
    size_t i;
    json_t *column;
    assert_int_equal(sum_of(json_object_get(tier, "kind_bytes")) + count_of(tier, "hole_bytes"),
                     count_of(tier, "arena_bytes"));
    assert_int_equal(count_of(tier, "arena_bytes"), count_of(planned, "peak_bytes"));
    json_array_foreach(json_object_get(tier, "columns"), i, column)
    {
        json_int_t bytes = 0;
        for (size_t kind = 1; kind < json_array_size(column); kind++)
            bytes += json_integer_value(json_array_get(column, kind));
        most = bytes > most ? bytes : most;
    }
    assert_int_equal(most, count_of(planned, "live_peak_bytes"));
}

static void report_when_written_then_holds_the_plan_that_json_prints(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(sluice("plan " TINY "--accumulate 3 --policy host --json --report page.html"),
                     0);
    json_t *data = read_page("page.html"), *plan = json_loads(output, 0, &error);
    assert_non_null(plan);
    assert_true(json_equal(json_object_get(data, "plan"), plan));
    const json_t *account = json_object_get(data, "account");
    check_tier(account, plan, "device");
    check_tier(account, plan, "host");
    double step =
        json_number_value(json_object_get(json_object_get(account, "time"), "step_seconds"));
    assert_true(fabs(1e3 * step - json_number_value(json_object_get(plan, "predicted_step_ms"))) <
                1e-9 * step + 1e-12);
    json_decref(data);
    json_decref(plan);
}

static void report_when_there_are_many_micro_batches_then_is_as_small(void **state)
{
    (void)state;
    static const char *const orders[] = {"micro", "layer"};
    for (int i = 0; i < 2; i++) {
        size_t few, many;
        assert_int_equal(sluice("plan " TINY "--policy host --accumulation %s --accumulate 8 "
                                "--report few.html",
                                orders[i]),
                         0);
        assert_int_equal(sluice("plan " TINY "--policy host --accumulation %s --accumulate 512 "
                                "--report many.html",
                                orders[i]),
                         0);
        free(load_page("few.html", &few));
        free(load_page("many.html", &many));
        if (many > 2 * few)
            fail_msg("%zu bytes with 512 micro-batches, %zu with 8", many, few);
    }
}

static void report_when_it_does_not_fit_then_shows_what_overflows(void **state)
{
    (void)state;
    assert_int_equal(sluice("plan " TINY "--policy device --device-memory 200K --host-memory 1G "
                            "--report over.html"),
                     69);
    assert_non_null(strstr(complaint, "it does not fit"));
    json_t *data = read_page("over.html");
    const json_t *memory = json_object_get(json_object_get(data, "account"), "memory");
    const json_t *device = json_object_get(memory, "device");
    assert_int_equal(count_of(device, "budget_bytes"), 200 << 10);
    assert_int_equal(count_of(device, "overflow_bytes"),
                     count_of(device, "arena_bytes") - (200 << 10));
    assert_non_null(strstr(json_string_value(json_object_get(data, "refusal")), "does not fit"));
    json_decref(data);
}

static void report_when_a_file_is_there_then_only_a_report_is_replaced(void **state)
{
    (void)state;
    FILE *file = fopen("precious", "w");
    assert_non_null(file);
    assert_true(fputs("data", file) >= 0 && fclose(file) == 0);
    assert_int_equal(sluice("plan " TINY "--report precious"), 64);
    read_text("precious", output);
    assert_string_equal(output, "data");
    assert_int_equal(sluice("plan " TINY "--report twice.html"), 0);
    assert_int_equal(sluice("plan " TINY "--policy host --report twice.html"), 0);
    assert_int_equal(sluice("plan " TINY "--report absent/page.html"), 74);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(sluice("plan " TINY "--report pipe"), 64);
    struct stat page, other;
    assert_true(stat("twice.html", &page) == 0 && stat("precious", &other) == 0);
    assert_int_equal(page.st_mode & 0777, other.st_mode & 0777); /* as other programs' files */
}

/* However a file is spelled: it is one. */
static void report_when_it_shares_a_file_then_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"--log-json one", "--report one"},           {"--log-json one", "--report ./one"},
        {"--log-csv sub/../one", "--report one"},     {"--timeline one", "--report dangling"},
        {"--log-json log", "--report hard"},          {"--log-json one", "--log-csv ./one"},
        {"--log-json one", "--timeline sub//../one"}, {"--report soft", "--log-json log"},
    };
    assert_int_equal(system("mkdir sub && : > log && ln log hard && ln -s log soft && "
                            "ln -s ../$(basename \"$PWD\")/one dangling"),
                     0);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_int_equal(
            sluice("train " TINY "--data text --steps 1 %s %s", pairs[i][0], pairs[i][1]), 64);
        assert_has(complaint, "another output has that name");
    }
    assert_int_equal(sluice("profile " TINY "--timeline one --json ./one"), 64);
    assert_int_not_equal(access("one", F_OK), 0);
}

/* Neither a report nor a timeline is lost to a run that fails; a link keeps being one. */
static void outputs_when_a_run_fails_then_those_before_stay(void **state)
{
    (void)state;
    const char *run =
        "train " TINY "--policy device --recompute none --data text --steps 2 --quiet "
        "--report last --timeline line";
    assert_int_equal(system("ln -s kept.html last && ln -s kept.trace line"), 0);
    assert_int_equal(sluice("%s", run), 0);
    assert_int_equal(system("test -L last && test -L line && md5sum kept.* > before"), 0);
    assert_int_equal(sluice("train " TINY "--data text --steps 3 --quiet --report last "
                            "--log-json /dev/full"),
                     74);
    assert_int_equal(sluice("%s --device-memory 1K", run), 69);
    assert_int_equal(sluice("profile " TINY "--report last --timeline line --device-memory 1K"),
                     69);
    assert_int_equal(system("md5sum -c --quiet before"), 0);
    assert_int_equal(sluice("train " TINY "--data text --steps 1 --timeline text"), 64);
    assert_has(complaint, "there and is no timeline");
    assert_int_equal(sluice("profile " TINY "--profile-steps 1 --timeline text"), 64);
    assert_int_equal(sluice("%s", run), 0);
    assert_int_not_equal(system("md5sum -c --quiet before >kept.out 2>&1"), 0); /* is replaced */
    assert_int_equal(system("test -z \"$(find . -name '*tmp-*')\""), 0);
}

/* The only run of a page, borrowed. */
static const json_t *run_of(const json_t *page)
{
    const json_t *runs = json_object_get(page, "runs");
    assert_int_equal(json_array_size(runs), 1);
    return json_array_get(runs, 0);
}

static const json_t *rows_of(const json_t *run, const char *group, const char *name)
{
    return json_object_get(json_object_get(run, group), name);
}

static void report_when_training_ends_then_has_losses_and_peaks(void **state)
{
    (void)state;
    assert_int_equal(sluice("train " TINY "--data text --steps 5 --log-json log --quiet "
                            "--report run.html"),
                     0);
    json_t *data = read_page("run.html");
    const json_t *measured = json_object_get(data, "measured");
    assert_int_equal(json_array_size(rows_of(run_of(data), "curves", "loss")), 5);
    assert_string_equal(json_string_value(json_object_get(run_of(data), "reason")), "done");
    assert_int_equal(count_of(measured, "steps"), 5);
    const json_t *memory = json_object_get(json_object_get(data, "account"), "memory");
    assert_true(count_of(json_object_get(measured, "peak_bytes"), "device") <=
                count_of(json_object_get(memory, "device"), "arena_bytes"));
    json_decref(data);
}

static double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* A time of the page, in seconds, and of the JSON, in milliseconds. */
static void assert_same_time(double seconds, double ms)
{
    if (fabs(seconds - 1e-3 * ms) > 1e-12 + 1e-9 * seconds)
        fail_msg("%g s in the page are %g ms in the JSON", seconds, ms);
}

static void compare_lanes(const json_t *page, const json_t *profile)
{
    const char *name, *cause;
    json_t *lane, *wait;
    json_object_foreach(json_object_get(page, "lanes"), name, lane)
    {
        const json_t *told = json_object_get(json_object_get(profile, "lanes"), name);
        const json_t *waits = json_object_get(told, "wait_ms");
        assert_same_time(real_of(lane, "busy_seconds"), real_of(told, "busy_ms"));
        json_object_foreach(json_object_get(lane, "wait_seconds"), cause, wait)
            assert_same_time(json_number_value(wait), real_of(waits, cause));
    }
}

static void compare_stalls(const json_t *page, const json_t *profile)
{
    const json_t *drawn = json_object_get(page, "stalls"),
                 *told = json_object_get(profile, "stalls");
    assert_true(json_array_size(told) > 0);
    assert_int_equal(json_array_size(drawn), json_array_size(told));
    for (size_t i = 0; i < json_array_size(told); i++) {
        const json_t *stall = json_array_get(told, i), *other = json_array_get(drawn, i);
        const char *waiter = json_string_value(json_object_get(stall, "waiter"));
        const char *awaited = json_string_value(json_object_get(stall, "awaited"));
        assert_same_time(real_of(other, "seconds"), real_of(stall, "ms"));
        assert_non_null(strstr(waiter, json_string_value(json_object_get(other, "command"))));
        assert_non_null(strstr(awaited, json_string_value(json_object_get(other, "waited_for"))));
        assert_true(json_equal(json_object_get(stall, "cause"), json_object_get(other, "cause")));
    }
}

static void compare_ops(const json_t *page, const json_t *profile)
{
    const char *name;
    json_t *seconds, *op;
    size_t i;
    json_object_foreach(json_object_get(page, "op_seconds"), name, seconds)
    {
        double ms = 0; /* on the compute and on the host lane */
        json_array_foreach(json_object_get(profile, "ops"), i,
                           op) if (strcmp(json_string_value(json_object_get(op, "op")), name) == 0)
            ms += real_of(op, "ms");
        assert_same_time(json_number_value(seconds), ms);
    }
}

/* A lane does one thing at a time, and does as much as commands of the step that is drawn. */
static void check_gantt(const json_t *page)
{
    const json_t *account = json_object_get(page, "account");
    const json_t *planned = json_object_get(json_object_get(account, "time"), "gantt");
    const json_t *drawn = json_object_get(json_object_get(page, "measured"), "gantt");
    const char *name;
    json_t *lane, *block;
    size_t i;
    json_object_foreach(json_object_get(drawn, "lanes"), name, lane)
    {
        json_int_t end = INT64_MIN, runs = 0, planned_runs = 0;
        json_array_foreach(lane, i, block)
        {
            assert_true(json_integer_value(json_array_get(block, 0)) >= end);
            end = json_integer_value(json_array_get(block, 1));
            assert_true(end >= json_integer_value(json_array_get(block, 0)));
            runs += json_integer_value(json_array_get(block, 2));
        }
        json_array_foreach(json_object_get(json_object_get(planned, "lanes"), name), i, block)
            planned_runs += json_integer_value(json_array_get(block, 2));
        assert_int_equal(runs, planned_runs);
    }
}

static void report_when_profiled_then_has_the_numbers_of_the_profile(void **state)
{
    (void)state;
    json_error_t error;
    json_t *profile = NULL;
    for (int tries = 0; tries < 20; tries++) { /* a quiet machine may have no stall to compare */
        json_decref(profile);
        remove("run2.html");
        remove("run2.json");
        assert_code(sluice("profile " TINY
                           "--policy host --recompute none --accumulate 6 --accumulation micro "
                           "--profile-steps 2 --quiet --report run2.html --json run2.json"),
                    0);
        profile = json_load_file("run2.json", 0, &error);
        if (json_array_size(json_object_get(profile, "stalls")) > 0)
            break;
    }
    json_t *page = read_page("run2.html");
    const json_t *measured = json_object_get(page, "measured");
    const json_t *tiers = json_object_get(profile, "tiers");
    assert_non_null(profile);
    assert_int_equal(count_of(measured, "steps"), 2);
    assert_int_equal(count_of(profile, "steps"), 2);
    assert_same_time(real_of(measured, "step_seconds"), real_of(profile, "step_ms"));
    assert_true(json_object_size(json_object_get(measured, "op_seconds")) > 5);
    compare_lanes(measured, profile);
    compare_stalls(measured, profile);
    compare_ops(measured, profile);
    check_gantt(page);
    static const char *const names[] = {"device", "host", "disk"};
    for (int i = 0; i < 3; i++)
        assert_int_equal(count_of(json_object_get(measured, "peak_bytes"), names[i]),
                         count_of(json_object_get(tiers, names[i]), "measured_peak_bytes"));
    assert_int_equal(count_of(measured, "resident_bytes"),
                     count_of(json_object_get(profile, "resident"), "total_bytes"));
    json_decref(page);
    json_decref(profile);
}

/* Directories have any bytes for names, and JSON has not. */
static void doctor_when_a_name_is_no_utf8_then_its_json_is_whole(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(sluice("doctor --json --disk-dir $(printf 'absent\\377')"), 0);
    json_t *root = json_loads(output, 0, &error);
    assert_non_null(root);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "disk space"), "state")),
        "missing");
    json_decref(root);
}

/* Rules of GPT-2's blocks are none of a Llama's; a block's tensors are printed once. */
static void plan_when_of_a_llama_then_its_rules_and_names(void **state)
{
    (void)state;
    static const char name[] = "self_attn.q_proj.weight";
    assert_int_equal(sluice("plan " TINY "--arch llama --vocab 257 --policy host --explain "
                            "--tp 2"),
                     0);
    assert_non_null(strstr(output, "16 bytes a parameter"));
    assert_null(strstr(output, "12 l h"));
    assert_null(strstr(output, "34 b s h"));
    const char *first = strstr(output, name);
    assert_non_null(first);
    assert_null(strstr(first + 1, name));
    assert_int_equal(sluice("plan " TINY "--vocab 257 --policy host --explain"), 0);
    assert_non_null(strstr(output, "12 l h"));
    assert_non_null(strstr(output, "34 b s h"));
}

/* Without a GPU the cpu device; a directory that is missing is no wrong answer. */
static void doctor_when_it_tests_itself_then_tells_of_each_part(void **state)
{
    (void)state;
    static const char *const parts[] = {"cpu image",     "cpu order",   "cpu copies",
                                        "cpu kernels",   "cpu repeats", "cpu products",
                                        "cpu placements"};
    enum { PARTS = sizeof parts / sizeof parts[0] };
    json_error_t error;
    for (int is_missing = 0; is_missing < 2; is_missing++) {
        assert_code(sluice("doctor --self-test --json --disk-dir %s", is_missing ? "absent" : "."),
                    0);
        json_t *root = json_loads(output, 0, &error);
        assert_non_null(root);
        for (int i = 0; i < PARTS; i++)
            assert_string_equal(
                json_string_value(json_object_get(json_object_get(root, parts[i]), "state")),
                is_missing && i == PARTS - 1 ? "degraded" : "ok");
        json_decref(root);
    }
}

static void plan_when_asked_why_then_says_what_binds(void **state)
{
    (void)state;
    assert_int_equal(sluice("plan " TINY "--policy host --explain"), 0);
    assert_non_null(strstr(output, "ound by "));
    assert_non_null(strstr(output, "to be faster: "));
    assert_non_null(strstr(output, "by rule of thumb"));
    assert_non_null(strstr(output, "\n  update of "));
    assert_int_equal(sluice("plan " TINY "--accumulate 5 --accumulation layer --explain"), 0);
    assert_non_null(strstr(output, " in turn: forward, for micro-batches 0-4\n"));
    assert_non_null(strstr(output, " in turn: backward, for micro-batches 0-4\n"));
    /* The second stage binds. Each micro-batch goes once each way, and no line is cut off. */
    assert_int_equal(sluice("plan --layers 8 --stages 1,4,2,1 --width 128 --heads 2 --context 32 "
                            "--micro-batch 2 --vocab 257 --policy host --ranks 4 --pp 4 "
                            "--accumulate 12 --explain"),
                     0);
    assert_non_null(strstr(output, "\n  forward of 0-1, then forward of 2, backward of 0\n"
                                   "  forward of 3-5 by turns with backward of 1-3; 2 times, each "
                                   "time 3 further on\n"
                                   "  forward of 9-11 by turns with backward of 7-9, then "
                                   "backward of 10-11\n"));
    assert_int_equal(sluice("plan " TINY), 0);
    assert_non_null(strstr(output, "auto compared "));
    assert_null(strstr(output, "to be faster: "));
}

/* What one item of a comparison says is what a plan of its own says. */
static void plan_when_compared_then_rows_are_the_plans(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(
        sluice("plan " TINY "--json --compare device,host 2M+policy=host policy=static"), 0);
    json_t *root = json_loads(output, 0, &error);
    json_t *rows = json_object_get(root, "compare");
    assert_int_equal(json_array_size(rows), 4);
    assert_int_equal(sluice("plan " TINY "--json --policy host"), 0);
    json_t *alone = json_loads(output, 0, &error), *row = json_array_get(rows, 1);
    assert_string_equal(json_string_value(json_object_get(row, "name")), "host");
    static const char *const tiers[] = {"device", "host", "disk"};
    for (int i = 0; i < 3; i++) /* what is free, and so the budgets, may change meanwhile */
        assert_int_equal(
            count_of(json_object_get(json_object_get(row, "tiers"), tiers[i]), "peak_bytes"),
            count_of(json_object_get(json_object_get(alone, "tiers"), tiers[i]), "peak_bytes"));
    json_decref(alone);
    json_decref(root);
    assert_int_equal(sluice("plan " TINY "--compare device 100K+policy=device"), 0);
    assert_non_null(strstr(output, "does not fit: the device misses"));
    assert_int_equal(sluice("plan " TINY "--compare moon"), 64);
    assert_int_equal(sluice("plan " TINY "--compare save=x"), 64);
    assert_int_equal(sluice("plan " TINY "--compare layers=3"), 64);
    assert_int_equal(sluice("plan " TINY "--compare device --report x.html"), 64);
}

static uint64_t disk_bytes_of(const json_t *plan)
{
    return count_of(json_object_get(json_object_get(plan, "tiers"), "disk"), "peak_bytes");
}

/* Shares that are given beside the items are for the policies that take them. */
static void plans_when_compared_with_shares_then_those_of_their_policies_count(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(sluice("plan " TINY "--disk-dir . --nvme-params 1 --nvme-grads 1 --json "
                            "--compare host,nvme policy=nvme+nvme-params=0"),
                     0);
    json_t *root = json_loads(output, 0, &error), *rows = json_object_get(root, "compare");
    assert_int_equal(sluice("plan " TINY "--disk-dir . --nvme-params 1 --nvme-grads 1 --json "
                            "--policy nvme"),
                     0);
    json_t *alone = json_loads(output, 0, &error);
    assert_int_equal(disk_bytes_of(json_array_get(rows, 0)), 0);
    assert_int_equal(disk_bytes_of(json_array_get(rows, 1)), disk_bytes_of(alone));
    assert_true(disk_bytes_of(json_array_get(rows, 2)) < disk_bytes_of(alone));
    json_decref(alone);
    json_decref(root);
    assert_int_equal(sluice("plan " TINY "--disk-dir . --compare host+nvme-params=1"), 64);
    assert_int_equal(sluice("plan " TINY "--compare nvme --nvme-params 1"), 64);
    assert_int_equal(sluice("plan " TINY "--disk-dir . --nvme-params 1 --compare host,device"), 0);
    assert_one_complaint("--nvme-params is for --policy static or nvme, and no plan of --compare");
}

static void plans_when_none_fits_then_each_says_what_would(void **state)
{
    (void)state;
    assert_int_equal(sluice("plan " TINY "--compare 300K+policy=device 400K+policy=device"), 0);
    const char *first = strstr(output, "; this fits: --");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "; this fits: --"));
    assert_non_null(strstr(output, "\nnone of these plans fits"));
    assert_int_equal(sluice("plan " TINY "--compare device 300K+policy=device"), 0);
    assert_null(strstr(output, "none of these"));
}

/* A plan may be for another machine: it is printed, and what this one would say is a warning. */
static void plan_when_larger_than_this_machine_then_warned_of(void **state)
{
    (void)state;
    assert_int_equal(sluice("plan --layers 2 --width 8192 --heads 64 --vocab 257 --context 1024 "
                            "--micro-batch 4096 --policy device --recompute none --device cpu "
                            "--device-memory 64T --host-memory 64T"),
                     0);
    assert_non_null(strstr(complaint, " are free here now: train refuses that"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_when_written_then_holds_the_plan_that_json_prints),
        cmocka_unit_test(report_when_there_are_many_micro_batches_then_is_as_small),
        cmocka_unit_test(report_when_it_does_not_fit_then_shows_what_overflows),
        cmocka_unit_test(report_when_a_file_is_there_then_only_a_report_is_replaced),
        cmocka_unit_test(report_when_it_shares_a_file_then_refused),
        cmocka_unit_test(outputs_when_a_run_fails_then_those_before_stay),
        cmocka_unit_test(report_when_training_ends_then_has_losses_and_peaks),
        cmocka_unit_test(report_when_profiled_then_has_the_numbers_of_the_profile),
        cmocka_unit_test(doctor_when_a_name_is_no_utf8_then_its_json_is_whole),
        cmocka_unit_test(doctor_when_it_tests_itself_then_tells_of_each_part),
        cmocka_unit_test(plan_when_asked_why_then_says_what_binds),
        cmocka_unit_test(plan_when_of_a_llama_then_its_rules_and_names),
        cmocka_unit_test(plan_when_compared_then_rows_are_the_plans),
        cmocka_unit_test(plans_when_compared_with_shares_then_those_of_their_policies_count),
        cmocka_unit_test(plans_when_none_fits_then_each_says_what_would),
        cmocka_unit_test(plan_when_larger_than_this_machine_then_warned_of),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
