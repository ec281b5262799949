/* What the operands of a kernel test are made of: elements of all types, random draws, and memory
 * between guards. */
#ifndef SL_TESTS_CUDA_ELEMENTS_H
#define SL_TESTS_CUDA_ELEMENTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "program/op_list.h"
#include "sanitizer_share.h"

#define MAYBE_UNUSED __attribute__((unused))

enum { CASE_GUARD_BYTES = 256 };

/* The largest relative error of one rounding, and the distance of the least numbers, by type. */
static const double CASE_HALF_UNIT[SL_TYPE_COUNT] = {0x1p-24, 0x1p-8, 0x1p-11};
static const double CASE_LEAST[SL_TYPE_COUNT] = {0x1p-149, 0x1p-133, 0x1p-24};

/* What an operand's elements are: an sl_type, or one of these. */
enum { CASE_INT32 = SL_TYPE_COUNT, CASE_DOUBLE, CASE_BYTES };

static uint64_t test_seed = 20240607, draw_count;

/* ---- draws ---- */

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

/* Nearly normal: four 16-bit numbers added, of deviation 1. Quicker than sl_rng_normal. */
static float draw_normal(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); /* splitmix64 (Steele, Lea, Flood 2014) */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const double sum = (double)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
    return (float)((sum - 2 * 65535) * (1.7320508 / 65536));
}

/* ---- elements ---- */

static uint64_t element_bytes(int element)
{
    return element == CASE_BYTES                                ? 1
           : element == CASE_DOUBLE                             ? 8
           : element == SL_TYPE_BF16 || element == SL_TYPE_FP16 ? 2
                                                                : 4;
}

static double case_load(int element, const void *from, uint64_t index)
{
    switch (element) {
    case SL_TYPE_FP32:
        return (double)((const float *)from)[index];
    case SL_TYPE_BF16:
        return (double)sl_half_from_bf16(((const uint16_t *)from)[index]);
    case SL_TYPE_FP16:
        return (double)sl_half_from_fp16(((const uint16_t *)from)[index]);
    case CASE_INT32:
        return ((const int32_t *)from)[index];
    case CASE_DOUBLE:
        return ((const double *)from)[index];
    default:
        return ((const uint8_t *)from)[index];
    }
}

static void case_store(int element, void *to, uint64_t index, double value)
{
    switch (element) {
    case SL_TYPE_FP32:
        ((float *)to)[index] = (float)value;
        break;
    case SL_TYPE_BF16:
        ((uint16_t *)to)[index] = sl_half_to_bf16((float)value);
        break;
    case SL_TYPE_FP16:
        ((uint16_t *)to)[index] = sl_half_to_fp16((float)value);
        break;
    case CASE_INT32:
        ((int32_t *)to)[index] = (int32_t)value;
        break;
    case CASE_DOUBLE:
        ((double *)to)[index] = value;
        break;
    default:
        ((uint8_t *)to)[index] = (uint8_t)value;
    }
}

/* ---- memory between guards ---- */

#if defined __SANITIZE_ADDRESS__ && !defined SL_TEST_GPU /* which copies guards too */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#endif

/* 256-byte aligned, full of NaNs, and so are the guards before and behind: whoever reads there gets
 * NaNs, under a sanitizer a report. */
static void *guarded_open(uint64_t bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 256, bytes + 2 * CASE_GUARD_BYTES), 0);
    memset(memory, 0xff, bytes + 2 * CASE_GUARD_BYTES);
    uint8_t *first = (uint8_t *)memory + CASE_GUARD_BYTES;
    ASAN_POISON_MEMORY_REGION(memory, CASE_GUARD_BYTES);
    ASAN_POISON_MEMORY_REGION(first + bytes, CASE_GUARD_BYTES);
    return first;
}

/* Whether the guards are as they were. */
static bool guarded_check(void *memory, uint64_t bytes)
{
    uint8_t *before = (uint8_t *)memory - CASE_GUARD_BYTES, *behind = (uint8_t *)memory + bytes;
    bool is_whole = true;
    ASAN_UNPOISON_MEMORY_REGION(before, CASE_GUARD_BYTES);
    ASAN_UNPOISON_MEMORY_REGION(behind, CASE_GUARD_BYTES);
    for (int i = 0; i < CASE_GUARD_BYTES; i++)
        is_whole = is_whole && before[i] == 0xff && behind[i] == 0xff;
    ASAN_POISON_MEMORY_REGION(before, CASE_GUARD_BYTES);
    ASAN_POISON_MEMORY_REGION(behind, CASE_GUARD_BYTES);
    return is_whole;
}

static void guarded_close(void *memory, uint64_t bytes)
{
    if (memory == NULL)
        return;
    ASAN_UNPOISON_MEMORY_REGION((uint8_t *)memory - CASE_GUARD_BYTES, CASE_GUARD_BYTES);
    ASAN_UNPOISON_MEMORY_REGION((uint8_t *)memory + bytes, CASE_GUARD_BYTES);
    (void)bytes;
    free((uint8_t *)memory - CASE_GUARD_BYTES);
}

#endif
