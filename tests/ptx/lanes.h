/* How a function of 32 lanes is written: one line with its types and the expression of one lane.
 *
 * In an expression a, b, c are that lane's sources. Lanes are written as one type and read as
 * another (mov.b32 between %r and %f), so all of these types may alias. Functions are compiled for
 * AVX2 and FMA as well where the processor may have them; the bits are the same either way.
 */
#ifndef PTX_LANES_H
#define PTX_LANES_H

#include <string.h>

#include "arithmetic.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(PTX_NO_CLONES)
#define PTX_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define PTX_CLONES
#endif

#define PTX_LANE_TYPE __attribute__((may_alias))
typedef uint32_t PTX_LANE_TYPE u32;
typedef int32_t PTX_LANE_TYPE s32;
typedef uint64_t PTX_LANE_TYPE u64;
typedef int64_t PTX_LANE_TYPE s64;
typedef float PTX_LANE_TYPE f32;
typedef double PTX_LANE_TYPE f64;

#define PTX_FUNCTION(function)                                                                     \
    PTX_CLONES uint32_t ptx_do_##function(const ptx_arithmetic_call *call)
#define PTX_EACH_LANE for (uint32_t lane = 0; lane < 32; lane++)

#define PTX_LANES_OF(pointer) __builtin_assume_aligned(pointer, 64)

#define PTX_ONE(function, result, type, expression)                                                \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        result *restrict to = PTX_LANES_OF(call->to[0]);                                           \
        const type *restrict from_a = PTX_LANES_OF(call->from[0]);                                 \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            const type a = from_a[lane];                                                           \
            to[lane] = (expression);                                                               \
        }                                                                                          \
        return 0;                                                                                  \
    }

#define PTX_TWO(function, result, type_a, type_b, expression)                                      \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        result *restrict to = PTX_LANES_OF(call->to[0]);                                           \
        const type_a *restrict from_a = PTX_LANES_OF(call->from[0]);                               \
        const type_b *restrict from_b = PTX_LANES_OF(call->from[1]);                               \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            const type_a a = from_a[lane];                                                         \
            const type_b b = from_b[lane];                                                         \
            to[lane] = (expression);                                                               \
        }                                                                                          \
        return 0;                                                                                  \
    }

#define PTX_THREE(function, type, expression)                                                      \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        type *restrict to = PTX_LANES_OF(call->to[0]);                                             \
        const type *restrict from_a = PTX_LANES_OF(call->from[0]);                                 \
        const type *restrict from_b = PTX_LANES_OF(call->from[1]);                                 \
        const type *restrict from_c = PTX_LANES_OF(call->from[2]);                                 \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            const type a = from_a[lane], b = from_b[lane], c = from_c[lane];                       \
            to[lane] = (expression);                                                               \
        }                                                                                          \
        return 0;                                                                                  \
    }

/* The expression is a truth; the result a predicate. */
#define PTX_COMPARE(function, type, expression)                                                    \
    PTX_FUNCTION(function)                                                                         \
    {                                                                                              \
        const type *restrict from_a = PTX_LANES_OF(call->from[0]);                                 \
        const type *restrict from_b = PTX_LANES_OF(call->from[1]);                                 \
        uint32_t truths = 0;                                                                       \
        PTX_EACH_LANE                                                                              \
        {                                                                                          \
            const type a = from_a[lane], b = from_b[lane];                                         \
            truths |= (uint32_t)((expression) ? 1 : 0) << lane;                                    \
        }                                                                                          \
        *(u32 *)call->to[0] = truths;                                                              \
        return 0;                                                                                  \
    }

#define PTX_DECLARE(function, name, results, sources)                                              \
    uint32_t ptx_do_##function(const ptx_arithmetic_call *call);
#include "arithmetic_list.h"
PTX_ARITHMETIC_LIST(PTX_DECLARE)
#undef PTX_DECLARE

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static inline uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

/* The ISA leaves open which NaN an fp32 operation gives; a GPU's is this one. */
#define PTX_NAN 0x7fffffffu

static inline float ptx_canonical(float value)
{
    return value == value ? value : float_of(PTX_NAN);
}

/* The exponent is 112 more in fp32. A subnormal number is what its mantissa adds to 2^-14. */
static inline uint32_t ptx_widen_fp16(uint32_t half)
{
    const uint32_t sign = (half & 0x8000) << 16, size = half & 0x7fff;
    const uint32_t tiny = bits_of(float_of((size << 13) + (113u << 23)) - 0x1p-14f);
    const uint32_t finite = size < 0x400 ? tiny : (size << 13) + (112u << 23);
    return size > 0x7c00 ? PTX_NAN : sign | (size == 0x7c00 ? 0x7f800000 : finite);
}

#endif
