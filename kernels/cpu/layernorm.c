/* Layer normalisation over rows. Backward, dgamma and dbeta of a tile of rows go to the workspace
 * and are added in the order of the tiles. */
#include <string.h>

#include "ops.h"
#include "partials.h"
#include "simd.h"

enum { FORWARD_ROWS = 16 };

static void normalise_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    sl_layernorm_rows rows = *(const sl_layernorm_rows *)argument;
    const sl_span span = sl_tiles_span(rows.row_count, FORWARD_ROWS, tile_index);
    const uint64_t first = span.first * rows.width * sl_type_bytes(rows.type);
    rows.x = (const char *)rows.x + first;
    rows.y = (char *)rows.y + first;
    rows.stats += span.first * 2;
    rows.row_count = span.count;
    sl_simd_current()->layernorm_forward(&rows);
}

sl_status sl_cpu_layernorm(const sl_kernel_call *call)
{
    sl_layernorm_rows rows = {
        .x = call->operand[0],
        .gamma = call->operand[1],
        .beta = call->operand[2],
        .y = call->operand[3],
        .stats = call->operand[4],
        .row_count = call->attrs->row_count,
        .width = call->attrs->in,
        .type = (sl_type)call->attrs->type,
    };
    sl_workers_run(call->workers, sl_tiles_count(rows.row_count, FORWARD_ROWS), normalise_tile,
                   &rows);
    return SL_OK;
}

typedef struct backward_job {
    sl_layernorm_rows rows;
    float *partials; /* [tiles, 2, width]; NULL: neither dgamma nor dbeta is wanted */
} backward_job;

static void differentiate_norm_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const backward_job *job = argument;
    sl_layernorm_rows rows = job->rows;
    const sl_span span =
        sl_tiles_span(rows.row_count, sl_partials_rows(rows.row_count), tile_index);
    const uint64_t first = span.first * rows.width * sl_type_bytes(rows.type);
    rows.x = (const char *)rows.x + first;
    rows.dy = (const char *)rows.dy + first;
    if (rows.dx != NULL)
        rows.dx = (char *)rows.dx + first;
    rows.stats += span.first * 2;
    rows.row_count = span.count;
    if (job->partials != NULL) {
        rows.dgamma = job->partials + tile_index * 2 * rows.width;
        rows.dbeta = rows.dgamma + rows.width;
        memset(rows.dgamma, 0, 2 * rows.width * sizeof *rows.dgamma);
    }
    sl_simd_current()->layernorm_backward(&rows);
}

uint64_t sl_cpu_layernorm_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                   uint32_t worker_count)
{
    (void)kind;
    (void)worker_count;
    return sl_partials_count(attrs->row_count) * 2 * attrs->in * sizeof(float);
}

sl_status sl_cpu_layernorm_backward(const sl_kernel_call *call)
{
    const uint64_t width = call->attrs->in;
    const uint64_t tiles = sl_partials_count(call->attrs->row_count);
    const bool has_columns = call->operand[5] != NULL || call->operand[6] != NULL;
    backward_job job = {
        .rows =
            {
                .x = call->operand[0],
                .gamma = call->operand[1],
                .stats = call->operand[2],
                .dy = call->operand[3],
                .dx = call->operand[4],
                .row_count = call->attrs->row_count,
                .width = width,
                .type = (sl_type)call->attrs->type,
                .add = call->attrs->adds_output != 0,
            },
        .partials = has_columns ? call->workspace : NULL,
    };
    sl_workers_run(call->workers, tiles, differentiate_norm_tile, &job);
    for (int i = 0; i < 2; i++) {
        if (call->operand[5 + i] == NULL)
            continue;
        const sl_partials sums = {.partials = job.partials + (uint64_t)i * width,
                                  .count = tiles,
                                  .stride = 2 * width,
                                  .width = width,
                                  .out = call->operand[5 + i],
                                  .type = (sl_type)call->attrs->grad_type,
                                  .add = call->attrs->adds_gradient};
        sl_partials_add(call->workers, &sums);
    }
    return SL_OK;
}
