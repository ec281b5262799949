/* bf16 of .cu files by src/base/half.h; only what the room uses. */
#ifndef SL_TESTS_CUDA_BF16_H
#define SL_TESTS_CUDA_BF16_H

extern "C" {
#include "base/half.h"
}

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16{bits};
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __nv_bfloat16{sl_half_to_bf16(value)};
}

static inline float __bfloat162float(__nv_bfloat16 value)
{
    return sl_half_from_bf16(value.bits);
}

#endif
