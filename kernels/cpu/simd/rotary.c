/* Turns the pairs of features of one token's heads (Su et al. 2021). */
#include "isa.h"
#include "typed.h"

SL_INLINE void turn_head(sl_type type, const sl_rotary_heads *it, uint64_t first, float sign)
{
    const uint64_t half = it->width / 2;
    for (uint64_t i = 0; i < half; i += LANES) {
        const uint32_t part = part_at(i, half);
        const lanes cosine = load_at(SL_TYPE_FP32, it->cosines, i, part);
        const lanes sine = load_at(SL_TYPE_FP32, it->sines, i, part) * set_lanes(sign);
        const lanes low = load_at(type, it->x, first + i, part);
        const lanes high = load_at(type, it->x, first + half + i, part);
        store_at(type, it->y, first + i, low * cosine - high * sine, part);
        store_at(type, it->y, first + half + i, high * cosine + low * sine, part);
    }
}

SL_INLINE void turn_heads(sl_type type, const sl_rotary_heads *it)
{
    for (uint64_t head = 0; head < it->heads; head++)
        turn_head(type, it, head * it->width, it->negates ? -1.0f : 1.0f);
}

void SL_SIMD(rotary)(const sl_rotary_heads *heads)
{
    SL_BY_TYPE(heads->type, turn_heads, heads);
}
