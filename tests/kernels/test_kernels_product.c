/* What could be wrong in a matrix product: a strip packed with its rows and terms swapped, an edge
 * of a strip, a tile, a chain of terms or a round that is left out or counted twice, a row of the
 * wrong stride, sums that are rounded more than once, a rounding that is not to nearest even, bits
 * that depend on the number of workers or on what the workspace held (kernel_case.h).
 *
 * Every product op, in every type and instruction set, is run on small integers, whose sums are
 * exact in fp32 in any order, so that the result is known to the bit; and on random numbers, within
 * the bound of its roundings. Odd shapes, and shapes that need several chains and rounds. */
#include "kernels/cpu/gemm.h"
#include "product_case.h"

enum { SHAPES = 30, REAL_SHAPES = 5, DEEP_SHAPES = 4 };

/* The table before this one may have the same micro-kernel. */
static bool differs_from_the_last(int type)
{
    uint32_t at = 0;
    while (sl_simd_usable(at) != sl_simd_current())
        at++;
    return at == 0 ||
           sl_simd_usable(at - 1)->micro_kernel[type] != sl_simd_current()->micro_kernel[type];
}

static void for_every_product(int shapes, bool integers)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int round = 0; round < shapes && differs_from_the_last(type); round++)
                check_product(kinds[kind], (sl_type)type, draw_shape((uint64_t)round),
                              (uint64_t)round, integers, case_run);
}

static void products_of_integers_when_run_are_exact(void **state)
{
    (void)state;
    for_every_product(rounds(SHAPES), true);
}

static void products_when_run_are_near(void **state)
{
    (void)state;
    for_every_product(rounds(REAL_SHAPES), false);
}

/* Several chains of terms, rounds of A's strips, of B's, and of chains. */
static void deep_products_when_run_are_exact(void **state)
{
    (void)state;
    static const product_shape shapes[DEEP_SHAPES] = {
        {5, 1700, 7}, {7, 9, 3500}, {4000, 5, 33}, {2400, 1030, 3}};
    static const product_shape wide[] = {{700, 3073, 9}, {9, 3073, 700}, {700, 9, 3073}};
    for (int kind = 0; kind<KINDS; kind += SANITIZER_SHARE> 1 ? 2 : 1) {
        for (int i = 0; i < DEEP_SHAPES; i++)
            check_product(kinds[kind], (sl_type)draw_below(3), shapes[i], (uint64_t)i, true,
                          case_run);
        const int drawn = (int)draw_below(3);
        check_product(kinds[kind], (sl_type)draw_below(3), wide[drawn], 1, true, case_run);
    }
}

/* So many terms that the sums of every micro-kernel lie in an fp32 C, round after round. */
static void products_of_many_terms_when_run_are_exact(void **state)
{
    (void)state;
    const product_shape shape = {9000, 40, 33};
    for (uint64_t round = 0; round < 2; round++)
        check_product(SL_OP_LINEAR_WEIGHT_BACKWARD, SL_TYPE_BF16, shape, round, true, case_run);
}

static void bias_gradients_when_run_are_sums_of_rows(void **state)
{
    (void)state;
    for (int round = 0; round < rounds(SHAPES); round++)
        check_bias_gradient((sl_type)(round % 3), draw_shape((uint64_t)round), (uint64_t)round,
                            case_run);
}

static void products_when_a_factor_is_not_finite_spread_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        check_not_finite((sl_type)type, case_run);
}

/* ---- few rows beside many */

enum { FEW_SHAPES = 6, FEW_MOST = 16, MANY = FEW_MOST + 23 };

typedef struct few_case {
    sl_product product;
    void *a, *b, *bias, *residual, *gelu_x, *c;
} few_case;

static void *draw_elements(sl_type type, uint64_t count)
{
    void *values = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    const uint64_t stream = 1000 + draw_count++;
    assert_non_null(values);
    for (uint64_t i = 0; i < count; i++)
        write_element(values, type, i, sl_rng_normal(test_seed, stream, i));
    return values;
}

/* Of MANY rows; what goes together is drawn. */
static few_case open_few_case(sl_type type, uint64_t n, uint64_t k, uint64_t round)
{
    few_case self = {.a = draw_elements(type, MANY * k), .b = draw_elements(type, n * k)};
    const bool is_wide = round % 3 == 1; /* fp32 sums of another type's products */
    self.product = (sl_product){.type = type,
                                .c_type = is_wide ? SL_TYPE_FP32 : type,
                                .n = n,
                                .k = k,
                                .transpose_b = draw_below(2),
                                .add = round % 2,
                                .a = self.a,
                                .b = self.b};
    self.c = draw_elements(self.product.c_type, MANY * n);
    if (!is_wide || type == SL_TYPE_FP32) {
        self.product.bias = self.bias = draw_elements(type, n);
        self.product.residual = self.residual = draw_elements(type, MANY * n);
        if (!self.product.add)
            self.product.gelu_x = self.gelu_x = draw_elements(type, MANY * n);
    }
    return self;
}

static void close_few_case(few_case *self)
{
    free(self->a);
    free(self->b);
    free(self->c);
    free(self->bias);
    free(self->residual);
    free(self->gelu_x);
}

