/* What could be wrong when a GPU is measured: an operand that lies where the GPU does not reach, a
 * kind of op, a copy or a roof that is left out, a rate of the host in the place of one of the GPU,
 * host cores that a copy is said to take, memory or streams that stay open, a profile that names no
 * GPU. The whole bench of a small shape runs on the stand-in, which counts what no correct program
 * does; times are never judged. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bench/bench.h"
#include "bench/copies.h"
#include "cublaslt.h"
#include "standin.h"

static const sl_model_shape small = {
    .layers = 1, .width = 32, .heads = 2, .context = 8, .vocab = 50};

static int start(void **state)
{
    (void)state;
    standin_machine machine = standin_default();
    machine.delay_us = 0;
    standin_reset(&machine);
    return 0;
}

static uint32_t count_rows(const sl_bench *bench, const char *group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < bench->row_count; i++) {
        const sl_bench_row *row = &bench->rows[i];
        if (strcmp(row->group, group) != 0)
            continue;
        count++;
        if (!(row->rate.median > 0) || !isfinite(row->rate.median))
            fail_msg("%s: %s has no rate", group, row->name);
        if ((strstr(group, "adamw") || row->fit_seconds > 0) && strcmp(group, "op") != 0 &&
            !(row->roof > 0))
            fail_msg("%s: %s has no roof", group, row->name);
    }
    return count;
}

static void check_machine(const sl_machine *machine)
{
    assert_false(machine->shares_cores);
    assert_true(machine->is_measured && machine->op_seconds > 0);
    for (int lane = SL_LANE_H2D; lane <= SL_LANE_D2H; lane++) {
        assert_true(machine->copy_rate[lane] > 1 && isfinite(machine->copy_rate[lane]));
        assert_true(machine->copy_cores[lane] == 0);
    }
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            const sl_op_rate *rate = &machine->op[kind][type];
            assert_true(rate->flop_rate >= 0 && rate->byte_rate >= 0 && rate->seconds >= 0);
            assert_true(rate->flop_rate + rate->byte_rate + rate->seconds > 0);
        }
}

static void bench_when_of_a_gpu_then_everything_is_measured_on_it(void **state)
{
    (void)state;
    const sl_bench_options options = {
        .device = SL_DEVICE_CUDA, .thread_count = 2, .is_quick = true, .small_shape = &small};
    sl_bench bench;
    if (sl_bench_run(&options, &bench) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_true(count_rows(&bench, "gemm") > 3 * 6);
    assert_true(count_rows(&bench, "adamw") >= 3);
    assert_int_equal(count_rows(&bench, "host_adamw"), count_rows(&bench, "adamw"));
    assert_true(count_rows(&bench, "op") > 3 * 10);
    assert_int_equal(count_rows(&bench, "copy"), SL_COPIES_COUNT);
    assert_int_equal(count_rows(&bench, "memory"), 4);
    check_machine(&bench.profile.machine);
    sl_device_info info;
    assert_int_equal(sl_device_query(SL_DEVICE_CUDA, 0, &info), SL_OK);
    assert_int_equal(bench.profile.device, SL_DEVICE_CUDA);
    assert_non_null(strstr(bench.profile.gpu, info.name));
    const sl_profile_subject here = {SL_DEVICE_CUDA, 2, &info}, cpu = {.worker_count = 2};
    assert_int_equal(sl_profile_check(&bench.profile, &here), SL_OK);
    assert_int_equal(sl_profile_check(&bench.profile, &cpu), SL_ERROR_DATA);
    snprintf(info.detail, sizeof info.detail, "sm_90, another driver");
    assert_int_equal(sl_profile_check(&bench.profile, &here), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "another driver"));
    sl_bench_close(&bench);
}

/* The whole bench finds the fastest algorithm of each product; a quick one times none. */
static void bench_when_not_quick_then_times_the_algorithms_of_products(void **state)
{
    (void)state;
    sl_bench_options options = {.device = SL_DEVICE_CUDA,
                                .thread_count = 1,
                                .figures = 1u << SL_BENCH_GEMM,
                                .is_quick = true,
                                .small_shape = &small};
    sl_bench bench;
    standin_blas_reset();
    standin_blas_offer(2);
    standin_blas_prefer(1);
    for (int i = 0; i < 2; i++) {
        options.is_quick = i == 0;
        if (sl_bench_run(&options, &bench) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_int_equal(bench.algorithms != NULL, i == 1);
        for (const char *line = bench.algorithms; line && *line; line = strchr(line, '\n') + 1)
            if (!strstr(line, ": algorithm 110,"))
                fail_msg("%s", line);
        assert_true(i == 0 || strstr(bench.algorithms, " fp16 to fp32 "));
        sl_bench_close(&bench);
    }
    standin_blas_reset();
}

/* Nothing is left of a bench that ends early either. */
static void bench_when_a_launch_fails_then_says_so_and_gives_all_back(void **state)
{
    (void)state;
    const sl_bench_options options = {
        .device = SL_DEVICE_CUDA, .thread_count = 1, .is_quick = true, .small_shape = &small};
    sl_bench bench;
    standin_fail_call("cudaMemcpyAsync", 40, 2);
    assert_int_equal(sl_bench_run(&options, &bench), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "cudaMemcpyAsync"));
}

static int finish(void **state)
{
    (void)state;
    const char *first = "";
    const uint64_t faults = standin_faults(&first);
    if (faults > 0)
        print_error("the runtime says: %s\n", first);
    const standin_counts live = standin_live();
    const uint64_t left = live.allocations + live.streams + live.events;
    if (left > 0)
        print_error("%llu things are still open\n", (unsigned long long)left);
    return faults > 0 || left > 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bench_when_of_a_gpu_then_everything_is_measured_on_it,
                                        start, finish),
        cmocka_unit_test_setup_teardown(bench_when_not_quick_then_times_the_algorithms_of_products,
                                        start, finish),
        cmocka_unit_test_setup_teardown(bench_when_a_launch_fails_then_says_so_and_gives_all_back,
                                        start, finish),
    };
    return cmocka_run_group_tests_name("bench of a GPU", tests, NULL, NULL);
}
