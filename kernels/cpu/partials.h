/* Sums over rows that several tiles share: each tile of rows leaves its own sums in the workspace,
 * and they are added in the order of the tiles. */
#ifndef SL_KERNELS_CPU_PARTIALS_H
#define SL_KERNELS_CPU_PARTIALS_H

#include "base/workers.h"
#include "tiles.h"

enum { SL_PARTIALS_TILES_MAX = 64, SL_PARTIALS_ROWS_MIN = 32 };

/* Rows of one tile: at most 64 tiles, for they cost workspace. */
static inline uint64_t sl_partials_rows(uint64_t row_count)
{
    uint64_t rows = sl_bits_divide_up(row_count, SL_PARTIALS_TILES_MAX);
    return rows > SL_PARTIALS_ROWS_MIN ? rows : SL_PARTIALS_ROWS_MIN;
}

static inline uint64_t sl_partials_count(uint64_t row_count)
{
    return sl_tiles_count(row_count, sl_partials_rows(row_count));
}

/* out[width] += partials[count][stride], tile after tile. */
void sl_partials_add(sl_workers *workers, const float *partials, uint64_t count, uint64_t stride,
                     uint64_t width, float *out);

#endif
