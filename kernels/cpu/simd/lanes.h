/* A register of floats, as wide as the instruction set this file is compiled for.
 *
 * Every source of this folder is compiled once for each instruction set; `lanes`, LANES and these
 * calls are all that it may know of it. Arithmetic is written with C operators. fma_lanes is one
 * rounding where the set has fused multiply-add and two where it does not: only for kernels whose
 * bits may differ between instruction sets.
 */
#ifndef SL_KERNELS_CPU_SIMD_LANES_H
#define SL_KERNELS_CPU_SIMD_LANES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define SL_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)

typedef __m512 lanes;
enum { LANES = 16 };

SL_INLINE lanes load_lanes(const float *from)
{
    return _mm512_loadu_ps(from);
}

SL_INLINE void store_lanes(float *to, lanes value)
{
    _mm512_storeu_ps(to, value);
}

SL_INLINE lanes set_lanes(float value)
{
    return _mm512_set1_ps(value);
}

SL_INLINE __mmask16 mask_of(uint32_t count)
{
    return (__mmask16)((1u << count) - 1u);
}

SL_INLINE lanes load_part(const float *from, uint32_t count)
{
    return _mm512_maskz_loadu_ps(mask_of(count), from);
}

SL_INLINE void store_part(float *to, lanes value, uint32_t count)
{
    _mm512_mask_storeu_ps(to, mask_of(count), value);
}

SL_INLINE lanes fma_lanes(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

SL_INLINE lanes max_lanes(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

SL_INLINE lanes min_lanes(lanes a, lanes b)
{
    return _mm512_min_ps(a, b);
}

/* value where lane index >= first, else other. */
SL_INLINE lanes keep_from(lanes value, int32_t first, lanes other)
{
    uint32_t cut = first < 0 ? 0 : first > 16 ? 16 : (uint32_t)first;
    return _mm512_mask_blend_ps(mask_of(cut), value, other);
}

/* True if a lane of a is greater than the same of b. */
SL_INLINE bool any_greater(lanes a, lanes b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
}

#elif defined(__AVX2__)

typedef __m256 lanes;
enum { LANES = 8 };

SL_INLINE lanes load_lanes(const float *from)
{
    return _mm256_loadu_ps(from);
}

SL_INLINE void store_lanes(float *to, lanes value)
{
    _mm256_storeu_ps(to, value);
}

SL_INLINE lanes set_lanes(float value)
{
    return _mm256_set1_ps(value);
}

/* All bits set in lanes below `count`. */
SL_INLINE __m256i mask_of(int32_t count)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), index);
}

SL_INLINE lanes load_part(const float *from, uint32_t count)
{
    return _mm256_maskload_ps(from, mask_of((int32_t)count));
}

SL_INLINE void store_part(float *to, lanes value, uint32_t count)
{
    _mm256_maskstore_ps(to, mask_of((int32_t)count), value);
}

SL_INLINE lanes fma_lanes(lanes a, lanes b, lanes c)
{
    return _mm256_fmadd_ps(a, b, c);
}

SL_INLINE lanes max_lanes(lanes a, lanes b)
{
    return _mm256_max_ps(a, b);
}

SL_INLINE lanes min_lanes(lanes a, lanes b)
{
    return _mm256_min_ps(a, b);
}

SL_INLINE lanes keep_from(lanes value, int32_t first, lanes other)
{
    return _mm256_blendv_ps(value, other, _mm256_castsi256_ps(mask_of(first)));
}

SL_INLINE bool any_greater(lanes a, lanes b)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
}

#else /* any processor */

typedef float lanes __attribute__((vector_size(16)));
enum { LANES = 4 };

SL_INLINE lanes load_lanes(const float *from)
{
    lanes value;
    memcpy(&value, from, sizeof value);
    return value;
}

SL_INLINE void store_lanes(float *to, lanes value)
{
    memcpy(to, &value, sizeof value);
}

SL_INLINE lanes set_lanes(float value)
{
    return (lanes){value, value, value, value};
}

SL_INLINE lanes load_part(const float *from, uint32_t count)
{
    lanes value = set_lanes(0.0f);
    for (uint32_t i = 0; i < count; i++)
        value[i] = from[i];
    return value;
}

