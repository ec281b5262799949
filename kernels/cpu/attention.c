/* The attention ops: which heads and queries make a tile of work. Forward that is a block of
 * queries of one head, or with a cache a key head with a few queries of all its query heads;
 * backward a key head with all its query heads, because every key collects
 * gradients from all later queries. Query head h reads key head h / (query heads a key head). */
#include "ops.h"

#include <string.h>

#include "simd.h"
#include "tiles.h"

enum { BLOCK = SL_ATTENTION_BLOCK, WORDS_PER_LINE = 64 };

/* Where q, k and v of all rows begin, or their gradients: in one operand, side by side in each row,
 * or in three. Rows are elements apart. */
typedef struct attention_inputs {
    char *q, *k, *v;
    uint64_t q_row, key_row;
} attention_inputs;

typedef struct attention_job {
    const sl_op_attrs *attrs;
    sl_attention_shape shape;
    uint64_t element_bytes, position;
    uint64_t key_heads;
    attention_inputs in, gradient; /* places are in bytes */
    const char *y, *dy;
    const float *lse;
    char *out; /* y */
    float *out_lse;
    char *keys, *values; /* of the cache */
    bool is_masked;
    sl_attention_mask mask; /* of all rows and heads */
    uint32_t *scratch;
    uint64_t scratch_words; /* of one worker */
    uint64_t factors_at;    /* where dropout's factors begin in it, in words */
} attention_job;

static sl_attention_shape find_shape(const sl_op_attrs *attrs)
{
    const sl_type type = (sl_type)attrs->type;
    return sl_attention_shape_of(sl_simd_current()->micro_kernel[type], type,
                                 attrs->in / attrs->heads);
}

/* Scratch words of the tiles of one worker, whole lines. */
static uint64_t count_tile_scratch(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const sl_attention_shape shape = find_shape(attrs);
    const uint64_t block = sl_attention_room_of(&shape, attrs->seq).end;
    const uint64_t few = sl_attention_few_room_of(&shape).end;
    if (kind == SL_OP_ATTENTION_BACKWARD)
        return sl_bits_round_up(sl_attention_backward_room_of(&shape, attrs->seq).end,
                                WORDS_PER_LINE);
    return sl_bits_round_up(kind == SL_OP_ATTENTION_CACHED && few > block ? few : block,
                            WORDS_PER_LINE);
}

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
    return count_scratch(kind, attrs) * sizeof(uint32_t) * worker_count;
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
    mask.factors = (float *)(job->scratch + worker_index * job->scratch_words + job->factors_at);
    return mask;
}

static attention_inputs find_inputs(const sl_op_attrs *attrs, void *qkv, void *k, void *v)
{
    const uint64_t element_bytes = sl_type_bytes((sl_type)attrs->type);
    const uint64_t row = attrs->in + 2 * attrs->out;
    char *joined_k = (char *)qkv + attrs->in * element_bytes;
    if (attrs->is_separate)
        return (attention_inputs){qkv, k, v, attrs->in, attrs->out};
    return (attention_inputs){qkv, joined_k, joined_k + attrs->out * element_bytes, row, row};
}

static sl_status describe_job(const sl_kernel_call *call, sl_op_kind kind, attention_job *out_job)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->heads == 0 || attrs->out == 0 || attrs->in % attrs->out != 0 ||
        attrs->heads % (attrs->in / attrs->out) != 0 || attrs->in % attrs->heads != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu features, %llu of keys, over %llu heads",
                (unsigned long long)attrs->in, (unsigned long long)attrs->out,
                (unsigned long long)attrs->heads);
    *out_job = (attention_job){
        .attrs = attrs,
        .shape = find_shape(attrs),
        .element_bytes = sl_type_bytes((sl_type)attrs->type),
        .key_heads = attrs->heads / (attrs->in / attrs->out),
        .scratch = call->workspace,
        .scratch_words = count_scratch(kind, attrs),
        .factors_at = count_tile_scratch(kind, attrs),
    };
    return SL_OK;
}

typedef struct head_place {
    uint64_t row_of_batch, head, block;
} head_place;

/* The last queries see the most keys. Their blocks come first, so that no long one is left at the
 * end of the job. */
