/* What could be wrong here: a fit that does not find the rates that times were made of, or goes
 * below zero; percentiles of the wrong end; operands of a measured op that overlap or are zeros; a
 * kind of op of a training step that is not measured; a rate that is zero or not a number; rows
 * without their roof. Times themselves are never judged: this runs on busy machines too. */
#define _GNU_SOURCE /* nftw in scratch_dir.h */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "bench/memory.h"
#include "bench/timed_device.h"
#include "scratch_dir.h"

static sl_samples make_samples(const double *values, uint32_t count)
{
    sl_samples samples = {.count = 0};
    for (uint32_t i = 0; i < count; i++)
        sl_samples_add(&samples, values[i]);
    return samples;
}

static void percentiles_when_of_samples_then_nearest_ranks(void **state)
{
    (void)state;
    const double eleven[11] = {10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5}, three[3] = {2, 1, 4};
    sl_samples samples = make_samples(eleven, 11);
    sl_percentiles found = sl_samples_percentiles(&samples);
    assert_true(found.median == 5 && found.p10 == 1 && found.p90 == 9);
    assert_true(sl_samples_median(&samples) == 5);
    samples = make_samples(three + 2, 1);
    found = sl_samples_percentiles(&samples);
    assert_true(found.median == 4 && found.p10 == 4 && found.p90 == 4);
    samples = make_samples((double[]){2, 1, 4, 1, 4, 1, 4, 2, 2, 1, 4, 2, 2}, 13);
    found = sl_samples_rate(&samples, 8);
    assert_true(found.median == 4 && found.p10 == 2 && found.p90 == 8);
}

static void samples_when_there_are_too_many_then_the_first_stay(void **state)
{
    (void)state;
    sl_samples samples = {.count = 0};
    for (int i = 0; i < SL_SAMPLES_MAX + 10; i++)
        sl_samples_add(&samples, i < SL_SAMPLES_MAX ? 1 : 1000);
    sl_percentiles found = sl_samples_percentiles(&samples);
    assert_int_equal(samples.count, SL_SAMPLES_MAX);
    assert_true(found.median == 1 && found.p90 == 1);
}

/* ---- fits ---- */

static double draw(uint64_t *random, double low, double high)
{
    return low * pow(high / low, (double)scratch_below(random, 1000001) / 1e6);
}

static double cost_of(sl_op_rate rate, double flops, double bytes)
{
    return rate.seconds + (rate.flop_rate > 0 ? flops / rate.flop_rate : 0) +
           (rate.byte_rate > 0 ? bytes / rate.byte_rate : 0);
}

/* Exact samples of a random rate, terms left out at random: the fit must give back their times. The
 * equations are at most 1e9 off balance after scaling, so 1e-4 leaves room for rounding. */
static void fit_when_samples_are_exact_then_their_times_come_back(void **state)
{
    (void)state;
    uint64_t random = scratch_seed("fit", 11);
    for (uint64_t round = 0; round < scratch_count(2000, 100000); round++) {
        sl_op_sample samples[8];
        uint64_t terms = 1 + scratch_below(&random, 7);
        sl_op_rate made = {.flop_rate = terms & 1 ? draw(&random, 1e10, 1e12) : 0,
                           .byte_rate = terms & 2 ? draw(&random, 1e9, 1e11) : 0,
                           .seconds = terms & 4 ? draw(&random, 1e-6, 1e-3) : 0};
        for (int i = 0; i < 8; i++) {
            samples[i].flops = draw(&random, 1e6, 1e10);
            samples[i].traffic_bytes = draw(&random, 1e4, 1e8);
            samples[i].seconds = cost_of(made, samples[i].flops, samples[i].traffic_bytes);
        }
        sl_op_rate found = sl_samples_fit(samples, 8, true);
        assert_true(found.flop_rate >= 0 && found.byte_rate >= 0 && found.seconds >= 0);
        for (int i = 0; i < 8; i++) {
            double seconds = cost_of(found, samples[i].flops, samples[i].traffic_bytes);
            if (!(fabs(seconds / samples[i].seconds - 1) < 1e-4))
                fail_msg("round %d: %g s instead of %g", (int)round, seconds, samples[i].seconds);
        }
    }
}

