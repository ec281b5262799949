/* Distributions from Philox4x32-10. Stateless.
 *
 * A normal is computed by additions, multiplications, divisions and square roots of doubles, each
 * correctly rounded and none fused, without library functions: so every instruction set, compiler
 * and C library gives the same bits. There are no branches, so that compilers vectorise the loop;
 * sl_rng_fill_normal is compiled for each vector width and takes the widest.
 */
#include "rng.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "philox.h"

#define INLINE                                                                                     \
    static inline __attribute__((always_inline)) /* also into functions for wider                  \
                                                    instruction sets */

enum { BATCH = 256 }; /* normals of one pass of the two loops: 2 KiB of stack */

INLINE sl_rng_word4 draw_words(uint64_t seed, uint64_t stream, uint64_t index)
{
    sl_rng_word4 drawn;
    sl_philox_draw(seed, stream, index, drawn.word);
    return drawn;
}

sl_rng_word4 sl_rng_draw(uint64_t seed, uint64_t stream, uint64_t index)
{
    return draw_words(seed, stream, index);
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

enum { FEISTEL_ROUNDS = 8 };

/* A bijection on numbers of 2 * half_bits bits. */
static uint64_t mix_halves(uint64_t seed, uint64_t stream, uint32_t half_bits, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t mixed = left ^ (draw_u64(seed, stream, round << 32 | right) & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits | right;
}

uint64_t sl_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count)
{
    uint32_t half_bits = 1;
    while (half_bits < 32 && (count - 1) >> (2 * half_bits) != 0)
        half_bits++;
    do /* the walk follows the cycle of `index`, so it reaches a number below count */
        index = mix_halves(seed, stream, half_bits, index);
    while (index >= count);
    return index;
}

double sl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(draw_u64(seed, stream, index) >> 11) * 0x1p-53;
}

/* ---- normals ---- */

INLINE uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

INLINE double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* -2 log((word + 1) / 2^32), in [0, 44.4].
 *
 * word + 1 = m 2^power with m in [sqrt(1/2), sqrt(2)), and log m = 2 artanh(s), s = (m - 1) / (m +
 * 1), |s| < 0.172: the terms that the series leaves out are less than s^22 / 23 = 7e-19 of the
 * first term. m - 1 is exact, so small results too are exact to a few units in the last place of a
 * double.
 */
INLINE double minus_twice_log(uint32_t word)
{
    double number = (double)(int32_t)(word ^ 0x80000000u) + (0x1p31 + 1.0); /* signed converts */
    uint64_t power = (bits_of(number) - 0x3fe6a09e00000000u) >> 52; /* of sqrt(1/2), cut off */
    double m = from_bits(bits_of(number) - (power << 52));
    double s = (m - 1.0) / (m + 1.0), q = s * s;
    double sum = 1.0 / 21;
    sum = sum * q + 1.0 / 19;
    sum = sum * q + 1.0 / 17;
    sum = sum * q + 1.0 / 15;
    sum = sum * q + 1.0 / 13;
    sum = sum * q + 1.0 / 11;
    sum = sum * q + 1.0 / 9;
    sum = sum * q + 1.0 / 7;
    sum = sum * q + 1.0 / 5;
    sum = sum * q + 1.0 / 3;
    double artanh = s * (sum * q) + s;
    return (double)(32 - (int32_t)power) * (2 * 0.69314718055994531) - 4.0 * artanh;
}

/* cos(2 pi word / 2^32).
 *
 * word / 2^32 is a fraction t of the circle in [-1/2, 1/2). cos(2 pi t) = sin(2 pi (1/4 - |t|)),
 * where 1/4 - |t| is exact and at most 1/4 in magnitude: one series serves the whole circle. The
 * terms that the series leaves out are less than (pi / 2)^22 / 23! = 8e-19 of the first term.
 */
INLINE double cosine_of_fraction(uint32_t word)
{
    double quarter_minus = 0x1p30 - fabs((double)(int32_t)word); /* in 2^-32 of a circle */
    double x = quarter_minus * (6.2831853071795865 * 0x1p-32), q = x * x;
    double sum = 1.0 / 51090942171709440000.0; /* 1 / 21! */
    sum = sum * q - 1.0 / 121645100408832000.0;
    sum = sum * q + 1.0 / 355687428096000.0;
    sum = sum * q - 1.0 / 1307674368000.0;
    sum = sum * q + 1.0 / 6227020800.0;
    sum = sum * q - 1.0 / 39916800.0;
    sum = sum * q + 1.0 / 362880.0;
    sum = sum * q - 1.0 / 5040.0;
    sum = sum * q + 1.0 / 120.0;
    sum = sum * q - 1.0 / 6.0;
    return x * (sum * q) + x;
}

INLINE float make_normal(uint32_t radius_word, uint32_t angle_word)
{
    return (float)(sqrt(minus_twice_log(radius_word)) * cosine_of_fraction(angle_word));
}

float sl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    sl_rng_word4 words = sl_rng_draw(seed, stream, index);
    return make_normal(words.word[0], words.word[1]);
}

/* Two loops per batch: mixing 32-bit integers and doubles in one loop costs a sixth of the
 * speed. */
INLINE void fill(uint64_t seed, uint64_t stream, uint64_t first_index, uint64_t count, float *out)
{
    uint32_t radius_words[BATCH], angle_words[BATCH];
    for (uint64_t done = 0; done < count; done += BATCH) {
        uint64_t batch = count - done < BATCH ? count - done : BATCH;
        for (uint64_t i = 0; i < batch; i++) {
            sl_rng_word4 words = draw_words(seed, stream, first_index + done + i);
            radius_words[i] = words.word[0];
            angle_words[i] = words.word[1];
        }
        for (uint64_t i = 0; i < batch; i++)
            out[done + i] = make_normal(radius_words[i], angle_words[i]);
    }
}

#define FILL(name, attributes)                                                                     \
    attributes static void name(uint64_t seed, uint64_t stream, uint64_t first_index,              \
                                uint64_t count, float *out_values)                                 \
    {                                                                                              \
        fill(seed, stream, first_index, count, out_values);                                        \
    }

#if defined(__x86_64__)
FILL(fill_avx512, __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))))
FILL(fill_avx2, __attribute__((target("avx2"))))
#endif
FILL(fill_plain, )

sl_rng_fill *sl_rng_usable_fill(uint32_t index)
{
    sl_rng_fill *usable[3];
    uint32_t count = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        usable[count++] = fill_avx512;
    if (__builtin_cpu_supports("avx2"))
        usable[count++] = fill_avx2;
#endif
    usable[count++] = fill_plain;
    return index < count ? usable[index] : NULL;
}

void sl_rng_fill_normal(uint64_t seed, uint64_t stream, uint64_t first_index, uint64_t count,
                        float *out_values)
{
    sl_rng_usable_fill(0)(seed, stream, first_index, count, out_values);
}
