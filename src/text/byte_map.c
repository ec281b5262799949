/* See byte_map.h. */
#include "byte_map.h"

enum { FIRST_FAR = 0x100 }; /* the first code point of bytes that have no character of their own */

static bool is_near(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static uint32_t code_of(unsigned char byte)
{
    uint32_t far = FIRST_FAR;
    if (is_near(byte))
        return byte;
    for (int other = 0; other < byte; other++)
        far += !is_near(other);
    return far;
}

/* The byte that a code point stands for, or -1. */
static int byte_of(uint32_t code)
{
    if (code < FIRST_FAR)
        return is_near((int)code) ? (int)code : -1;
    if (code >= SL_BYTE_MAP_CODES)
        return -1;
    int byte = 0;
    for (uint32_t far = FIRST_FAR; is_near(byte) || far++ < code; byte++)
        continue;
    return byte;
}

unsigned char sl_vocabulary_nth_byte(uint32_t index)
{
    for (int byte = 0; byte < 256; byte++)
        if (is_near(byte) && index-- == 0)
            return (unsigned char)byte;
    for (int byte = 0; byte < 256; byte++)
        if (!is_near(byte) && index-- == 0)
            return (unsigned char)byte;
    return 0;
}

sl_byte_map sl_byte_map_make(void)
{
    sl_byte_map map;
    for (uint32_t code = 0; code < SL_BYTE_MAP_CODES; code++)
        map.bytes[code] = (int16_t)byte_of(code);
    for (int byte = 0; byte < 256; byte++)
        map.codes[byte] = (uint16_t)code_of((unsigned char)byte);
    return map;
}

/* Reads one character that may stand for a byte: those are of one or two bytes of UTF-8. Returns
 * how many, or 0. */
static uint32_t read_mapped(const sl_byte_map *map, const unsigned char *text, uint32_t bytes,
                            char *out_byte)
{
    bool is_pair = bytes > 1 && text[0] >= 0xc2 && text[0] < 0xe0 && (text[1] & 0xc0) == 0x80;
    uint32_t code = is_pair ? (text[0] & 0x1fu) << 6 | (text[1] & 0x3fu) : text[0];
    if ((!is_pair && text[0] >= 0x80) || code >= SL_BYTE_MAP_CODES || map->bytes[code] < 0)
        return 0;
    *out_byte = (char)map->bytes[code];
    return is_pair ? 2 : 1;
}

bool sl_byte_map_read(const sl_byte_map *map, const char *text, uint32_t bytes, char *out_text,
                      uint32_t *out_bytes)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at < bytes;) {
        uint32_t taken =
            read_mapped(map, (const unsigned char *)text + at, bytes - at, &out_text[count++]);
        if (taken == 0)
            return false;
        at += taken;
    }
    *out_bytes = count;
    return true;
}

/* ---- writing ---- */

static void write_code(uint32_t code, FILE *stream)
{
    if (code < 0x80)
        putc((int)code, stream);
    else
        fprintf(stream, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
}

void sl_byte_map_write(const sl_byte_map *map, sl_token_bytes token, FILE *stream)
{
    for (uint32_t i = 0; i < token.bytes; i++)
        write_code(map->codes[(unsigned char)token.text[i]], stream);
}

void sl_vocabulary_write_token(sl_token_bytes token, FILE *stream)
{
    for (uint32_t i = 0; i < token.bytes; i++)
        write_code(code_of((unsigned char)token.text[i]), stream);
}