static void fit_when_a_term_would_be_negative_then_left_out(void **state)
{
    (void)state;
    /* more bytes in less time: a line through both would need a negative rate */
    sl_op_sample samples[2] = {{0, 1e6, 2e-3}, {0, 2e6, 1e-3}};
    sl_op_rate found = sl_samples_fit(samples, 2, true);
    assert_true(found.flop_rate == 0 && found.byte_rate >= 0 && found.seconds >= 0);
    double seconds = cost_of(found, 0, 1e6);
    assert_true(seconds > 0.5e-3 && seconds < 2.5e-3);
    sl_op_sample lone = {5e9, 1e6, 0.02};
    found = sl_samples_fit(&lone, 1, true);
    assert_true(fabs(cost_of(found, 5e9, 1e6) - 0.02) < 1e-9);
    sl_op_sample empty = {0, 0, 1e-6};
    assert_true(sl_samples_fit(&empty, 1, true).seconds == 1e-6);
}

/* Few sizes do not tell a fixed cost from one that grows: an op of another size must not be thought
 * to take the same. */
static void fit_when_of_few_sizes_then_larger_ops_take_longer(void **state)
{
    (void)state;
    const sl_op_sample one_size[3] = {{0, 1e6, 1e-3}, {0, 1e6, 2e-3}, {0, 1e6, 1e-3}};
    for (uint32_t count = 1; count <= 3; count++) {
        sl_op_rate found = sl_samples_fit(one_size, count, true);
        assert_true(found.byte_rate > 0 && found.seconds == 0);
    }
    const sl_op_sample two_sizes[2] = {{1e9, 1e6, 1e-2}, {2e9, 2e6, 1.2e-2}};
    assert_true(sl_samples_fit(two_sizes, 2, true).seconds == 0);
    const sl_op_sample three_sizes[3] = {{0, 1e6, 2e-3}, {0, 2e6, 3e-3}, {0, 3e6, 4e-3}};
    assert_true(fabs(sl_samples_fit(three_sizes, 3, true).seconds - 1e-3) < 1e-9);
    assert_true(sl_samples_fit(three_sizes, 3, false).seconds == 0);
    assert_true(sl_samples_fit(three_sizes, 3, false).byte_rate > 0);
    /* few rounds: the rate of FLOPs lies between those of the samples, whatever the bytes say */
    const sl_op_sample noisy[3] = {{1e9, 9e6, 0.02}, {2e9, 1e6, 0.03}, {4e9, 5e6, 0.09}};
    const sl_op_rate rate = sl_samples_fit(noisy, 3, false);
    assert_true(rate.byte_rate == 0 && rate.flop_rate >= 4e9 / 0.09 &&
                rate.flop_rate <= 2e9 / 0.03);
}

/* ---- memory ---- */

static void memory_when_taken_then_random_apart_and_inside(void **state)
{
    (void)state;
    sl_memory memory;
    sl_timed_device *device = NULL;
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, 1, &device), SL_OK);
    assert_int_equal(sl_memory_open(device, true, &memory), SL_OK);
    const sl_memory_request request = {.bytes = 3 << 20, .is_written = true, .type = SL_TYPE_BF16};
    uint8_t *last = NULL;
    for (int i = 0; i < 20; i++) {
        void *taken;
        assert_int_equal(sl_memory_take(&memory, request, &taken), SL_OK);
        uint8_t *now = taken;
        assert_true((uintptr_t)now % 256 == 0);
        assert_true(now >= (uint8_t *)memory.mapping &&
                    now + request.bytes <= (uint8_t *)memory.mapping + memory.mapping_bytes);
        assert_true(!last || now >= last + request.bytes || now + request.bytes <= last);
        float value;
        memcpy(&value, now + 4096 * i, sizeof value);
        assert_true(isnormal(value) && value > 0 && value < 1);
        last = now;
    }
    void *taken;
    assert_int_equal(
        sl_memory_take(&memory, (sl_memory_request){.bytes = UINT64_C(1) << 30}, &taken),
        SL_ERROR_INTERNAL);
    assert_false(sl_memory_fits(&memory, (sl_memory_request){.bytes = UINT64_C(1) << 30}));
    sl_memory_close(&memory);
    sl_timed_device_close(device);
}

/* ---- the timed device ---- */

enum { COPY_TRIES = 100 };

static sl_status sleep_shortly(void *argument)
{
    (void)argument;
    usleep(20000);
    return SL_OK;
}

