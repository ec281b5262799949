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

/* Widens sixteen bytes as they were loaded: a kernel that waits for others holds a row this way. */
template <sl_type TYPE> static __device__ __forceinline__ sl_pack<TYPE> sl_widen_pack(uint4 raw)
{
    sl_pack<TYPE> pack;
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

/* The sixteen bytes from element `index`, a multiple of COUNT, of a 16-byte aligned array. */
template <sl_type TYPE>
static __device__ __forceinline__ uint4 sl_load_raw(const void *from, uint64_t index)
{
    return *(const uint4 *)((const typename sl_stored<TYPE>::element *)from + index);
}

template <sl_type TYPE>
static __device__ __forceinline__ sl_pack<TYPE> sl_load_pack(const void *from, uint64_t index)
{
    return sl_widen_pack<TYPE>(sl_load_raw<TYPE>(from, index));
}

/* Sixteen bytes of values, each rounded. */
template <sl_type TYPE>
static __device__ __forceinline__ uint4 sl_round_pack(const float (&value)[sl_pack<TYPE>::COUNT])
{
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < sl_pack<TYPE>::COUNT; i++) {
        if constexpr (TYPE == SL_TYPE_FP32)
            word[i] = __float_as_uint(value[i]);
        else
            word[i / 2] |= (uint32_t)sl_round<TYPE>(value[i]) << (i % 2 * 16);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <sl_type TYPE>
static __device__ __forceinline__ void sl_store_pack(void *to, uint64_t index,
                                                     const sl_pack<TYPE> &pack)
{
    *(uint4 *)((typename sl_stored<TYPE>::element *)to + index) = sl_round_pack<TYPE>(pack.value);
}

/* What one thread takes of a row at a time: a pack where rows are WIDE, one element where a row's
 * width is no multiple of a pack and its rows therefore begin anywhere. */
template <sl_type TYPE, bool WIDE> struct sl_piece {
    enum { COUNT = WIDE ? sl_pack<TYPE>::COUNT : 1 };
    float value[COUNT];
};

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ sl_piece<TYPE, WIDE> sl_load_piece(const void *from,
                                                                     uint64_t index)
{
    sl_piece<TYPE, WIDE> piece;
    if constexpr (WIDE) {
        const sl_pack<TYPE> pack = sl_load_pack<TYPE>(from, index);
#pragma unroll
        for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
            piece.value[i] = pack.value[i];
    } else {
        piece.value[0] = sl_load<TYPE>(from, index);
    }
    return piece;
}

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void sl_store_piece(void *to, uint64_t index,
                                                      const sl_piece<TYPE, WIDE> &piece)
{
    if constexpr (WIDE) {
        sl_pack<TYPE> pack;
#pragma unroll
        for (int i = 0; i < sl_pack<TYPE>::COUNT; i++)
            pack.value[i] = piece.value[i];
        sl_store_pack<TYPE>(to, index, pack);
    } else {
        sl_store<TYPE>(to, index, piece.value[0]);
    }
}

/* The fp32 numbers beside a piece of a row: an accumulator of as many elements. */
template <int COUNT>
static __device__ __forceinline__ void sl_load_floats(const float *from, uint64_t index,
                                                      float (&value)[COUNT])
{
    if constexpr (COUNT == 1) {
        value[0] = from[index];
    } else {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++) {
            const float4 part = *(const float4 *)(from + index + 4 * i);
            value[4 * i] = part.x;
            value[4 * i + 1] = part.y;
            value[4 * i + 2] = part.z;
            value[4 * i + 3] = part.w;
        }
    }
}

template <int COUNT>
static __device__ __forceinline__ void sl_store_floats(float *to, uint64_t index,
                                                       const float (&value)[COUNT])
{
    if constexpr (COUNT == 1) {
        to[index] = value[0];
    } else {
#pragma unroll
        for (int i = 0; i < COUNT / 4; i++)
            *(float4 *)(to + index + 4 * i) =
                make_float4(value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3]);
    }
}

/* Calls `run<TYPE>(...)` for the type of a call; an sl_status. */
#define SL_BY_TYPE(type, run, ...)                                                                 \
    ((type) == SL_TYPE_FP32   ? run<SL_TYPE_FP32>(__VA_ARGS__)                                     \
     : (type) == SL_TYPE_BF16 ? run<SL_TYPE_BF16>(__VA_ARGS__)                                     \
                              : run<SL_TYPE_FP16>(__VA_ARGS__))

#endif
