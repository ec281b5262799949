#include "ranges.h"

#include <stdlib.h>
#include <string.h>

void ptx_ranges_close(ptx_ranges *ranges)
{
    for (uint64_t i = 0; i < ranges->count; i++)
        free(ranges->range[i].has_value);
    free(ranges->range);
    *ranges = (ptx_ranges){0};
}

/* How many ranges start at or before `address`. */
static uint64_t count_before(const ptx_ranges *ranges, uint64_t address)
{
    uint64_t first = 0, end = ranges->count;
    while (first < end) {
        const uint64_t middle = first + (end - first) / 2;
        if (ranges->range[middle].start <= address)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

const ptx_range *ptx_ranges_before(const ptx_ranges *ranges, uint64_t address)
{
    const uint64_t count = count_before(ranges, address);
    return count ? &ranges->range[count - 1] : NULL;
}

static bool grow(ptx_ranges *ranges)
{
    const uint64_t room = ranges->room ? 2 * ranges->room : 16;
    ptx_range *grown = realloc(ranges->range, room * sizeof *grown);
    if (!grown)
        return false;
    ranges->range = grown;
    ranges->room = room;
    return true;
}

bool ptx_ranges_add(ptx_ranges *ranges, uint64_t start, uint64_t bytes, bool has_value)
{
    const uint64_t at = count_before(ranges, start), end = start + bytes;
    const ptx_range *before = at ? &ranges->range[at - 1] : NULL;
    const ptx_range *after = at < ranges->count ? &ranges->range[at] : NULL;
    if (end <= start || (before && before->end > start) || (after && after->start < end) ||
        (ranges->count == ranges->room && !grow(ranges)))
        return false;
    uint8_t *flags = calloc(bytes, 1);
    if (!flags)
        return false;
    if (has_value)
        memset(flags, 1, bytes);
    memmove(&ranges->range[at + 1], &ranges->range[at], (ranges->count - at) * sizeof(ptx_range));
    ranges->range[at] = (ptx_range){start, end, flags};
    ranges->count++;
    return true;
}

bool ptx_ranges_remove(ptx_ranges *ranges, uint64_t start)
{
    const uint64_t count = count_before(ranges, start);
    if (count == 0 || ranges->range[count - 1].start != start)
        return false;
    free(ranges->range[count - 1].has_value);
    memmove(&ranges->range[count - 1], &ranges->range[count],
            (ranges->count - count) * sizeof(ptx_range));
    ranges->count--;
    return true;
}

/* The flags of `address` and how many of `bytes` go on in the same way: NULL, up to where the next
 * range starts. */
static uint8_t *find_flags(const ptx_ranges *ranges, uint64_t address, uint64_t bytes,
                           uint64_t *out_bytes)
{
    const uint64_t count = count_before(ranges, address);
    const ptx_range *before = count ? &ranges->range[count - 1] : NULL;
    if (before && address < before->end) {
        *out_bytes = bytes < before->end - address ? bytes : before->end - address;
        return &before->has_value[address - before->start];
    }
    const uint64_t gap = count < ranges->count ? ranges->range[count].start - address : UINT64_MAX;
    *out_bytes = bytes < gap ? bytes : gap;
    return NULL;
}

void ptx_ranges_set(const ptx_ranges *ranges, uint64_t start, uint64_t bytes)
{
    for (uint64_t done = 0, part; done < bytes; done += part) {
        uint8_t *flags = find_flags(ranges, start + done, bytes - done, &part);
        if (flags)
            memset(flags, 1, part);
    }
}

void ptx_ranges_copy(const ptx_ranges *ranges, uint64_t to, uint64_t from, uint64_t bytes)
{
    for (uint64_t done = 0, part; done < bytes; done += part) {
        uint8_t *to_flags = find_flags(ranges, to + done, bytes - done, &part);
        const uint8_t *from_flags = find_flags(ranges, from + done, part, &part);
        if (to_flags && from_flags)
            memmove(to_flags, from_flags, part);
        else if (to_flags)
            memset(to_flags, 1, part);
    }
}