static sl_status refuse(void *argument)
{
    SL_FAIL(SL_ERROR_INTERNAL, "planted %s", (const char *)argument);
}

/* Twenty milliseconds of sleep are at least twenty, and the next piece starts from nothing. */
static void timed_device_when_work_is_timed_then_it_alone_counts(void **state)
{
    (void)state;
    sl_timed_device *device = NULL;
    double seconds = 0, both[SL_TIMED_DEVICE_STREAMS] = {0};
    static uint8_t from[1 << 16], to[2][1 << 16];
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, 1, &device), SL_OK);
    assert_int_equal(sl_timed_device_run(device, sleep_shortly, NULL, &seconds), SL_OK);
    assert_true(seconds >= 0.02);
    memset(from, 7, sizeof from);
    const sl_timed_copy copies[] = {{to[0], from, sizeof from}, {to[1], from, sizeof from}};
    /* The thread of a copy may be late: one of a few copies takes less than that sleep took. */
    for (int i = 0; i == 0 || (i < COPY_TRIES && both[0] >= 0.02); i++)
        assert_int_equal(sl_timed_device_copy(device, copies, 2, both), SL_OK);
    assert_true(both[0] > 0 && both[0] < 0.02 && both[1] > 0);
    assert_memory_equal(to[0], from, sizeof from);
    assert_memory_equal(to[1], from, sizeof from);
    assert_int_equal(sl_timed_device_run(device, refuse, "failure", &seconds), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "planted failure"));
    sl_timed_device_close(device);
}

/* Too large a device number: said, and nothing is left open. */
static void timed_device_when_there_is_no_such_device_then_says_so(void **state)
{
    (void)state;
    sl_timed_device *device = NULL;
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CPU, 7, NULL, 1, &device), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "7"));
    assert_null(device);
}

/* ---- the bench ---- */

static void assert_rate(const char *name, const sl_op_rate *rate)
{
    bool is_sound = isfinite(rate->flop_rate) && isfinite(rate->byte_rate) && rate->seconds >= 0;
    if (!is_sound || !(rate->flop_rate > 0 || rate->byte_rate > 0 || rate->seconds > 0))
        fail_msg("%s: %g FLOP/s, %g B/s, %g s", name, rate->flop_rate, rate->byte_rate,
                 rate->seconds);
}

static uint32_t count_lines;

static void count_line(void *user, const char *line)
{
    (void)user;
    count_lines += *line != '\0';
}

typedef struct update_case {
    sl_op_kind kind;
    bool has_small_states, has_fp32, has_master;
} update_case;

static void assert_update(const sl_machine *machine, const update_case *it, sl_master master)
{
    const sl_update_rates *rates = &machine->update[master][it->kind];
    const bool is_low = master == SL_MASTER_LOW;
    assert_int_equal(rates->is_measured, !is_low || it->has_master);
    for (int states = 0; states < SL_STATES_COUNT; states++)
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            bool is_there = states == SL_STATES_FP32 ? it->has_fp32 : it->has_small_states;
            if (is_low)
                is_there = it->has_master && type == SL_TYPE_BF16 &&
                           (states == SL_STATES_FP32 || it->has_small_states);
            assert_true((rates->device[states][type] > 0) == is_there);
            assert_true(rates->host[states][type] == rates->device[states][type]);
        }
}

/* Of each rule that has states, with states of each type; the others have one rate. In bf16 the
 * same beside masters in halves. */
static void assert_updates(const sl_machine *machine)
{
    static const update_case updates[] = {
        {SL_OP_ADAMW, true, false, true}, /* fp32: among the ops */
        {SL_OP_LION, true, true, true},
        {SL_OP_SGD, true, true, true},
        {SL_OP_MOMENTUM, false, true, false},
        {SL_OP_APPLY, false, true, true}};
    for (size_t i = 0; i < sizeof updates / sizeof updates[0]; i++)
        for (int master = 0; master < SL_MASTER_COUNT; master++)
            assert_update(machine, &updates[i], (sl_master)master);
}

