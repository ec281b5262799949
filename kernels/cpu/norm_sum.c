/* 384-bit sums. Bit 0 is worth 2^-149, the least subnormal; the largest float ends below bit 277,
 * so there is room for 2^107 of them. */
#include "norm_sum.h"

#include <math.h>
#include <stdbool.h>

#include "base/bits.h"

enum { WORDS = 6, MANTISSA_BITS = 23, LEAST_EXPONENT = -149 };

static void add_at(sl_norm_sum *sum, uint32_t word, uint64_t value)
{
    for (; word < WORDS && value != 0; word++)
        value = __builtin_add_overflow(sum->word[word], value, &sum->word[word]);
    if (value != 0)
        sum->nonfinite = 1; /* past 2^235: not a sum of floats */
}

void sl_norm_sum_add(sl_norm_sum *sum, float value)
{
    const uint32_t bits = sl_bits_of_float(value);
    const uint32_t exponent = bits >> MANTISSA_BITS & 0xff;
    uint64_t mantissa = bits & ((1u << MANTISSA_BITS) - 1);
    if (exponent == 0xff || (bits >> 31 && bits << 1 != 0)) {
        sum->nonfinite = 1;
        return;
    }
    if (exponent > 0)
        mantissa |= 1u << MANTISSA_BITS;
    const uint32_t position = exponent > 0 ? exponent - 1 : 0;
    const uint32_t shift = position % 64;
    add_at(sum, position / 64, mantissa << shift);
    if (shift > 0)
        add_at(sum, position / 64 + 1, mantissa >> (64 - shift));
}

void sl_norm_sum_merge(sl_norm_sum *sum, const sl_norm_sum *other)
{
    for (uint32_t word = 0; word < WORDS; word++)
        add_at(sum, word, other->word[word]);
    sum->nonfinite |= other->nonfinite;
}

/* The 64 bits from the highest set bit down, with the lowest of them set if any bit below is: more
 * than double keeps, so converting them rounds the whole sum correctly. */
double sl_norm_sum_value(const sl_norm_sum *sum)
{
    if (sum->nonfinite)
        return NAN;
    int top = WORDS - 1;
    while (top > 0 && sum->word[top] == 0)
        top--;
    if (sum->word[top] == 0)
        return 0.0;
    const int zeros = __builtin_clzll(sum->word[top]);
    uint64_t leading = sum->word[top] << zeros;
    bool rest = false;
    if (top > 0) {
        const uint64_t next = sum->word[top - 1];
        leading |= zeros > 0 ? next >> (64 - zeros) : 0;
        rest = next << zeros != 0;
    }
    for (int word = 0; word < top - 1; word++)
        rest = rest || sum->word[word] != 0;
    return ldexp((double)(leading | (rest ? 1 : 0)), 64 * top - zeros + LEAST_EXPONENT);
}
