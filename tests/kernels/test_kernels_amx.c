/* What could be wrong in the micro-kernel for AMX, on a machine that has no AMX: a step packed in
 * another order than the tile instruction reads, an edge of rows, columns or terms, a chain that
 * does not go on from its sums, a tile used before it is configured.
 *
 * The micro-kernel itself runs over emulated tiles (amx_emulated.c), with AVX-512. Whole products
 * of odd shapes are compared with sums that are taken element by element, in the order that the
 * instruction documents, in every bit. Numbers near the subnormals are among them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"
#include "sanitizer_share.h"
#include "skip.h"

enum { STEP = 32, SHAPES = 10, WORKERS = 3 };

#ifdef SL_TEST_EMULATES_AMX
extern const sl_micro_kernel emulated_amx_micro_kernel;

static const sl_simd *find_avx512(void)
{
    for (uint32_t i = 0; i < sl_simd_usable_count(); i++)
        if (strcmp(sl_simd_usable(i)->isa, "avx512") == 0)
            return sl_simd_usable(i);
    return NULL;
}

typedef struct amx_case {
    sl_product product;
    uint16_t *a, *b, *bias, *residual;
    void *c, *expected;
    uint64_t c_bytes;
} amx_case;

static uint64_t stream;

static uint16_t *draw_halves(uint64_t count)
{
    uint16_t *values = malloc(count * sizeof *values);
    assert_non_null(values);
    stream++;
    for (uint64_t i = 0; i < count; i++) {
        const float scale = i % 29 == 5 ? 0x1p-70f : i % 31 == 7 ? 0x1p-128f : 1.0f;
        values[i] = sl_half_to_bf16(scale * sl_rng_normal(1, stream, i));
    }
    return values;
}

static float flush(float value)
{
    return fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value;
}

/* Term `k` of row `i` of A (or column of B); 0 past the last term. */
static float factor(const uint16_t *from, bool along_terms, uint64_t lines, uint64_t terms,
                    uint64_t i, uint64_t k)
{
    if (k >= terms)
        return 0.0f;
    return flush(sl_half_from_bf16(along_terms ? from[i * terms + k] : from[k * lines + i]));
}

static float sum_terms(const sl_product *p, uint64_t i, uint64_t j)
{
    float sum = 0.0f;
    for (uint64_t step = 0; step < p->k; step += STEP) {
        float part[2] = {0.0f, 0.0f};
        for (uint64_t t = 0; t < STEP; t++) {
            const float a = factor(p->a, !p->transpose_a, p->m, p->k, i, step + t);
            const float b = factor(p->b, p->transpose_b, p->n, p->k, j, step + t);
            part[t % 2] = flush(fmaf(a, b, part[t % 2]));
        }
        sum = flush(sum + flush(part[0] + part[1]));
    }
    return sum;
}

static void write_expected(amx_case *c)
{
    const sl_product *p = &c->product;
    for (uint64_t i = 0; i < p->m; i++)
        for (uint64_t j = 0; j < p->n; j++) {
            const uint64_t at = i * p->n + j;
            float sum = sum_terms(p, i, j);
            if (p->bias)
                sum += sl_half_from_bf16(c->bias[j]);
            if (p->residual)
                sum += sl_half_from_bf16(c->residual[at]);
            if (p->c_type == SL_TYPE_FP32) {
                float *to = c->expected;
                to[at] = p->add ? sum + to[at] : sum;
            } else {
                uint16_t *to = c->expected;
                to[at] = sl_half_to_bf16(p->add ? sum + sl_half_from_bf16(to[at]) : sum);
            }
        }
}

static amx_case open_case(uint64_t m, uint64_t n, uint64_t k, uint64_t round)
{
    const bool is_fp32 = round % 2, add = round / 2 % 2, has_epilogue = !is_fp32 && round % 3 > 0;
    amx_case c = {.a = draw_halves(m * k),
                  .b = draw_halves(n * k),
                  .bias = draw_halves(n),
                  .residual = draw_halves(m * n),
                  .c = draw_halves(2 * m * n),
                  .c_bytes = m * n * (is_fp32 ? 4 : 2)};
    c.product = (sl_product){.type = SL_TYPE_BF16,
                             .c_type = is_fp32 ? SL_TYPE_FP32 : SL_TYPE_BF16,
                             .m = m,
                             .n = n,
                             .k = k,
                             .transpose_a = round / 4 % 2,
                             .transpose_b = round / 8 % 2,
                             .add = add,
                             .a = c.a,
                             .b = c.b,
                             .c = c.c,
                             .bias = has_epilogue ? c.bias : NULL,
                             .residual = has_epilogue ? c.residual : NULL};
    for (uint64_t i = 0; is_fp32 && i < m * n; i++)
        ((float *)c.c)[i] = sl_rng_normal(2, stream, i);
    c.expected = malloc(c.c_bytes);
    assert_non_null(c.expected);
    memcpy(c.expected, c.c, c.c_bytes);
    return c;
}

static void close_case(amx_case *c)
{
    free(c->a);
    free(c->b);
    free(c->bias);
    free(c->residual);
    free(c->c);
    free(c->expected);
}

static void check_product(sl_workers *workers, uint64_t m, uint64_t n, uint64_t k, uint64_t round)
{
    amx_case c = open_case(m, n, k, round);
    const uint64_t room = (sl_gemm_workspace_bytes(&c.product, WORKERS) + 255) / 256 * 256;
    void *workspace = aligned_alloc(256, room);
    assert_non_null(workspace);
    memset(workspace, 0xff, room);
    assert_int_equal(sl_gemm_run(&c.product, workspace, workers), SL_OK);
    write_expected(&c);
    assert_memory_equal(c.c, c.expected, c.c_bytes);
    free(workspace);
    close_case(&c);
}

static void products_when_run_in_emulated_tiles_have_the_documented_bits(void **state)
{
    (void)state;
    /* Few rows; strips and tiles of one line more or less; several chains; several tiles. */
    static const uint64_t shapes[SHAPES][3] = {
        {1, 33, 40},   {3, 97, 191}, {16, 32, 193}, {17, 31, 32},   {33, 65, 1},
        {64, 64, 192}, {79, 50, 33}, {95, 17, 400}, {31, 129, 577}, {545, 34, 34}};
    const sl_simd *avx512 = find_avx512();
    if (avx512 == NULL)
        skip_because("emulated tiles need AVX-512");
    sl_simd table = *avx512;
    table.micro_kernel[SL_TYPE_BF16] = &emulated_amx_micro_kernel;
    sl_workers *workers = NULL;
    assert_int_equal(sl_workers_open(WORKERS, &workers), SL_OK);
    sl_simd_choose(&table);
    const uint64_t stride = SANITIZER_SHARE > 1 ? 3 : 1; /* of the variants of a product */
    for (uint64_t i = 0; i < SHAPES; i++)
        for (uint64_t round = 0; round < 16; round += stride)
            check_product(workers, shapes[i][0], shapes[i][1], shapes[i][2], round);
    sl_simd_choose(avx512);
    sl_workers_close(workers);
}
#else
static void products_when_run_in_emulated_tiles_have_the_documented_bits(void **state)
{
    (void)state;
    skip_because("emulated tiles need a compiler with AVX-512");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_when_run_in_emulated_tiles_have_the_documented_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
