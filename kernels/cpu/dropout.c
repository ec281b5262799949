/* The op DROPOUT: a tile is a part of one row of the batch. */
#include "kernels/dropout.h"

#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ELEMENTS = 32768 };

typedef struct dropout_job {
    sl_type type;
    uint64_t row_elements, row_tiles;
    const char *x, *residual;
    char *y;
    sl_dropout dropout;
} dropout_job;

static void drop_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const dropout_job *job = argument;
    const uint64_t row = tile_index / job->row_tiles;
    const sl_span part =
        sl_tiles_span(job->row_elements, TILE_ELEMENTS, tile_index % job->row_tiles);
    const uint64_t at = (row * job->row_elements + part.first) * sl_type_bytes(job->type);
    sl_dropout_span span = {.x = job->x + at,
                            .residual = job->residual != NULL ? job->residual + at : NULL,
                            .y = job->y + at,
                            .first = part.first,
                            .count = part.count,
                            .type = job->type,
                            .dropout = job->dropout};
    span.dropout.stream += row;
    sl_simd_current()->dropout(&span);
}

sl_status sl_cpu_dropout(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t row_elements = attrs->seq * attrs->in;
    dropout_job job = {.type = (sl_type)attrs->type,
                       .row_elements = row_elements,
                       .row_tiles = sl_tiles_count(row_elements, TILE_ELEMENTS),
                       .x = call->operand[0],
                       .residual = call->operand[1],
                       .y = call->operand[2],
                       .dropout = sl_dropout_of(call)};
    sl_workers_run(call->workers, attrs->batch * job.row_tiles, drop_tile, &job);
    return SL_OK;
}
