/* Characters of UTF-8. */
#ifndef SL_TEXT_UTF8_H
#define SL_TEXT_UTF8_H

#include <stdbool.h>
#include <stdint.h>

static inline bool sl_utf8_is_tail(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

/* The length of a sequence by its first byte; 1: none starts with it. */
static inline uint32_t sl_utf8_sequence_bytes(unsigned char first)
{
    return first >= 0xc2 && first < 0xe0   ? 2
           : first >= 0xe0 && first < 0xf0 ? 3
           : first >= 0xf0 && first < 0xf5 ? 4
                                           : 1;
}

/* Reads the character at `at`, which is not ASCII, of `left` > 0 bytes. Returns its bytes, or 0
 * where no valid one starts. */
static inline uint32_t sl_utf8_read(const unsigned char *at, uint64_t left, uint32_t *out_code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t bytes = sl_utf8_sequence_bytes(at[0]);
    if (bytes == 1 || bytes > left)
        return 0;
    uint32_t code = at[0] & (0x7fu >> bytes);
    for (uint32_t i = 1; i < bytes; i++) {
        if (!sl_utf8_is_tail(at[i]))
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    *out_code = code;
    bool is_valid = code >= least[bytes] && code < 0x110000 && (code < 0xd800 || code >= 0xe000);
    return is_valid ? bytes : 0;
}

/* Where the first byte at or behind `at` lies that is not ASCII, or `bytes`. */
static inline uint64_t sl_utf8_skip_ascii(const char *text, uint64_t bytes, uint64_t at)
{
    uint64_t eight;
    for (; at + sizeof eight <= bytes; at += sizeof eight) {
        __builtin_memcpy(&eight, text + at, sizeof eight);
        if (eight & 0x8080808080808080)
            break;
    }
    while (at < bytes && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

#endif
