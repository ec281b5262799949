/* How the updates and the norm read a gradient. */
#ifndef SL_KERNELS_CPU_SIMD_GRADIENT_H
#define SL_KERNELS_CPU_SIMD_GRADIENT_H

#include "isa.h"
#include "typed.h"

/* One block of the gradient in fp32, rounded to the compute type: where it lies, or in `buffer`. */
SL_INLINE const float *read_gradient(const sl_gradient_blocks *gradient, uint64_t block,
                                     float buffer[SL_BLOCK_ELEMENTS])
{
    const uint64_t first = block * SL_BLOCK_ELEMENTS;
    const void *stored = typed_at(gradient->elements, gradient->stored_type, first);
    uint16_t halves[SL_BLOCK_ELEMENTS];
    if (gradient->type == SL_TYPE_FP32)
        return stored;
    if (gradient->stored_type == SL_TYPE_FP32) {
        SL_SIMD(round)(stored, halves, gradient->type, SL_BLOCK_ELEMENTS);
        stored = halves;
    }
    SL_SIMD(widen)(stored, gradient->type, buffer, SL_BLOCK_ELEMENTS);
    return buffer;
}

#endif