/* The first `m` rows of C. */
static char *run_rows(const few_case *of, uint64_t m, uint32_t worker_count)
{
    const uint64_t bytes = MANY * of->product.n * sl_type_bytes(of->product.c_type);
    sl_product product = of->product;
    product.m = m;
    const uint64_t room = (sl_gemm_workspace_bytes(&product, worker_count) + 255) / 256 * 256;
    char *c = malloc(bytes), *workspace = aligned_alloc(256, room);
    sl_workers *pool = NULL;
    assert_true(c != NULL && workspace != NULL);
    assert_int_equal(sl_workers_open(worker_count, &pool), SL_OK);
    memcpy(c, of->c, bytes);
    memset(workspace, 0xff, room);
    product.c = c;
    assert_int_equal(sl_gemm_run(&product, workspace, pool), SL_OK);
    sl_workers_close(pool);
    free(workspace);
    return c;
}

/* A token must not depend on how many texts are written beside it: a few rows, of which B is read
 * where it lies, have the bits of the same rows among many, for which it is packed. */
static void rows_when_few_have_the_bits_of_the_same_among_many(void **state)
{
    (void)state;
    static const uint64_t terms[FEW_SHAPES] = {1, 37, 768, 769, 1601, 90};
    static const uint64_t columns[FEW_SHAPES] = {33, 300, 64, 1, 47, 2};
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (uint64_t round = 0; round < FEW_SHAPES && differs_from_the_last(type); round++) {
            few_case it = open_few_case((sl_type)type, columns[round], terms[round], round);
            char *many = run_rows(&it, MANY, 1);
            const uint64_t row = it.product.n * sl_type_bytes(it.product.c_type);
            for (uint64_t m = 1; m <= FEW_MOST; m++) {
                char *few = run_rows(&it, m, 1 + (uint32_t)draw_below(3));
                assert_memory_equal(few, many, m * row);
                free(few);
            }
            free(many);
            close_few_case(&it);
        }
}

/* Into another type than the operands' only fp32 sums go, without bias, residual and GELU: the rest
 * would be written in elements of another size than C has. What C holds passes no GELU. */
static void product_when_its_types_do_not_go_together_is_refused(void **state)
{
    (void)state;
    static _Alignas(256) float values[1], c[1] = {5};
    sl_workers *pool = NULL;
    assert_int_equal(sl_workers_open(1, &pool), SL_OK);
    for (int i = 0; i < 6; i++) {
        const sl_product product = {.type = i == 0 || i == 4 ? SL_TYPE_FP32 : SL_TYPE_BF16,
                                    .c_type = i == 0 ? SL_TYPE_BF16 : SL_TYPE_FP32,
                                    .a = values,
                                    .b = values,
                                    .c = c,
                                    .m = 1,
                                    .n = 1,
                                    .k = 1,
                                    .add = true,
                                    .bias = i == 1 ? values : NULL,
                                    .residual = i == 2 ? values : NULL,
                                    .gelu_x = i == 3 || i == 4 ? values : NULL};
        void *workspace =
            aligned_alloc(256, (sl_gemm_workspace_bytes(&product, 1) + 255) / 256 * 256);
        assert_non_null(workspace);
        assert_int_equal(sl_gemm_run(&product, workspace, pool), i < 5 ? SL_ERROR_INTERNAL : SL_OK);
        assert_true(c[0] == 5);
        free(workspace);
    }
    sl_workers_close(pool);
}

/* The loop that products are held against does what it counts: of one pass each chain c of a lane
 * has its start, 0.5 + c, and what one instruction adds; a second pass adds to that. */
static void register_loop_when_run_then_does_the_flops_that_it_counts(void **state)
{
    (void)state;
    enum { CHAINS = 12 };
    const sl_register_loop *loop = sl_simd_current()->register_loop[SL_TYPE_FP32];
    float numbers[3] = {0.5f, 2.0f, 0.0f};
    const double lanes = (double)loop->flops / (2.0 * CHAINS);
    double wanted[3] = {0, 0, 0}; /* after so many passes */
    for (int c = 0; c < CHAINS; c++) {
        double sum = 0.5 + c;
        for (int pass = 0; pass < 3; pass++, sum = sum * 0.5 + 2.0)
            wanted[pass] += lanes * sum;
    }
    for (uint64_t pass = 0; pass < 3; pass++) {
        loop->run(pass, numbers);
        assert_true(numbers[2] == (float)wanted[pass]); /* of few bits: exact */
    }
    const sl_register_loop *half = sl_simd_current()->register_loop[SL_TYPE_FP16];
    assert_true(half == loop &&
                sl_simd_current()->register_loop[SL_TYPE_BF16]->flops >= loop->flops);
    const sl_register_loop *pairs = sl_simd_current()->register_loop[SL_TYPE_BF16];
    pairs->run(1, numbers);
    assert_true(isfinite(numbers[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_integers_when_run_are_exact),
        cmocka_unit_test(products_when_run_are_near),
        cmocka_unit_test(deep_products_when_run_are_exact),
        cmocka_unit_test(products_of_many_terms_when_run_are_exact),
        cmocka_unit_test(bias_gradients_when_run_are_sums_of_rows),
        cmocka_unit_test(products_when_a_factor_is_not_finite_spread_it),
        cmocka_unit_test(rows_when_few_have_the_bits_of_the_same_among_many),
        cmocka_unit_test(register_loop_when_run_then_does_the_flops_that_it_counts),
        cmocka_unit_test(product_when_its_types_do_not_go_together_is_refused),
    };
    int failures = 0;
    RUN_FOR_EVERY_ISA(tests, failures);
    return failures;
}
