/* What could be wrong when ranks begin, and when plans speak of them: a rank evaluates on another
 * file, or begins with other weights, and nobody notices; ranks that form other groups end as if
 * sluice had a bug; a plan of many ranks gives each of them the whole machine, or says nothing of
 * the memory through which they exchange; it gives stages of a pipeline other layers or bytes
 * than they will have; a batch is divided as if there was one rank; a run of
 * ranks cannot go on alone because of an option that is for ranks. Every case runs the built
 * command. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "command_run.h"

#define RUN                                                                                        \
    "--layers 2 --width 36 --heads 3 --context 32 --micro-batch 2 --data text --device cpu "       \
    "--threads 1 --device-memory 64M --host-memory 64M "

/* Two ranks, each in a shell that knows SLUICE_RANK. */
static int two_ranks(const char *options)
{
    return sluice("launch -n 2 -- sh -c 'exec %s train " RUN "--steps 1 --quiet %s'", binary,
                  options);
}

/* ---- what ranks begin with ---- */

static void make_files(const char *name, size_t bytes)
{
    for (int rank = 0; rank < 2; rank++) {
        char path[128];
        snprintf(path, sizeof path, "of-%d", rank);
        mkdir(path, 0700);
        snprintf(path, sizeof path, "of-%d/%s", rank, name);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        for (size_t i = 0; i < bytes; i++)
            fputc(i + 1 == bytes ? 'a' + rank : 'e', file);
        fclose(file);
    }
}

static void evaluation_when_a_file_differs_then_is_refused_by_name(void **state)
{
    (void)state;
    make_files("held-out", 900);
    assert_code(two_ranks("--tp 2 --eval-data text of-$SLUICE_RANK/held-out"), 64);
    assert_has(complaint, "--eval-data");
    assert_has(complaint, "held-out");
    assert_code(two_ranks("--tp 2 --eval-data text of-0/held-out"), 0);
    assert_code(two_ranks("--dp 2 --eval-data of-$SLUICE_RANK/held-out"), 64);
    assert_has(complaint, "held-out");
}

/* One byte of the second rank's weights is another. */
static void spoil(const char *path)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -3, SEEK_END), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, -3, SEEK_END), 0);
    assert_true(fputc(byte ^ 1, file) != EOF);
    fclose(file);
}

static void weights_when_they_differ_then_are_refused_by_name(void **state)
{
    (void)state;
    assert_code(sluice("train " RUN "--steps 1 --save begun --quiet"), 0);
    assert_code(sluice("convert --from begun --to weights-0 --format hf"), 0);
    assert_int_equal(system("cp -r weights-0 weights-1"), 0);
    assert_code(two_ranks("--dp 2 --init weights-$SLUICE_RANK"), 0);
    spoil("weights-1/model.safetensors");
    assert_code(two_ranks("--dp 2 --init weights-$SLUICE_RANK"), 64);
    assert_has(complaint, "--init");
    assert_has(complaint, "model.safetensors");
    assert_code(sluice("train " RUN "--steps 1 --seed 2 --save begun-again --quiet"), 0);
    assert_int_equal(system("mv begun start-0; mv begun-again start-1"), 0);
    assert_code(two_ranks("--tp 2 --init start-$SLUICE_RANK"), 64);
    assert_has(complaint, "--init");
}

static void groups_when_they_differ_then_are_refused_with_both_values(void **state)
{
    (void)state;
    assert_code(two_ranks("--tp $((SLUICE_RANK + 1))"), 64);
    assert_has(complaint, "option --tp: \"1\" on rank 0, \"2\" on rank 1");
    assert_code(two_ranks("--tp $((2 - SLUICE_RANK))"), 64);
    assert_has(complaint, "option --tp: \"2\" on rank 0, \"1\" on rank 1");
}

/* ---- plans ---- */

static json_t *plan_json(const char *options)
{
    assert_code(sluice("plan --json --layers 2 --width 36 --heads 3 --context 32 --micro-batch 2 "
                       "--data text --device cpu --policy device %s",
                       options),
                0);
    json_t *plan = json_load_file("out", 0, NULL);
    assert_non_null(plan);
    return plan;
}

static double budget_of(const json_t *plan)
{
    const json_t *tiers = json_object_get(plan, "tiers");
    double bytes = 0;
    for (int tier = 0; tier < 2; tier++)
        bytes += json_number_value(
            json_object_get(json_object_get(tiers, tier == 0 ? "device" : "host"), "budget_bytes"));
    return bytes;
}