static void bench_when_quick_then_every_rate_is_positive_and_the_profile_is_of_here(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const char *directories[] = {directory.text};
    sl_bench_options options = {.disk_directories = directories,
                                .disk_directory_count = 1,
                                .thread_count = 2,
                                .is_quick = true,
                                .progress = count_line};
    sl_bench bench;
    assert_int_equal(sl_bench_run(&options, &bench), SL_OK);
    assert_true(count_lines >= 3);
    uint32_t with_roof = 0, dropouts = 0;
    for (uint32_t i = 0; i < bench.row_count; i++) {
        const sl_bench_row *row = &bench.rows[i];
        assert_true(row->rate.p10 > 0 && row->rate.p10 <= row->rate.median);
        assert_true(row->rate.median <= row->rate.p90 && isfinite(row->rate.p90));
        bool needs_roof = strcmp(row->group, "adamw") == 0 ||
                          (row->seconds > 0 && strcmp(row->group, "gemm") == 0);
        assert_true(row->roof > 0 || !needs_roof);
        with_roof += row->roof > 0;
        dropouts += strncmp(row->name, "dropout", 7) == 0;
    }
    assert_int_equal(dropouts, SL_TYPE_COUNT); /* which a step has only where it is asked for */
    assert_true(with_roof > 10);
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            if (sl_machine_rate_kind((sl_op_kind)kind) == (sl_op_kind)kind)
                assert_rate(sl_op_info_of((sl_op_kind)kind)->name,
                            &bench.profile.machine.op[kind][type]);
    static const sl_op_kind adding[] = {SL_OP_LINEAR_WEIGHT_BACKWARD, SL_OP_HEAD_WEIGHT_BACKWARD,
                                        SL_OP_EMBED_TOKENS_BACKWARD};
    for (size_t i = 0; i < sizeof adding / sizeof adding[0]; i++)
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            const sl_adding_rates *rates = &bench.profile.machine.adding_op[adding[i]];
            assert_true(rates->is_measured);
            assert_rate("adding", &rates->rate[type]);
        }
    assert_updates(&bench.profile.machine);
    assert_int_equal(sl_profile_check(&bench.profile, &(sl_profile_subject){.worker_count = 2}),
                     SL_OK);
    assert_string_equal(bench.profile.disk, directory.text);
    assert_true(*bench.disk_note);
    const sl_machine *machine = &bench.profile.machine;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        assert_true(machine->host_update[type].byte_rate > 0);
    assert_true(machine->mixed_disk_rate > 0);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (!sl_lane_copies((sl_lane)lane))
            continue;
        assert_true(machine->copy_rate[lane] > 0 && isfinite(machine->copy_rate[lane]));
        assert_true(machine->copy_cores[lane] >= 0 && machine->copy_cores[lane] <= 1);
    }
    assert_int_equal(rmdir(directory.text), 0); /* nothing is left there */
    json_t *object = NULL;
    assert_int_equal(sl_bench_format(&bench, &object), SL_OK);
    assert_int_equal(json_array_size(json_object_get(object, "rows")), bench.row_count);
    json_decref(object);
    sl_bench_close(&bench);
}

static void bench_when_its_directory_is_missing_then_says_so(void **state)
{
    (void)state;
    const char *directories[] = {"/nowhere/at/all"};
    sl_bench_options options = {.disk_directories = directories,
                                .disk_directory_count = 1,
                                .thread_count = 1,
                                .is_quick = true};
    sl_bench bench;
    assert_int_equal(sl_bench_run(&options, &bench), SL_ERROR_MISSING);
    assert_non_null(strstr(sl_status_message(), "/nowhere/at/all"));
}

/* ---- against an earlier run ---- */

#define IDENTITY "\"host\": \"h\", \"cpu\": \"c\", \"date\": \"2026-01-02\", \"thread_count\": 2"
#define ROW(name, median, p10, p90)                                                                \
    "{\"group\": \"memory\", \"type\": \"\", \"name\": \"" name                                    \
    "\", \"unit\": \"B/s\", \"median\": " median ", \"p10\": " p10 ", \"p90\": " p90 "}"

static sl_status compare_with_text(const char *text, sl_bench *bench)
{
    scratch_path directory = scratch_open();
    char path[sizeof directory.text + 16];
    snprintf(path, sizeof path, "%s/old", directory.text);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    sl_status status = sl_bench_compare(bench, path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory.text), 0);
    return status;
}

static void add_memory_row(sl_bench *bench, const char *name, sl_percentiles rate)
{
    sl_bench_row row = {.group = "memory", .type = "", .rate = rate};
    snprintf(row.name, sizeof row.name, "%s", name);
    assert_int_equal(sl_bench_add(bench, &row), SL_OK);
}

