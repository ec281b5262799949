/* Normalisation of rows by the root of their mean square. Backward, dgamma of a tile of rows goes
 * to the workspace and is added in the order of the tiles. */
#include <string.h>

#include "ops.h"
#include "partials.h"
#include "simd.h"

/* Of one tile: rows may be as short as one head. */
enum { FORWARD_ELEMENTS = 8192, FORWARD_ROWS_MIN = 16 };

static uint64_t forward_rows(const sl_rmsnorm_rows *rows)
{
    return FORWARD_ROWS_MIN + FORWARD_ELEMENTS / (rows->width + 1);
}

static void normalise_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    sl_rmsnorm_rows rows = *(const sl_rmsnorm_rows *)argument;
    const sl_span span = sl_tiles_span(rows.row_count, forward_rows(&rows), tile_index);
    const uint64_t first = span.first * rows.width * sl_type_bytes(rows.type);
    rows.x = (const char *)rows.x + first;
    rows.y = (char *)rows.y + first;
    rows.stats += span.first;
    rows.row_count = span.count;
    sl_simd_current()->rmsnorm_forward(&rows);
}

sl_status sl_cpu_rmsnorm(const sl_kernel_call *call)
{
    sl_rmsnorm_rows rows = {
        .x = call->operand[0],
        .gamma = call->operand[1],
        .y = call->operand[2],
        .stats = call->operand[3],
        .row_count = call->attrs->row_count,
        .width = call->attrs->in,
        .epsilon = call->attrs->epsilon,
        .gamma_offset = call->attrs->gamma_offset,
        .type = (sl_type)call->attrs->type,
    };
    sl_workers_run(call->workers, sl_tiles_count(rows.row_count, forward_rows(&rows)),
                   normalise_tile, &rows);
    return SL_OK;
}

typedef struct backward_job {
    sl_rmsnorm_rows rows;
    float *partials; /* [tiles, width]; NULL: dgamma is not wanted */
} backward_job;

static void differentiate_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const backward_job *job = argument;
    sl_rmsnorm_rows rows = job->rows;
    const sl_span span =
        sl_tiles_span(rows.row_count, sl_partials_rows(rows.row_count), tile_index);
    const uint64_t first = span.first * rows.width * sl_type_bytes(rows.type);
    rows.x = (const char *)rows.x + first;
    rows.dy = (const char *)rows.dy + first;
    if (rows.dx != NULL)
        rows.dx = (char *)rows.dx + first;
    rows.stats += span.first;
    rows.row_count = span.count;
    if (job->partials != NULL) {
        rows.dgamma = job->partials + tile_index * rows.width;
        memset(rows.dgamma, 0, rows.width * sizeof *rows.dgamma);
    }
    sl_simd_current()->rmsnorm_backward(&rows);
}

uint64_t sl_cpu_rmsnorm_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                 uint32_t worker_count)
{
    (void)kind;
    (void)worker_count;
    return sl_partials_count(attrs->row_count) * attrs->in * sizeof(float);
}

sl_status sl_cpu_rmsnorm_backward(const sl_kernel_call *call)
{
    enum { X, GAMMA, STATS, DY, DX, DGAMMA };
    const uint64_t width = call->attrs->in;
    const uint64_t tiles = sl_partials_count(call->attrs->row_count);
    backward_job job = {
        .rows =
            {
                .x = call->operand[X],
                .gamma = call->operand[GAMMA],
                .stats = call->operand[STATS],
                .dy = call->operand[DY],
                .dx = call->operand[DX],
                .row_count = call->attrs->row_count,
                .width = width,
                .gamma_offset = call->attrs->gamma_offset,
                .type = (sl_type)call->attrs->type,
                .add = call->attrs->adds_output != 0,
            },
        .partials = call->operand[DGAMMA] != NULL ? call->workspace : NULL,
    };
    sl_workers_run(call->workers, tiles, differentiate_tile, &job);
    if (job.partials == NULL)
        return SL_OK;
    const sl_partials sums = {.partials = job.partials,
                              .count = tiles,
                              .stride = width,
                              .width = width,
                              .out = call->operand[DGAMMA],
                              .type = (sl_type)call->attrs->grad_type,
                              .add = call->attrs->adds_gradient};
    sl_partials_add(call->workers, &sums);
    return SL_OK;
}
