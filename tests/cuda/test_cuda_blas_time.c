/* What could be wrong where algorithms of cuBLASLt are timed and kept: one that is slower, or gives
 * other bits or numbers, or cannot be launched, is taken; a kept one is not found again, or stands
 * in the way of a run where the library does not offer or launch it any more; a product that no
 * line names asks for more than the library's first; something stays open after a failure.
 *
 * The stand-in of cublaslt.h offers several algorithms, of which all but one sleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <cuda_runtime_api.h>

#include "cublaslt.h"
#include "kernels/kernels.h"
#include "program/program.h"
#include "standin.h"

enum { OFFERED = 4, FASTEST = 2, TEXT_BYTES = 512 };

static const char fastest_text[] = ": algorithm 210,", first_text[] = ": algorithm 10,";

static int start(void **state)
{
    (void)state;
    standin_machine machine = standin_default();
    machine.delay_us = 0;
    standin_reset(&machine);
    standin_blas_reset();
    standin_blas_offer(OFFERED);
    standin_blas_prefer(FASTEST);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    const char *first = "", *of_blas = "";
    const standin_counts live = standin_live();
    const uint64_t faults = standin_faults(&first) + standin_blas_faults(&of_blas);
    const uint64_t left = live.allocations + live.streams + live.events + standin_blas_live();
    if (faults > 0 || left > 0)
        print_error("%llu are open; faults: %s %s\n", (unsigned long long)left, first, of_blas);
    return faults > 0 || left > 0 ? -1 : 0;
}

typedef struct prepared {
    sl_status status;
    char text[TEXT_BYTES]; /* of the one choice; "": there is none */
} prepared;

static void take_operands(sl_kernel_call *call, const sl_op_attrs *attrs)
{
    const uint64_t bytes =
        sl_kernels_workspace_bytes(sl_kernels_cuda(), SL_OP_HEAD_LOGITS, attrs, 0);
    for (uint32_t i = 0; i < sl_op_info_of(SL_OP_HEAD_LOGITS)->operand_count; i++)
        assert_int_equal(cudaMalloc(&call->operand[i], 1 << 16), cudaSuccess);
    assert_int_equal(cudaMalloc(&call->workspace, bytes), cudaSuccess);
    assert_int_equal(
        cudaStreamCreateWithFlags((cudaStream_t *)&call->stream, cudaStreamNonBlocking),
        cudaSuccess);
}

static void give_operands(const sl_kernel_call *call)
{
    assert_int_equal(cudaStreamDestroy((cudaStream_t)call->stream), cudaSuccess);
    assert_int_equal(cudaFree(call->workspace), cudaSuccess);
    for (uint32_t i = 0; i < sl_op_info_of(SL_OP_HEAD_LOGITS)->operand_count; i++)
        assert_int_equal(cudaFree(call->operand[i]), cudaSuccess);
}

/* Prepares one product with operands, as the engine and bench do. */
static prepared prepare(const sl_cuda_options *options, uint64_t rows, sl_type type)
{
    const sl_kernel_table *table = sl_kernels_cuda();
    const sl_op_attrs attrs = {.row_count = rows,
                               .batch = 1,
                               .seq = rows,
                               .in = 24,
                               .id_count = 40,
                               .type = (uint16_t)type};
    sl_kernel_call call = {.attrs = &attrs};
    prepared it = {0};
    take_operands(&call, &attrs);
    assert_int_equal(table->open(0, options, &call.library), SL_OK);
    it.status = table->prepare(call.library, SL_OP_HEAD_LOGITS, &call);
    const char *text = table->algorithm(call.library, 0);
    snprintf(it.text, sizeof it.text, "%s", text != NULL ? text : "");
    if (text != NULL)
        assert_null(table->algorithm(call.library, 1));
    table->close(call.library);
    give_operands(&call);
    return it;
}

static prepared time_one(void)
{
    const sl_cuda_options timed = {.times_algorithms = true};
    return prepare(&timed, 9, SL_TYPE_FP32);
}

static void products_when_timed_take_the_fastest(void **state)
{
    (void)state;
    const prepared it = time_one();
    assert_int_equal(it.status, SL_OK);
    assert_non_null(strstr(it.text, fastest_text));
    assert_non_null(strstr(it.text, "of the first one's time"));
}

static void products_when_not_timed_take_the_first(void **state)
{
    (void)state;
    const prepared it = prepare(NULL, 9, SL_TYPE_FP32);
    assert_int_equal(it.status, SL_OK);
    assert_non_null(strstr(it.text, first_text));
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 1);
}

