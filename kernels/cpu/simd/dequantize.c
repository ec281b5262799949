/* Blocks of frozen matrices, from bf16 or codes of 8 bits: the bits of base/q8.h, on every
 * processor and device. */
#include "base/q8.h"
#include "isa.h"
#include "typed.h"

enum { BLOCK = SL_BLOCK_ELEMENTS, GROUPS = BLOCK / SL_Q8_GROUP };

_Static_assert(sizeof(int8_t[BLOCK]) + sizeof(uint16_t[GROUPS]) == 2176, "a block of INT8");

static void decode_block(const int8_t *codes, float *values)
{
    uint16_t halves[GROUPS];
    float scales[GROUPS];
    memcpy(halves, codes + BLOCK, sizeof halves);
    SL_SIMD(widen)(halves, SL_TYPE_FP16, scales, GROUPS);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < SL_Q8_GROUP; i++)
            values[g * SL_Q8_GROUP + i] = (float)codes[g * SL_Q8_GROUP + i] * scales[g];
}

void SL_SIMD(dequantize)(const void *stored, sl_frozen frozen, void *y, sl_type type,
                         uint64_t block_count)
{
    const uint64_t block_bytes = sl_frozen_block_bytes(frozen);
    float values[BLOCK];
    for (uint64_t b = 0; b < block_count; b++) {
        const char *from = (const char *)stored + b * block_bytes;
        if (frozen == SL_FROZEN_INT8)
            decode_block((const int8_t *)from, values);
        else
            SL_SIMD(widen)(from, SL_TYPE_BF16, values, BLOCK);
        SL_SIMD(round)(values, (char *)y + b * BLOCK * sl_type_bytes(type), type, BLOCK);
    }
}
