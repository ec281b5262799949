/* What could be wrong in the products of the CUDA backend: rows and columns swapped on their way to
 * a library that thinks in columns, an operand of the wrong type or at the wrong row, a bias or
 * residual added after the rounding or not at all, an old C that is read or not, an edge of a tile,
 * a panel replaced while it is still read, an algorithm used for another product than it was named
 * for or with less workspace or alignment than it was named with, a library that is missing,
 * refuses or fails.
 *
 * Both ways of computing are run on the body of tests/product_case.h: small integers, whose sums
 * are known to the bit, and random numbers within the bound of their roundings. Our own kernel runs
 * in several orders of its threads, which must agree in every bit; cuBLASLt is the stand-in of
 * cublaslt.h, which checks what it is told. */
#include "cublaslt.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/ops.h"
#include "product_case.h"
#include "shim_control.h"

enum { SHAPES = 30, REAL_SHAPES = 6, ORDERS = 3 };

static sl_kernel_library library;

static const struct {
    sl_shim_order order;
    uint64_t seed;
} orders[ORDERS] = {{SL_SHIM_IN_ORDER, 0}, {SL_SHIM_REVERSED, 0}, {SL_SHIM_SHUFFLED, 5}};

static sl_kernel kernel_of(sl_op_kind kind)
{
    switch ((int)kind) {
    case SL_OP_LINEAR:
        return sl_cuda_linear;
    case SL_OP_LINEAR_INPUT_BACKWARD:
        return sl_cuda_linear_input_backward;
    case SL_OP_LINEAR_WEIGHT_BACKWARD:
        return sl_cuda_linear_weight_backward;
    case SL_OP_HEAD_LOGITS:
        return sl_cuda_head_logits;
    case SL_OP_HEAD_INPUT_BACKWARD:
        return sl_cuda_head_input_backward;
    default:
        return sl_cuda_head_weight_backward;
    }
}

/* What the kernel returns. */
static sl_status call_kernel(kernel_case *c)
{
    sl_kernel_call call = {.attrs = &c->attrs, .scalars = c->scalars, .library = &library};
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (c->bytes[i] > 0)
            memcpy(c->result[i], c->input[i], c->bytes[i]);
        call.operand[i] = c->result[i];
    }
    const uint64_t bytes = sl_cuda_linear_workspace_bytes(c->kind, &c->attrs);
    assert_true(bytes > 0 && bytes % 256 == 0 && bytes <= 32 << 20);
    call.workspace = allocate(bytes);
    memset(call.workspace, 0xff, bytes);
    const sl_status status = kernel_of(c->kind)(&call);
    free(call.workspace);
    return status;
}

static void run_prepared(kernel_case *c)
{
    if (library.blas != NULL && sl_cuda_linear_prepare(library.blas, c->kind, &c->attrs) != SL_OK)
        fail_msg("op %d is not prepared: %s", (int)c->kind, sl_status_message());
    if (call_kernel(c) != SL_OK)
        fail_msg("op %d failed: %s", (int)c->kind, sl_status_message());
}

/* In several orders of threads; all results must be the same bits. */
static void run_in_orders(kernel_case *c)
{
    void *first[SL_OPERAND_MAX] = {0};
    for (int order = 0; order < ORDERS; order++) {
        sl_shim_choose_order(orders[order].order, orders[order].seed);
        run_prepared(c);
        for (int i = 0; i < SL_OPERAND_MAX; i++) {
            if (c->bytes[i] == 0)
                continue;
            if (order == 0) {
                first[i] = allocate(c->bytes[i]);
                memcpy(first[i], c->result[i], c->bytes[i]);
            }
            assert_memory_equal(first[i], c->result[i], c->bytes[i]);
        }
    }
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        free(first[i]);
}

static void for_every_product(int shapes, bool integers, product_runner run)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int round = 0; round < shapes; round++)
                check_product(kinds[kind], (sl_type)type, draw_shape((uint64_t)round),
                              (uint64_t)round, integers, run);
}

/* ---- our own kernel ---- */

static void own_products_of_integers_when_run_are_exact(void **state)
{
    (void)state;
    for_every_product(rounds(SHAPES), true, run_prepared);
}

static void own_products_when_run_are_near(void **state)
{
    (void)state;
    for_every_product(rounds(REAL_SHAPES), false, run_in_orders);
}

/* One more and one less than a tile, a panel of terms and an eight of neighbours. */
static void own_products_when_they_end_at_an_edge_are_exact(void **state)
{
    (void)state;
    static const uint64_t edges[] = {127, 128, 129, 16, 15, 17, 8, 24, 136, 256};
    enum { EDGES = sizeof edges / sizeof *edges };
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < EDGES; i++) {
            const product_shape s = {edges[i], edges[(i + 3 + kind) % EDGES],
                                     edges[(i + 7) % EDGES]};
            check_product(kinds[kind], (sl_type)(i % 3), s, (uint64_t)i, true, run_in_orders);
        }
}

