/* The attention ops: checks a call's operands and chooses its kernels; the cache. */
#include "attention.cuh"

#include <math.h>

extern "C" {
#include "library.h"
}

enum { APPEND_THREADS = 256 };

/* Widths that tensor cores take; rows of theirs are 16-byte aligned. */
static bool uses_tensor_cores(const sl_op_attrs *attrs)
{
    const uint64_t width = attrs->in / attrs->heads;
    return attrs->type != SL_TYPE_FP32 && width % 8 == 0 && width <= 256;
}

static bool is_split(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return kind == SL_OP_ATTENTION_CACHED && attrs->seq <= SL_ATTENTION_FEW;
}

/* Element `index` of an operand of the call's type. */
static void *element(const sl_kernel_call *call, const void *operand, uint64_t index)
{
    return (char *)operand + index * sl_type_bytes((sl_type)call->attrs->type);
}

/* What takes part in attention beside causality. */
static void open_mask(const sl_kernel_call *call, const void *positions, sl_attention_args *args)
{
    args->positions = (const int32_t *)positions;
    args->dropout = sl_dropout_of(call);
    args->first_head = (uint32_t)(call->attrs->rank_index * call->attrs->heads);
}

/* Whether heads are of whole features, and keys of whole heads that as many heads of q share. */
static sl_status check_heads(const sl_op_attrs *attrs)
{
    const uint64_t in = attrs->in, out = attrs->out, heads = attrs->heads;
    if (heads == 0 || in == 0 || in % heads != 0 || out == 0 || out % (in / heads) != 0 ||
        in % out != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu features over %llu heads, keys of %llu",
                (unsigned long long)in, (unsigned long long)heads, (unsigned long long)out);
    return SL_OK;
}

/* Where q, k and v begin, or their gradients: side by side in each row of `qkv`, or each in an
 * operand of its own. */
typedef struct attention_inputs {
    void *q, *k, *v;
} attention_inputs;

static attention_inputs find_inputs(const sl_kernel_call *call, void *qkv, void *k, void *v)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->is_separate)
        return {qkv, k, v};
    return {qkv, element(call, qkv, attrs->in), element(call, qkv, attrs->in + attrs->out)};
}

/* What all three ops have. */
static sl_status open_args(const sl_kernel_call *call, const attention_inputs &inputs,
                           sl_attention_args *out_args)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t in = attrs->in, rows = attrs->seq + call->scalars.position;
    SL_TRY(check_heads(attrs));
    if (rows > INT32_MAX / 2 || in > INT32_MAX || attrs->batch * attrs->heads > INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu rows, %llu features and %llu heads",
                (unsigned long long)rows, (unsigned long long)in,
                (unsigned long long)(attrs->batch * attrs->heads));
    sl_attention_args args = {};
    args.q = inputs.q;
    args.k = inputs.k;
    args.v = inputs.v;
    args.q_row = attrs->is_separate ? in : in + 2 * attrs->out;
    args.key_row = attrs->is_separate ? attrs->out : args.q_row;
    args.q_batch = attrs->seq * args.q_row;
    args.key_batch = attrs->seq * args.key_row;
    args.heads = (uint32_t)attrs->heads;
    args.width = (uint32_t)(in / attrs->heads);
    args.group = (uint32_t)(in / attrs->out);
    args.query_count = (uint32_t)attrs->seq;
    args.head_count = (uint32_t)(attrs->batch * attrs->heads);
    args.scale = 1.0f / sqrtf((float)args.width);
    *out_args = args;
    return SL_OK;
}

static sl_status attend(const sl_kernel_call *call, const sl_attention_args *args)
{
    return uses_tensor_cores(call->attrs) ? sl_attention_tensor_forward(call, args)
                                          : sl_attention_plain_forward(call, args);
}

extern "C" sl_status sl_cuda_attention(const sl_kernel_call *call)
{
    enum { QKV, Y, LSE, POSITIONS, K, V };
    sl_attention_args args;
    SL_TRY(open_args(
        call, find_inputs(call, call->operand[QKV], call->operand[K], call->operand[V]), &args));
    args.y = call->operand[Y];
    args.lse = (float *)call->operand[LSE];
    open_mask(call, call->operand[POSITIONS], &args);
    return attend(call, &args);
}

extern "C" sl_status sl_cuda_attention_backward(const sl_kernel_call *call)
{
    enum { QKV, Y, LSE, DY, DQKV, POSITIONS, K, V, DK, DV };
    const attention_inputs gradients =
        find_inputs(call, call->operand[DQKV], call->operand[DK], call->operand[DV]);
    sl_attention_args args;
    SL_TRY(open_args(
        call, find_inputs(call, call->operand[QKV], call->operand[K], call->operand[V]), &args));
    args.y = call->operand[Y];
    args.lse = (float *)call->operand[LSE];
    args.dy = call->operand[DY];
    args.dots = (float *)call->workspace;
    args.dq = gradients.q;
    args.dk = gradients.k;
    args.dv = gradients.v;
    open_mask(call, call->operand[POSITIONS], &args);
    return uses_tensor_cores(call->attrs) ? sl_attention_tensor_backward(call, &args)
                                          : sl_attention_plain_backward(call, &args);
}

