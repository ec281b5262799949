/* Token and position embeddings and their gradients. */
#include <string.h>

#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ROWS = 32, SUM_COLUMNS = 256 };

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

/* The rows of each token of a panel, in ascending order: a list in the workspace. */
typedef struct token_rows {
    uint32_t *first; /* [id_count]: of a row of the panel */
    uint32_t *next;  /* [batch * seq]: the row behind a row */
} token_rows;

static const uint32_t LAST = UINT32_MAX;

uint64_t sl_cpu_embed_tokens_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                      uint32_t worker_count)
{
    (void)kind, (void)worker_count;
    return (attrs->id_count + attrs->batch * attrs->seq) * sizeof(uint32_t);
}

static token_rows list_token_rows(const sl_op_attrs *attrs, const int32_t *tokens, void *workspace)
{
    const token_rows rows = {workspace, (uint32_t *)workspace + attrs->id_count};
    memset(rows.first, 0xff, attrs->id_count * sizeof *rows.first); /* LAST */
    for (uint64_t row = attrs->batch * attrs->seq; row-- > 0;) {
        const uint64_t panel_row = find_row(attrs, tokens[row]);
        if (panel_row == NONE)
            continue;
        rows.next[row] = rows.first[panel_row];
        rows.first[panel_row] = (uint32_t)row;
    }
    return rows;
}

typedef struct token_gradient {
    const sl_op_attrs *attrs;
    const char *dx;
    float *dpanel;
    token_rows rows;
} token_gradient;

static void add_rows(const token_gradient *job, uint64_t panel_row, sl_span columns, float *sums)
{
    const sl_type type = (sl_type)job->attrs->type;
    for (uint32_t row = job->rows.first[panel_row]; row != LAST; row = job->rows.next[row]) {
        const uint64_t element = row * job->attrs->in + columns.first;
        sl_simd_current()->add_to_float(job->dx + element * sl_type_bytes(type), type, sums,
                                        columns.count);
    }
}

/* The sum over a token's rows, added to its row of the panel. */
static void add_sum(const token_gradient *job, uint64_t panel_row)
{
    float sums[SUM_COLUMNS], *to = job->dpanel + panel_row * job->attrs->in;
    for (uint64_t i = 0; i < sl_tiles_count(job->attrs->in, SUM_COLUMNS); i++) {
        const sl_span columns = sl_tiles_span(job->attrs->in, SUM_COLUMNS, i);
        memset(sums, 0, columns.count * sizeof *sums);
        add_rows(job, panel_row, columns, sums);
        sl_simd_current()->add(sums, to + columns.first, SL_TYPE_FP32, columns.count);
    }
}

/* A tile is a range of the panel's rows. One that adds touches only rows that occur. */
static void accumulate_tokens(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const token_gradient *job = argument;
    const uint64_t width = job->attrs->in;
    const sl_span rows = sl_tiles_span(job->attrs->id_count, TILE_ROWS, tile_index);
    for (uint64_t row = rows.first; row < rows.first + rows.count; row++) {
        if (job->attrs->adds_output) {
            if (job->rows.first[row] != LAST)
                add_sum(job, row);
            continue;
        }
        memset(job->dpanel + row * width, 0, width * sizeof *job->dpanel);
        add_rows(job, row, (sl_span){0, width}, job->dpanel + row * width);
    }
}

sl_status sl_cpu_embed_tokens_backward(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->batch * attrs->seq >= LAST)
        SL_FAIL(SL_ERROR_INTERNAL, "the gradient of an embedding of %llu rows",
                (unsigned long long)(attrs->batch * attrs->seq));
    token_gradient job = {.attrs = attrs,
                          .dx = call->operand[1],
                          .dpanel = call->operand[2],
                          .rows = list_token_rows(attrs, call->operand[0], call->workspace)};
    sl_workers_run(call->workers, sl_tiles_count(attrs->id_count, TILE_ROWS), accumulate_tokens,
                   &job);
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
