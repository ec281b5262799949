/* Encodes and decodes runs of floats; see encoding.h. */
#include "encoding.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/half.h"

const char *sl_encoding_name(sl_encoding encoding)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "q8_0"};
    return names[encoding];
}

uint64_t sl_encoding_bytes(sl_encoding encoding, uint64_t element_count)
{
    switch (encoding) {
    case SL_ENCODING_FP32:
        return 4 * element_count;
    case SL_ENCODING_BF16:
    case SL_ENCODING_FP16:
        return 2 * element_count;
    case SL_ENCODING_Q8_0:
        return element_count / SL_ENCODING_Q8_0_ELEMENTS * SL_ENCODING_Q8_0_BYTES;
    }
    return 0;
}

static sl_status refuse(sl_encoding encoding, float value)
{
    SL_FAIL(SL_ERROR_DATA, "holds %g, which %s has no number for: use another --type",
            (double)value, sl_encoding_name(encoding));
}

static sl_status encode_bf16(const float *data, uint64_t count, uint16_t *out_half)
{
    for (uint64_t i = 0; i < count; i++) {
        out_half[i] = sl_half_to_bf16(data[i]);
        if ((out_half[i] & 0x7fff) == 0x7f80 && isfinite(data[i]))
            return refuse(SL_ENCODING_BF16, data[i]);
    }
    return SL_OK;
}

static sl_status encode_fp16(const float *data, uint64_t count, uint16_t *out_half)
{
    for (uint64_t i = 0; i < count; i++) {
        out_half[i] = sl_half_to_fp16(data[i]);
        if ((out_half[i] & 0x7fff) == 0x7c00 && isfinite(data[i]))
            return refuse(SL_ENCODING_FP16, data[i]);
    }
    return SL_OK;
}

/* To nearest, ties away from zero, of a number that an int holds: the difference is exact. */
static int8_t round_away(float value)
{
    int whole = (int)value;
    float rest = value - (float)whole;
    return (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
}

static sl_status encode_block(const float *data, unsigned char *out_block)
{
    float largest = 0;
    for (int i = 0; i < SL_ENCODING_Q8_0_ELEMENTS; i++) {
        if (!isfinite(data[i]))
            return refuse(SL_ENCODING_Q8_0, data[i]);
        largest = fabsf(data[i]) > largest ? fabsf(data[i]) : largest;
    }
    float scale = largest / 127, inverse = scale != 0 ? 1 / scale : 0;
    uint16_t half = sl_half_to_fp16(scale);
    if (half == 0x7c00)
        return refuse(SL_ENCODING_Q8_0, largest);
    if (!isfinite(inverse)) /* the scale is so small that fp16 has 0 for it */
        inverse = 0;
    memcpy(out_block, &half, sizeof half);
    for (int i = 0; i < SL_ENCODING_Q8_0_ELEMENTS; i++)
        out_block[sizeof half + (size_t)i] = (unsigned char)round_away(data[i] * inverse);
    return SL_OK;
}

static sl_status encode_q8_0(const float *data, uint64_t count, unsigned char *out_blocks)
{
    for (uint64_t i = 0; i < count / SL_ENCODING_Q8_0_ELEMENTS; i++)
        SL_TRY(encode_block(data + i * SL_ENCODING_Q8_0_ELEMENTS,
                            out_blocks + i * SL_ENCODING_Q8_0_BYTES));
    return SL_OK;
}

sl_status sl_encoding_encode(sl_encoding encoding, const float *data, uint64_t element_count,
                             void *out_stored)
{
    switch (encoding) {
    case SL_ENCODING_FP32:
        memcpy(out_stored, data, element_count * sizeof *data);
        return SL_OK;
    case SL_ENCODING_BF16:
        return encode_bf16(data, element_count, out_stored);
    case SL_ENCODING_FP16:
        return encode_fp16(data, element_count, out_stored);
    case SL_ENCODING_Q8_0:
        return encode_q8_0(data, element_count, out_stored);
    }
    SL_FAIL(SL_ERROR_INTERNAL, "there is no encoding %d", (int)encoding);
}

void sl_encoding_decode(sl_encoding encoding, const void *stored, uint64_t element_count,
                        float *out_data)
{
    const uint16_t *half = stored;
    if (encoding == SL_ENCODING_FP32) {
        memcpy(out_data, stored, element_count * sizeof *out_data);
        return;
    }
    for (uint64_t i = 0; i < element_count; i++)
        out_data[i] =
            encoding == SL_ENCODING_BF16 ? sl_half_from_bf16(half[i]) : sl_half_from_fp16(half[i]);
}

/* Element i is read before anything at or above it is overwritten. */
void sl_encoding_widen(sl_encoding encoding, uint64_t element_count, float *data)
{
    const unsigned char *upper = (const unsigned char *)data + sizeof(uint16_t) * element_count;
    for (uint64_t i = 0; encoding != SL_ENCODING_FP32 && i < element_count; i++) {
        uint16_t half;
        memcpy(&half, upper + sizeof half * i, sizeof half);
        data[i] = encoding == SL_ENCODING_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
    }
}