static head_place find_place(const sl_op_attrs *attrs, uint64_t tile_index)
{
    const uint64_t heads = attrs->batch * attrs->heads;
    const uint64_t blocks = sl_tiles_count(attrs->seq, BLOCK);
    const uint64_t head = tile_index % heads;
    return (head_place){head / attrs->heads, head % attrs->heads, blocks - 1 - tile_index / heads};
}

static uint64_t count_blocks(const sl_op_attrs *attrs)
{
    return attrs->batch * attrs->heads * sl_tiles_count(attrs->seq, BLOCK);
}

static uint64_t key_head_of(const attention_job *job, uint64_t head)
{
    return head / (job->attrs->heads / job->key_heads);
}

/* `keys` has k, v and key_row: where the row of the batch begins, and from row to row. */
static void attend(const attention_job *job, head_place place, sl_attention_block keys,
                   uint32_t worker_index)
{
    const sl_op_attrs *attrs = job->attrs;
    const uint64_t width = job->shape.width;
    const sl_span queries = sl_tiles_span(attrs->seq, BLOCK, place.block);
    const uint64_t row = place.row_of_batch * attrs->seq + queries.first;
    const uint64_t feature = place.head * width;
    const uint64_t key_feature = key_head_of(job, place.head) * width * job->element_bytes;
    const sl_attention_mask mask = find_mask(job, place.row_of_batch, place.head, worker_index);
    sl_attention_block block = keys;
    block.k = (const char *)keys.k + key_feature;
    block.v = (const char *)keys.v + key_feature;
    block.q = job->in.q + (row * job->in.q_row + feature) * job->element_bytes;
    block.q_row = job->in.q_row;
    block.y = job->out + (row * attrs->in + feature) * job->element_bytes;
    block.y_row = attrs->in;
    block.shape = job->shape;
    block.query_count = queries.count;
    block.first_query = job->position + queries.first;
    block.scratch = job->scratch + worker_index * job->scratch_words;
    block.mask = job->is_masked ? &mask : NULL;
    if (job->out_lse != NULL)
        block.lse = job->out_lse + (place.row_of_batch * attrs->heads + place.head) * attrs->seq +
                    queries.first;
    sl_simd_current()->attention_forward(&block);
}

static void attend_block(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const head_place place = find_place(attrs, tile_index);
    const uint64_t row = place.row_of_batch * attrs->seq * job->in.key_row * job->element_bytes;
    attend(job, place,
           (sl_attention_block){
               .k = job->in.k + row, .v = job->in.v + row, .key_row = job->in.key_row},
           worker_index);
}

sl_status sl_cpu_attention(const sl_kernel_call *call)
{
    attention_job job;
    SL_TRY(describe_job(call, SL_OP_ATTENTION, &job));
    job.in = find_inputs(call->attrs, call->operand[0], call->operand[4], call->operand[5]);
    job.out = call->operand[1];
    job.out_lse = call->operand[2];
    describe_mask(call, call->operand[3], &job);
    sl_workers_run(call->workers, count_blocks(call->attrs), attend_block, &job);
    return SL_OK;
}

/* Copies the new keys and values of one row of the batch into the cache. */
static void append_cache_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const uint64_t bytes = job->key_heads * job->shape.width * job->element_bytes;
    for (uint64_t t = 0; t < attrs->seq; t++) {
        const uint64_t row = (tile_index * attrs->seq + t) * job->in.key_row * job->element_bytes;
        uint64_t cached = (tile_index * attrs->cache_rows + job->position + t) * bytes;
        memcpy(job->keys + cached, job->in.k + row, bytes);
        memcpy(job->values + cached, job->in.v + row, bytes);
    }
}

static void attend_cached_block(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const head_place place = find_place(attrs, tile_index);
    const uint64_t key_row = job->key_heads * job->shape.width;
    const uint64_t row = place.row_of_batch * attrs->cache_rows * key_row * job->element_bytes;
    attend(job, place,
           (sl_attention_block){.k = job->keys + row, .v = job->values + row, .key_row = key_row},
           worker_index);
}

