/* Bytes as the characters that Hugging Face's files of a vocabulary write for them (vocabulary.h).
 */
#ifndef SL_TEXT_BYTE_MAP_H
#define SL_TEXT_BYTE_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "vocabulary.h"

/* 0x100, and one for each of 0x00-0x20, 0x7f-0xa0 and 0xad. */
enum { SL_BYTE_MAP_CODES = 0x100 + 33 + 34 + 1 };

/* Both directions, made once for a file. */
typedef struct sl_byte_map {
    int16_t bytes[SL_BYTE_MAP_CODES]; /* -1: stands for none */
    uint16_t codes[256];
} sl_byte_map;

sl_byte_map sl_byte_map_make(void);

/* Writes what the characters stand for to `out_text`, which has room for `bytes`; false if one of
 * them stands for none. */
bool sl_byte_map_read(const sl_byte_map *map, const char *text, uint32_t bytes, char *out_text,
                      uint32_t *out_bytes);

/* Writes a token, a character for each byte. */
void sl_byte_map_write(const sl_byte_map *map, sl_token_bytes token, FILE *stream);

#endif
