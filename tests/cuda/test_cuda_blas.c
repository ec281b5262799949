/* What could be wrong in products by cuBLASLt: rows and columns swapped on their way to a library
 * that thinks in columns, an operand of the wrong type or at the wrong row, a bias, residual or
 * GELU taken in after the rounding or not at all, an algorithm used for another product than it was
 * named for or with less workspace or alignment than it was named with, a library that is missing,
 * refuses or fails.
 *
 * The body of kernels/product_case.h, by the stand-in of cublaslt.h, which checks what it is told.
 */
#include <cuda_runtime_api.h>

#include "cublaslt.h"
#include "product_run.h"
#include "program/program.h"
#include "standin.h"

static int open_blas(void **state)
{
    (void)state;
    standin_blas_reset();
    return sl_blas_open(&(sl_cuda_options){0}, &library.blas) == SL_OK && library.blas != NULL ? 0
                                                                                               : -1;
}

static int close_blas(void **state)
{
    (void)state;
    sl_blas_close(library.blas);
    library.blas = NULL;
    const char *first;
    if (standin_blas_faults(&first) > 0)
        print_error("cuBLASLt: %s\n", first);
    return standin_blas_faults(NULL) == 0 && standin_blas_live() == 0 ? 0 : -1;
}

static void products_of_integers_when_run_are_exact(void **state)
{
    (void)state;
    for_every_product(rounds(SHAPES), true, run_prepared);
    assert_true(standin_blas_calls("cublasLtMatmul") >= 18 * (uint64_t)rounds(SHAPES));
}

static void products_when_run_are_near(void **state)
{
    (void)state;
    gelu_roundings = 2; /* of some: those that the library does not pass a GELU of */
    for_every_product(rounds(REAL_SHAPES), false, run_prepared);
    gelu_roundings = 1;
}

/* Beside the library's product, and alone. */
static void bias_gradients_when_run_are_sums_of_rows(void **state)
{
    (void)state;
    for (int round = 0; round < SL_TYPE_COUNT * 2; round++)
        check_bias_gradient((sl_type)(round / 2), draw_shape((uint64_t)round), (uint64_t)round,
                            run_prepared);
}

/* Round 2 of the cases has a GELU. That the library passes it shows in its choices. */
static void check_gelu(sl_type type, uint64_t width, bool is_passed)
{
    const product_shape s = {37, width, 50};
    const uint64_t before = standin_blas_calls("cublasLtMatmul");
    gelu_roundings = is_passed ? 1 : 2;
    for (int integers = 0; integers < 2; integers++)
        check_product(SL_OP_LINEAR_INPUT_BACKWARD, type, s, 2, integers, run_prepared);
    gelu_roundings = 1;
    assert_int_equal(standin_blas_calls("cublasLtMatmul") - before, 2);
    bool is_told = false;
    for (uint64_t i = 0; sl_library_algorithm(&library, i) != NULL; i++)
        is_told |= strstr(sl_library_algorithm(&library, i), "gelu': algorithm") != NULL;
    assert_int_equal(is_told, is_passed);
}

static void reopen_blas(bool has_epilogue)
{
    sl_blas_close(library.blas);
    library.blas = NULL;
    const sl_cuda_options options = {.no_epilogue = !has_epilogue};
    assert_int_equal(sl_blas_open(&options, &library.blas), SL_OK);
    assert_non_null(library.blas);
}

/* In the epilogue where the library can and may; else by a kernel of ours, after the product. */
static void gelu_when_passed_is_right_either_way(void **state)
{
    (void)state;
    check_gelu(SL_TYPE_FP32, 40, false);
    check_gelu(SL_TYPE_BF16, 40, true);
    reopen_blas(true);
    check_gelu(SL_TYPE_FP16, 41, false);
    check_gelu(SL_TYPE_FP16, 40, true);
    reopen_blas(true);
    standin_blas_refuse_gelu(true);
    const sl_op_attrs attrs = {.row_count = 37, .in = 40, .out = 50, .type = SL_TYPE_BF16};
    assert_int_equal(prepare_op(SL_OP_LINEAR_INPUT_BACKWARD, &attrs), SL_OK);
    check_gelu(SL_TYPE_BF16, 40, false); /* what was prepared is not asked again */
    reopen_blas(false);
    check_gelu(SL_TYPE_BF16, 40, false);
    const standin_machine hopper = standin_default();
    standin_machine older = hopper;
    older.major = 8;
    standin_reset(&older);
    reopen_blas(true);
    check_gelu(SL_TYPE_BF16, 40, false);
    standin_reset(&hopper);
}

