/* Functions of one thread that CUDA has and C has not, for the processor. */
#ifndef SL_TESTS_CUDA_SHIM_INTRINSICS_H
#define SL_TESTS_CUDA_SHIM_INTRINSICS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "base/bits.h"
}

/* ---- bits ---- */

static inline float __uint_as_float(unsigned bits)
{
    return sl_bits_to_float(bits);
}

static inline unsigned __float_as_uint(float value)
{
    return sl_bits_of_float(value);
}

static inline float __int_as_float(int bits)
{
    return sl_bits_to_float((unsigned)bits);
}

static inline int __float_as_int(float value)
{
    return (int)sl_bits_of_float(value);
}

static inline double __longlong_as_double(long long bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline long long __double_as_longlong(double value)
{
    long long bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

static inline int __clz(int bits)
{
    return bits ? __builtin_clz((unsigned)bits) : 32;
}

static inline int __clzll(long long bits)
{
    return bits ? __builtin_clzll((unsigned long long)bits) : 64;
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

/* ---- arithmetic; each rounds once, as written ---- */

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline double __dadd_rn(double a, double b)
{
    return a + b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}

static inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}

/* ---- arithmetic that a GPU does roughly; here it is exact ---- */

static inline float sl_shim_rsqrt(float a)
{
    return 1.0f / sqrtf(a);
}

/* Macros, for the C library has functions of these names in its headers. */
#define rsqrtf(a) sl_shim_rsqrt(a)
#define __expf(a) expf(a)
#define __logf(a) logf(a)

static inline float __fdividef(float a, float b)
{
    return a / b;
}

static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}

template <typename type> static inline type min(type a, type b)
{
    return b < a ? b : a;
}

template <typename type> static inline type max(type a, type b)
{
    return a < b ? b : a;
}

/* ---- memory ---- */

template <typename type> static inline type __ldg(const type *from)
{
    return *from;
}

template <typename type> static inline type __ldcs(const type *from)
{
    return *from;
}

template <typename type> static inline type __ldcg(const type *from)
{
    return *from;
}

template <typename type> static inline void __stcs(type *to, type value)
{
    *to = value;
}

template <typename type> static inline void __stcg(type *to, type value)
{
    *to = value;
}

static inline void __threadfence(void)
{
}

static inline void __threadfence_block(void)
{
}

/* Threads take turns only where they wait, so these need nothing special. Integers alone: sums of
 * floats would depend on the order. */
template <typename type> static inline type atomicAdd(type *to, type value)
{
    static_assert(std::is_integral<type>::value, "atomics of this room are on integers");
    const type old = *to;
    *to = (type)(old + value);
    return old;
}

template <typename type> static inline type atomicOr(type *to, type value)
{
    const type old = *to;
    *to = old | value;
    return old;
}

template <typename type> static inline type atomicMax(type *to, type value)
{
    const type old = *to;
    *to = old < value ? value : old;
    return old;
}

template <typename type> static inline type atomicExch(type *to, type value)
{
    const type old = *to;
    *to = value;
    return old;
}

template <typename type> static inline type atomicCAS(type *to, type expected, type value)
{
    const type old = *to;
    if (old == expected)
        *to = value;
    return old;
}

#endif