SL_INLINE void store_part(float *to, lanes value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        to[i] = value[i];
}

SL_INLINE lanes fma_lanes(lanes a, lanes b, lanes c)
{
    return a * b + c;
}

/* As the x86 instructions: the second operand where either is not a number. */
SL_INLINE lanes max_lanes(lanes a, lanes b)
{
    for (uint32_t i = 0; i < LANES; i++)
        b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}

SL_INLINE lanes min_lanes(lanes a, lanes b)
{
    for (uint32_t i = 0; i < LANES; i++)
        b[i] = a[i] < b[i] ? a[i] : b[i];
    return b;
}

SL_INLINE lanes keep_from(lanes value, int32_t first, lanes other)
{
    for (int32_t i = 0; i < (int32_t)LANES; i++)
        value[i] = i < first ? other[i] : value[i];
    return value;
}

SL_INLINE bool any_greater(lanes a, lanes b)
{
    bool any = false;
    for (uint32_t i = 0; i < LANES; i++)
        any |= a[i] > b[i];
    return any;
}

#endif

/* The lanes added by halves: lane i to lane i + LANES / 2, and so on. */
SL_INLINE float sum_lanes(lanes value)
{
    float part[LANES];
    store_lanes(part, value);
    for (uint32_t width = LANES / 2; width > 0; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            part[i] += part[i + width];
    return part[0];
}

SL_INLINE float largest_lane(lanes value)
{
    float part[LANES];
    store_lanes(part, value);
    for (uint32_t width = LANES / 2; width > 0; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            part[i] = part[i] > part[i + width] ? part[i] : part[i + width];
    return part[0];
}

/* ---- a square of LANES x LANES elements, transposed in registers */

#if defined(__AVX512F__)

/* Squares of 4 x 4 inside the four quarters of each register first, then the quarters. */
SL_INLINE void transpose_lanes(lanes row[LANES])
{
    lanes t[LANES];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 16; i += 4) {
        const lanes low01 = _mm512_unpacklo_ps(row[i], row[i + 1]);
        const lanes high01 = _mm512_unpackhi_ps(row[i], row[i + 1]);
        const lanes low23 = _mm512_unpacklo_ps(row[i + 2], row[i + 3]);
        const lanes high23 = _mm512_unpackhi_ps(row[i + 2], row[i + 3]);
        t[i] = _mm512_shuffle_ps(low01, low23, 0x44);
        t[i + 1] = _mm512_shuffle_ps(low01, low23, 0xee);
        t[i + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
        t[i + 3] = _mm512_shuffle_ps(high01, high23, 0xee);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        const lanes even01 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        const lanes odd01 = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const lanes even23 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        const lanes odd23 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        row[i] = _mm512_shuffle_f32x4(even01, even23, 0x88);
        row[i + 4] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
        row[i + 8] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
        row[i + 12] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}

#elif defined(__AVX2__)

SL_INLINE void transpose_lanes(lanes row[LANES])
{
    lanes t[LANES];
#pragma GCC unroll 2
    for (uint32_t i = 0; i < 8; i += 4) {
        const lanes low01 = _mm256_unpacklo_ps(row[i], row[i + 1]);
        const lanes high01 = _mm256_unpackhi_ps(row[i], row[i + 1]);
        const lanes low23 = _mm256_unpacklo_ps(row[i + 2], row[i + 3]);
        const lanes high23 = _mm256_unpackhi_ps(row[i + 2], row[i + 3]);
        t[i] = _mm256_shuffle_ps(low01, low23, 0x44);
        t[i + 1] = _mm256_shuffle_ps(low01, low23, 0xee);
        t[i + 2] = _mm256_shuffle_ps(high01, high23, 0x44);
        t[i + 3] = _mm256_shuffle_ps(high01, high23, 0xee);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        row[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        row[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#else

SL_INLINE void transpose_lanes(lanes row[LANES])
{
    for (uint32_t i = 0; i < LANES; i++)
        for (uint32_t j = i + 1; j < LANES; j++) {
            const float kept = row[i][j];
            row[i][j] = row[j][i];
            row[j][i] = kept;
        }
}

#endif

#endif