static sl_op_attrs linear_attrs(uint64_t rows)
{
    return (sl_op_attrs){.row_count = rows, .in = 24, .out = 40, .type = SL_TYPE_BF16};
}

/* One question for each product, with a bias and without, however often it is prepared; none when
 * it runs, and nothing is opened. */
static void products_when_prepared_ask_once(void **state)
{
    (void)state;
    static const char *const openers[] = {"cublasLtMatmulAlgoGetHeuristic",
                                          "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
                                          "cublasLtMatmulPreferenceCreate"};
    const sl_op_attrs attrs = linear_attrs(9);
    for (int i = 0; i < 3; i++)
        assert_int_equal(prepare_op(SL_OP_LINEAR, &attrs), SL_OK);
    uint64_t calls[4];
    for (int i = 0; i < 4; i++)
        calls[i] = standin_blas_calls(openers[i]);
    assert_int_equal(calls[0], 2);
    for (uint64_t round = 0; round < 6; round++) { /* by `round`: bias, residual, both, none */
        product_case p =
            open_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 24, 40}, round, true);
        assert_int_equal(call_kernel(&p.c), SL_OK);
        case_close(&p.c);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(calls[i], standin_blas_calls(openers[i]));
}

/* Rows of the head are computed the same way wherever they begin. */
static void head_rows_when_they_begin_elsewhere_share_a_choice(void **state)
{
    (void)state;
    sl_op_attrs attrs = {.row_count = 7, .in = 13, .id_count = 21, .type = SL_TYPE_FP16};
    for (uint64_t row = 0; row < 5; row++) {
        attrs.first_row = row;
        attrs.first_id = row * 21;
        for (int kind = 3; kind < KINDS; kind++)
            assert_int_equal(prepare_op(kinds[kind], &attrs), SL_OK);
    }
    assert_int_equal(standin_blas_calls("cublasLtMatmulAlgoGetHeuristic"), 3);
}

static void product_when_not_prepared_is_refused(void **state)
{
    (void)state;
    product_case p = open_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 24, 40}, 1, true);
    assert_int_equal(call_kernel(&p.c), SL_ERROR_INTERNAL);
    const sl_op_attrs other = linear_attrs(8);
    assert_int_equal(prepare_op(SL_OP_LINEAR, &other), SL_OK);
    assert_int_equal(call_kernel(&p.c), SL_ERROR_INTERNAL);
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 0);
    run_prepared(&p.c);
    case_close(&p.c);
}

static void op_that_is_no_product_when_prepared_asks_nothing(void **state)
{
    (void)state;
    const sl_op_attrs attrs = {.element_count = 5, .row_count = 3, .in = 4};
    assert_int_equal(prepare_op(SL_OP_GELU, &attrs), SL_OK);
    assert_int_equal(standin_blas_calls("cublasLtMatmulAlgoGetHeuristic"), 0);
    assert_int_equal(sl_cuda_linear_workspace_bytes(SL_OP_GELU, &attrs, 0), 0);
    assert_null(sl_library_algorithm(&library, 0));
}

/* The choices of both lines are there as text, once each. */
static void choices_when_made_can_be_read(void **state)
{
    (void)state;
    const sl_op_attrs attrs = linear_attrs(9);
    assert_int_equal(prepare_op(SL_OP_LINEAR, &attrs), SL_OK);
    bool has_bias[2];
    for (uint64_t i = 0; i < 2; i++) {
        const char *text = sl_library_algorithm(&library, i);
        assert_non_null(text);
        assert_non_null(strstr(text, "9x40x24 bf16 to bf16 NN, aligned 16 16 16"));
        assert_non_null(strstr(text, "algorithm 10, tile 11, stages 16, cluster 18, parts"));
        assert_non_null(strstr(text, "waves 0.5, workspace"));
        has_bias[i] = strstr(text, "bias") != NULL;
    }
    assert_true(has_bias[0] != has_bias[1]);
    assert_null(sl_library_algorithm(&library, 2));
}

/* Those that the library has no algorithm for are computed all the same, and say so. */
static void products_when_the_library_has_no_algorithm_are_our_own(void **state)
{
    (void)state;
    standin_blas_refuse_odd(true);
    check_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 25, 41}, 5, true, run_prepared);
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 0);
    assert_non_null(strstr(sl_library_algorithm(&library, 0), "own kernel"));
    check_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 26, 42}, 5, true, run_prepared);
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 1);
}

/* Every call that preparing makes fails in turn: so does preparing, nothing stays open (as closing
 * sees) and the next attempt is as the first. */
