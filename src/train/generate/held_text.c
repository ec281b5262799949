/* What is held is shorter than the longest stop text plus one character, so it is searched plainly.
 */
#define _GNU_SOURCE /* memmem */
#include "held_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { CHARACTER_BYTES_MAX = 4 };

static sl_status append(sl_held_text *held, const char *bytes, uint64_t byte_count)
{
    const uint64_t needed = held->count + byte_count;
    SL_TRY(SL_ARRAY_RESERVE(held->bytes, needed, held->capacity, "the text of a sample"));
    if (byte_count > 0)
        memcpy(held->bytes + held->count, bytes, byte_count);
    held->count = needed;
    return SL_OK;
}

/* Cuts what is held where a stop text begins: of several the one that ends first, of those the
 * longest, so that it does not matter in which parts the bytes came. */
static void find_stop(sl_held_text *held)
{
    uint64_t first_end = UINT64_MAX, cut = 0;
    for (uint32_t i = 0; i < held->stop_count; i++) {
        const uint64_t length = strlen(held->stops[i]);
        const char *found = memmem(held->bytes, held->count, held->stops[i], length);
        const uint64_t start = found ? (uint64_t)(found - held->bytes) : 0;
        if (!found || start + length > first_end || (start + length == first_end && start > cut))
            continue;
        first_end = start + length;
        cut = start;
    }
    held->is_stopped = first_end != UINT64_MAX;
    if (held->is_stopped)
        held->count = cut;
}

/* Bytes at the end that may be the start of a stop text. */
static uint64_t count_started(const sl_held_text *held, const char *stop)
{
    const uint64_t whole = strlen(stop);
    uint64_t bytes = held->count < whole ? held->count : whole - 1;
    while (bytes > 0 && memcmp(held->bytes + held->count - bytes, stop, bytes) != 0)
        bytes--;
    return bytes;
}

static uint64_t count_character_bytes(unsigned char lead)
{
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 1;
}

/* Of the first `count` bytes, those at the end that begin a character and are not all of it. */
static uint64_t count_partial(const sl_held_text *held, uint64_t count)
{
    for (uint64_t back = 1; back < CHARACTER_BYTES_MAX && back <= count; back++) {
        const unsigned char byte = (unsigned char)held->bytes[count - back];
        if ((byte & 0xc0) == 0x80)
            continue;
        return count_character_bytes(byte) > back ? back : 0;
    }
    return 0;
}

static sl_status give(sl_held_text *held, uint64_t count, const sl_held_sink *sink)
{
    if (count == 0)
        return SL_OK;
    sl_status status = sink->take(sink->user, held->bytes, count);
    held->count -= count;
    memmove(held->bytes, held->bytes + count, held->count);
    return status;
}

sl_status sl_held_text_add(sl_held_text *held, const char *bytes, uint64_t byte_count,
                           const sl_held_sink *sink)
{
    uint64_t kept = 0;
    if (held->is_stopped)
        return SL_OK;
    SL_TRY(append(held, bytes, byte_count));
    find_stop(held);
    if (held->is_stopped)
        return give(held, held->count, sink);
    for (uint32_t i = 0; i < held->stop_count; i++) {
        const uint64_t started = count_started(held, held->stops[i]);
        kept = started > kept ? started : kept;
    }
    kept += count_partial(held, held->count - kept);
    return give(held, held->count - kept, sink);
}

sl_status sl_held_text_end(sl_held_text *held, const sl_held_sink *sink)
{
    return give(held, held->count, sink);
}

void sl_held_text_clear(sl_held_text *held)
{
    held->count = 0;
    held->is_stopped = false;
}

void sl_held_text_close(sl_held_text *held)
{
    free(held->bytes);
    held->bytes = NULL;
    held->count = held->capacity = 0;
}
