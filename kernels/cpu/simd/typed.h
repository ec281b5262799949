/* fp32, bf16 and fp16 in memory, registers of floats: loads that widen and stores that round to
 * nearest, ties to even. Subnormals stay what they are and NaN stays NaN, in every instruction set:
 * bf16 is rounded by integers, because the AVX-512 instruction flushes subnormals. base/half.h has
 * the definition, one number at a time; it is all that a processor without these sets has, and what
 * tests compare the others with (test_kernels_types.c). */
#ifndef SL_KERNELS_CPU_SIMD_TYPED_H
#define SL_KERNELS_CPU_SIMD_TYPED_H

#include "base/half.h"
#include "lanes.h"
#include "program/op_list.h"

SL_INLINE const void *typed_at(const void *base, sl_type type, uint64_t index)
{
    return (const char *)base + index * sl_type_bytes(type);
}

#if defined(__AVX512F__)

SL_INLINE lanes widen_bf16(__m256i halves)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

SL_INLINE __m256i round_bf16(lanes value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, is_nan, quiet), 16));
}

SL_INLINE lanes load_typed_part(const void *from, sl_type type, uint32_t count)
{
    if (type == SL_TYPE_FP32)
        return load_part(from, count);
    const __m256i halves = _mm256_maskz_loadu_epi16(mask_of(count), from);
    return type == SL_TYPE_BF16 ? widen_bf16(halves) : _mm512_cvtph_ps(halves);
}

SL_INLINE void store_typed_part(void *to, sl_type type, lanes value, uint32_t count)
{
    if (type == SL_TYPE_FP32) {
        store_part(to, value, count);
        return;
    }
    const __m256i halves = type == SL_TYPE_BF16 ? round_bf16(value)
                                                : _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(to, mask_of(count), halves);
}

SL_INLINE lanes load_typed(const void *from, sl_type type)
{
    return load_typed_part(from, type, LANES);
}

SL_INLINE void store_typed(void *to, sl_type type, lanes value)
{
    store_typed_part(to, type, value, LANES);
}

#elif defined(__AVX2__)

SL_INLINE lanes widen_half(__m128i halves, sl_type type)
{
    if (type == SL_TYPE_FP16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

SL_INLINE __m128i round_half(lanes value, sl_type type)
{
    if (type == SL_TYPE_FP16)
        return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, is_nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

SL_INLINE lanes load_typed(const void *from, sl_type type)
{
    if (type == SL_TYPE_FP32)
        return load_lanes(from);
    return widen_half(_mm_loadu_si128(from), type);
}

SL_INLINE void store_typed(void *to, sl_type type, lanes value)
{
    if (type == SL_TYPE_FP32)
        store_lanes(to, value);
    else
        _mm_storeu_si128(to, round_half(value, type));
}

SL_INLINE lanes load_typed_part(const void *from, sl_type type, uint32_t count)
{
    if (type == SL_TYPE_FP32)
        return load_part(from, count);
    uint16_t halves[LANES] = {0};
    memcpy(halves, from, count * sizeof *halves);
    return load_typed(halves, type);
}

SL_INLINE void store_typed_part(void *to, sl_type type, lanes value, uint32_t count)
{
    if (type == SL_TYPE_FP32) {
        store_part(to, value, count);
        return;
    }
    uint16_t halves[LANES];
    store_typed(halves, type, value);
    memcpy(to, halves, count * sizeof *halves);
}

#else /* any processor */

SL_INLINE lanes load_typed_part(const void *from, sl_type type, uint32_t count)
{
    if (type == SL_TYPE_FP32)
        return load_part(from, count);
    uint16_t halves[LANES] = {0};
    memcpy(halves, from, count * sizeof *halves);
    lanes value;
    for (uint32_t i = 0; i < LANES; i++)
        value[i] =
            type == SL_TYPE_BF16 ? sl_half_from_bf16(halves[i]) : sl_half_from_fp16(halves[i]);
    return value;
}

SL_INLINE void store_typed_part(void *to, sl_type type, lanes value, uint32_t count)
{
    if (type == SL_TYPE_FP32) {
        store_part(to, value, count);
        return;
    }
    uint16_t halves[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        halves[i] = type == SL_TYPE_BF16 ? sl_half_to_bf16(value[i]) : sl_half_to_fp16(value[i]);
    memcpy(to, halves, count * sizeof *halves);
}

SL_INLINE lanes load_typed(const void *from, sl_type type)
{
    return type == SL_TYPE_FP32 ? load_lanes(from) : load_typed_part(from, type, LANES);
}

SL_INLINE void store_typed(void *to, sl_type type, lanes value)
{
    if (type == SL_TYPE_FP32)
        store_lanes(to, value);
    else
        store_typed_part(to, type, value, LANES);
}

#endif

/* One loop for all types: written once with `type` as its first argument, inlined for each with
 * that argument a constant, so that every load and store is the type's own. */
#define SL_BY_TYPE(type, loop, ...)                                                                \
    do {                                                                                           \
        if ((type) == SL_TYPE_FP32)                                                                \
            loop(SL_TYPE_FP32, __VA_ARGS__);                                                       \
        else if ((type) == SL_TYPE_BF16)                                                           \
            loop(SL_TYPE_BF16, __VA_ARGS__);                                                       \
        else                                                                                       \
            loop(SL_TYPE_FP16, __VA_ARGS__);                                                       \
    } while (0)

/* Elements of the register at `index` of `count`: LANES but for the last. */
SL_INLINE uint32_t part_at(uint64_t index, uint64_t count)
{
    return count - index < LANES ? (uint32_t)(count - index) : LANES;
}

/* Elements index .. index + part of `base`; the other lanes are zero. */
SL_INLINE lanes load_at(sl_type type, const void *base, uint64_t index, uint32_t part)
{
    const void *from = (const char *)base + index * sl_type_bytes(type);
    return part == LANES ? load_typed(from, type) : load_typed_part(from, type, part);
}

SL_INLINE void store_at(sl_type type, void *base, uint64_t index, lanes value, uint32_t part)
{
    void *to = (char *)base + index * sl_type_bytes(type);
    if (part == LANES)
        store_typed(to, type, value);
    else
        store_typed_part(to, type, value, part);
}

#endif
