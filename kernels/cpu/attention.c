/* The attention ops: which heads and queries make a tile. Forward a tile is 64 queries of one head;
 * backward it is a whole head, because every key collects gradients from all later queries. */
#include "ops.h"

#include <string.h>

#include "kernels/dropout.h"
#include "simd.h"
#include "tiles.h"

enum { QUERIES = SL_ATTENTION_QUERIES, FLOATS_PER_LINE = 64 };

typedef struct attention_job {
    const sl_op_attrs *attrs;
    sl_type type;
    uint64_t element_bytes, head_width, position;
    const char *qkv, *y, *dy; /* places are in bytes */
    const float *lse;
    char *out; /* y or dqkv */
    float *out_lse;
    char *keys, *values; /* of the cache */
    bool is_masked;
    sl_attention_mask mask; /* of all rows and heads */
    float *scratch;
    uint64_t scratch_floats; /* of one worker */
    uint64_t factors_at;     /* in it, of dropout */
} attention_job;

/* Scratch bytes of the tiles, a multiple of 256. */
static uint64_t count_tile_scratch(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const uint64_t width = attrs->in / attrs->heads;
    const sl_type type = (sl_type)attrs->type;
    const uint64_t floats = kind == SL_OP_ATTENTION_BACKWARD
                                ? sl_simd_attention_backward_floats(type, attrs->seq, width)
                                : sl_simd_attention_floats(type, width);
    return sl_bits_round_up(floats, FLOATS_PER_LINE);
}

/* Scratch bytes of one worker, a multiple of 256. */
static uint64_t count_scratch(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const uint64_t factors = (uint64_t)SL_ATTENTION_KEYS * SL_ATTENTION_QUERIES;
    if (attrs->heads == 0)
        return 0;
    return count_tile_scratch(kind, attrs) + (attrs->dropout > 0 ? factors : 0);
}

uint64_t sl_cpu_attention_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                          uint32_t worker_count)
{
    return count_scratch(kind, attrs) * sizeof(float) * worker_count;
}

static void describe_mask(const sl_kernel_call *call, const int32_t *positions, attention_job *job)
{
    job->is_masked = positions != NULL || call->attrs->dropout > 0;
    job->mask.positions = positions;
    job->mask.dropout = sl_dropout_of(call);
    job->mask.head = (uint32_t)(call->attrs->rank_index * call->attrs->heads);
}

/* The mask of one head of one row. */
static sl_attention_mask find_mask(const attention_job *job, uint64_t row, uint64_t head,
                                   uint32_t worker_index)
{
    sl_attention_mask mask = job->mask;
    if (mask.positions != NULL)
        mask.positions += row * job->attrs->seq;
    mask.dropout.stream += row;
    mask.head += (uint32_t)head;
    mask.factors = job->scratch + worker_index * job->scratch_floats + job->factors_at;
    return mask;
}

static sl_status describe_job(const sl_kernel_call *call, sl_op_kind kind, attention_job *out_job)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->heads == 0 || attrs->in % attrs->heads != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu features over %llu heads",
                (unsigned long long)attrs->in, (unsigned long long)attrs->heads);
    *out_job = (attention_job){
        .attrs = attrs,
        .type = (sl_type)attrs->type,
        .element_bytes = sl_type_bytes((sl_type)attrs->type),
        .head_width = attrs->in / attrs->heads,
        .qkv = call->operand[0],
        .scratch = call->workspace,
        .scratch_floats = count_scratch(kind, attrs),
        .factors_at = count_tile_scratch(kind, attrs),
    };
    return SL_OK;
}

typedef struct head_place {
    uint64_t row_of_batch, head, tile_of_queries;
} head_place;

/* The last queries see the most keys. Their tiles come first, so that no long tile is left at the
 * end of the job. */
static head_place find_place(const sl_op_attrs *attrs, uint64_t tile_index)
{
    const uint64_t heads = attrs->batch * attrs->heads;
    const uint64_t query_tiles = sl_tiles_count(attrs->seq, QUERIES);
    const uint64_t head = tile_index % heads;
    return (head_place){head / attrs->heads, head % attrs->heads,
                        query_tiles - 1 - tile_index / heads};
}

static uint64_t count_query_tiles(const sl_op_attrs *attrs)
{
    return attrs->batch * attrs->heads * sl_tiles_count(attrs->seq, QUERIES);
}

static void attend(const attention_job *job, head_place place, sl_attention_tile tile,
                   uint32_t worker_index)
{
    const sl_op_attrs *attrs = job->attrs;
    const sl_span queries = sl_tiles_span(attrs->seq, QUERIES, place.tile_of_queries);
    const uint64_t row = place.row_of_batch * attrs->seq + queries.first;
    const uint64_t feature = place.head * job->head_width;
    tile.type = job->type;
    tile.q = job->qkv + (row * 3 * attrs->in + feature) * job->element_bytes;
    tile.q_row = 3 * attrs->in;
    tile.y = job->out + (row * attrs->in + feature) * job->element_bytes;
    tile.y_row = attrs->in;
    tile.query_count = queries.count;
    tile.first_query = job->position + queries.first;
    tile.head_width = job->head_width;
    tile.scratch = job->scratch + worker_index * job->scratch_floats;
    const sl_attention_mask mask = find_mask(job, place.row_of_batch, place.head, worker_index);
    tile.mask = job->is_masked ? &mask : NULL;
    if (job->out_lse != NULL)
        tile.lse = job->out_lse + (place.row_of_batch * attrs->heads + place.head) * attrs->seq +
                   queries.first;
    sl_simd_current()->attention_forward(&tile);
}

