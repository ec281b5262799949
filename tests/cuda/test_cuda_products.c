/* What could be wrong in our own kernels of products on CUDA: an operand of the wrong type or at
 * the wrong row, a bias, residual or GELU taken in after the rounding or not at all, an old C that
 * is read or not, an edge of a tile, a panel replaced while it is still read.
 *
 * The body of kernels/product_case.h: small integers, whose sums are known to the bit, and random
 * numbers within the bound of their roundings; in several orders of threads, which must agree in
 * every bit. */
#include "product_run.h"

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
        check_bias_gradient((sl_type)draw_below(3), shapes[i], (uint64_t)i, run_in_orders);
    }
}

static void bias_gradients_when_run_are_sums_of_rows(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++)
        check_bias_gradient((sl_type)(round % 3), draw_shape((uint64_t)round), (uint64_t)round,
                            run_in_orders);
}

/* So wide that one kernel adds them, or but for their width; tiles of rows as above. */
static void bias_gradients_when_wide_are_sums_of_rows(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (uint64_t i = 0; i < 6; i++) {
            const product_shape s = {1 + 71 * i % 300, 1,
                                     (type == SL_TYPE_FP32 ? 1024 : 2048) + 8 * i - (i == 5)};
            check_bias_alone((sl_type)type, s, i, i < 2 ? run_in_orders : run_prepared);
        }
}

static void own_product_when_it_is_none_is_refused(void **state)
{
    (void)state;
    static _Alignas(256) float values[1], c[1] = {5};
    const sl_kernel_call call = {0};
    const sl_product right = {.type = SL_TYPE_BF16,
                              .c_type = SL_TYPE_FP32,
                              .m = 1,
                              .n = 1,
                              .k = 1,
                              .add = true,
                              .a = values,
                              .b = values,
                              .c = c};
    sl_product wrong[8] = {right, right, right, right, right, right, right, right};
    wrong[0].m = 0;
    wrong[1].n = 0;
    wrong[2].k = 0;
    wrong[3].c_type = SL_TYPE_FP16;
    wrong[4].bias = values;
    wrong[5].m = wrong[5].n = 1ull << 40;
    wrong[6].gelu_x = wrong[7].gelu_x = values;
    wrong[7].type = SL_TYPE_FP32;
    for (int i = 0; i < 8; i++)
        assert_int_equal(sl_cuda_product_run(&call, &wrong[i]), SL_ERROR_INTERNAL);
    assert_true(c[0] == 5);
    assert_int_equal(sl_cuda_product_run(&call, &right), SL_OK);
}

/* Each lacks the ops that would ask for it (kernels/product.c). */
static void own_product_when_no_op_asks_for_it_is_refused(void **state)
{
    (void)state;
    static _Alignas(256) float values[1], c[1] = {5};
    const sl_kernel_call call = {0};
    const sl_product plain = {.type = SL_TYPE_FP16,
                              .c_type = SL_TYPE_FP16,
                              .m = 1,
                              .n = 1,
                              .k = 1,
                              .a = values,
                              .b = values,
                              .c = c};
    sl_product wrong[10] = {plain, plain, plain, plain, plain, plain, plain, plain, plain, plain};
    wrong[0].transpose_a = wrong[0].transpose_b = true;
    wrong[1].add = true;
    wrong[2].gelu_x = values;
    wrong[3].transpose_b = true, wrong[3].bias = values;
    wrong[4].transpose_b = true, wrong[4].residual = values;
    wrong[5].transpose_b = true, wrong[5].c_type = SL_TYPE_FP32;
    wrong[6].transpose_a = true, wrong[6].bias = values;
    wrong[7].transpose_a = true, wrong[7].add = true;
    wrong[8].type = wrong[8].c_type = wrong[9].type = wrong[9].c_type = SL_TYPE_FP32;
    wrong[8].bias = wrong[9].residual = wrong[9].gelu_x = values, wrong[8].add = true;
    for (int i = 0; i < 10; i++)
        assert_int_equal(sl_cuda_product_run(&call, &wrong[i]), SL_ERROR_INTERNAL);
    assert_true(c[0] == 5);
}

/* Rows of packs that none of the places in memory is aligned to. */
static void own_product_when_c_is_not_aligned_is_the_same(void **state)
{
    (void)state;
    enum { SIDE = 136 };
    static _Alignas(256) uint16_t a[SIDE * SIDE], b[SIDE * SIDE], x[SIDE * SIDE];
    static _Alignas(256) uint16_t c[2][SIDE * SIDE + 8];
    const sl_kernel_call call = {0};
    for (uint64_t i = 0; i < SIDE * SIDE; i++) {
        a[i] = sl_half_to_fp16(sl_rng_normal(test_seed, 1, i));
        b[i] = sl_half_to_fp16(sl_rng_normal(test_seed, 2, i));
        x[i] = sl_half_to_fp16(sl_rng_normal(test_seed, 3, i));
    }
    for (int i = 0; i < 2; i++) {
        const sl_product product = {.type = SL_TYPE_FP16,
                                    .c_type = SL_TYPE_FP16,
                                    .m = SIDE,
                                    .n = SIDE,
                                    .k = SIDE,
                                    .transpose_b = true,
                                    .a = a,
                                    .b = b,
                                    .c = c[i] + i,
                                    .gelu_x = x};
        assert_int_equal(sl_cuda_product_run(&call, &product), SL_OK);
    }
    assert_memory_equal(c[0], c[1] + 1, SIDE * SIDE * sizeof *a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_products_of_integers_when_run_are_exact),
        cmocka_unit_test(own_products_when_run_are_near),
        cmocka_unit_test(own_products_when_they_end_at_an_edge_are_exact),
        cmocka_unit_test(own_products_when_deep_are_exact),
        cmocka_unit_test(bias_gradients_when_run_are_sums_of_rows),
        cmocka_unit_test(bias_gradients_when_wide_are_sums_of_rows),
        cmocka_unit_test(products_when_a_factor_is_not_finite_spread_it),
        cmocka_unit_test(product_when_c_is_the_residual_adds_to_it),
        cmocka_unit_test(own_product_when_it_is_none_is_refused),
        cmocka_unit_test(own_product_when_no_op_asks_for_it_is_refused),
        cmocka_unit_test(own_product_when_c_is_not_aligned_is_the_same),
    };
    if (getenv("SL_TEST_SEED"))
        test_seed = strtoull(getenv("SL_TEST_SEED"), NULL, 0);
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
