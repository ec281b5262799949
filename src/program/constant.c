/* Fills tables of rotary positions. */
#include "constant.h"

#include <math.h>

static const double TURN = 6.283185307179586476925286766559; /* 2 pi */

bool sl_constant_is_same(const sl_constant *a, const sl_constant *b)
{
    return a->scaling == b->scaling && a->positions == b->positions && a->width == b->width &&
           a->base == b->base && a->factor == b->factor &&
           a->low_frequency_factor == b->low_frequency_factor &&
           a->high_frequency_factor == b->high_frequency_factor &&
           a->original_context == b->original_context;
}

/* Llama 3's, by how many turns of the pair fit the original context. */
static double scale_by_band(const sl_constant *constant, double frequency)
{
    const double low = constant->low_frequency_factor, high = constant->high_frequency_factor;
    const double turns = (double)constant->original_context * frequency / TURN;
    if (turns < low)
        return frequency / constant->factor;
    if (turns > high)
        return frequency;
    const double kept = (turns - low) / (high - low);
    return (1 - kept) * frequency / constant->factor + kept * frequency;
}

double sl_constant_frequency(const sl_constant *constant, uint64_t pair)
{
    const double frequency = pow(constant->base, -2.0 * (double)pair / (double)constant->width);
    if (constant->scaling == SL_ANGLES_LINEAR)
        return frequency / constant->factor;
    return constant->scaling == SL_ANGLES_BANDS ? scale_by_band(constant, frequency) : frequency;
}

void sl_constant_fill(const sl_constant *constant, uint64_t first, uint64_t count, float *out)
{
    const uint64_t width = constant->width, half = width / 2;
    for (uint64_t i = 0; i < half; i++) {
        const double frequency = sl_constant_frequency(constant, i);
        for (uint64_t row = 0; row < count; row++) {
            const double angle = (double)(first + row) * frequency;
            out[row * width + i] = (float)cos(angle);
            out[row * width + half + i] = (float)sin(angle);
        }
    }
}
