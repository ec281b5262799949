/* What could be wrong in the products of a GPU that no stand-in shows: an algorithm of the real
 * cuBLASLt that reads its operands another way than it was told, sums in less than fp32, or asks
 * for more workspace; an instruction of our own kernel that does something else than its emulation.
 *
 * As kernels/product_case.h says, by cuBLASLt where it opens and by our own kernel: integers must
 * come out exact, random numbers within the bound of their roundings, twice the same bits. */
#include "gpu_place.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/ops.h"
#include "kernels/product_case.h"

enum { SHAPES = 30 };

static sl_kernel_library own; /* without cuBLASLt: our own kernel */
static sl_kernel_library *library;

/* SL_TEST_FEW: so many, and none of GPT-2's own, where a processor stands in for the GPU. */
static int shapes(void)
{
    const char *few = getenv("SL_TEST_FEW");
    return few ? (int)strtol(few, NULL, 10) : rounds(SHAPES);
}

static void run_once(kernel_case *c)
{
    const uint64_t bytes = sl_cuda_linear_workspace_bytes(c->kind, &c->attrs, 0);
    sl_kernel_call call = {.attrs = &c->attrs,
                           .scalars = c->scalars,
                           .workspace = allocate(bytes),
                           .library = library};
    memset(call.workspace, 0xff, bytes);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (c->bytes[i] > 0)
            memcpy(c->result[i], c->input[i], c->bytes[i]);
        call.operand[i] = c->result[i];
    }
    const sl_kernel run = sl_kernels_cuda()->row[c->kind].run;
    if (gpu_place_run(c->kind, run, &call, c->bytes, bytes, 0) != SL_OK)
        fail_msg("op %d failed: %s", (int)c->kind, sl_status_message());
    free(call.workspace);
}

/* Twice, and both must be the same bits. */
static void run_twice(kernel_case *c)
{
    void *first[SL_OPERAND_MAX] = {0};
    run_once(c);
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (c->bytes[i] > 0)
            first[i] = memcpy(allocate(c->bytes[i]), c->result[i], c->bytes[i]);
    run_once(c);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (c->bytes[i] > 0)
            assert_memory_equal(first[i], c->result[i], c->bytes[i]);
        free(first[i]);
    }
}

static void products_of_integers_when_run_are_exact(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int round = 0; round < shapes(); round++)
                check_product(kinds[kind], (sl_type)type, draw_shape((uint64_t)round),
                              (uint64_t)round, true, run_once);
}

static void products_when_run_are_near_and_repeat(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int round = 0; round < (shapes() + 4) / 5; round++)
                check_product(kinds[kind], (sl_type)type, draw_shape((uint64_t)round),
                              (uint64_t)round, false, run_twice);
}

/* Every place of a tile of 128 x 128, and the first beyond it; neighbours in eights, in fours, or
 * one by one. */
static void products_when_they_fill_a_tile_are_exact(void **state)
{
    (void)state;
    static const uint64_t sides[] = {131, 136, 132};
    for (int kind = 0; kind < KINDS; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++)
            for (int round = 0; round < shapes() / 2; round++) {
                const uint64_t side = sides[round / 4 % 3];
                check_product(kinds[kind], (sl_type)type, (product_shape){129, side, side},
                              (uint64_t)round, true, run_once);
            }
}

/* Sizes of GPT-2 124M, and of its widest, in few rows. */
static void products_of_gpt2_when_run_are_near(void **state)
{
    (void)state;
    static const product_shape sizes[] = {
        {128, 768, 2304}, {128, 3072, 768}, {64, 1600, 6400}, {96, 768, 3072}};
    for (int i = 0; i < (getenv("SL_TEST_FEW") ? 0 : 4); i++)
        for (int kind = 0; kind < KINDS; kind++)
            check_product(kinds[kind], (sl_type)((i + kind) % SL_TYPE_COUNT), sizes[i],
                          (uint64_t)i + 1, false, run_twice);
    check_product(SL_OP_LINEAR_INPUT_BACKWARD, SL_TYPE_BF16, sizes[1], 2, false, run_twice);
}

static void bias_gradients_when_run_are_sums_of_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SL_TYPE_COUNT; i++)
        for (int round = 0; round < shapes(); round++) {
            const uint64_t packs = (uint64_t)round + 1, most = round < 3 ? 420 : 70;
            const product_shape s = {draw_between(most / 4, most), draw_between(1, 9),
                                     i % 2 ? 8 * packs : 2 * packs - 1};
            check_bias_gradient((sl_type)(i / 2), s, (uint64_t)round, run_twice);
        }
}

/* So wide that one kernel adds them. */
static void bias_gradients_when_wide_are_sums_of_rows(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < shapes(); round++) {
            const uint64_t least = type == SL_TYPE_FP32 ? 1024 : 2048;
            const product_shape s = {1 + 71 * (uint64_t)round % 300, 1,
                                     least + 8 * (uint64_t)round};
            check_bias_alone((sl_type)type, s, (uint64_t)round, run_once);
        }
}

static void products_when_a_factor_is_not_finite_spread_it(void **state)
{
    (void)state;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        check_not_finite((sl_type)type, run_once);
}

#define PRODUCT_TESTS                                                                              \
    cmocka_unit_test(products_of_integers_when_run_are_exact),                                     \
        cmocka_unit_test(products_when_run_are_near_and_repeat),                                   \
        cmocka_unit_test(products_when_they_fill_a_tile_are_exact),                                \
        cmocka_unit_test(products_of_gpt2_when_run_are_near),                                      \
        cmocka_unit_test(bias_gradients_when_run_are_sums_of_rows),                                \
        cmocka_unit_test(bias_gradients_when_wide_are_sums_of_rows),                               \
        cmocka_unit_test(products_when_a_factor_is_not_finite_spread_it)

int main(void)
{
    const struct CMUnitTest tests[] = {PRODUCT_TESTS};
    if (getenv("SL_TEST_SEED"))
        test_seed = strtoull(getenv("SL_TEST_SEED"), NULL, 0);
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)test_seed);
    if (!gpu_place_open())
        return GPU_PLACE_SKIP;
    print_message("by %s\n", sl_kernels_cuda()->description());
    gelu_roundings = 2;
    gelu_shortness = 0x1p-10; /* of the instruction for tanh, 2^-11, which the library may use */
    int failures = cmocka_run_group_tests_name("as opened", tests, NULL, NULL);
    gelu_roundings = 1;
    gelu_shortness = 0;
    library = &own;
    failures += cmocka_run_group_tests_name("our own kernel", tests, NULL, NULL);
    gpu_place_close();
    return failures;
}
