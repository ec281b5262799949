/* What could be wrong with a report: it is not the plan that `plan --json` prints; kinds and holes
 * that are not the arena; markup in a name that becomes markup of the page; something that is
 * loaded from elsewhere; a file that grows with the micro-batches; a plan that does not fit without
 * a picture of it; a file that is lost to a mistaken path. Runs the built command and reads the
 * pages.
 */
#define _GNU_SOURCE
#include "command_run.h"

#include <stdint.h>
#include <sys/stat.h>

enum { PAGE_BYTES_MAX = 5 << 20 };

static char *load_page(const char *name, size_t *out_bytes)
{
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    char *page = calloc(1, PAGE_BYTES_MAX + 1);
    assert_non_null(page);
    *out_bytes = fread(page, 1, PAGE_BYTES_MAX, file);
    fclose(file);
    assert_in_range(*out_bytes, 1000, PAGE_BYTES_MAX - 1);
    return page;
}

/* The numbers of a page. */
static json_t *read_page(const char *name)
{
    static const char opening[] = "id=\"sluice-data\">";
    size_t bytes;
    json_error_t error;
    char *page = load_page(name, &bytes), *start = strstr(page, opening);
    assert_non_null(start);
    start += sizeof opening - 1;
    char *end = strstr(start, "</script>");
    assert_non_null(end);
    assert_null(memchr(start, '<', (size_t)(end - start)));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "@import"));
    json_t *data = json_loadb(start, (size_t)(end - start), JSON_REJECT_DUPLICATES, &error);
    if (!data)
        fail_msg("%s: %s", name, error.text);
    free(page);
    return data;
}

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
    assert_int_equal(sluice("plan " TINY "--report absent/page.html"), 66);
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(sluice("plan " TINY "--report pipe"), 64);
    assert_int_equal(sluice("train " TINY "--data text --log-json one --report one"), 64);
    struct stat page, other;
    assert_true(stat("twice.html", &page) == 0 && stat("precious", &other) == 0);
    assert_int_equal(page.st_mode & 0777, other.st_mode & 0777); /* as other programs' files */
}

static void report_when_training_ends_then_has_losses_and_peaks(void **state)
{
    (void)state;
    FILE *file = fopen("text", "w");
    assert_non_null(file);
    for (int i = 0; i < 200; i++)
        assert_true(fprintf(file, "line %d of a text\n", i) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sluice("train " TINY "--data text --steps 5 --log-json log --quiet "
                            "--report run.html"),
                     0);
    json_t *data = read_page("run.html");
    const json_t *measured = json_object_get(data, "measured");
    assert_int_equal(json_array_size(json_object_get(data, "log")), 5);
    assert_int_equal(count_of(measured, "steps"), 5);
    const json_t *memory = json_object_get(json_object_get(data, "account"), "memory");
    assert_true(count_of(json_object_get(measured, "peak_bytes"), "device") <=
                count_of(json_object_get(memory, "device"), "arena_bytes"));
    json_decref(data);
}

static void report_when_profiled_then_has_what_was_measured(void **state)
{
    (void)state;
    assert_int_equal(sluice("profile " TINY "--profile-steps 2 --quiet --report run2.html"), 0);
    json_t *data = read_page("run2.html");
    const json_t *measured = json_object_get(data, "measured");
    const json_t *compute = json_object_get(json_object_get(measured, "lanes"), "compute");
    assert_int_equal(count_of(measured, "steps"), 2);
    assert_true(json_number_value(json_object_get(compute, "busy_seconds")) > 0);
    assert_true(json_object_size(json_object_get(measured, "op_seconds")) > 5);
    json_decref(data);
}

static void plan_when_asked_why_then_says_what_binds(void **state)
{
    (void)state;
    assert_int_equal(sluice("plan " TINY "--policy host --explain"), 0);
    assert_non_null(strstr(output, "ound by "));
    assert_non_null(strstr(output, "to be faster: "));
    assert_non_null(strstr(output, "by rule of thumb"));
    assert_int_equal(sluice("plan " TINY), 0);
    assert_non_null(strstr(output, "auto compared "));
    assert_null(strstr(output, "ound by "));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_when_written_then_holds_the_plan_that_json_prints),
        cmocka_unit_test(report_when_there_are_many_micro_batches_then_is_as_small),
        cmocka_unit_test(report_when_it_does_not_fit_then_shows_what_overflows),
        cmocka_unit_test(report_when_a_file_is_there_then_only_a_report_is_replaced),
        cmocka_unit_test(report_when_training_ends_then_has_losses_and_peaks),
        cmocka_unit_test(report_when_profiled_then_has_what_was_measured),
        cmocka_unit_test(plan_when_asked_why_then_says_what_binds),
        cmocka_unit_test(plan_when_compared_then_rows_are_the_plans),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
