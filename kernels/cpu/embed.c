/* Token and position embeddings and their gradients. */
#include <string.h>

#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ROWS = 32, TILE_COLUMNS = 64 };

typedef struct embed_job {
    const sl_op_attrs *attrs;
    const int32_t *tokens;
    const char *from;
    char *to;
    uint64_t position;
} embed_job;

static uint64_t element_bytes(const embed_job *job)
{
    return sl_type_bytes((sl_type)job->attrs->type);
}

static void embed_position_rows(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const embed_job *job = argument;
    const uint64_t seq = job->attrs->seq, row_bytes = job->attrs->in * element_bytes(job);
    const sl_span rows = sl_tiles_span(job->attrs->batch * seq, TILE_ROWS, tile_index);
    for (uint64_t row = rows.first; row < rows.first + rows.count; row++)
        memcpy(job->to + row * row_bytes, job->from + (job->position + row % seq) * row_bytes,
               row_bytes);
}

sl_status sl_cpu_embed_position(const sl_kernel_call *call)
{
    embed_job job = {.attrs = call->attrs,
                     .from = call->operand[0],
                     .to = call->operand[1],
                     .position = call->scalars.position};
    const uint64_t rows = call->attrs->batch * call->attrs->seq;
    if (call->attrs->rank_index > 0) {
        memset(job.to, 0, rows * call->attrs->in * element_bytes(&job));
        return SL_OK;
    }
    sl_workers_run(call->workers, sl_tiles_count(rows, TILE_ROWS), embed_position_rows, &job);
    return SL_OK;
}

/* The panel's row of `token`; NONE if the token is in another panel, or invalid. */
static const uint64_t NONE = UINT64_MAX;

static uint64_t find_row(const sl_op_attrs *attrs, int32_t token)
{
    int64_t row = (int64_t)token - (int64_t)attrs->first_id;
    return row >= 0 && (uint64_t)row < attrs->id_count ? (uint64_t)row : NONE;
}

static void embed_token_rows(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const embed_job *job = argument;
    const uint64_t row_bytes = job->attrs->in * element_bytes(job);
    const sl_span rows = sl_tiles_span(job->attrs->batch * job->attrs->seq, TILE_ROWS, tile_index);
    for (uint64_t row = rows.first; row < rows.first + rows.count; row++) {
        uint64_t panel_row = find_row(job->attrs, job->tokens[row]);
        if (panel_row != NONE)
            sl_simd_current()->add(job->from + panel_row * row_bytes, job->to + row * row_bytes,
                                   (sl_type)job->attrs->type, job->attrs->in);
    }
}

sl_status sl_cpu_embed_tokens(const sl_kernel_call *call)
{
    embed_job job = {.attrs = call->attrs,
                     .tokens = call->operand[0],
                     .from = call->operand[1],
                     .to = call->operand[2]};
    const uint64_t rows = call->attrs->batch * call->attrs->seq;
    if (call->attrs->rank_index == 0)
        sl_workers_run(call->workers, sl_tiles_count(rows, TILE_ROWS), embed_token_rows, &job);
    return SL_OK;
}

/* A tile is a range of columns and visits all rows, so the rows of a token are added in order
 * whichever worker runs the tile. */
static void accumulate_token_columns(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const embed_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const sl_span columns = sl_tiles_span(attrs->in, TILE_COLUMNS, tile_index);
    float *panel = (float *)(void *)job->to + columns.first;
    if (!attrs->adds_output)
        for (uint64_t row = 0; row < attrs->id_count; row++)
            memset(panel + row * attrs->in, 0, columns.count * sizeof *panel);
    for (uint64_t row = 0; row < attrs->batch * attrs->seq; row++) {
        uint64_t panel_row = find_row(attrs, job->tokens[row]);
        if (panel_row != NONE)
            sl_simd_current()->add_to_float(
                job->from + (row * attrs->in + columns.first) * element_bytes(job),
                (sl_type)attrs->type, panel + panel_row * attrs->in, columns.count);
    }
}

sl_status sl_cpu_embed_tokens_backward(const sl_kernel_call *call)
{
    embed_job job = {.attrs = call->attrs,
                     .tokens = call->operand[0],
                     .from = call->operand[1],
                     .to = call->operand[2]};
    sl_workers_run(call->workers, sl_tiles_count(call->attrs->in, TILE_COLUMNS),
                   accumulate_token_columns, &job);
    return SL_OK;
}

static void sum_position_gradients(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const embed_job *job = argument;
    const uint64_t seq = job->attrs->seq, width = job->attrs->in;
    const sl_span positions = sl_tiles_span(seq, TILE_ROWS, tile_index);
    const uint64_t first = positions.first * width;
    const sl_strided_rows rows = {.x = job->from + first * element_bytes(job),
                                  .type = (sl_type)job->attrs->type,
                                  .row_count = job->attrs->batch,
                                  .width = positions.count * width,
                                  .stride = seq * width};
    sl_simd_current()->add_strided(&rows, (float *)(void *)job->to + first);
}

sl_status sl_cpu_embed_position_backward(const sl_kernel_call *call)
{
    embed_job job = {.attrs = call->attrs, .from = call->operand[0], .to = call->operand[1]};
    sl_workers_run(call->workers, sl_tiles_count(call->attrs->seq, TILE_ROWS),
                   sum_position_gradients, &job);
    return SL_OK;
}