/* What is free changes from one command to the next one, by far less than half. */
static void plan_when_of_four_ranks_then_each_has_a_quarter(void **state)
{
    (void)state;
    json_t *one = plan_json(""), *four = plan_json("--tp 2 --ranks 4");
    const double share = budget_of(four) / budget_of(one);
    if (!(share > 0.125 && share < 0.375))
        fail_msg("a rank of four gets %g of what one gets", share);
    json_decref(one);
    json_decref(four);
    assert_code(sluice("plan --layers 2 --width 36 --heads 3 --context 32 --data text --device cpu "
                       "--policy device --ranks 1024 --micro-batch 1 --device-memory 64M "
                       "--host-memory 64M"),
                0);
    assert_has(output, "each computes with 1 thread,"); /* no machine of a test has more */
}

/* A run says in its log what a plan said before. Windows are shared memory: what a rank has of them
 * is what the kernel counts for its part. */
static void windows_when_planned_then_are_those_of_the_run(void **state)
{
    (void)state;
    json_t *one = plan_json(""), *four = plan_json("--tp 2 --ranks 4");
    assert_int_equal(json_integer_value(json_object_get(one, "window_bytes")), 0);
    const json_int_t planned = json_integer_value(json_object_get(four, "window_bytes"));
    assert_true(planned > 0);
    assert_code(sluice("launch -n 4 -- train " RUN "--tp 2 --steps 1 --quiet --log-json four"), 0);
    json_t *log = read_log("four");
    const json_t *plan = json_object_get(json_array_get(log, 0), "plan");
    assert_int_equal(json_integer_value(json_object_get(plan, "window_bytes")), planned);
    json_decref(log);
    json_decref(one);
    json_decref(four);
    assert_code(sluice("plan " RUN "--tp 2 --ranks 4"), 0);
    assert_has(output, "windows");
}

/* ---- stages ---- */

#define STAGES                                                                                     \
    "--layers 5 --width 36 --heads 3 --context 32 --micro-batch 2 --accumulate 2 --data text "     \
    "--device cpu --threads 1 --host-memory 64M --policy host "