static void preparing_when_a_call_fails_can_be_repeated(void **state)
{
    (void)state;
    static const char *const names[] = {
        "cublasLtMatmulDescCreate",       "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",     "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulPreferenceSetAttribute"};
    enum { NAMES = sizeof names / sizeof *names, ALLOCATION_FAILED = 3 };
    int failures = 0;
    for (uint64_t i = 0; i < NAMES; i++)
        for (uint64_t nth = 1; nth < 20; nth++) {
            const sl_op_attrs attrs = linear_attrs(100 * i + nth + 1);
            const uint64_t before = standin_blas_calls(names[i]);
            standin_blas_fail_call(names[i], nth, ALLOCATION_FAILED);
            const sl_status status = prepare_op(SL_OP_LINEAR, &attrs);
            const bool is_hit = standin_blas_calls(names[i]) - before >= nth;
            assert_int_equal(status, is_hit ? SL_ERROR_SYSTEM : SL_OK);
            failures += is_hit;
            standin_blas_fail_call(names[i], UINT64_MAX / 2, ALLOCATION_FAILED);
            assert_int_equal(prepare_op(SL_OP_LINEAR, &attrs), SL_OK);
        }
    assert_int_equal(failures, 2 + 6 + 6 + 2 + 2 + 14); /* the calls of two questions */
}

static void product_when_the_library_fails_fails(void **state)
{
    (void)state;
    product_case p = open_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 24, 40}, 1, true);
    run_prepared(&p.c);
    static const char *const names[] = {"cublasLtMatmul", "cublasLtMatmulDescSetAttribute"};
    for (int i = 0; i < 2; i++) {
        standin_blas_fail_call(names[i], 1, 13);
        assert_int_equal(call_kernel(&p.c), SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "cuBLASLt"));
        assert_memory_equal(p.c.result[4], p.c.input[4], p.c.bytes[4]);
    }
    run_prepared(&p.c);
    case_close(&p.c);
}

/* Nobody is to train at a third of the speed without having asked for it. */
static void library_when_missing_is_refused_unless_not_asked_for(void **state)
{
    (void)state;
    const sl_cuda_options own = {.own_products = true};
    sl_kernel_library *open = NULL;
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            standin_blas_hide(true);
        else
            standin_blas_fail_call("cublasLtCreate", 1, 1);
        assert_int_equal(sl_kernels_cuda()->open(0, NULL, &open), SL_ERROR_SYSTEM);
        assert_null(open);
        assert_non_null(strstr(sl_status_message(), "--cuda-products own"));
        assert_int_equal(sl_kernels_cuda()->lack() != NULL, i == 0);
        assert_int_equal(sl_kernels_cuda()->open(0, &own, &open), SL_OK);
        assert_null(sl_kernels_cuda()->algorithm(open, 0));
        sl_kernels_cuda()->close(open);
        open = NULL;
        standin_blas_hide(false);
    }
}

static void products_when_by_own_kernels_need_no_library(void **state)
{
    (void)state;
    sl_blas_close(library.blas);
    library.blas = NULL;
    check_product(SL_OP_LINEAR, SL_TYPE_FP16, (product_shape){9, 24, 40}, 5, true, run_prepared);
    assert_null(sl_library_algorithm(&library, 0));
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 0);
}

