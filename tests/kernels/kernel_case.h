/* One call of a cpu kernel under test: random operands of exact size (so that a sanitizer sees one
 * float too far), a workspace full of NaNs, and the same call with 1, 2, 3 and 5 workers, which
 * must agree in every bit. Each test program runs its tests once for every instruction set. */
#ifndef SL_TESTS_KERNEL_CASE_H
#define SL_TESTS_KERNEL_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"
#include "sanitizer_share.h"

#define MAYBE_UNUSED __attribute__((unused))

static const double UNIT = 0x1p-24; /* the largest relative error of one rounding to fp32 */

typedef struct kernel_case {
    sl_op_kind kind;
    sl_op_attrs attrs;
    sl_step_scalars scalars;
    void *input[SL_OPERAND_MAX];  /* as they stand before the call */
    void *result[SL_OPERAND_MAX]; /* as the call leaves them */
    uint64_t bytes[SL_OPERAND_MAX];
    const uint8_t *block_flags;
    const uint64_t *block_keys;
    const sl_rate *rates;
    uint32_t rate_count;
    const sl_padding *padding;
    uint64_t padding_count;
} kernel_case;

static uint64_t test_seed = 20240607, draw_count;

static MAYBE_UNUSED uint64_t draw_below(uint64_t bound)
{
    return sl_rng_below(test_seed, 1, draw_count++, bound);
}

/* In [least, most]. */
static MAYBE_UNUSED uint64_t draw_between(uint64_t least, uint64_t most)
{
    return least + draw_below(most - least + 1);
}

static MAYBE_UNUSED int rounds(int quick)
{
    return getenv("SL_TEST_FULL") ? quick * 10 : (int)sanitizer_share((uint64_t)quick);
}

static void *allocate(uint64_t bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 256, bytes ? bytes : 1), 0);
    return memory;
}

/* Gives operand `index` room; returns it for filling. */
static MAYBE_UNUSED void *case_operand(kernel_case *c, int index, uint64_t bytes)
{
    c->bytes[index] = bytes;
    c->input[index] = allocate(bytes);
    c->result[index] = allocate(bytes);
    memset(c->input[index], 0xff, bytes); /* NaN until someone fills it */
    return c->input[index];
}

static MAYBE_UNUSED float *case_random(kernel_case *c, int index, uint64_t count, float scale)
{
    float *values = case_operand(c, index, count * sizeof(float));
    uint64_t stream = 1000 + draw_count++;
    for (uint64_t i = 0; i < count; i++)
        values[i] = scale * sl_rng_normal(test_seed, stream, i);
    return values;
}

/* An operand with these bytes. */
static MAYBE_UNUSED void *copy_operand(kernel_case *c, int index, const void *from, uint64_t bytes)
{
    return memcpy(case_operand(c, index, bytes), from, bytes);
}

static MAYBE_UNUSED uint16_t to_half(sl_type type, float value)
{
    return type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
}

static MAYBE_UNUSED float from_half(sl_type type, uint16_t half)
{
    return type == SL_TYPE_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

enum { POOL_COUNT = 4, POOL_STEP = SANITIZER_SHARE > 1 ? POOL_COUNT - 1 : 1 };

static sl_workers *pools[POOL_COUNT];
static const uint32_t POOL_SIZES[POOL_COUNT] = {1, 2, 3, 5};

static void case_run_once(kernel_case *c, sl_workers *pool)
{
    const sl_kernel_table *table = sl_kernels_cpu();
    sl_kernel_call call = {.attrs = &c->attrs,
                           .scalars = c->scalars,
                           .block_flags = c->block_flags,
                           .block_keys = c->block_keys,
                           .rates = c->rates,
                           .rate_count = c->rate_count,
                           .padding = c->padding,
                           .padding_count = c->padding_count,
                           .workers = pool};
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (c->bytes[i] > 0)
            memcpy(c->result[i], c->input[i], c->bytes[i]);
        call.operand[i] = c->result[i];
    }
    uint64_t bytes = sl_kernels_workspace_bytes(table, c->kind, &c->attrs, sl_workers_count(pool));
    call.workspace = allocate(bytes);
    memset(call.workspace, 0xff, bytes);
    sl_status status = table->row[c->kind].run(&call);
    free(call.workspace);
    if (status != SL_OK)
        fail_msg("kernel %d failed: %s", (int)c->kind, sl_status_message());
}

/* Runs the case with every pool, under sanitizers with the smallest and the largest; all results
 * must be the same bits. */
static MAYBE_UNUSED void case_run(kernel_case *c)
{
    void *first[SL_OPERAND_MAX] = {0};
    for (int p = 0; p < POOL_COUNT; p += POOL_STEP) {
        case_run_once(c, pools[p]);
        for (int i = 0; i < SL_OPERAND_MAX; i++) {
            if (c->bytes[i] == 0)
                continue;
            if (p == 0) {
                first[i] = allocate(c->bytes[i]);
                memcpy(first[i], c->result[i], c->bytes[i]);
            } else if (memcmp(first[i], c->result[i], c->bytes[i]) != 0) {
                fail_msg("op %d, operand %d: %u workers give other bits than 1", (int)c->kind, i,
                         POOL_SIZES[p]);
            }
        }
    }
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        free(first[i]);
}

