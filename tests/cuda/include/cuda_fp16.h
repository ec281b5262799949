/* fp16 of .cu files by src/base/half.h; only what the room uses. */
#ifndef SL_TESTS_CUDA_FP16_H
#define SL_TESTS_CUDA_FP16_H

extern "C" {
#include "base/half.h"
}

struct __half {
    uint16_t bits;
};

static inline __half __ushort_as_half(unsigned short bits)
{
    return __half{bits};
}

static inline unsigned short __half_as_ushort(__half value)
{
    return value.bits;
}

static inline __half __float2half_rn(float value)
{
    return __half{sl_half_to_fp16(value)};
}

static inline float __half2float(__half value)
{
    return sl_half_from_fp16(value.bits);
}

#endif
