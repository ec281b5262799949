/* CRC-32 as zip has it (PKWARE's APPNOTE 6.3.10, 4.4.7): of the bytes of a member, as they come. */
#ifndef SL_FOREIGN_TORCH_CRC32_H
#define SL_FOREIGN_TORCH_CRC32_H

#include <stdint.h>

enum { SL_CRC32_STRIDE = 8 /* bytes that are taken at once */ };

typedef struct sl_crc32 {
    uint32_t value;                        /* of the bytes so far; 0 of none */
    uint32_t tables[SL_CRC32_STRIDE][256]; /* of a byte that so many others follow */
} sl_crc32;

void sl_crc32_init(sl_crc32 *crc);

/* Starts over; the tables stay. */
void sl_crc32_begin(sl_crc32 *crc);

void sl_crc32_add(sl_crc32 *crc, const void *data, uint64_t bytes);

#endif
