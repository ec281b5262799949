/* Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011).
 *
 * A draw depends on (seed, stream, index) and on nothing else, so order, placement, threads and
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

/* A uniform integer in [0, bound), bound > 0, without modulo bias worth a name (64-bit multiply).
 */
uint64_t sl_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);

/* Where position `index` < count goes in a permutation of 0 .. count - 1 that (seed, stream) alone
 * choose: a Feistel network of draws over the next even number of bits, walked until the result is
 * below count (Black and Rogaway, CT-RSA 2002). Takes no memory, and about four walks at most. */
uint64_t sl_rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count);

/* A uniform double in [0, 1) with 53 bits. */
double sl_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* A standard normal, at most 6.67 away from 0: Box-Muller in double precision, rounded once to
 * float. The same bits on every processor, and in a fill. */
float sl_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

typedef void sl_rng_fill(uint64_t seed, uint64_t stream, uint64_t first_index, uint64_t count,
                         float *out_values);

/* Writes the normals of the indices first_index .. first_index + count - 1, several times as fast
 * as one by one. */
sl_rng_fill sl_rng_fill_normal;

/* For tests: sl_rng_fill_normal as compiled for each instruction set that runs here, the one in use
 * first; NULL from their count on. */
sl_rng_fill *sl_rng_usable_fill(uint32_t index);

#endif