/* Tiles of rows for the bias, of which there are at most 64; many terms; many tiles. */
static void own_products_when_deep_are_exact(void **state)
{
    (void)state;
    static const product_shape shapes[] = {
        {5, 1700, 7}, {7, 9, 3500}, {2200, 5, 33}, {700, 3, 260}};
    for (int i = 0; i < 4; i++) {
        for (int kind = 0; kind < KINDS; kind++)
            check_product(kinds[kind], (sl_type)draw_below(3), shapes[i], (uint64_t)i, true,
                          run_prepared);
        check_bias_gradient((sl_type)draw_below(3), shapes[i], run_in_orders);
    }
}

static void bias_gradients_when_run_are_sums_of_rows(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++)
        check_bias_gradient((sl_type)(round % 3), draw_shape((uint64_t)round), run_in_orders);
}

static void products_when_a_factor_is_not_finite_spread_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        check_not_finite((sl_type)type, run_prepared);
}

/* y written where the residual stood. */
static void product_when_c_is_the_residual_adds_to_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const product_shape s = {21, 34, 48};
        product_case p = open_product(SL_OP_LINEAR, (sl_type)type, s, 5, true);
        run_prepared(&p.c);
        kernel_case in_place = p.c;
        in_place.input[4] = p.c.input[3];
        in_place.result[4] = in_place.result[3] = allocate(p.c.bytes[4]);
        run_prepared(&in_place);
        assert_memory_equal(in_place.result[4], p.c.result[4], p.c.bytes[4]);
        free(in_place.result[4]);
        case_close(&p.c);
    }
}

static void own_product_when_it_is_none_is_refused(void **state)
{
    (void)state;
    static _Alignas(256) float values[1], c[1] = {5};
    const sl_kernel_call call = {0};
    const sl_product right = {
        .of = {.type = SL_TYPE_BF16, .c_type = SL_TYPE_FP32, .m = 1, .n = 1, .k = 1, .add = true},
        .a = values,
        .b = values,
        .c = c};
    sl_product wrong[6] = {right, right, right, right, right, right};
    wrong[0].of.m = 0;
    wrong[1].of.n = 0;
    wrong[2].of.k = 0;
    wrong[3].of.c_type = SL_TYPE_FP16;
    wrong[4].bias = values;
    wrong[5].of.m = wrong[5].of.n = 1ull << 40;
    for (int i = 0; i < 6; i++)
        assert_int_equal(sl_product_run(&call, &wrong[i]), SL_ERROR_INTERNAL);
    assert_true(c[0] == 5);
    assert_int_equal(sl_product_run(&call, &right), SL_OK);
}

/* ---- cuBLASLt ---- */

static int open_blas(void **state)
{
    (void)state;
    standin_blas_reset();
    return sl_blas_open(&library.blas) == SL_OK && library.blas != NULL ? 0 : -1;
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
    assert_true(standin_blas_calls("cublasLtMatmul") >= 18 * SHAPES);
}

static void products_when_run_are_near(void **state)
{
    (void)state;
    for_every_product(rounds(REAL_SHAPES), false, run_prepared);
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
        assert_int_equal(sl_cuda_linear_prepare(library.blas, SL_OP_LINEAR, &attrs), SL_OK);
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
            assert_int_equal(sl_cuda_linear_prepare(library.blas, kinds[kind], &attrs), SL_OK);
    }
    assert_int_equal(standin_blas_calls("cublasLtMatmulAlgoGetHeuristic"), 3);
}

static void product_when_not_prepared_is_refused(void **state)
{
    (void)state;
    product_case p = open_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 24, 40}, 1, true);
    assert_int_equal(call_kernel(&p.c), SL_ERROR_INTERNAL);
    const sl_op_attrs other = linear_attrs(8);
    assert_int_equal(sl_cuda_linear_prepare(library.blas, SL_OP_LINEAR, &other), SL_OK);
    assert_int_equal(call_kernel(&p.c), SL_ERROR_INTERNAL);
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 0);
    run_prepared(&p.c);
    case_close(&p.c);
}

static void op_that_is_no_product_when_prepared_asks_nothing(void **state)
{
    (void)state;
    const sl_op_attrs attrs = {.element_count = 5, .row_count = 3, .in = 4};
    assert_int_equal(sl_library_prepare(&library, SL_OP_GELU, &attrs), SL_OK);
    assert_int_equal(standin_blas_calls("cublasLtMatmulAlgoGetHeuristic"), 0);
    assert_int_equal(sl_cuda_linear_workspace_bytes(SL_OP_GELU, &attrs), 0);
    assert_null(sl_library_choice(&library, 0));
}

/* The choices of both lines are there as text, once each. */
static void choices_when_made_can_be_read(void **state)
{
    (void)state;
    const sl_op_attrs attrs = linear_attrs(9);
    assert_int_equal(sl_library_prepare(&library, SL_OP_LINEAR, &attrs), SL_OK);
    bool has_bias[2];
    for (uint64_t i = 0; i < 2; i++) {
        const char *text = sl_library_choice(&library, i);
        assert_non_null(text);
        assert_non_null(strstr(text, "9x40x24 bf16 to bf16 NN"));
        assert_non_null(strstr(text, "algorithm 10, tile 11, stages 16, cluster 18, parts"));
        assert_non_null(strstr(text, "waves 0.5, workspace"));
        has_bias[i] = strstr(text, "bias") != NULL;
    }
    assert_true(has_bias[0] != has_bias[1]);
    assert_null(sl_library_choice(&library, 2));
}

