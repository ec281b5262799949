/* Copies what both sides know of a struct; see sized.h. */
#include "sized.h"

#include <string.h>

#include "status.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void sl_sized_give(const void *from, size_t bytes, void *out, size_t out_bytes)
{
    const size_t known = smaller(bytes, out_bytes);
    memcpy(out, from, known);
    memset((char *)out + known, 0, out_bytes - known);
}

sl_status sl_sized_take(const char *name, const void *given, size_t given_bytes, void *out,
                        size_t bytes)
{
    const unsigned char *of_program = given;
    for (size_t i = bytes; i < given_bytes; i++)
        if (of_program[i] != 0)
            SL_FAIL(SL_ERROR_USAGE,
                    "%s: the program sets a field that this version of the library does not know, "
                    "at byte %zu of %zu",
                    name, i, given_bytes);
    sl_sized_give(given, given_bytes, out, bytes);
    return SL_OK;
}

sl_status sl_sized_check(const char *name, const void *out)
{
    size_t size;
    memcpy(&size, out, sizeof size);
    if (size <= sizeof size)
        SL_FAIL(SL_ERROR_USAGE, "the size of this %s is %zu: set it to sizeof(%s) before the call",
                name, size, name);
    return SL_OK;
}

void sl_sized_fill(const void *from, size_t bytes, void *out)
{
    size_t size;
    memcpy(&size, out, sizeof size);
    if (size > sizeof size)
        memcpy((char *)out + sizeof size, (const char *)from + sizeof size,
               smaller(size, bytes) - sizeof size);
}
