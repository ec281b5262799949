/* Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * A number depends on (seed, stream, index) and on nothing else, so order, placement, threads and
 * ranks cannot change it.
 */
#ifndef SL_BASE_RNG_H
#define SL_BASE_RNG_H

#include <stdint.h>

typedef struct sl_rng_word4 {
    uint32_t word[4];
} sl_rng_word4;

/* The four words of counter (index, stream) under key `seed`. */
sl_rng_word4 sl_rng_draw(uint64_t seed, uint64_t stream, uint64_t index);

/* A uniform integer in [0, bound), bound > 0; biased by at most bound / 2^64 (Lemire 2019, without
 * the rejection).
 */
uint64_t sl_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);

/* The image of `index` < count under a permutation of 0 .. count - 1 that depends on (seed,
 * stream): a Feistel network over the next even number of bits, applied again until the result is
 * below count (cycle walking, Black and Rogaway, CT-RSA 2002). Takes no memory; about four walks at
 * most. */
uint64_t sl_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);

/* A uniform double in [0, 1) with 53 bits. */
double sl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* A standard normal, of magnitude at most 6.67: Box-Muller in double precision, rounded once to
 * float. The same bits on every processor and from sl_rng_fill_normal. */
float sl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

typedef void sl_rng_fill(uint64_t seed, uint64_t stream, uint64_t first_index, uint64_t count,
                         float *out_values);

/* Writes the normals of the indices first_index .. first_index + count - 1, several times as fast
 * as one by one. */
sl_rng_fill sl_rng_fill_normal;

/* For tests: sl_rng_fill_normal for each instruction set that runs here, the one in use first; NULL
 * when `index` reaches their count. */
sl_rng_fill *sl_rng_usable_fill(uint32_t index);

#endif