/* A key head with all its query heads. */
static void attend_few(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const uint64_t width = job->shape.width, query_heads = attrs->heads / job->key_heads;
    const uint64_t row_of_batch = tile_index / job->key_heads, head = tile_index % job->key_heads;
    const uint64_t key_row = job->key_heads * width, row = row_of_batch * attrs->seq;
    const uint64_t feature = head * query_heads * width;
    const uint64_t keys =
        (row_of_batch * attrs->cache_rows * key_row + head * width) * job->element_bytes;
    const sl_attention_few few = {
        .q = job->in.q + (row * job->in.q_row + feature) * job->element_bytes,
        .k = job->keys + keys,
        .v = job->values + keys,
        .q_row = job->in.q_row,
        .key_row = key_row,
        .y = job->out + (row * attrs->in + feature) * job->element_bytes,
        .y_row = attrs->in,
        .shape = job->shape,
        .query_count = attrs->seq,
        .query_heads = query_heads,
        .first_query = job->position,
        .scratch = job->scratch + worker_index * job->scratch_words,
    };
    sl_simd_current()->attention_few(&few);
}

/* True if all queries of a key head are a few. */
static bool is_few(const attention_job *job)
{
    return job->attrs->seq * (job->attrs->heads / job->key_heads) <= SL_ATTENTION_FEW;
}

sl_status sl_cpu_attention_cached(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    attention_job job;
    SL_TRY(describe_job(call, SL_OP_ATTENTION_CACHED, &job));
    job.in = find_inputs(attrs, call->operand[0], call->operand[3], call->operand[4]);
    job.position = call->scalars.position;
    if (job.position > attrs->cache_rows || attrs->seq > attrs->cache_rows - job.position)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu tokens do not fit a cache of %llu that holds %llu",
                (unsigned long long)attrs->seq, (unsigned long long)attrs->cache_rows,
                (unsigned long long)job.position);
    job.keys = call->operand[1];
    job.values = job.keys + attrs->batch * attrs->cache_rows * job.key_heads * job.shape.width *
                                job.element_bytes;
    job.out = call->operand[2];
    sl_workers_run(call->workers, attrs->batch, append_cache_tile, &job);
    if (is_few(&job))
        sl_workers_run(call->workers, attrs->batch * job.key_heads, attend_few, &job);
    else
        sl_workers_run(call->workers, count_blocks(attrs), attend_cached_block, &job);
    return SL_OK;
}

static void differentiate_head(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    const attention_job *job = argument;
    const sl_op_attrs *attrs = job->attrs;
    const uint64_t width = job->shape.width, query_heads = attrs->heads / job->key_heads;
    const uint64_t row_of_batch = tile_index / job->key_heads, row = row_of_batch * attrs->seq;
    const uint64_t key_head = tile_index % job->key_heads, head = key_head * query_heads;
    const uint64_t q = (row * job->in.q_row + head * width) * job->element_bytes;
    const uint64_t k = (row * job->in.key_row + key_head * width) * job->element_bytes;
    const uint64_t y = (row * attrs->in + head * width) * job->element_bytes;
    const sl_attention_mask mask = find_mask(job, row_of_batch, head, worker_index);
    const sl_attention_head one = {
        .q = job->in.q + q,
        .k = job->in.k + k,
        .v = job->in.v + k,
        .y = job->y + y,
        .dy = job->dy + y,
        .lse = job->lse + (row_of_batch * attrs->heads + head) * attrs->seq,
        .dq = job->gradient.q + q,
        .dk = job->gradient.k + k,
        .dv = job->gradient.v + k,
        .shape = job->shape,
        .q_row = job->in.q_row,
        .key_row = job->in.key_row,
        .y_row = attrs->in,
        .seq = attrs->seq,
        .query_heads = query_heads,
        .mask = job->is_masked ? &mask : NULL,
        .scratch = job->scratch + worker_index * job->scratch_words,
    };
    sl_simd_current()->attention_backward(&one);
}

sl_status sl_cpu_attention_backward(const sl_kernel_call *call)
{
    attention_job job;
    SL_TRY(describe_job(call, SL_OP_ATTENTION_BACKWARD, &job));
    job.in = find_inputs(call->attrs, call->operand[0], call->operand[6], call->operand[7]);
    job.gradient = find_inputs(call->attrs, call->operand[4], call->operand[8], call->operand[9]);
    job.y = call->operand[1];
    job.lse = call->operand[2];
    job.dy = call->operand[3];
    describe_mask(call, call->operand[5], &job);
    sl_workers_run(call->workers, call->attrs->batch * job.key_heads, differentiate_head, &job);
    return SL_OK;
}