/* Five rows: apart by more than either spread, apart by less, overlapping, faster, and new. */
static void compare_when_rates_moved_then_only_what_leaves_both_spreads_counts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{" IDENTITY
        ", \"rows\": [" ROW("far", "10", "9", "11") "," ROW("near", "10", "8", "12") "," ROW(
            "inside", "10", "9", "11") "," ROW("fast", "10", "9", "11") "," ROW("gone", "1", "1",
                                                                                "1") "]}",
        "{\"sluice_machine\": 1, \"report\": {" IDENTITY
        ", \"rows\": [" ROW("far", "10", "9", "11") "," ROW("near", "10", "8", "12") "," ROW(
            "inside", "10", "9", "11") "," ROW("fast", "10", "9", "11") "]}}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        sl_bench bench = {.profile = {.thread_count = 4, .cpu = "c"}};
        add_memory_row(&bench, "far", (sl_percentiles){5, 4, 6});
        add_memory_row(&bench, "near", (sl_percentiles){7, 6, 7.5});
        add_memory_row(&bench, "inside", (sl_percentiles){5, 4, 9.5});
        add_memory_row(&bench, "fast", (sl_percentiles){20, 19, 21});
        add_memory_row(&bench, "new", (sl_percentiles){1, 1, 1});
        assert_int_equal(compare_with_text(texts[i], &bench), SL_OK);
        const sl_bench_verdict verdicts[] = {SL_BENCH_WORSE, SL_BENCH_SAME, SL_BENCH_SAME,
                                             SL_BENCH_BETTER, SL_BENCH_SAME};
        for (int row = 0; row < 5; row++)
            assert_int_equal(bench.rows[row].verdict, verdicts[row]);
        assert_true(bench.rows[0].old.median == 10 && bench.rows[4].old.median == 0);
        assert_int_equal(bench.worse_count, 1);
        assert_int_equal(bench.better_count, 1);
        assert_true(bench.old_ratio == 0.7); /* of 0.5, 0.5, 0.7 and 2 */
        assert_non_null(strstr(bench.old_note, "another number of workers"));
        json_t *object = NULL;
        assert_int_equal(sl_bench_format(&bench, &object), SL_OK);
        const json_t *far = json_array_get(json_object_get(object, "rows"), 0);
        assert_true(json_number_value(json_object_get(far, "ratio")) == 0.5);
        assert_string_equal(json_string_value(json_object_get(far, "verdict")), "worse");
        json_decref(object);
        sl_bench_close(&bench);
    }
}

static void compare_when_the_file_is_no_report_then_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "[",
        "[]",
        "{",
        "{}",
        "null",
        "{\"rows\": 1}",
        "{\"rows\": {}}",
        "{\"rows\": []}",
        "{\"report\": 1}",
        "{\"report\": {}}",
        "{\"report\": {\"rows\": []}}",
        "{\"report\": {\"rows\": [1]}}",
        "{" IDENTITY ", \"rows\": [1]}",
        "{" IDENTITY ", \"rows\": [{}]}",
        "{" IDENTITY ", \"rows\": [[]]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "0", "0", "0") "]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "1", "2", "3") "]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "3", "1", "2") "]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "-1", "-1", "-1") "]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "\"1\"", "1", "1") "]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "1e999", "1", "1") "]}",
        "{" IDENTITY ", \"rows\": [" ROW("a", "null", "1", "1") "]}",
        "{\"host\": 1, \"cpu\": \"c\", \"date\": \"\", \"thread_count\": 2, \"rows\": []}",
        "{\"host\": \"\", \"cpu\": \"c\", \"date\": \"\", \"thread_count\": 0, \"rows\": []}",
        "{" IDENTITY ", \"rows\": []} x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        sl_bench bench = {.row_count = 0};
        if (compare_with_text(texts[i], &bench) != SL_ERROR_DATA)
            fail_msg("text %d is taken: %s", (int)i, texts[i]);
        sl_bench_close(&bench);
    }
    sl_bench bench = {.row_count = 0};
    assert_int_equal(sl_bench_compare(&bench, "/nowhere/at/all"), SL_ERROR_MISSING);
}

/* ---- figures ---- */

