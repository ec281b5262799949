/* Words and lists: the small change of reading PTX. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_fail(ptx_fault *fault, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->text, sizeof fault->text, format, arguments);
    va_end(arguments);
    return false;
}

void *ptx_take(uint64_t count, uint64_t bytes)
{
    void *taken = calloc(count ? count : 1, bytes);
    if (!taken) {
        fputs("ptx: no memory\n", stderr);
        abort();
    }
    return taken;
}

void ptx_grow(void **items, uint32_t *count, uint32_t *room, size_t bytes)
{
    if (*count == *room) {
        const uint32_t more = *room ? 2 * *room : 8;
        void *moved = ptx_take(more, bytes);
        if (*count)
            memcpy(moved, *items, *count * bytes);
        free(*items);
        *items = moved;
        *room = more;
    }
    ++*count;
}

bool ptx_word_begins(ptx_word word, const char *text)
{
    const size_t bytes = strlen(text);
    return word.bytes >= bytes && memcmp(word.at, text, bytes) == 0;
}

bool ptx_word_same(ptx_word left, ptx_word right)
{
    return left.bytes == right.bytes && memcmp(left.at, right.at, left.bytes) == 0;
}

char *ptx_word_copy(ptx_word word)
{
    char *copy = ptx_take(word.bytes + 1, 1);
    memcpy(copy, word.at, word.bytes);
    return copy;
}

bool ptx_word_number(ptx_word word, uint64_t *out_bits)
{
    char text[40], *end = text;
    if (word.bytes == 0 || word.bytes >= sizeof text)
        return false;
    memcpy(text, word.at, word.bytes);
    text[word.bytes] = 0;
    const char *digits = text + (text[0] == '-');
    if (*digits < '0' || *digits > '9')
        return false;
    const char kind = digits[0] == '0' ? digits[1] : 0;
    const bool is_float = kind == 'f' || kind == 'F' || kind == 'd' || kind == 'D';
    if (is_float && (digits != text || word.bytes != (kind == 'f' || kind == 'F' ? 10u : 18u)))
        return false;
    uint64_t bits = is_float ? strtoull(digits + 2, &end, 16) : strtoull(digits, &end, 0);
    if (!is_float && *end == 'U')
        end++;
    *out_bits = digits == text ? bits : 0 - bits;
    return *end == 0;
}