/* Those that the library has no algorithm for are computed all the same, and say so. */
static void products_when_the_library_has_no_algorithm_are_our_own(void **state)
{
    (void)state;
    standin_blas_refuse_odd(true);
    check_product(SL_OP_LINEAR, SL_TYPE_BF16, (product_shape){9, 25, 41}, 5, true, run_prepared);
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 0);
    assert_non_null(strstr(sl_library_choice(&library, 0), "own kernel"));
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
            const sl_status status = sl_cuda_linear_prepare(library.blas, SL_OP_LINEAR, &attrs);
            const bool is_hit = standin_blas_calls(names[i]) - before >= nth;
            assert_int_equal(status, is_hit ? SL_ERROR_SYSTEM : SL_OK);
            failures += is_hit;
            standin_blas_fail_call(names[i], UINT64_MAX / 2, ALLOCATION_FAILED);
            assert_int_equal(sl_cuda_linear_prepare(library.blas, SL_OP_LINEAR, &attrs), SL_OK);
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

/* Without the library, or where it does not open, everything is computed by our own kernel. */
static void library_when_missing_is_no_failure(void **state)
{
    (void)state;
    sl_blas_close(library.blas);
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            standin_blas_hide(true);
        else
            standin_blas_fail_call("cublasLtCreate", 1, 1);
        assert_int_equal(sl_blas_open(&library.blas), SL_OK);
        assert_null(library.blas);
        const sl_op_attrs attrs = linear_attrs(9);
        assert_int_equal(sl_library_prepare(&library, SL_OP_LINEAR, &attrs), SL_OK);
        assert_null(sl_library_choice(&library, 0));
        check_product(SL_OP_LINEAR, SL_TYPE_FP16, (product_shape){9, 24, 40}, 5, true,
                      run_prepared);
        standin_blas_hide(false);
    }
    assert_int_equal(standin_blas_calls("cublasLtMatmul"), 0);
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
        assert_int_equal(
            sl_blas_workspace_bytes(&(sl_product){.of = {.m = rows[i].m, .n = rows[i].n}}),
            rows[i].bytes);
}

/* ---- the table ---- */

static void table_when_asked_is_whole(void **state)
{
    (void)state;
    const sl_kernel_table *table = sl_kernels_cuda();
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        assert_non_null(table->run[kind]);
    standin_blas_reset();
    sl_kernel_library *open = NULL;
    assert_int_equal(table->open(99, &open), SL_ERROR_SYSTEM);
    assert_int_equal(table->open(0, &open), SL_OK);
    const sl_op_attrs attrs = linear_attrs(9);
    assert_int_equal(table->prepare(open, SL_OP_LINEAR_INPUT_BACKWARD, &attrs), SL_OK);
    assert_non_null(table->choice(open, 0));
    assert_null(table->choice(open, 1));
    assert_true(table->workspace_bytes(SL_OP_LINEAR, &attrs, 7) ==
                sl_cuda_linear_workspace_bytes(SL_OP_LINEAR, &attrs));
    assert_string_equal(table->description(), "cuda, cuBLASLt for tests, attention by own kernels");
    table->close(open);
    table->close(NULL);
    assert_int_equal(standin_blas_live(), 0);
}

/* The sum over one rank is what is there. */
static void all_reduce_when_of_one_rank_changes_nothing(void **state)
{
    (void)state;
    float x[3] = {1, 2, 3};
    const sl_op_attrs attrs = {.element_count = 3};
    const sl_kernel_call call = {.attrs = &attrs, .operand = {x}};
    assert_int_equal(sl_kernels_cuda()->run[SL_OP_ALL_REDUCE](&call), SL_OK);
    assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3);
}

#define WITH_BLAS(test) cmocka_unit_test_setup_teardown(test, open_blas, close_blas)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_products_of_integers_when_run_are_exact),
        cmocka_unit_test(own_products_when_run_are_near),
        cmocka_unit_test(own_products_when_they_end_at_an_edge_are_exact),
        cmocka_unit_test(own_products_when_deep_are_exact),
        cmocka_unit_test(bias_gradients_when_run_are_sums_of_rows),
        cmocka_unit_test(products_when_a_factor_is_not_finite_spread_it),
        cmocka_unit_test(product_when_c_is_the_residual_adds_to_it),
        cmocka_unit_test(own_product_when_it_is_none_is_refused),
        WITH_BLAS(products_of_integers_when_run_are_exact),
        WITH_BLAS(products_when_run_are_near),
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
        WITH_BLAS(library_when_missing_is_no_failure),
        cmocka_unit_test(workspace_when_asked_for_follows_the_sizes),
        cmocka_unit_test(table_when_asked_is_whole),
        cmocka_unit_test(all_reduce_when_of_one_rank_changes_nothing),
    };
    if (getenv("SL_TEST_SEED"))
        test_seed = strtoull(getenv("SL_TEST_SEED"), NULL, 0);
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
