/* Philox4x32-10 (Salmon et al., SC 2011), to be inlined into loops of rng.c, of the CPU kernels and
 * of the CUDA kernels, so that all draw the same words.
 */
#ifndef SL_BASE_PHILOX_H
#define SL_BASE_PHILOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define SL_PHILOX_INLINE static __device__ __forceinline__
#define SL_PHILOX_UNROLL _Pragma("unroll")
#else
#define SL_PHILOX_INLINE static inline __attribute__((always_inline, unused))
#define SL_PHILOX_UNROLL _Pragma("GCC unroll 10") /* so that loops over draws vectorise */
#endif

SL_PHILOX_INLINE void sl_philox_mix(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    const uint64_t product0 = (uint64_t)0xD2511F53u * counter[0];
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * counter[2];
    const uint32_t mixed0 = (uint32_t)(product1 >> 32) ^ counter[1] ^ key0;
    const uint32_t mixed2 = (uint32_t)(product0 >> 32) ^ counter[3] ^ key1;
    counter[0] = mixed0;
    counter[1] = (uint32_t)product1;
    counter[2] = mixed2;
    counter[3] = (uint32_t)product0;
}

/* The four words of counter (index, stream) under key `seed`. */
SL_PHILOX_INLINE void sl_philox_draw(uint64_t seed, uint64_t stream, uint64_t index,
                                     uint32_t out_words[4])
{
    enum { ROUNDS = 10 };
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                           (uint32_t)(stream >> 32)};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    SL_PHILOX_UNROLL
    for (int round = 0; round < ROUNDS; round++) {
        sl_philox_mix(counter, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out_words[i] = counter[i];
}

#endif