/* What is not asked for keeps its rate to the bit. */
static void bench_when_of_one_figure_then_its_rows_alone_and_other_rates_stay(void **state)
{
    (void)state;
    scratch_path directory = scratch_open();
    const char *directories[] = {directory.text};
    sl_machine base = sl_machine_default(2);
    base.is_measured = true;
    base.copy_rate[SL_LANE_H2D] = 123456789;
    sl_bench_options options = {.disk_directories = directories,
                                .disk_directory_count = 1,
                                .figures = 1u << SL_BENCH_DISK | 1u << SL_BENCH_NUMA |
                                           1u << SL_BENCH_MEMORY,
                                .base = &base,
                                .thread_count = 2,
                                .is_quick = true};
    sl_bench bench;
    assert_int_equal(sl_bench_run(&options, &bench), SL_OK);
    uint32_t stream = 0, disk = 0, fio = 0, numa = 0;
    for (uint32_t i = 0; i < bench.row_count; i++) {
        const sl_bench_row *row = &bench.rows[i];
        stream += strstr(row->name, "STREAM") != NULL;
        disk += strcmp(row->group, "disk") == 0;
        numa += strcmp(row->group, "numa") == 0;
        fio += strncmp(row->name, "fio: ", 5) == 0;
        assert_true(strcmp(row->group, "memory") == 0 || strcmp(row->group, "disk") == 0 ||
                    strcmp(row->group, "numa") == 0);
        assert_true(row->rate.p10 > 0 && row->rate.p10 <= row->rate.p90);
    }
    assert_int_equal(stream, 2);
    assert_true(disk > fio);
    assert_true((fio == 2) != (*bench.fio_note != '\0'));
    assert_true((numa > 0) != (*bench.numa_note != '\0'));
    const sl_machine *found = &bench.profile.machine;
    assert_memory_equal(found->op, base.op, sizeof base.op);
    assert_true(found->copy_rate[SL_LANE_H2D] == 123456789);
    assert_true(found->copy_rate[SL_LANE_READ] != base.copy_rate[SL_LANE_READ]);
    assert_int_equal(rmdir(directory.text), 0); /* fio leaves nothing either */
    sl_bench_close(&bench);
}

/* ---- kernels ---- */

static const sl_model_shape small_shape = {
    .layers = 1, .width = 32, .heads = 2, .context = 8, .vocab = 50};

/* Five products in three directions, and attention in three, of each type: FLOPs by hand, a roof
 * that is the type's own, and no change of the rates by which plans are predicted. */
static void bench_when_of_kernels_then_each_has_a_roof_and_no_rate_changes(void **state)
{
    (void)state;
    sl_machine base = sl_machine_default(2);
    const sl_bench_options options = {.thread_count = 2,
                                      .figures = 1u << SL_BENCH_PRODUCT | 1u << SL_BENCH_ATTENTION,
                                      .base = &base,
                                      .is_quick = true,
                                      .small_shape = &small_shape};
    sl_bench bench;
    assert_int_equal(sl_bench_run(&options, &bench), SL_OK);
    assert_int_equal(bench.row_count, (5 + 1) * 3 * SL_TYPE_COUNT);
    for (uint32_t i = 0; i < bench.row_count; i++) {
        const sl_bench_row *row = &bench.rows[i];
        const sl_bench_kernel *kernel = &row->kernel;
        const bool is_product = strcmp(row->group, "product") == 0;
        const bool is_cached = strcmp(kernel->direction, "cached") == 0;
        const double products = strcmp(kernel->direction, "backward") == 0 ? 5 : 2;
        const double flops = is_product  ? 2.0 * 8 * (double)kernel->in * (double)kernel->out
                             : is_cached ? 4.0 * 8 * 32
                                         : products * 128 * 8 * 8 * 32;
        assert_true(is_product == (i < 45) && kernel->rows == 8);
        assert_true(row->is_flops && row->roof > 0 && row->rate.p10 > 0);
        assert_true(fabs(row->rate.median * row->seconds / flops - 1) < 1e-9);
        assert_string_equal(kernel->model, "small");
        assert_true(is_product || (kernel->heads == 2 && kernel->key_heads == 2));
    }
    assert_memory_equal(&bench.profile.machine, &base, sizeof base);
    json_t *object = NULL;
    assert_int_equal(sl_bench_format(&bench, &object), SL_OK);
    const json_t *first = json_array_get(json_object_get(object, "rows"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")),
                        "small qkv 32x96, 8 rows, forward");
    assert_int_equal(json_integer_value(json_object_get(first, "out")), 96);
    assert_null(json_object_get(first, "heads"));
    assert_true(json_number_value(json_object_get(first, "percent_of_roof")) > 0);
    json_decref(object);
    sl_bench_close(&bench);
}

/* A word is a whole one: "32" is no word of "32x96". */
static void bench_when_words_are_matched_then_only_rows_with_all_of_them(void **state)
{
    (void)state;
    static const char *const words[] = {"bf16", "8", "input"}, *const none[] = {"32"};
    sl_bench_options options = {.thread_count = 1,
                                .figures = 1u << SL_BENCH_PRODUCT | 1u << SL_BENCH_ATTENTION,
                                .match = words,
                                .match_count = 3,
                                .is_quick = true,
                                .small_shape = &small_shape};
    sl_bench bench;
    assert_int_equal(sl_bench_run(&options, &bench), SL_OK);
    assert_int_equal(bench.row_count, 5);
    for (uint32_t i = 0; i < bench.row_count; i++) {
        assert_string_equal(bench.rows[i].type, "bf16");
        assert_string_equal(bench.rows[i].kernel.direction, "input");
    }
    sl_bench_close(&bench);
    options.match = none;
    options.match_count = 1;
    assert_int_equal(sl_bench_run(&options, &bench), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "--match leaves no row"));
}

