/* Adds the sums that tiles of rows left, column range by column range. */
#include "partials.h"

#include "vector.h"

enum { COLUMNS = 256 };

typedef struct partials_job {
    const float *partials;
    float *out;
    uint64_t count, stride, width;
} partials_job;

static void add_columns(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const partials_job *job = argument;
    const sl_span columns = sl_tiles_span(job->width, COLUMNS, tile_index);
    for (uint64_t i = 0; i < job->count; i++)
        sl_vector_current()->add(job->partials + i * job->stride + columns.first,
                                 job->out + columns.first, SL_TYPE_FP32, columns.count);
}

void sl_partials_add(sl_workers *workers, const float *partials, uint64_t count, uint64_t stride,
                     uint64_t width, float *out)
{
    partials_job job = {partials, out, count, stride, width};
    sl_workers_run(workers, sl_tiles_count(width, COLUMNS), add_columns, &job);
}
