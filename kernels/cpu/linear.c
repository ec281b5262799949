/* The six ops that are one matrix product each: the linear layer and the head, forward, gradient of
 * the input, gradient of the weight. */
#include "linear.h"

#include <stddef.h>

#include "ops.h"
#include "partials.h"
#include "vector.h"

bool sl_linear_describe(sl_op_kind kind, const sl_op_attrs *attrs, sl_gemm *out_gemm)
{
    const uint64_t rows = attrs->row_count, in = attrs->in, out = attrs->out, ids = attrs->id_count;
    switch ((int)kind) {
    case SL_OP_LINEAR: /* x W */
        *out_gemm = (sl_gemm){.m = rows, .n = out, .k = in};
        return true;
    case SL_OP_LINEAR_INPUT_BACKWARD: /* dy W^T */
        *out_gemm = (sl_gemm){.m = rows, .n = in, .k = out, .transpose_b = true};
        out_gemm->add = attrs->accumulate != 0;
        return true;
    case SL_OP_LINEAR_WEIGHT_BACKWARD: /* x^T dy */
        *out_gemm = (sl_gemm){.m = in, .n = out, .k = rows, .transpose_a = true, .add = true};
        return true;
    case SL_OP_HEAD_LOGITS: /* x panel^T */
        *out_gemm = (sl_gemm){.m = rows, .n = ids, .k = in, .transpose_b = true};
        return true;
    case SL_OP_HEAD_INPUT_BACKWARD: /* dlogits panel */
        *out_gemm = (sl_gemm){.m = rows, .n = in, .k = ids};
        out_gemm->add = attrs->accumulate != 0;
        return true;
    case SL_OP_HEAD_WEIGHT_BACKWARD: /* dlogits^T x */
        *out_gemm = (sl_gemm){.m = ids, .n = in, .k = rows, .transpose_a = true, .add = true};
        return true;
    default:
        return false;
    }
}

static sl_status multiply(const sl_kernel_call *call, sl_op_kind kind, const float *a,
                          const float *b, float *c)
{
    sl_gemm gemm;
    sl_linear_describe(kind, call->attrs, &gemm);
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    if (kind == SL_OP_LINEAR) {
        gemm.bias = call->operand[2];
        gemm.residual = call->operand[3];
    }
    return sl_gemm_run(&gemm, call->workers);
}

sl_status sl_op_linear(const sl_kernel_call *call)
{
    return multiply(call, SL_OP_LINEAR, call->operand[0], call->operand[1], call->operand[4]);
}

sl_status sl_op_linear_input_backward(const sl_kernel_call *call)
{
    return multiply(call, SL_OP_LINEAR_INPUT_BACKWARD, call->operand[0], call->operand[1],
                    call->operand[2]);
}

typedef struct bias_job {
    const float *dy;
    float *partials; /* [tiles, width] */
    uint64_t row_count, width;
} bias_job;

static void sum_rows(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const bias_job *job = argument;
    const sl_span rows =
        sl_tiles_span(job->row_count, sl_partials_rows(job->row_count), tile_index);
    sl_vector_current()->column_sums(job->dy + rows.first * job->width, rows.count, job->width,
                                     job->partials + tile_index * job->width);
}

static void add_to_bias(const sl_kernel_call *call, const float *dy, float *dbias)
{
    const sl_op_attrs *attrs = call->attrs;
    bias_job job = {dy, call->workspace, attrs->row_count, attrs->out};
    uint64_t tiles = sl_partials_count(attrs->row_count);
    sl_workers_run(call->workers, tiles, sum_rows, &job);
    sl_partials_add(call->workers, job.partials, tiles, attrs->out, attrs->out, dbias);
}

uint64_t sl_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind != SL_OP_LINEAR_WEIGHT_BACKWARD)
        return 0;
    return sl_partials_count(attrs->row_count) * attrs->out * sizeof(float);
}

sl_status sl_op_linear_weight_backward(const sl_kernel_call *call)
{
    const float *dy = call->operand[1];
    SL_TRY(multiply(call, SL_OP_LINEAR_WEIGHT_BACKWARD, call->operand[0], dy, call->operand[2]));
    if (call->operand[3] != NULL)
        add_to_bias(call, dy, call->operand[3]);
    return SL_OK;
}

/* x and dx of the head ops are whole: the rows of the call begin at first_row. */
static uint64_t first_element(const sl_kernel_call *call)
{
    return call->attrs->first_row * call->attrs->in;
}

sl_status sl_op_head_logits(const sl_kernel_call *call)
{
    const float *x = call->operand[0];
    return multiply(call, SL_OP_HEAD_LOGITS, x + first_element(call), call->operand[1],
                    call->operand[2]);
}

sl_status sl_op_head_input_backward(const sl_kernel_call *call)
{
    float *dx = call->operand[2];
    return multiply(call, SL_OP_HEAD_INPUT_BACKWARD, call->operand[0], call->operand[1],
                    dx + first_element(call));
}

sl_status sl_op_head_weight_backward(const sl_kernel_call *call)
{
    const float *x = call->operand[0];
    return multiply(call, SL_OP_HEAD_WEIGHT_BACKWARD, call->operand[1], x + first_element(call),
                    call->operand[2]);
}