/* Rings that were noted are as large as asked, others are not there. */
static void memory_when_opened_for_operands_then_it_holds_them(void **state)
{
    (void)state;
    const sl_memory_request large = {.bytes = UINT64_C(20) << 20, .is_cold = false};
    const sl_memory_request written = {
        .bytes = 4096, .is_cold = true, .is_written = true, .type = SL_TYPE_FP16};
    sl_memory_need need = {.source = {0}};
    sl_memory memory;
    sl_timed_device *device = NULL;
    sl_memory_note(&need, large);
    sl_memory_note(&need, (sl_memory_request){.bytes = 4096});
    sl_memory_note(&need, written);
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, 1, &device), SL_OK);
    assert_int_equal(sl_memory_open_for(device, &need, &memory), SL_OK);
    assert_true(sl_memory_fits(&memory, large) && sl_memory_fits(&memory, written));
    assert_false(sl_memory_fits(&memory, (sl_memory_request){.bytes = 64, .is_cold = true}));
    uint8_t *last = NULL;
    for (int i = 0; i < 8; i++) {
        void *taken;
        assert_int_equal(sl_memory_take(&memory, large, &taken), SL_OK);
        uint8_t *now = taken;
        assert_true(now >= (uint8_t *)memory.mapping &&
                    now + large.bytes <= (uint8_t *)memory.mapping + memory.mapping_bytes);
        assert_true(!last || now >= last + large.bytes || now + large.bytes <= last);
        last = now;
    }
    sl_memory_close(&memory);
    sl_timed_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_when_of_samples_then_nearest_ranks),
        cmocka_unit_test(samples_when_there_are_too_many_then_the_first_stay),
        cmocka_unit_test(fit_when_samples_are_exact_then_their_times_come_back),
        cmocka_unit_test(fit_when_a_term_would_be_negative_then_left_out),
        cmocka_unit_test(fit_when_of_few_sizes_then_larger_ops_take_longer),
        cmocka_unit_test(memory_when_taken_then_random_apart_and_inside),
        cmocka_unit_test(timed_device_when_work_is_timed_then_it_alone_counts),
        cmocka_unit_test(timed_device_when_there_is_no_such_device_then_says_so),
        cmocka_unit_test(compare_when_rates_moved_then_only_what_leaves_both_spreads_counts),
        cmocka_unit_test(compare_when_the_file_is_no_report_then_refused),
        cmocka_unit_test(bench_when_of_one_figure_then_its_rows_alone_and_other_rates_stay),
        cmocka_unit_test(memory_when_opened_for_operands_then_it_holds_them),
        cmocka_unit_test(bench_when_of_kernels_then_each_has_a_roof_and_no_rate_changes),
        cmocka_unit_test(bench_when_words_are_matched_then_only_rows_with_all_of_them),
        cmocka_unit_test(bench_when_its_directory_is_missing_then_says_so),
        cmocka_unit_test(bench_when_quick_then_every_rate_is_positive_and_the_profile_is_of_here),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
