/* Rotary positions: a tile is some tokens. */
#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ELEMENTS = 16384 };

typedef struct rotary_job {
    const char *x;
    char *y;
    const float *table;       /* [positions, 2, width / 2] */
    const int32_t *positions; /* [rows * seq]; NULL: from first_position on in each row */
    uint64_t token_count, seq, first_position, features;
    uint64_t last_position; /* of the table, read for positions that the table does not have */
    sl_rotary_heads heads;  /* of any token */
} rotary_job;

static uint64_t tile_tokens(const rotary_job *job)
{
    return 1 + TILE_ELEMENTS / job->features;
}

static void turn_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const rotary_job *job = argument;
    const sl_span tokens = sl_tiles_span(job->token_count, tile_tokens(job), tile_index);
    const uint64_t token_bytes = job->features * sl_type_bytes(job->heads.type);
    sl_rotary_heads heads = job->heads;
    for (uint64_t t = tokens.first; t < tokens.first + tokens.count; t++) {
        const uint64_t given =
            job->positions ? (uint64_t)job->positions[t] : job->first_position + t % job->seq;
        const uint64_t position = sl_bits_min(given, job->last_position);
        heads.x = job->x + t * token_bytes;
        heads.y = job->y + t * token_bytes;
        heads.cosines = job->table + position * heads.width;
        heads.sines = heads.cosines + heads.width / 2;
        sl_simd_current()->rotary(&heads);
    }
}

sl_status sl_cpu_rotary(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    rotary_job job = {
        .x = call->operand[0],
        .table = call->operand[1],
        .y = call->operand[2],
        .positions = call->operand[3],
        .token_count = attrs->batch * attrs->seq,
        .seq = attrs->seq,
        .first_position = call->scalars.position,
        .last_position = attrs->cache_rows - 1,
        .features = attrs->in,
        .heads = {.heads = attrs->heads,
                  .width = attrs->out,
                  .type = (sl_type)attrs->type,
                  .negates = attrs->negates != 0},
    };
    if (attrs->out % 2 != 0 || attrs->cache_rows == 0 || attrs->in != attrs->heads * attrs->out)
        SL_FAIL(SL_ERROR_INTERNAL, "rotary of %llu features over %llu heads of %llu",
                (unsigned long long)attrs->in, (unsigned long long)attrs->heads,
                (unsigned long long)attrs->out);
    if (job.first_position > attrs->cache_rows ||
        attrs->seq > attrs->cache_rows - job.first_position)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu tokens from position %llu on: a table of %llu",
                (unsigned long long)attrs->seq, (unsigned long long)job.first_position,
                (unsigned long long)attrs->cache_rows);
    sl_workers_run(call->workers, sl_tiles_count(job.token_count, tile_tokens(&job)), turn_tile,
                   &job);
    return SL_OK;
}
