/* A number in fp32 as two halves: the nearest bf16, and its low 16 bits beside it. To be inlined
 * into the CPU kernels and the CUDA kernels, so that all give the same bits.
 *
 * The high half is rounded to nearest, and a tie goes away from zero, so that bit 15 of the low
 * half says which way it went:
 *
 *   high = (bits + 0x8000) >> 16      low = bits & 0xffff      both modulo 2^16
 *   bits = (high << 16) + low - (low >= 0x8000 ? 0x10000 : 0)
 *
 * This gives back the bits of every number and of infinity. A number above the largest bf16 has an
 * infinite high half, and comes back. Every NaN becomes 0x7fc0 beside 0: the carry of another one
 * might make the high half a zero.
 */
#ifndef SL_BASE_LOW_HALF_H
#define SL_BASE_LOW_HALF_H

#include <stdint.h>

#if defined(__CUDACC__)
#define SL_LOW_HALF_INLINE static __device__ __forceinline__
#else
#define SL_LOW_HALF_INLINE static inline __attribute__((always_inline, unused))
#endif

/* The bits of a number with one NaN for all. */
SL_LOW_HALF_INLINE uint32_t sl_low_half_keep(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits;
}

/* The bf16 beside which the low half stands, of bits that were kept; below 2^16. */
SL_LOW_HALF_INLINE uint32_t sl_low_half_high(uint32_t kept)
{
    return (kept + 0x8000u) >> 16;
}

/* The bits of the number. `high` and `low` are below 2^16. */
SL_LOW_HALF_INLINE uint32_t sl_low_half_join(uint32_t high, uint32_t low)
{
    return (high << 16) + low - ((low & 0x8000u) << 1);
}

#endif
