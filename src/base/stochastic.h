/* Stochastic rounding to bf16, to be inlined into the CPU kernels and the CUDA kernels, so that all
 * give the same bits.
 *
 * A number is rounded up with a probability that is its distance from the bf16 below, so that a sum
 * of many small changes keeps its mean. An element draws a word of Philox4x32-10 that is a function
 * of the step, of the key of its block, and of its place in the block, and of nothing else; a key
 * depends on the tensor's name and the block's place in the tensor (sl_layout_write_keys). The low
 * half of the word is for the first state of the element, the high half for the second.
 */
#ifndef SL_BASE_STOCHASTIC_H
#define SL_BASE_STOCHASTIC_H

#include "philox.h"

enum { SL_STOCHASTIC_WORDS = 4 }; /* of a draw: for elements that follow each other */

/* The words of elements 4 * draw, 4 * draw + 1, ... of a block. */
SL_PHILOX_INLINE void sl_stochastic_draw(uint64_t key, uint64_t step, uint32_t draw,
                                         uint32_t out_words[SL_STOCHASTIC_WORDS])
{
    sl_philox_draw(key, step, draw, out_words);
}

/* The bf16 of an fp32 number, both given by their bits. `state`: 0 or 1. What is not a number stays
 * so. */
SL_PHILOX_INLINE uint32_t sl_stochastic_round(uint32_t bits, uint32_t word, uint32_t state)
{
    const uint32_t up = bits + (word >> 16 * state & 0xffffu);
    const uint32_t kept = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : up;
    return kept >> 16;
}

#endif
