/* Elements of the three types, one by one and sixteen bytes at a time. Sums are fp32; rounding is
 * to nearest, ties to even, with the bits of src/base/half.h (payloads of NaNs aside). */
#ifndef SL_KERNELS_CUDA_TYPED_CUH
#define SL_KERNELS_CUDA_TYPED_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "launch.cuh"

template <sl_type TYPE> struct sl_stored {
    typedef uint16_t element;
};
template <> struct sl_stored<SL_TYPE_FP32> {
    typedef float element;
};

template <sl_type TYPE>
static __device__ __forceinline__ float sl_widen(typename sl_stored<TYPE>::element value)
{
    if constexpr (TYPE == SL_TYPE_FP32)
        return value;
    else if constexpr (TYPE == SL_TYPE_BF16)
        return __uint_as_float((uint32_t)value << 16);
    else
        return __half2float(__ushort_as_half(value));
}

template <sl_type TYPE>
static __device__ __forceinline__ typename sl_stored<TYPE>::element sl_round(float value)
{
    if constexpr (TYPE == SL_TYPE_FP32)
        return value;
    else if constexpr (TYPE == SL_TYPE_BF16)
        return __bfloat16_as_ushort(__float2bfloat16_rn(value));
    else
        return __half_as_ushort(__float2half_rn(value));
}

template <sl_type TYPE>
static __device__ __forceinline__ float sl_load(const void *from, uint64_t index)
{
    return sl_widen<TYPE>(((const typename sl_stored<TYPE>::element *)from)[index]);
}

template <sl_type TYPE>
static __device__ __forceinline__ void sl_store(void *to, uint64_t index, float value)
{
    ((typename sl_stored<TYPE>::element *)to)[index] = sl_round<TYPE>(value);
}

/* Sixteen bytes: 4 elements of fp32, 8 of half precision. */
template <sl_type TYPE> struct sl_pack {
    enum { COUNT = TYPE == SL_TYPE_FP32 ? 4 : 8 };
    float value[COUNT];
};

/* From element `index`, a multiple of COUNT, of a 16-byte aligned array. */
template <sl_type TYPE>
static __device__ __forceinline__ sl_pack<TYPE> sl_load_pack(const void *from, uint64_t index)
{
    sl_pack<TYPE> pack;
    const uint4 raw = *(const uint4 *)((const typename sl_stored<TYPE>::element *)from + index);
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
        if constexpr (TYPE == SL_TYPE_FP32)
            pack.value[i] = __uint_as_float(word[i]);
        else
            pack.value[i] = sl_widen<TYPE>((uint16_t)(word[i / 2] >> (i % 2 * 16)));
    }
    return pack;
}

template <sl_type TYPE>
static __device__ __forceinline__ void sl_store_pack(void *to, uint64_t index,
                                                     const sl_pack<TYPE> &pack)
{
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
        if constexpr (TYPE == SL_TYPE_FP32)
            word[i] = __float_as_uint(pack.value[i]);
        else
            word[i / 2] |= (uint32_t)sl_round<TYPE>(pack.value[i]) << (i % 2 * 16);
    }
    *(uint4 *)((typename sl_stored<TYPE>::element *)to + index) =
        make_uint4(word[0], word[1], word[2], word[3]);
}

/* Calls `run<TYPE>(...)` for the type of a call; an sl_status. */
#define SL_BY_TYPE(type, run, ...)                                                                 \
    ((type) == SL_TYPE_FP32   ? run<SL_TYPE_FP32>(__VA_ARGS__)                                     \
     : (type) == SL_TYPE_BF16 ? run<SL_TYPE_BF16>(__VA_ARGS__)                                     \
                              : run<SL_TYPE_FP16>(__VA_ARGS__))

#endif
