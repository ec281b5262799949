/* What could be wrong in mma.cuh and its emulation: a fragment's element in another lane or
 * register, a matrix transposed or not, halves of a pair swapped, a copy that writes where it
 * should leave zeros or is not there after the wait. Products of small whole numbers are exact in
 * any order of sums, so they are compared bit by bit with plain loops; operands reach the product
 * by hand, after the description's rows and columns, and by the loads that the kernels use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

extern "C" {
#include <cmocka.h>

#include "base/half.h"
}

#include "kernels/cuda/mma.cuh"

enum { ROWS = 16, STEPS = 16, COLUMNS = 8, WARPS = 2 };

typedef struct matrices {
    uint16_t a[ROWS][STEPS];
    uint16_t b[STEPS][COLUMNS + 8]; /* eight more columns: two operands side by side */
    float c[ROWS][COLUMNS];
} matrices;

static const sl_kernel_call CALL = {};

static const sl_shim_order ORDERS[] = {SL_SHIM_IN_ORDER, SL_SHIM_REVERSED, SL_SHIM_SHUFFLED};

/* The pair of 2-byte elements, the first in the low half. */
static __device__ uint32_t pair_of(uint16_t low, uint16_t high)
{
    return low | (uint32_t)high << 16;
}

/* c += a b, operands from memory by the description. */
template <sl_type TYPE> static __global__ void multiply_by_hand(matrices *all)
{
    matrices *m = &all[threadIdx.x / 32];
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint32_t a[4] = {pair_of(m->a[g][2 * t], m->a[g][2 * t + 1]),
                           pair_of(m->a[g + 8][2 * t], m->a[g + 8][2 * t + 1]),
                           pair_of(m->a[g][2 * t + 8], m->a[g][2 * t + 9]),
                           pair_of(m->a[g + 8][2 * t + 8], m->a[g + 8][2 * t + 9])};
    const uint32_t b0 = pair_of(m->b[2 * t][g], m->b[2 * t + 1][g]);
    const uint32_t b1 = pair_of(m->b[2 * t + 8][g], m->b[2 * t + 9][g]);
    float c[4] = {m->c[g][2 * t], m->c[g][2 * t + 1], m->c[g + 8][2 * t], m->c[g + 8][2 * t + 1]};
    sl_mma<TYPE>(c, a, b0, b1);
    m->c[g][2 * t] = c[0];
    m->c[g][2 * t + 1] = c[1];
    m->c[g + 8][2 * t] = c[2];
    m->c[g + 8][2 * t + 1] = c[3];
}

/* The same, operands from shared memory by the loads; b stands there as it is (TRANSPOSES) or as
 * its columns, one after another. */
