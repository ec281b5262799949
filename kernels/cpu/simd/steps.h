/* The two kinds of step that a register of sums takes in (../micro_kernel.h): one term, a word of A
 * being a float; and a pair of terms, a word being two bf16. */
#ifndef SL_KERNELS_CPU_SIMD_STEPS_H
#define SL_KERNELS_CPU_SIMD_STEPS_H

#include "lanes.h"

/* sum + a b, a word of A against LANES columns of B. */
SL_INLINE lanes add_term(lanes sum, const uint32_t *a, lanes b)
{
    float factor;
    memcpy(&factor, a, sizeof factor);
    return fma_lanes(set_lanes(factor), b, sum);
}

#if defined(__AVX512F__)

/* A function that uses the instructions for pairs: inlined into functions with the same target. */
#define PAIRS __attribute__((target("avx512bf16"), always_inline)) static inline

/* The same of two terms. */
PAIRS lanes add_pair(lanes sum, const uint32_t *a, lanes b)
{
    const __m512i pair = _mm512_set1_epi32((int32_t)*a);
    return _mm512_dpbf16_ps(sum, (__m512bh)pair, (__m512bh)b);
}

#endif

#endif