/* ---- the cache ---- */

typedef struct append_args {
    const void *keys, *values; /* of the new rows */
    void *cache;
    uint64_t batch, cache_rows, position;
    uint32_t seq, units; /* units: of a cached row */
    uint32_t row_units;  /* from one of the new rows to the next */
} append_args;

/* Unit i of the new rows, of keys in blocks (., 0) and of values in blocks (., 1). */
template <typename unit>
static __global__ void __launch_bounds__(APPEND_THREADS) attention_append(append_args args)
{
    const uint32_t i = blockIdx.x * APPEND_THREADS + threadIdx.x, which = blockIdx.y;
    const uint32_t row = i / args.units, column = i % args.units;
    const unit *from = (const unit *)(which ? args.values : args.keys);
    if (row >= args.batch * args.seq)
        return;
    const uint64_t batch = which * args.batch + row / args.seq;
    const uint64_t cached = batch * args.cache_rows + args.position + row % args.seq;
    ((unit *)args.cache)[cached * args.units + column] =
        from[(uint64_t)row * args.row_units + column];
}

/* Keys and values of the new rows, those of `attention`, become those behind them in the cache. */
template <typename unit>
static sl_status append(const sl_kernel_call *call, const sl_attention_args *attention)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t element_bytes = sl_type_bytes((sl_type)attrs->type);
    const append_args args = {attention->k,
                              attention->v,
                              call->operand[1],
                              attrs->batch,
                              attrs->cache_rows,
                              call->scalars.position,
                              (uint32_t)attrs->seq,
                              (uint32_t)(attrs->out * element_bytes / sizeof(unit)),
                              (uint32_t)(attention->key_row * element_bytes / sizeof(unit))};
    const uint64_t blocks =
        (attrs->batch * attrs->seq * args.units + APPEND_THREADS - 1) / APPEND_THREADS;
    if (blocks > UINT32_MAX / APPEND_THREADS) /* the kernel counts units in 32 bits */
        SL_FAIL(SL_ERROR_INTERNAL, "a cache takes %llu rows at once",
                (unsigned long long)(attrs->batch * attrs->seq));
    return SL_LAUNCH(call, dim3((uint32_t)blocks, 2), APPEND_THREADS, 0, (attention_append<unit>),
                     args);
}

extern "C" sl_status sl_cuda_attention_cached(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t row_bytes = attrs->out * sl_type_bytes((sl_type)attrs->type);
    enum { QKV, CACHE, Y, K, V };
    sl_attention_args args;
    SL_TRY(open_args(
        call, find_inputs(call, call->operand[QKV], call->operand[K], call->operand[V]), &args));
    args.position = call->scalars.position;
    if (args.position > attrs->cache_rows || attrs->seq > attrs->cache_rows - args.position)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu tokens do not fit a cache of %llu that holds %u",
                (unsigned long long)attrs->seq, (unsigned long long)attrs->cache_rows,
                args.position);
    SL_TRY(row_bytes % sizeof(uint4) == 0 ? append<uint4>(call, &args)
                                          : append<uint16_t>(call, &args));
    args.k = call->operand[CACHE];
    args.v = element(call, args.k, attrs->batch * attrs->cache_rows * attrs->out);
    args.key_row = attrs->out;
    args.key_batch = attrs->cache_rows * attrs->out;
    args.y = call->operand[Y];
    return is_split(SL_OP_ATTENTION_CACHED, attrs) ? sl_attention_split(call, &args)
                                                   : attend(call, &args);
}

/* ---- what the table asks ---- */

extern "C" uint64_t sl_cuda_attention_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                      uint32_t)
{
    uint64_t bytes = 0;
    if (attrs->heads == 0)
        return 0;
    if (kind == SL_OP_ATTENTION_BACKWARD)
        bytes = attrs->batch * attrs->heads * attrs->seq * sizeof(float);
    else if (is_split(kind, attrs))
        bytes = sl_attention_split_bytes(attrs);
    return (bytes + 255) / 256 * 256;
}

extern "C" sl_status sl_cuda_attention_prepare(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const bool is_ours = kind == SL_OP_ATTENTION || kind == SL_OP_ATTENTION_BACKWARD ||
                         kind == SL_OP_ATTENTION_CACHED;
    if (!is_ours || attrs->heads == 0 || is_split(kind, attrs) || !uses_tensor_cores(attrs))
        return SL_OK;
    return kind == SL_OP_ATTENTION_BACKWARD ? sl_attention_tensor_prepare_backward(attrs)
                                            : sl_attention_tensor_prepare_forward(attrs);
}