/* Each product that an op may turn out to be, once; its C is as fresh memory is. */
static void products_when_prepared_with_operands_are_launched_once(void **state)
{
    (void)state;
    static const struct {
        sl_op_kind kind;
        uint64_t launches;
    } cases[] = {{SL_OP_LINEAR, 2}, {SL_OP_LINEAR_INPUT_BACKWARD, 2}, {SL_OP_HEAD_LOGITS, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        product_case p =
            open_product(cases[i].kind, SL_TYPE_BF16, (product_shape){9, 24, 40}, 0, true);
        const uint64_t before = standin_blas_calls("cublasLtMatmul");
        sl_kernel_call call = {.attrs = &p.c.attrs, .library = &library};
        for (int o = 0; o < SL_OPERAND_MAX; o++)
            call.operand[o] = p.c.bytes[o] > 0 ? p.c.result[o] : NULL;
        const uint64_t bytes = sl_cuda_linear_workspace_bytes(p.c.kind, &p.c.attrs, 0);
        void *c = NULL;
        assert_int_equal(cudaMalloc(&c, p.c.bytes[p.out]), cudaSuccess);
        call.operand[p.out] = c;
        call.workspace = allocate(bytes);
        for (int round = 0; round < 2; round++)
            assert_int_equal(sl_library_prepare(&library, p.c.kind, &call), SL_OK);
        assert_int_equal(standin_blas_calls("cublasLtMatmul") - before, cases[i].launches);
        for (uint64_t at = 0; at < p.c.bytes[p.out]; at++)
            assert_int_equal(((const unsigned char *)c)[at], 0);
        assert_int_equal(cudaFree(c), cudaSuccess);
        free(call.workspace);
        case_close(&p.c);
    }
}

/* Of sizes alone; parts of small products only; at most 32 MiB. */
static void workspace_when_asked_for_follows_the_sizes(void **state)
{
    (void)state;
    const struct {
        uint64_t m, n, bytes;
    } rows[] = {{1, 1, 256},
                {64, 64, 16 * 4 * 64 * 64},
                {512, 1024, 32 << 20},
                {511, 1024, 16 * 4 * 511 * 1024},
                {1ull << 40, 1ull << 40, 32 << 20}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(sl_blas_workspace_bytes(&(sl_product){.m = rows[i].m, .n = rows[i].n}),
                         rows[i].bytes);
}

/* ---- the table ---- */

static void table_when_asked_is_whole(void **state)
{
    (void)state;
    const sl_kernel_table *table = sl_kernels_cuda();
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        assert_int_equal(table->row[kind].run == NULL,
                         kind == SL_OP_INPUT || sl_op_is_custom((sl_op_kind)kind) ||
                             sl_op_info_of((sl_op_kind)kind)->is_collective);
    standin_blas_reset();
    sl_kernel_library *open = NULL;
    assert_int_equal(table->open(99, NULL, &open), SL_ERROR_SYSTEM);
    assert_int_equal(table->open(0, NULL, &open), SL_OK);
    const sl_op_attrs attrs = linear_attrs(9);
    const sl_kernel_call shapes = {.attrs = &attrs};
    assert_int_equal(table->prepare(open, SL_OP_LINEAR_WEIGHT_BACKWARD, &shapes), SL_OK);
    assert_non_null(table->algorithm(open, 0));
    assert_null(table->algorithm(open, 1));
    assert_true(sl_kernels_workspace_bytes(table, SL_OP_LINEAR, &attrs, 7) ==
                sl_cuda_linear_workspace_bytes(SL_OP_LINEAR, &attrs, 0));
    assert_string_equal(table->description(), "cuda, cuBLASLt for tests");
    table->close(open);
    table->close(NULL);
    assert_int_equal(standin_blas_live(), 0);
}

static void op_without_a_kernel_when_prepared_is_refused(void **state)
{
    (void)state;
    const sl_op_attrs attrs = {.element_count = 3};
    assert_int_equal(prepare_op(SL_OP_ALL_REDUCE, &attrs), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "all_reduce"));
}

#define WITH_BLAS(test) cmocka_unit_test_setup_teardown(test, open_blas, close_blas)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BLAS(products_of_integers_when_run_are_exact),
        WITH_BLAS(products_when_run_are_near),
        WITH_BLAS(bias_gradients_when_run_are_sums_of_rows),
        WITH_BLAS(gelu_when_passed_is_right_either_way),
        WITH_BLAS(products_when_a_factor_is_not_finite_spread_it),
        WITH_BLAS(product_when_c_is_the_residual_adds_to_it),
        WITH_BLAS(products_when_prepared_ask_once),
        WITH_BLAS(head_rows_when_they_begin_elsewhere_share_a_choice),
        WITH_BLAS(product_when_not_prepared_is_refused),
        WITH_BLAS(op_that_is_no_product_when_prepared_asks_nothing),
        WITH_BLAS(choices_when_made_can_be_read),
        WITH_BLAS(products_when_the_library_has_no_algorithm_are_our_own),
        WITH_BLAS(preparing_when_a_call_fails_can_be_repeated),
        WITH_BLAS(product_when_the_library_fails_fails),
        WITH_BLAS(library_when_missing_is_refused_unless_not_asked_for),
        WITH_BLAS(products_when_by_own_kernels_need_no_library),
        WITH_BLAS(products_when_prepared_with_operands_are_launched_once),
        cmocka_unit_test(workspace_when_asked_for_follows_the_sizes),
        cmocka_unit_test(table_when_asked_is_whole),
        cmocka_unit_test(op_without_a_kernel_when_prepared_is_refused),
    };
    if (getenv("SL_TEST_SEED"))
        test_seed = strtoull(getenv("SL_TEST_SEED"), NULL, 0);
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