static void algorithm_when_it_breaks_a_promise_is_not_taken(void **state)
{
    (void)state;
    static const standin_blas_fault faults[] = {STANDIN_BLAS_REFUSES, STANDIN_BLAS_CHANGES_BITS,
                                                STANDIN_BLAS_IS_OFF, STANDIN_BLAS_TAKES_MORE,
                                                STANDIN_BLAS_ADDS_IN_PLACE};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        standin_blas_plant(FASTEST, faults[i]);
        const prepared it = time_one();
        assert_int_equal(it.status, SL_OK);
        if (strstr(it.text, fastest_text) != NULL)
            fail_msg("fault %zu: %s", i, it.text);
    }
}

/* What gives other bits does so in each type. */
static void algorithm_when_it_changes_bits_is_not_taken_in_any_type(void **state)
{
    (void)state;
    const sl_cuda_options timed = {.times_algorithms = true};
    standin_blas_plant(FASTEST, STANDIN_BLAS_CHANGES_BITS);
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const prepared it = prepare(&timed, 9, (sl_type)type);
        assert_int_equal(it.status, SL_OK);
        assert_null(strstr(it.text, fastest_text));
    }
}

static void first_when_it_is_not_launched_gives_way(void **state)
{
    (void)state;
    standin_blas_plant(0, STANDIN_BLAS_REFUSES);
    const prepared it = time_one();
    assert_int_equal(it.status, SL_OK);
    assert_non_null(strstr(it.text, fastest_text));
}

/* As one line among others, whichever type and size they are of. */
static void algorithm_when_kept_is_found_again_without_timing(void **state)
{
    (void)state;
    char list[3 * TEXT_BYTES];
    const prepared timed = time_one();
    snprintf(list, sizeof list, "Stand-in; cuBLASLt\n10%s\n%s\n", timed.text, timed.text);
    const sl_cuda_options kept = {.algorithms = list};
    const uint64_t before = standin_blas_calls("cublasLtMatmul");
    prepared it = prepare(&kept, 9, SL_TYPE_FP32);
    assert_int_equal(it.status, SL_OK);
    assert_non_null(strstr(it.text, fastest_text));
    assert_int_equal(standin_blas_calls("cublasLtMatmul") - before, 1);
    it = prepare(&kept, 8, SL_TYPE_FP32);
    assert_non_null(strstr(it.text, first_text));
    it = prepare(&kept, 9, SL_TYPE_BF16);
    assert_non_null(strstr(it.text, first_text));
}

/* Another version of the library may do that; the run goes on with the first. */
static void algorithm_when_kept_but_not_offered_gives_way(void **state)
{
    (void)state;
    const prepared timed = time_one();
    const sl_cuda_options kept = {.algorithms = timed.text};
    standin_blas_offer(FASTEST);
    prepared it = prepare(&kept, 9, SL_TYPE_FP32);
    assert_int_equal(it.status, SL_OK);
    assert_non_null(strstr(it.text, first_text));
    standin_blas_offer(OFFERED);
    standin_blas_plant(FASTEST, STANDIN_BLAS_REFUSES);
    it = prepare(&kept, 9, SL_TYPE_FP32);
    assert_int_equal(it.status, SL_OK);
    assert_non_null(strstr(it.text, first_text));
}

/* Each call that timing makes fails in turn. */
static void timing_when_a_call_fails_says_so_and_gives_all_back(void **state)
{
    (void)state;
    static const char *const names[] = {"cudaEventCreateWithFlags", "cudaEventRecord",
                                        "cudaEventElapsedTime", "cudaMemcpyAsync",
                                        "cudaStreamSynchronize"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        standin_fail_call(names[i], 2, 1);
        assert_int_equal(time_one().status, SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "timing products"));
    }
    assert_int_equal(time_one().status, SL_OK);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(products_when_timed_take_the_fastest),
        CASE(products_when_not_timed_take_the_first),
        CASE(algorithm_when_it_breaks_a_promise_is_not_taken),
        CASE(algorithm_when_it_changes_bits_is_not_taken_in_any_type),
        CASE(first_when_it_is_not_launched_gives_way),
        CASE(algorithm_when_kept_is_found_again_without_timing),
        CASE(algorithm_when_kept_but_not_offered_gives_way),
        CASE(timing_when_a_call_fails_says_so_and_gives_all_back),
    };
    return cmocka_run_group_tests_name("timed algorithms", tests, NULL, NULL);
}
