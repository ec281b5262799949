/* Sums over rows that are divided into tiles: each tile writes its partial sums to the workspace,
 * and the partial sums are added in the order of the tiles. */
#ifndef SL_KERNELS_CPU_PARTIALS_H
#define SL_KERNELS_CPU_PARTIALS_H

#include <stdbool.h>

#include "base/workers.h"
#include "program/op_list.h"
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

/* What partials [count][stride] come to, tile after tile: `width` sums. */
typedef struct sl_partials {
    const float *partials;
    uint64_t count, stride, width;
    void *out;
    sl_type type; /* of out: fp32 where the sums are added to it, else what they are rounded to */
    bool add;
} sl_partials;

void sl_partials_add(sl_workers *workers, const sl_partials *partials);

#endif
