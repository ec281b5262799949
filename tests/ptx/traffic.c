#include "traffic.h"

#include <string.h>

enum { SECTOR_BYTES = 32, WAVEFRONT_BYTES = 128, BANK_BYTES = 4 };

/* Counts different numbers: a table of as many places as there can be numbers, twice over. */
typedef struct number_set {
    uint64_t number[4 * PTX_LANES];
    bool is_taken[4 * PTX_LANES];
    uint32_t count;
} number_set;

static void add_number(number_set *set, uint64_t number)
{
    const uint32_t mask = 4 * PTX_LANES - 1;
    uint32_t place = (uint32_t)(number ^ number >> 7) & mask;
    while (set->is_taken[place] && set->number[place] != number)
        place = (place + 1) & mask;
    set->count += !set->is_taken[place];
    set->is_taken[place] = true;
    set->number[place] = number;
}

static uint64_t count_sectors(const ptx_stretch *stretch, uint32_t stretch_count)
{
    if (stretch_count == 1)
        return (stretch->address + stretch->bytes - 1) / SECTOR_BYTES -
               stretch->address / SECTOR_BYTES + 1;
    number_set set;
    memset(set.is_taken, 0, sizeof set.is_taken);
    set.count = 0;
    for (uint32_t i = 0; i < stretch_count; i++) {
        const uint64_t last = (stretch[i].address + stretch[i].bytes - 1) / SECTOR_BYTES;
        for (uint64_t sector = stretch[i].address / SECTOR_BYTES; sector <= last; sector++)
            add_number(&set, sector);
    }
    return set.count;
}

/* Lanes that go in one pass, if their words lie in different banks: the passes are the most
 * different words of one bank. A bank is as wide as the word here: 128 bytes hold all of them. */
static uint32_t count_passes(const ptx_access *access, uint32_t lanes, uint32_t word_bytes)
{
    const uint32_t bank_count = WAVEFRONT_BYTES / word_bytes;
    const int shift = __builtin_ctz(word_bytes);
    uint64_t word[PTX_LANES];
    uint8_t next[PTX_LANES], first[PTX_LANES], size[PTX_LANES] = {0};
    uint32_t passes = 0;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(rest);
        word[lane] = access->address[lane] >> shift;
        const uint32_t bank = (uint32_t)(word[lane] & (bank_count - 1));
        uint32_t at = first[bank], left = size[bank];
        for (; left != 0 && word[at] != word[lane]; left--)
            at = next[at];
        if (left != 0)
            continue;
        next[lane] = size[bank] ? first[bank] : 0;
        first[bank] = (uint8_t)lane;
        size[bank]++;
        passes = size[bank] > passes ? size[bank] : passes;
    }
    return passes;
}

static void add_wavefronts(ptx_traffic *traffic, const ptx_access *access, uint32_t stretch_count)
{
    const uint32_t word_bytes = access->bytes < BANK_BYTES ? BANK_BYTES : access->bytes;
    const uint32_t part = WAVEFRONT_BYTES / word_bytes;
    const bool is_plain = stretch_count == 1; /* side by side, or one word */
    for (uint32_t first = 0; first < PTX_LANES; first += part) {
        const uint32_t all = part == PTX_LANES ? UINT32_MAX : (1u << part) - 1;
        const uint32_t lanes = access->lanes & all << first;
        if (lanes == 0)
            continue;
        traffic->least++;
        traffic->wavefronts += is_plain ? 1 : count_passes(access, lanes, word_bytes);
    }
}

void ptx_traffic_add(ptx_traffic *traffic, const ptx_access *access, const ptx_stretch *stretch,
                     uint32_t stretch_count)
{
    const uint32_t lanes = (uint32_t)__builtin_popcount(access->lanes);
    traffic->requests++;
    traffic->lanes += lanes;
    traffic->bytes += (uint64_t)lanes * access->bytes;
    if (access->space == PTX_GLOBAL) {
        traffic->global_requests++;
        traffic->global_bytes += (uint64_t)lanes * access->bytes;
        traffic->sectors += count_sectors(stretch, stretch_count);
    } else if (access->space == PTX_SHARED) {
        add_wavefronts(traffic, access, stretch_count);
    }
}
