/* Numbers and sizes as people write them. */
#ifndef SL_CONFIG_UNITS_H
#define SL_CONFIG_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SL_UNITS_TEXT_BYTES = 32 };

/* A whole number: digits, or a real spelling with a whole value such as 5e8. SL_ERROR_USAGE. */
sl_status sl_units_parse_count(const char *text, uint64_t *out_count);

/* A whole number, or one with K, M, G or T (powers of 1024) behind it: "16M", "1.5K".
 * SL_ERROR_USAGE: it is not, or what it means is not a whole number: "0.3K". */
sl_status sl_units_parse_elements(const char *text, uint64_t *out_count);

/* A finite real number. SL_ERROR_USAGE. */
sl_status sl_units_parse_real(const char *text, double *out_real);

/* Bytes: a number, then nothing or one of K M G T (powers of 1024) with optional "iB" or "B".
 * "1.5G" is fine. SL_ERROR_USAGE names the units. */
sl_status sl_units_parse_size(const char *text, uint64_t *out_bytes);

/* Writes bytes for people, such as "1.50 GiB". */
void sl_units_format_size(uint64_t bytes, char out_text[SL_UNITS_TEXT_BYTES]);

/* Writes bytes so that sl_units_parse_size reads them back exactly, in the largest whole unit:
 * "512M", "523K". */
void sl_units_format_exact_size(uint64_t bytes, char out_text[SL_UNITS_TEXT_BYTES]);

#endif