/* Runs a case that has run once more, without the operands of the bits `absent`: in the others the
 * call must leave the same bits. */
static MAYBE_UNUSED void case_check_without(kernel_case c, uint32_t absent,
                                            void (*run)(kernel_case *c))
{
    const kernel_case full = c;
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (absent >> i & 1)
            c.bytes[i] = 0;
        c.result[i] = c.bytes[i] > 0 ? allocate(c.bytes[i]) : NULL;
    }
    run(&c);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (c.bytes[i] > 0 && memcmp(c.result[i], full.result[i], c.bytes[i]) != 0)
            fail_msg("op %d of type %d: operand %d has other bits without operands %#x",
                     (int)c.kind, (int)c.attrs.type, i, absent);
        free(c.result[i]);
    }
}

/* Backward of a layer normalisation that has run: without some of dx, dgamma and dbeta. */
static MAYBE_UNUSED void case_check_norm_without(const kernel_case *c)
{
    enum { DX = 4, ALL = 7 };
    for (uint32_t absent = 1; absent < ALL; absent++)
        case_check_without(*c, absent << DX, case_run);
}

static MAYBE_UNUSED void case_close(kernel_case *c)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        free(c->input[i]);
        free(c->result[i]);
    }
}

/* |got - want| <= bound, element by element. */
static MAYBE_UNUSED void case_compare(const kernel_case *c, int index, const double *want,
                                      const double *bound)
{
    const float *got = c->result[index];
    for (uint64_t i = 0; i < c->bytes[index] / sizeof(float); i++)
        if (!(fabs((double)got[i] - want[i]) <= bound[i]))
            fail_msg("%s: op %d, operand %d, element %llu: got %.9g, want %.9g within %.3g "
                     "(B %llu T %llu I %llu O %llu H %llu R %llu P %llu)",
                     sl_simd_current()->isa, (int)c->kind, index, (unsigned long long)i,
                     (double)got[i], want[i], bound[i], (unsigned long long)c->attrs.batch,
                     (unsigned long long)c->attrs.seq, (unsigned long long)c->attrs.in,
                     (unsigned long long)c->attrs.out, (unsigned long long)c->attrs.heads,
                     (unsigned long long)c->attrs.row_count, (unsigned long long)c->attrs.id_count);
}

static MAYBE_UNUSED void case_compare_bits(const kernel_case *c, int index, const void *want)
{
    const float *got = c->result[index], *expected = want;
    if (memcmp(got, want, c->bytes[index]) == 0)
        return;
    for (uint64_t i = 0; i < c->bytes[index] / sizeof(float); i++)
        if (memcmp(&got[i], &expected[i], sizeof(float)) != 0)
            fail_msg("%s: op %d, operand %d, element %llu: got %a, want %a", sl_simd_current()->isa,
                     (int)c->kind, index, (unsigned long long)i, (double)got[i],
                     (double)expected[i]);
}

/* The operands that the call must not touch. */
static MAYBE_UNUSED void case_expect_unchanged(const kernel_case *c, int first, int count)
{
    for (int i = first; i < first + count; i++)
        if (c->bytes[i] > 0)
            case_compare_bits(c, i, c->input[i]);
}

/* Instruction sets that are run. Tiles are dealt out alike in all of them: where races are looked
 * for it is the last one, the plain loops, the only ones that the sanitizer sees. */
static MAYBE_UNUSED uint32_t isa_first(void)
{
    return SANITIZES_THREADS ? sl_simd_usable_count() - 1 : 0;
}

/* Runs the group for every instruction set of this processor; returns the failures. */
#define RUN_FOR_EVERY_ISA(tests, out_failures) RUN_FOR_EVERY_ISA_AND(NULL, tests, out_failures)

/* `more`: one more table, or NULL. */
#define RUN_FOR_EVERY_ISA_AND(more, tests, out_failures)                                           \
    do {                                                                                           \
        const sl_simd *last_table = (more);                                                        \
        if (getenv("SL_TEST_SEED"))                                                                \
            test_seed = strtoull(getenv("SL_TEST_SEED"), NULL, 0);                                 \
        print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)test_seed);                \
        for (int p = 0; p < POOL_COUNT; p++)                                                       \
            if (sl_workers_open(POOL_SIZES[p], &pools[p]) != SL_OK)                                \
                return 1;                                                                          \
        const uint32_t isas = sl_simd_usable_count();                                              \
        for (uint32_t i = isa_first(); i < isas + (last_table != NULL); i++) {                     \
            sl_simd_choose(i < isas ? sl_simd_usable(i) : last_table);                             \
            print_message("%s\n", sl_kernels_cpu()->description());                                \
            (out_failures) += cmocka_run_group_tests(tests, NULL, NULL);                           \
        }                                                                                          \
        for (int p = 0; p < POOL_COUNT; p++)                                                       \
            sl_workers_close(pools[p]);                                                            \
    } while (0)

#endif
