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

/* What all three ops have: q, k and v in one operand. */
static sl_status open_args(const sl_kernel_call *call, sl_attention_args *out_args)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t in = attrs->in, rows = attrs->seq + call->scalars.position;
    if (attrs->heads == 0 || in == 0 || in % attrs->heads != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu features over %llu heads",
                (unsigned long long)in, (unsigned long long)attrs->heads);
    if (attrs->out != in)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu features and %llu of shared keys on a GPU",
                (unsigned long long)in, (unsigned long long)attrs->out);
    if (rows > INT32_MAX / 2 || in > INT32_MAX || attrs->batch * attrs->heads > INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "attention of %llu rows, %llu features and %llu heads",
                (unsigned long long)rows, (unsigned long long)in,
                (unsigned long long)(attrs->batch * attrs->heads));
    sl_attention_args args = {};
    args.q = call->operand[0];
    args.k = element(call, call->operand[0], in);
    args.v = element(call, call->operand[0], 2 * in);
    args.q_row = args.key_row = 3 * in;
    args.q_batch = args.key_batch = attrs->seq * 3 * in;
    args.heads = (uint32_t)attrs->heads;
    args.width = (uint32_t)(in / attrs->heads);
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
    sl_attention_args args;
    SL_TRY(open_args(call, &args));
    args.y = call->operand[1];
    args.lse = (float *)call->operand[2];
    open_mask(call, call->operand[3], &args);
    return attend(call, &args);
}

extern "C" sl_status sl_cuda_attention_backward(const sl_kernel_call *call)
{
    sl_attention_args args;
    SL_TRY(open_args(call, &args));
    args.y = call->operand[1];
    args.lse = (float *)call->operand[2];
    args.dy = call->operand[3];
    args.dots = (float *)call->workspace;
    args.dq = call->operand[4];
    args.dk = element(call, args.dq, call->attrs->in);
    args.dv = element(call, args.dq, 2 * call->attrs->in);
    open_mask(call, call->operand[5], &args);
    return uses_tensor_cores(call->attrs) ? sl_attention_tensor_backward(call, &args)
                                          : sl_attention_plain_backward(call, &args);
}

/* ---- the cache ---- */

typedef struct append_args {
    const void *qkv;
    void *cache;
    uint64_t batch, cache_rows, position;
    uint32_t seq, units; /* units: of a row of I elements */
} append_args;

/* Unit i of the new rows, of keys in blocks (., 0) and of values in blocks (., 1). */
template <typename unit>
static __global__ void __launch_bounds__(APPEND_THREADS) attention_append(append_args args)
{
    const uint32_t i = blockIdx.x * APPEND_THREADS + threadIdx.x, which = blockIdx.y;
    const uint32_t row = i / args.units, column = i % args.units;
    if (row >= args.batch * args.seq)
        return;
    const uint64_t batch = which * args.batch + row / args.seq;
    const uint64_t cached = batch * args.cache_rows + args.position + row % args.seq;
    ((unit *)args.cache)[cached * args.units + column] =
        ((const unit *)args.qkv)[((uint64_t)row * 3 + 1 + which) * args.units + column];
}

template <typename unit> static sl_status append(const sl_kernel_call *call, uint64_t row_bytes)
{
    const sl_op_attrs *attrs = call->attrs;
    const append_args args = {call->operand[0],
                              call->operand[1],
                              attrs->batch,
                              attrs->cache_rows,
                              call->scalars.position,
                              (uint32_t)attrs->seq,
                              (uint32_t)(row_bytes / sizeof(unit))};
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
    const uint64_t row_bytes = attrs->in * sl_type_bytes((sl_type)attrs->type);
    sl_attention_args args;
    SL_TRY(open_args(call, &args));
    args.position = call->scalars.position;
    if (args.position > attrs->cache_rows || attrs->seq > attrs->cache_rows - args.position)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu tokens do not fit a cache of %llu that holds %u",
                (unsigned long long)attrs->seq, (unsigned long long)attrs->cache_rows,
                args.position);
    SL_TRY(row_bytes % sizeof(uint4) == 0 ? append<uint4>(call, row_bytes)
                                          : append<uint16_t>(call, row_bytes));
    args.k = call->operand[1];
    args.v = element(call, args.k, attrs->batch * attrs->cache_rows * attrs->in);
    args.key_row = attrs->in;
    args.key_batch = attrs->cache_rows * attrs->in;
    args.y = call->operand[2];
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
