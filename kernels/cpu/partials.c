/* Adds the partial sums of tiles of rows, column range by column range. */
#include "partials.h"

#include <string.h>

#include "simd.h"

enum { COLUMNS = 256 };

static void add_partial_columns(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const sl_partials *job = argument;
    const sl_span columns = sl_tiles_span(job->width, COLUMNS, tile_index);
    char *out = (char *)job->out + columns.first * sl_type_bytes(job->type);
    float sums[COLUMNS];
    if (job->add)
        memcpy(sums, out, columns.count * sizeof *sums);
    else
        memset(sums, 0, columns.count * sizeof *sums);
    for (uint64_t i = 0; i < job->count; i++)
        sl_simd_current()->add(job->partials + i * job->stride + columns.first, sums, SL_TYPE_FP32,
                               columns.count);
    sl_simd_current()->round(sums, out, job->type, columns.count);
}

void sl_partials_add(sl_workers *workers, const sl_partials *partials)
{
    sl_workers_run(workers, sl_tiles_count(partials->width, COLUMNS), add_partial_columns,
                   (void *)partials);
}
