/* The six ops that are one matrix product each: the linear layer and the head, forward, gradient of
 * the input, gradient of the weight. By cuBLASLt, or by our own kernel where there is none. */
#include "library.h"

#include <stddef.h>

#include "ops.h"

uint64_t sl_cuda_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                        uint32_t worker_count)
{
    (void)worker_count;
    sl_product product;
    if (!sl_product_of_op(kind, attrs, &product))
        return 0;
    const uint64_t bytes = sl_blas_workspace_bytes(&product);
    if (kind != SL_OP_LINEAR_WEIGHT_BACKWARD)
        return bytes;
    const uint64_t bias = sl_cuda_column_sums_workspace_bytes(attrs->row_count, attrs->out);
    return bytes > bias ? bytes : bias;
}

sl_status sl_cuda_linear_prepare_product(sl_blas *blas, const sl_kernel_call *call,
                                         const sl_product *product)
{
    SL_TRY(sl_blas_prepare(blas, product));
    return call->workspace != NULL ? sl_blas_warm_up(blas, call, product) : SL_OK;
}

/* Sizes do not tell whether a linear layer has a bias, or its gradient a GELU to pass. Where there
 * are operands, B has room for a bias and C for the x of a GELU; their numbers do not count. */
sl_status sl_cuda_linear_prepare(sl_blas *blas, sl_op_kind kind, const sl_kernel_call *call)
{
    sl_product product;
    if (!sl_product_of_op(kind, call->attrs, &product) || call->attrs->in == 0)
        return SL_OK; /* `in` is 0 where only dbias is wanted: there is no product */
    if (call->workspace != NULL)
        product = sl_product_of_call(kind, call);
    product.bias = product.residual = product.gelu_x = NULL;
    SL_TRY(sl_cuda_linear_prepare_product(blas, call, &product));
    if (kind == SL_OP_LINEAR)
        product.bias = call->workspace != NULL ? product.b : &product;
    else if (kind == SL_OP_LINEAR_INPUT_BACKWARD && !product.add &&
             sl_blas_passes_gelu(blas, &product))
        product.gelu_x = call->workspace != NULL ? product.c : &product;
    else
        return SL_OK;
    return sl_cuda_linear_prepare_product(blas, call, &product);
}

static sl_status pass_gelu(const sl_kernel_call *call, const sl_product *product)
{
    const sl_op_attrs attrs = {.element_count = product->m * product->n,
                               .type = (uint16_t)product->type};
    sl_kernel_call pass = *call;
    pass.attrs = &attrs;
    pass.operand[0] = (void *)product->gelu_x;
    pass.operand[1] = product->c;
    return sl_cuda_gelu_backward(&pass);
}

static sl_status find_choice(const sl_blas *blas, const sl_product *product,
                             const sl_blas_choice **out_choice)
{
    *out_choice = sl_blas_find(blas, product);
    if (*out_choice == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "a product of %llu x %llu x %llu was not prepared",
                (unsigned long long)product->m, (unsigned long long)product->n,
                (unsigned long long)product->k);
    return SL_OK;
}

/* Where the library computes the product but does not pass the GELU: a kernel of ours does that
 * next. */
static sl_status run_then_pass_gelu(const sl_blas *blas, const sl_kernel_call *call,
                                    const sl_product *product)
{
    const sl_blas_choice *choice;
    sl_product plain = *product;
    plain.gelu_x = NULL;
    SL_TRY(find_choice(blas, &plain, &choice));
    if (sl_blas_is_own(choice))
        return sl_cuda_product_run(call, product);
    SL_TRY(sl_blas_run(blas, choice, call, &plain));
    return pass_gelu(call, product);
}

/* All that any of these ways may launch. Every operand seems to be there. */
static sl_status load_products(const sl_kernel_call *call, const sl_product *product)
{
    sl_product loaded = *product;
    if (loaded.add)
        loaded.gelu_x = NULL;
    SL_TRY(sl_cuda_product_run(call, &loaded));
    return loaded.gelu_x != NULL ? pass_gelu(call, &loaded) : SL_OK;
}

sl_status sl_cuda_linear_product(const sl_kernel_call *call, const sl_product *product)
{
    const sl_blas *blas = call->library ? call->library->blas : NULL;
    const sl_blas_choice *choice;
    if (call->stream == sl_load_only)
        return load_products(call, product);
    if (blas == NULL)
        return sl_cuda_product_run(call, product);
    if (product->gelu_x != NULL && !sl_blas_passes_gelu(blas, product))
        return run_then_pass_gelu(blas, call, product);
    SL_TRY(find_choice(blas, product, &choice));
    if (!sl_blas_is_own(choice))
        return sl_blas_run(blas, choice, call, product);
    return product->gelu_x != NULL ? run_then_pass_gelu(blas, call, product)
                                   : sl_cuda_product_run(call, product);
}

static sl_status run_op(const sl_kernel_call *call, sl_op_kind kind)
{
    const sl_product product = sl_product_of_call(kind, call);
    return sl_cuda_linear_product(call, &product);
}

sl_status sl_cuda_linear(const sl_kernel_call *call)
{
    return run_op(call, SL_OP_LINEAR);
}

sl_status sl_cuda_linear_input_backward(const sl_kernel_call *call)
{
    return run_op(call, SL_OP_LINEAR_INPUT_BACKWARD);
}

/* The sums of dbias take over the workspace of the product, which precedes them in the stream. */
sl_status sl_cuda_linear_weight_backward(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->in > 0) /* else only dbias is wanted */
        SL_TRY(run_op(call, SL_OP_LINEAR_WEIGHT_BACKWARD));
    if (call->operand[3] == NULL)
        return SL_OK;
    return sl_cuda_column_sums_run(call, call->operand[1], attrs->row_count, attrs->out,
                                   call->operand[3]);
}

sl_status sl_cuda_head_logits(const sl_kernel_call *call)
{
    return run_op(call, SL_OP_HEAD_LOGITS);
}

sl_status sl_cuda_head_input_backward(const sl_kernel_call *call)
{
    return run_op(call, SL_OP_HEAD_INPUT_BACKWARD);
}

sl_status sl_cuda_head_weight_backward(const sl_kernel_call *call)
{
    return run_op(call, SL_OP_HEAD_WEIGHT_BACKWARD);
}
