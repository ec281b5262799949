/* One loop for all types: written once with `type` as its first argument, inlined for each with
 * that argument a constant, so that every load and store is the type's own. */
#ifndef SL_KERNELS_CPU_SIMD_BY_TYPE_H
#define SL_KERNELS_CPU_SIMD_BY_TYPE_H

#include "typed.h"

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
