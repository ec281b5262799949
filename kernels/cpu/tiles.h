/* How work is cut into tiles, so that a result cannot depend on the number of workers. */
#ifndef SL_KERNELS_CPU_TILES_H
#define SL_KERNELS_CPU_TILES_H

#include <stdint.h>

#include "base/bits.h"

typedef struct sl_span {
    uint64_t first, count;
} sl_span;

/* The part of `total` items that tile `tile_index` of `tile_size` items covers. */
static inline sl_span sl_tiles_span(uint64_t total, uint64_t tile_size, uint64_t tile_index)
{
    uint64_t first = tile_index * tile_size;
    uint64_t left = total - first;
    return (sl_span){first, left < tile_size ? left : tile_size};
}

static inline uint64_t sl_tiles_count(uint64_t total, uint64_t tile_size)
{
    return sl_bits_divide_up(total, tile_size);
}

#endif
