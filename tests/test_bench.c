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
        sl_op_rate found = sl_samples_fit(samples, 8);
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
    sl_op_rate found = sl_samples_fit(samples, 2);
    assert_true(found.flop_rate == 0 && found.byte_rate >= 0 && found.seconds >= 0);
    double seconds = cost_of(found, 0, 1e6);
    assert_true(seconds > 0.5e-3 && seconds < 2.5e-3);
    sl_op_sample lone = {5e9, 1e6, 0.02};
    found = sl_samples_fit(&lone, 1);
    assert_true(fabs(cost_of(found, 5e9, 1e6) - 0.02) < 1e-9);
    sl_op_sample empty = {0, 0, 1e-6};
    assert_true(sl_samples_fit(&empty, 1).seconds == 1e-6);
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
            assert_rate(sl_op_info_of((sl_op_kind)kind)->name,
                        &bench.profile.machine.op[kind][type]);
    assert_int_equal(sl_profile_check(&bench.profile, &(sl_profile_subject){.worker_count = 2}),
                     SL_OK);
    assert_string_equal(bench.profile.disk, directory.text);
    assert_true(*bench.disk_note);
    const sl_machine *machine = &bench.profile.machine;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(percentiles_when_of_samples_then_nearest_ranks),
        cmocka_unit_test(samples_when_there_are_too_many_then_the_first_stay),
        cmocka_unit_test(fit_when_samples_are_exact_then_their_times_come_back),
        cmocka_unit_test(fit_when_a_term_would_be_negative_then_left_out),
        cmocka_unit_test(memory_when_taken_then_random_apart_and_inside),
        cmocka_unit_test(timed_device_when_work_is_timed_then_it_alone_counts),
        cmocka_unit_test(timed_device_when_there_is_no_such_device_then_says_so),
        cmocka_unit_test(bench_when_its_directory_is_missing_then_says_so),
        cmocka_unit_test(bench_when_quick_then_every_rate_is_positive_and_the_profile_is_of_here),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
