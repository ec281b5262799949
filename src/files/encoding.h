/* How floats stand in files of weights: fp32, bf16, fp16, and q8_0 of ggml.
 *
 * bf16 and fp16 are rounded to nearest, ties to even. A block of q8_0 is an fp16 scale, the largest
 * absolute value of 32 elements divided by 127, and 32 signed bytes: each element divided by the
 * scale as it was in fp32, to nearest, ties away from zero (ggml, quantize_row_q8_0_ref).
 */
#ifndef SL_FILES_ENCODING_H
#define SL_FILES_ENCODING_H

#include <stdint.h>

#include "base/status.h"

typedef enum sl_encoding {
    SL_ENCODING_FP32,
    SL_ENCODING_BF16,
    SL_ENCODING_FP16,
    SL_ENCODING_Q8_0
} sl_encoding;

enum { SL_ENCODING_Q8_0_ELEMENTS = 32, SL_ENCODING_Q8_0_BYTES = 34 };

/* "fp32". */
const char *sl_encoding_name(sl_encoding encoding);

/* Bytes of so many elements, below 2^61; whole blocks of q8_0. */
uint64_t sl_encoding_bytes(sl_encoding encoding, uint64_t element_count);

/* Writes elements as they are stored; the two do not overlap. SL_ERROR_DATA: a finite number that
 * would become infinite, or in q8_0 one that is not finite. */
sl_status sl_encoding_encode(sl_encoding encoding, const float *data, uint64_t element_count,
                             void *out_stored);

/* The other way, exact; fp32, bf16 and fp16 alone. */
void sl_encoding_decode(sl_encoding encoding, const void *stored, uint64_t element_count,
                        float *out_data);

/* The same in place: fp32 stays, elements of 16 bits stand in the upper half of `data`. */
void sl_encoding_widen(sl_encoding encoding, uint64_t element_count, float *data);

#endif
