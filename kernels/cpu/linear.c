/* The six ops that are one matrix product each: the linear layer and the head, forward, gradient of
 * the input, gradient of the weight. */
#include "linear.h"

#include <stddef.h>

#include "gemm.h"
#include "kernels/linear_product.h"
#include "ops.h"
#include "partials.h"
#include "vector.h"

static bool describe(sl_op_kind kind, const sl_op_attrs *attrs, sl_gemm *out_gemm)
{
    sl_linear_product product;
    if (!sl_linear_product_of(kind, attrs, &product))
        return false;
    *out_gemm = (sl_gemm){.type = product.type,
                          .c_type = product.c_type,
                          .m = product.m,
                          .n = product.n,
                          .k = product.k,
                          .transpose_a = product.transpose_a,
                          .transpose_b = product.transpose_b,
                          .add = product.add};
    return true;
}

static sl_status multiply(const sl_kernel_call *call, sl_op_kind kind, const void *a, const void *b,
                          void *c)
{
    sl_gemm gemm;
    describe(kind, call->attrs, &gemm);
    gemm.a = a;
    gemm.b = b;
    gemm.c = c;
    gemm.workspace = call->workspace;
    if (kind == SL_OP_LINEAR) {
        gemm.bias = call->operand[2];
        gemm.residual = call->operand[3];
    }
    if (kind == SL_OP_LINEAR_INPUT_BACKWARD)
        gemm.gelu_x = call->operand[3];
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
    const void *dy;
    sl_type type;
    float *partials; /* [tiles, width] */
    uint64_t row_count, width;
} bias_job;

static void sum_rows(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const bias_job *job = argument;
    const sl_span rows =
        sl_tiles_span(job->row_count, sl_partials_rows(job->row_count), tile_index);
    const char *from = (const char *)job->dy + rows.first * job->width * sl_type_bytes(job->type);
    sl_vector_current()->column_sums(from, job->type, rows.count, job->width,
                                     job->partials + tile_index * job->width);
}

/* After the product, whose workspace it takes over. */
static void gather_bias(const sl_kernel_call *call, const void *dy, void *dbias)
{
    const sl_op_attrs *attrs = call->attrs;
    bias_job job = {dy, (sl_type)attrs->type, call->workspace, attrs->row_count, attrs->out};
    const sl_partials sums = {.partials = job.partials,
                              .count = sl_partials_count(attrs->row_count),
                              .stride = attrs->out,
                              .width = attrs->out,
                              .out = dbias,
                              .type = (sl_type)attrs->grad_type,
                              .add = attrs->adds_gradient};
    sl_workers_run(call->workers, sums.count, sum_rows, &job);
    sl_partials_gather(call->workers, &sums);
}

uint64_t sl_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t worker_count)
{
    sl_gemm gemm;
    if (!describe(kind, attrs, &gemm))
        return 0;
    const uint64_t product = sl_gemm_workspace_bytes(&gemm, worker_count);
    if (kind != SL_OP_LINEAR_WEIGHT_BACKWARD)
        return product;
    const uint64_t bias = sl_partials_count(attrs->row_count) * attrs->out * sizeof(float);
    return product > bias ? product : bias;
}

sl_status sl_op_linear_weight_backward(const sl_kernel_call *call)
{
    const void *dy = call->operand[1];
    SL_TRY(multiply(call, SL_OP_LINEAR_WEIGHT_BACKWARD, call->operand[0], dy, call->operand[2]));
    if (call->operand[3] != NULL)
        gather_bias(call, dy, call->operand[3]);
    return SL_OK;
}

/* x and dx of the head ops are whole: the rows of the call begin at first_row. */
static uint64_t first_byte(const sl_kernel_call *call, sl_type type)
{
    return call->attrs->first_row * call->attrs->in * sl_type_bytes(type);
}

sl_status sl_op_head_logits(const sl_kernel_call *call)
{
    const char *x = call->operand[0];
    return multiply(call, SL_OP_HEAD_LOGITS, x + first_byte(call, (sl_type)call->attrs->type),
                    call->operand[1], call->operand[2]);
}

sl_status sl_op_head_input_backward(const sl_kernel_call *call)
{
    char *dx = call->operand[2];
    return multiply(call, SL_OP_HEAD_INPUT_BACKWARD, call->operand[0], call->operand[1],
                    dx + first_byte(call, SL_TYPE_FP32));
}

sl_status sl_op_head_weight_backward(const sl_kernel_call *call)
{
    const char *x = call->operand[0];
    return multiply(call, SL_OP_HEAD_WEIGHT_BACKWARD, call->operand[1],
                    x + first_byte(call, (sl_type)call->attrs->type), call->operand[2]);
}
