/* The polynomial of zip, bits reversed; tables for 8 bytes at once (Intel's slicing by 8). */
#include "crc32.h"

void sl_crc32_init(sl_crc32 *crc)
{
    crc->value = 0;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
        crc->tables[0][i] = value;
    }
    for (uint32_t k = 1; k < SL_CRC32_STRIDE; k++)
        for (uint32_t i = 0; i < 256; i++) {
            const uint32_t before = crc->tables[k - 1][i];
            crc->tables[k][i] = before >> 8 ^ crc->tables[0][before & 0xff];
        }
}

void sl_crc32_begin(sl_crc32 *crc)
{
    crc->value = 0;
}

void sl_crc32_add(sl_crc32 *crc, const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint32_t value = ~crc->value;
    for (; bytes >= SL_CRC32_STRIDE; bytes -= SL_CRC32_STRIDE, at += SL_CRC32_STRIDE) {
        uint32_t low =
            value ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        value = crc->tables[7][low & 0xff] ^ crc->tables[6][low >> 8 & 0xff] ^
                crc->tables[5][low >> 16 & 0xff] ^ crc->tables[4][low >> 24] ^
                crc->tables[3][at[4]] ^ crc->tables[2][at[5]] ^ crc->tables[1][at[6]] ^
                crc->tables[0][at[7]];
    }
    for (; bytes > 0; bytes--, at++)
        value = value >> 8 ^ crc->tables[0][(value ^ *at) & 0xff];
    crc->value = ~value;
}
