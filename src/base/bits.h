/* Checked arithmetic on sizes, rounding, and the bits of floats. Header only. */
#ifndef SL_BASE_BITS_H
#define SL_BASE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "status.h"

/* Writes a + b, or fails with SL_ERROR_USAGE naming `what`. */
static inline sl_status sl_bits_add(uint64_t a, uint64_t b, const char *what, uint64_t *out_sum)
{
    if (__builtin_add_overflow(a, b, out_sum))
        SL_FAIL(SL_ERROR_USAGE, "%s overflows 64 bits", what);
    return SL_OK;
}

/* Writes a * b, or fails with SL_ERROR_USAGE naming `what`. */
static inline sl_status sl_bits_multiply(uint64_t a, uint64_t b, const char *what,
                                         uint64_t *out_product)
{
    if (__builtin_mul_overflow(a, b, out_product))
        SL_FAIL(SL_ERROR_USAGE, "%s overflows 64 bits", what);
    return SL_OK;
}

static inline uint64_t sl_bits_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t sl_bits_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ceil(a / b); b > 0. */
static inline uint64_t sl_bits_divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* `a` rounded up to a multiple of `unit` > 0; the caller knows that it does not overflow. */
static inline uint64_t sl_bits_round_up(uint64_t a, uint64_t unit)
{
    return sl_bits_divide_up(a, unit) * unit;
}

static inline uint32_t sl_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float sl_bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
