/* A square of LANES x LANES 32-bit elements, transposed in registers. */
#ifndef SL_KERNELS_CPU_SIMD_TRANSPOSE_H
#define SL_KERNELS_CPU_SIMD_TRANSPOSE_H

#include "lanes.h"

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