template <sl_type TYPE, bool TRANSPOSES> static __global__ void multiply_loaded(matrices *all)
{
    __shared__ __align__(16) uint16_t a[WARPS][ROWS][STEPS], b[WARPS][STEPS][16];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    matrices *m = &all[warp];
    for (uint32_t i = lane; i < ROWS * STEPS; i += 32)
        a[warp][i / 16][i % 16] = m->a[i / 16][i % 16];
    for (uint32_t i = lane; i < STEPS * 16; i += 32)
        b[warp][i / 16][i % 16] = TRANSPOSES ? m->b[i / 16][i % 16] : m->b[i % 16][i / 16];
    __syncwarp();
    uint32_t left[4], right[4]; /* right: of columns 0..7, then of 8..15 */
    sl_load_matrices(left, &a[warp][lane % 16][lane / 16 * 8]);
    if (TRANSPOSES)
        sl_load_transposed(right, &b[warp][lane % 16][lane / 16 * 8]);
    else
        sl_load_matrices(right, &b[warp][lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    for (int half = 0; half < 2; half++) {
        float c[4] = {0, 0, 0, 0};
        sl_mma<TYPE>(c, left, right[2 * half], right[2 * half + 1]);
        for (int i = 0; i < 4; i++) /* the sum of both products */
            m->c[g + i / 2 * 8][2 * t + i % 2] += c[i];
    }
}

static uint16_t round_to(sl_type type, float value)
{
    return type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
}

/* Whole numbers in [-9, 9], and what c has to become: c + a b, b its columns from `first` on. */
static void fill(matrices *m, sl_type type, uint32_t seed, int products, matrices *want)
{
    float a[ROWS][STEPS], b[STEPS][16];
    for (int i = 0; i < ROWS * STEPS; i++) {
        seed = seed * 1664525u + 1013904223u;
        a[i / 16][i % 16] = (float)(seed >> 16) / 65536.0f * 19.0f;
        a[i / 16][i % 16] = floorf(a[i / 16][i % 16]) - 9.0f;
        seed = seed * 1664525u + 1013904223u;
        b[i / 16][i % 16] = floorf((float)(seed >> 16) / 65536.0f * 19.0f) - 9.0f;
        m->a[i / 16][i % 16] = round_to(type, a[i / 16][i % 16]);
        m->b[i / 16][i % 16] = round_to(type, b[i / 16][i % 16]);
    }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        m->c[i / 8][i % 8] = (float)(i % 23) - 11.0f;
    *want = *m;
    for (int product = 0; product < products; product++)
        for (int i = 0; i < ROWS * COLUMNS * STEPS; i++) {
            const int row = i / (COLUMNS * STEPS), column = i / STEPS % COLUMNS, k = i % STEPS;
            want->c[row][column] += a[row][k] * b[k][8 * product + column];
        }
}

typedef void (*product_kernel)(matrices *all);

static void check_product(product_kernel kernel, sl_type type, int products)
{
    for (int order = 0; order < 3; order++)
        for (uint32_t seed = 1; seed <= 10; seed++) {
            matrices m[WARPS], want[WARPS];
            for (uint32_t warp = 0; warp < WARPS; warp++)
                fill(&m[warp], type, 7 * seed + warp, products, &want[warp]);
            sl_shim_choose_order(ORDERS[order], seed);
            assert_int_equal(SL_LAUNCH(&CALL, 1, 32 * WARPS, 0, kernel, m), SL_OK);
            for (int warp = 0; warp < WARPS; warp++)
                assert_memory_equal(m[warp].c, want[warp].c, sizeof m[warp].c);
        }
}

static void product_when_laid_out_by_hand_equals_loops(void **)
{
    check_product(multiply_by_hand<SL_TYPE_BF16>, SL_TYPE_BF16, 1);
    check_product(multiply_by_hand<SL_TYPE_FP16>, SL_TYPE_FP16, 1);
}

static void product_when_loaded_equals_loops(void **)
{
    check_product(multiply_loaded<SL_TYPE_BF16, false>, SL_TYPE_BF16, 2);
    check_product(multiply_loaded<SL_TYPE_BF16, true>, SL_TYPE_BF16, 2);
    check_product(multiply_loaded<SL_TYPE_FP16, false>, SL_TYPE_FP16, 2);
    check_product(multiply_loaded<SL_TYPE_FP16, true>, SL_TYPE_FP16, 2);
}

/* ---- copies ---- */

enum { COPIES = 64 };

/* Even chunks are copied, odd ones zeroed; the floats likewise. */
static __global__ void copy_chunks(const uint4 *from, const float *floats, uint4 *to,
                                   float *to_floats)
{
    __shared__ uint4 held[COPIES];
    __shared__ float held_floats[COPIES];
    const uint32_t i = threadIdx.x;
    held[i] = make_uint4(1, 2, 3, 4);
    held_floats[i] = 5.0f;
    __syncthreads();
    sl_copy_begin(&held[i], &from[i], i % 2 == 0);
    sl_copy_begin_float(&held_floats[i], &floats[i], i % 2 == 0);
    sl_copy_wait();
    __syncthreads();
    to[i] = held[COPIES - 1 - i];
    to_floats[i] = held_floats[COPIES - 1 - i];
}

static void copies_when_waited_for_are_there(void **)
{
    uint4 from[COPIES], to[COPIES];
    float floats[COPIES], to_floats[COPIES];
    for (uint32_t i = 0; i < COPIES; i++) {
        from[i] = make_uint4(i + 10, i + 20, i + 30, i + 40);
        floats[i] = (float)i + 0.5f;
    }
    for (int order = 0; order < 3; order++) {
        sl_shim_choose_order(ORDERS[order], 3);
        assert_int_equal(SL_LAUNCH(&CALL, 1, COPIES, 0, copy_chunks, from, floats, to, to_floats),
                         SL_OK);
        for (uint32_t i = 0; i < COPIES; i++) {
            const uint32_t source = COPIES - 1 - i;
            const bool copied = source % 2 == 0;
            assert_int_equal(to[i].x, copied ? source + 10 : 0);
            assert_int_equal(to[i].w, copied ? source + 40 : 0);
            assert_true(to_floats[i] == (copied ? (float)source + 0.5f : 0.0f));
        }
    }
}

/* Who reads before the wait must see what was there, at least now and then. */
static __global__ void read_too_early(const uint4 *from, uint32_t *found)
{
    __shared__ uint4 held[COPIES];
    held[threadIdx.x] = make_uint4(0, 0, 0, 0);
    sl_copy_begin(&held[threadIdx.x], &from[threadIdx.x], true);
    found[threadIdx.x] = held[threadIdx.x].x;
    sl_copy_wait();
}

static void copies_when_read_too_early_show(void **)
{
    uint4 from[COPIES];
    uint32_t found[COPIES], late = 0;
    for (uint32_t i = 0; i < COPIES; i++)
        from[i] = make_uint4(1, 1, 1, 1);
    assert_int_equal(SL_LAUNCH(&CALL, 1, COPIES, 0, read_too_early, from, found), SL_OK);
    for (uint32_t i = 0; i < COPIES; i++)
        late += found[i] == 0;
    assert_in_range(late, 1, COPIES - 1);
}

/* ---- one thread's ---- */

static void pair_when_rounded_has_the_first_low(void **)
{
    assert_int_equal(sl_round_pair<SL_TYPE_BF16>(1.0f, -2.0f),
                     sl_half_to_bf16(1.0f) | (uint32_t)sl_half_to_bf16(-2.0f) << 16);
    assert_int_equal(sl_round_pair<SL_TYPE_FP16>(1.00048828125f, 3.0f),
                     sl_half_to_fp16(1.00048828125f) | (uint32_t)sl_half_to_fp16(3.0f) << 16);
}

static void power_when_tiny_is_zero(void **)
{
    assert_true(sl_exp2(0.0f) == 1.0f);
    assert_true(sl_exp2(-126.0f) == 0x1p-126f);
    assert_true(sl_exp2(-126.5f) == 0.0f);
    assert_true(sl_exp2(-INFINITY) == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(product_when_laid_out_by_hand_equals_loops),
        cmocka_unit_test(product_when_loaded_equals_loops),
        cmocka_unit_test(copies_when_waited_for_are_there),
        cmocka_unit_test(copies_when_read_too_early_show),
        cmocka_unit_test(pair_when_rounded_has_the_first_low),
        cmocka_unit_test(power_when_tiny_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