static void attend_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const head_place place = find_place(attrs, tile_index);
    const uint64_t first =
        place.row_of_batch * attrs->seq * 3 * attrs->in + place.head * job->head_width;
    const char *k = job->qkv + (first + attrs->in) * job->element_bytes;
    const sl_attention_tile tile = {
        .k = k, .v = k + attrs->in * job->element_bytes, .key_row = 3 * attrs->in};
    attend(job, place, tile, worker_index);
}

sl_status sl_cpu_attention(const sl_kernel_call *call)
{
    attention_job job;
    SL_TRY(describe_job(call, SL_OP_ATTENTION, &job));
    job.out = call->operand[1];
    job.out_lse = call->operand[2];
    describe_mask(call, call->operand[3], &job);
    sl_workers_run(call->workers, count_query_tiles(call->attrs), attend_tile, &job);
    return SL_OK;
}

/* Copies the new keys and values of one row of the batch into the cache. */
static void append_cache_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const uint64_t bytes = attrs->in * job->element_bytes;
    for (uint64_t t = 0; t < attrs->seq; t++) {
        const char *row = job->qkv + (tile_index * attrs->seq + t) * 3 * bytes;
        uint64_t cached = (tile_index * attrs->cache_rows + job->position + t) * bytes;
        memcpy(job->keys + cached, row + bytes, bytes);
        memcpy(job->values + cached, row + 2 * bytes, bytes);
    }
}

static void attend_cached_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const head_place place = find_place(attrs, tile_index);
    const uint64_t cached =
        (place.row_of_batch * attrs->cache_rows * attrs->in + place.head * job->head_width) *
        job->element_bytes;
    const sl_attention_tile tile = {
        .k = job->keys + cached, .v = job->values + cached, .key_row = attrs->in};
    attend(job, place, tile, worker_index);
}

sl_status sl_cpu_attention_cached(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    attention_job job;
    SL_TRY(describe_job(call, SL_OP_ATTENTION_CACHED, &job));
    job.position = call->scalars.position;
    if (job.position > attrs->cache_rows || attrs->seq > attrs->cache_rows - job.position)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu tokens do not fit a cache of %llu that holds %llu",
                (unsigned long long)attrs->seq, (unsigned long long)attrs->cache_rows,
                (unsigned long long)job.position);
    job.keys = call->operand[1];
    job.values = job.keys + attrs->batch * attrs->cache_rows * attrs->in * job.element_bytes;
    job.out = call->operand[2];
    sl_workers_run(call->workers, attrs->batch, append_cache_tile, &job);
    sl_workers_run(call->workers, count_query_tiles(attrs), attend_cached_tile, &job);
    return SL_OK;
}

static void differentiate_attention_head(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const uint64_t row = tile_index / attrs->heads * attrs->seq;
    const uint64_t feature = tile_index % attrs->heads * job->head_width;
    const uint64_t qkv = (row * 3 * attrs->in + feature) * job->element_bytes;
    const uint64_t y = (row * attrs->in + feature) * job->element_bytes;
    const uint64_t third = attrs->in * job->element_bytes;
    const sl_attention_mask mask =
        find_mask(job, tile_index / attrs->heads, tile_index % attrs->heads, worker_index);
    const sl_attention_head head = {
        .q = job->qkv + qkv,
        .k = job->qkv + qkv + third,
        .v = job->qkv + qkv + 2 * third,
        .y = job->y + y,
        .dy = job->dy + y,
        .lse = job->lse + tile_index * attrs->seq,
        .dq = job->out + qkv,
        .dk = job->out + qkv + third,
        .dv = job->out + qkv + 2 * third,
        .type = job->type,
        .qkv_row = 3 * attrs->in,
        .y_row = attrs->in,
        .seq = attrs->seq,
        .head_width = job->head_width,
        .mask = job->is_masked ? &mask : NULL,
        .scratch = job->scratch + worker_index * job->scratch_floats,
    };
    sl_simd_current()->attention_backward(&head);
}

sl_status sl_cpu_attention_backward(const sl_kernel_call *call)
{
    attention_job job;
    SL_TRY(describe_job(call, SL_OP_ATTENTION_BACKWARD, &job));
    job.y = call->operand[1];
    job.lse = call->operand[2];
    job.dy = call->operand[3];
    job.out = call->operand[4];
    describe_mask(call, call->operand[5], &job);
    sl_workers_run(call->workers, call->attrs->batch * call->attrs->heads,
                   differentiate_attention_head, &job);
    return SL_OK;
}