/* The largest over the stages. */
static json_int_t largest_peak(const json_t *stages, const char *tier)
{
    json_int_t largest = 0;
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *peaks = json_object_get(json_array_get(stages, i), "peak_bytes");
        const json_int_t bytes = json_integer_value(json_object_get(peaks, tier));
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static void assert_stage(const json_t *stages, size_t index, int first_layer, int layer_count)
{
    const json_t *stage = json_array_get(stages, index), *ranks = json_object_get(stage, "ranks");
    assert_int_equal(json_integer_value(json_object_get(stage, "first_layer")), first_layer);
    assert_int_equal(json_integer_value(json_object_get(stage, "layer_count")), layer_count);
    for (size_t i = 0; i < json_array_size(ranks); i++)
        assert_int_equal(json_integer_value(json_array_get(ranks, i)),
                         index * json_array_size(ranks) + i);
}

static json_t *plan_stages(const char *options)
{
    json_t *plan;
    assert_code(sluice("plan " STAGES "--device-memory 64M --json %s", options), 0);
    plan = json_load_file("out", 0, NULL);
    assert_non_null(plan);
    return plan;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* A run ends with the largest peaks over its ranks. */
static void stages_when_planned_then_peaks_are_those_of_the_run(void **state)
{
    (void)state;
    json_t *plan = plan_stages("--ranks 3 --pp 3");
    const json_t *stages = json_object_get(json_object_get(plan, "ranks"), "stage_plans");
    assert_int_equal(json_array_size(stages), 3);
    assert_stage(stages, 0, 0, 1);
    assert_stage(stages, 1, 1, 2);
    assert_stage(stages, 2, 3, 2);
    assert_code(sluice("launch -n 3 -- train " STAGES
                       "--device-memory 64M --pp 3 --steps 2 --quiet --log-json staged"),
                0);
    json_t *log = read_log("staged");
    const json_t *end = json_array_get(log, json_array_size(log) - 1);
    for (int i = 0; i < 2; i++) {
        const char *tier = i == 0 ? "device" : "host";
        const json_t *measured = json_object_get(json_object_get(end, "tiers"), tier);
        assert_true(largest_peak(stages, tier) > 0);
        assert_int_equal(largest_peak(stages, tier),
                         json_integer_value(json_object_get(measured, "measured_peak_bytes")));
    }
    const json_t *start = json_object_get(json_array_get(log, 0), "plan");
    assert_int_equal(json_integer_value(json_object_get(start, "window_bytes")),
                     json_integer_value(json_object_get(plan, "window_bytes")));
    const double told = number_of(json_object_get(start, "ranks"), "predicted_step_ms");
    const double planned = number_of(json_object_get(plan, "ranks"), "predicted_step_ms");
    assert_true(told > 0 && fabs(told / planned - 1) < 1e-9);
    json_decref(log);
    json_decref(plan);
}

/* Whose machines are one here: so it is their own. */
static void ranks_when_they_begin_then_the_step_of_the_slowest_is_told(void **state)
{
    (void)state;
    assert_int_equal(system("yes the lock of a gate | head -c 9000 > text"), 0);
    assert_code(two_ranks("--log-json told"), 0);
    json_t *log = read_log("told");
    const json_t *plan = json_object_get(json_array_get(log, 0), "plan");
    const double own = number_of(plan, "predicted_step_ms");
    assert_true(own > 0);
    assert_true(number_of(json_object_get(plan, "ranks"), "predicted_step_ms") == own);
    json_decref(log);
}

/* Five stages of two ranks: the three in the middle have a layer each, and one plan. */
static void stages_when_of_several_ranks_then_ranks_and_middles_agree(void **state)
{
    (void)state;
    json_t *plan = plan_stages("--tp 2 --pp 5");
    const json_t *ranks = json_object_get(plan, "ranks"),
                 *stages = json_object_get(ranks, "stage_plans");
    assert_int_equal(json_integer_value(json_object_get(ranks, "count")), 10);
    assert_int_equal(json_array_size(stages), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_stage(stages, i, (int)i, 1);
        assert_int_equal(json_array_size(json_object_get(json_array_get(stages, i), "ranks")), 2);
    }
    for (size_t i = 2; i < 4; i++)
        assert_true(json_equal(json_object_get(json_array_get(stages, 1), "peak_bytes"),
                               json_object_get(json_array_get(stages, i), "peak_bytes")));
    json_decref(plan);
    assert_code(sluice("plan " STAGES "--device-memory 64M --ranks 4 --tp 2 --pp 2"), 0);
    assert_has(output, "[0,2] [1,3]");
    assert_has(output, "stage 1: ranks 2-3, layers 2-4, norm and head");
}

/* Two thirds of what the third stage takes, with three layers and the head, and one and a half
 * times what the others take: far enough from both for what kernels of any processor need beside
 * it. */
#define UNEVEN STAGES "--policy device --recompute none --stages 1,1,3 --ranks 3 "

static void stages_when_one_does_not_fit_then_it_is_named(void **state)
{
    (void)state;
    assert_code(sluice("plan " UNEVEN "--device-memory 2M --pp 3"), 69);
    assert_has(complaint, "stage 2 of 3 (rank 2): ");
    assert_code(sluice("plan " UNEVEN "--device-memory 2M --pp 3 --json"), 69);
    assert_has(output, "\"stage\": 2");
    assert_code(sluice("plan " STAGES "--device-memory 64M --pp 6"), 64);
    assert_has(complaint, "too few for 6 stages");
}

/* Items may say how many stages there are, in which order they go, and what else follows. */
static void stages_when_compared_then_rows_are_the_plans(void **state)
{
    (void)state;
    static const char *const alone[] = {"--pp 2 --tp 1 --schedule gpipe", "--pp 1 --tp 2",
                                        "--pp 4 --tp 1 --accumulate 3", "--pp 2 --tp 2"};
    assert_code(sluice("plan " STAGES "--device-memory 64M --ranks 4 --pp 2 --json --compare "
                       "schedule=gpipe pp=1+tp=2 pp=4+accumulate=3 tp=2"),
                0);
    json_t *root = json_load_file("out", 0, NULL), *rows = json_object_get(root, "compare");
    assert_int_equal(json_array_size(rows), 4);
    for (size_t i = 0; i < 4; i++) {
        char options[128];
        snprintf(options, sizeof options, "--ranks 4 %s", alone[i]);
        json_t *plan = plan_stages(options);
        const json_t *row = json_array_get(rows, i);
        if (!json_equal(json_object_get(plan, "ranks"), json_object_get(row, "ranks")) ||
            number_of(plan, "predicted_step_ms") != number_of(row, "predicted_step_ms"))
            fail_msg("%s", alone[i]);
        json_decref(plan);
    }
    json_decref(root);
    assert_code(sluice("plan " STAGES "--device-memory 64M --ranks 4 --compare pp=2 pp=3"), 64);
    assert_has(complaint, "--compare pp=3: ");
    assert_code(sluice("plan " UNEVEN "--pp 3 --compare device-memory=2M"), 0);
    assert_has(output, "the device of stage 2 misses");
}

/* The last one, with the head, is slowest here: it begins when the others have passed the first
 * micro-batch on, and they take the last one back behind it. */
static void stages_when_planned_then_their_waits_are_in_the_step_of_all(void **state)
{
    (void)state;
    static const char *const ways[] = {"--pp 5 --accumulate 1", "--pp 2 --accumulate 7",
                                       "--pp 3 --accumulate 4 --schedule gpipe"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        json_t *plan = plan_stages(ways[i]);
        const json_t *ranks = json_object_get(plan, "ranks"),
                     *stages = json_object_get(ranks, "stage_plans");
        const double m = i == 0 ? 1 : i == 1 ? 7 : 4, all = number_of(ranks, "predicted_step_ms");
        double sum = 0, slowest = 0;
        for (size_t s = 0; s < json_array_size(stages); s++) {
            const double one = number_of(json_array_get(stages, s), "predicted_step_ms");
            sum += one;
            slowest = fmax(slowest, one);
        }
        const double least = slowest + (sum - slowest) / m;
        if (!(all >= least * (1 - 1e-9)) || !(all <= least * (i == 0 ? 1 + 1e-9 : 1.5)))
            fail_msg("%s: %g ms, of at least %g", ways[i], all, least);
        json_decref(plan);
    }
}

/* ---- batches of DeepSpeed ---- */

static void plan_batch(const char *file, const char *options, const char *expected)
{
    FILE *stream = fopen("batch.json", "w");
    assert_non_null(stream);
    fputs(file, stream);
    fclose(stream);
    assert_code(sluice("plan --layers 2 --width 36 --heads 3 --context 32 --data text --device cpu "
                       "--device-memory 64M --host-memory 64M --policy device "
                       "--config batch.json %s",
                       options),
                expected ? 0 : 64);
    if (expected)
        assert_has(output, expected);
    else
        assert_has(complaint, "train_batch_size");
}

static void batch_when_a_total_is_given_then_micro_batches_are_of_all_ranks(void **state)
{
    (void)state;
    static const char two_of_three[] =
        "{\"train_batch_size\": 16, \"gradient_accumulation_steps\": 2}";
    static const char alone[] = "{\"train_batch_size\": 16}";
    plan_batch(two_of_three, "", "a step is 2 x 8 rows");
    plan_batch(two_of_three, "--ranks 4", "a step is 2 x 2 rows");
    plan_batch(two_of_three, "--ranks 4 --tp 2", "a step is 2 x 4 rows");
    plan_batch(two_of_three, "--ranks 4 --accumulate 1", "a step is 1 x 4 rows");
    plan_batch(two_of_three, "--ranks 4 --micro-batch 2", "a step is 2 x 2 rows");
    plan_batch(two_of_three, "--ranks 3", NULL);
    plan_batch(alone, "", "a step is 1 x 16 rows");
    plan_batch(alone, "--ranks 4", "a step is 1 x 4 rows");
    plan_batch(alone, "--ranks 4 --micro-batch 2", "a step is 2 x 2 rows");
    plan_batch(alone, "--ranks 3", NULL);
}

/* ---- going on alone ---- */

static void run_when_it_goes_on_alone_then_leaves_what_is_for_ranks(void **state)
{
    (void)state;
    static const char *const ways[] = {"--sequence-parallel", "--partition-activations",
                                       "--split-layout colossal"};
    for (int i = 0; i < 3; i++) {
        assert_code(sluice("launch -n 2 -- train " RUN
                           "--tp 2 %s --steps 1 --save way-%d --quiet --policy device",
                           ways[i], i),
                    0);
        assert_code(sluice("launch -n 2 -- train --resume --save way-%d --steps 2 --quiet "
                           "--log-json way-log-%d",
                           i, i),
                    0);
        json_t *log = read_log(i == 0 ? "way-log-0" : i == 1 ? "way-log-1" : "way-log-2");
        char *start = json_dumps(json_array_get(log, 0), 0);
        assert_has(start, i == 0   ? "\"sequence_parallel\": true"
                          : i == 1 ? "\"partition_activations\": true"
                                   : "\"split_layout\": \"colossal\"");
        free(start);
        json_decref(log);
        assert_code(sluice("train --resume --save way-%d --tp 1 --steps 3 --quiet", i), 0);
        assert_code(sluice("train --resume --save way-%d --steps 4 --quiet", i), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_when_a_file_differs_then_is_refused_by_name),
        cmocka_unit_test(weights_when_they_differ_then_are_refused_by_name),
        cmocka_unit_test(groups_when_they_differ_then_are_refused_with_both_values),
        cmocka_unit_test(plan_when_of_four_ranks_then_each_has_a_quarter),
        cmocka_unit_test(windows_when_planned_then_are_those_of_the_run),
        cmocka_unit_test(stages_when_planned_then_peaks_are_those_of_the_run),
        cmocka_unit_test(ranks_when_they_begin_then_the_step_of_the_slowest_is_told),
        cmocka_unit_test(stages_when_of_several_ranks_then_ranks_and_middles_agree),
        cmocka_unit_test(stages_when_one_does_not_fit_then_it_is_named),
        cmocka_unit_test(stages_when_compared_then_rows_are_the_plans),
        cmocka_unit_test(stages_when_planned_then_their_waits_are_in_the_step_of_all),
        cmocka_unit_test(batch_when_a_total_is_given_then_micro_batches_are_of_all_ranks),
        cmocka_unit_test(run_when_it_goes_on_alone_then_leaves_what_is_for_ranks),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
