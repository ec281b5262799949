/* Philox4x32-10 and the distributions made from it. Stateless. */
#include "rng.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10 };

static void mix_round(uint32_t counter[4], const uint32_t key[2])
{
    uint64_t product0 = 0xD2511F53ull * counter[0];
    uint64_t product1 = 0xCD9E8D57ull * counter[2];
    uint32_t mixed0 = (uint32_t)(product1 >> 32) ^ counter[1] ^ key[0];
    uint32_t mixed2 = (uint32_t)(product0 >> 32) ^ counter[3] ^ key[1];
    counter[0] = mixed0;
    counter[1] = (uint32_t)product1;
    counter[2] = mixed2;
    counter[3] = (uint32_t)product0;
}

sl_rng_word4 sl_rng_draw(uint64_t seed, uint64_t stream, uint64_t index)
{
    sl_rng_word4 counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        mix_round(counter.word, key);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

static uint64_t draw_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    sl_rng_word4 words = sl_rng_draw(seed, stream, index);
    return (uint64_t)words.word[0] << 32 | words.word[1];
}

uint64_t sl_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)draw_u64(seed, stream, index) * bound) >> 64);
}

double sl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(draw_u64(seed, stream, index) >> 11) * 0x1p-53;
}

float sl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    sl_rng_word4 words = sl_rng_draw(seed, stream, index);
    double radius_draw = ((double)words.word[0] + 1.0) * 0x1p-32; /* in (0, 1] */
    double angle_draw = (double)words.word[1] * 0x1p-32;
    double radius = sqrt(-2.0 * log(radius_draw));
    return (float)(radius * cos(6.283185307179586 * angle_draw));
}
