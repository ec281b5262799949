/* The six ops that are one matrix product each: the linear layer and the head, forward, gradient of
 * the input, gradient of the weight. */
#include <stddef.h>

#include "gemm.h"
#include "ops.h"
#include "partials.h"
#include "simd.h"

static sl_status run_product(const sl_kernel_call *call, sl_op_kind kind)
{
    const sl_product product = sl_product_of_call(kind, call);
    return sl_gemm_run(&product, call->workspace, call->workers);
}

sl_status sl_cpu_linear(const sl_kernel_call *call)
{
    return run_product(call, SL_OP_LINEAR);
}

sl_status sl_cpu_linear_input_backward(const sl_kernel_call *call)
{
    return run_product(call, SL_OP_LINEAR_INPUT_BACKWARD);
}

sl_status sl_cpu_head_logits(const sl_kernel_call *call)
{
    return run_product(call, SL_OP_HEAD_LOGITS);
}

sl_status sl_cpu_head_input_backward(const sl_kernel_call *call)
{
    return run_product(call, SL_OP_HEAD_INPUT_BACKWARD);
}

sl_status sl_cpu_head_weight_backward(const sl_kernel_call *call)
{
    return run_product(call, SL_OP_HEAD_WEIGHT_BACKWARD);
}

/* ---- the gradient of a bias */

typedef struct bias_job {
    const void *dy;
    sl_type type;
    float *partials; /* [tiles, width] */
    uint64_t row_count, width;
} bias_job;

static void sum_bias_rows(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const bias_job *job = argument;
    const sl_span rows =
        sl_tiles_span(job->row_count, sl_partials_rows(job->row_count), tile_index);
    const char *from = (const char *)job->dy + rows.first * job->width * sl_type_bytes(job->type);
    sl_simd_current()->column_sums(from, job->type, rows.count, job->width,
                                   job->partials + tile_index * job->width);
}

/* Runs after the product, if there is one, and reuses its workspace. */
static void sum_bias_gradient(const sl_kernel_call *call, const void *dy, void *dbias)
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
    sl_workers_run(call->workers, sums.count, sum_bias_rows, &job);
    sl_partials_add(call->workers, &sums);
}

sl_status sl_cpu_linear_weight_backward(const sl_kernel_call *call)
{
    if ((call->attrs->in > 0) != (call->operand[2] != NULL))
        SL_FAIL(SL_ERROR_INTERNAL, "dweight of %llu features, or none",
                (unsigned long long)call->attrs->in);
    if (call->attrs->in > 0) /* else only dbias is wanted */
        SL_TRY(run_product(call, SL_OP_LINEAR_WEIGHT_BACKWARD));
    if (call->operand[3] != NULL)
        sum_bias_gradient(call, call->operand[1], call->operand[3]);
    return SL_OK;
}

uint64_t sl_cpu_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                       uint32_t worker_count)
{
    sl_product product;
    if (!sl_product_of_op(kind, attrs, &product))
        return 0;
    const uint64_t packed = sl_gemm_workspace_bytes(&product, worker_count);
    if (kind != SL_OP_LINEAR_WEIGHT_BACKWARD)
        return packed;
    const uint64_t bias = sl_partials_count(attrs->row_count) * attrs->out * sizeof(float);
    return packed > bias ? packed : bias;
}
