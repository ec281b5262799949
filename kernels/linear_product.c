/* Linear layer and head: forward, gradient of the input, gradient of the weight. */
#include "linear_product.h"

static sl_type find_c_type(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind == SL_OP_HEAD_INPUT_BACKWARD)
        return SL_TYPE_FP32;
    const bool is_stored =
        kind == SL_OP_LINEAR_WEIGHT_BACKWARD || kind == SL_OP_HEAD_WEIGHT_BACKWARD;
    return (sl_type)(is_stored ? attrs->grad_type : attrs->type);
}

bool sl_linear_product_of(sl_op_kind kind, const sl_op_attrs *attrs, sl_linear_product *out_product)
{
    const uint64_t rows = attrs->row_count, in = attrs->in, out = attrs->out, ids = attrs->id_count;
    const bool accumulate = attrs->adds_output != 0;
    sl_linear_product product = {0};
    switch ((int)kind) {
    case SL_OP_LINEAR: /* x W */
        product = (sl_linear_product){.m = rows, .n = out, .k = in};
        break;
    case SL_OP_LINEAR_INPUT_BACKWARD: /* dy W^T */
        product = (sl_linear_product){.m = rows, .n = in, .k = out, .transpose_b = true};
        product.add = accumulate;
        break;
    case SL_OP_LINEAR_WEIGHT_BACKWARD: /* x^T dy */
        product = (sl_linear_product){.m = in, .n = out, .k = rows, .transpose_a = true};
        product.add = attrs->adds_gradient;
        break;
    case SL_OP_HEAD_LOGITS: /* x panel^T */
        product = (sl_linear_product){.m = rows, .n = ids, .k = in, .transpose_b = true};
        break;
    case SL_OP_HEAD_INPUT_BACKWARD: /* dlogits panel */
        product = (sl_linear_product){.m = rows, .n = in, .k = ids, .add = accumulate};
        break;
    case SL_OP_HEAD_WEIGHT_BACKWARD: /* dlogits^T x */
        product = (sl_linear_product){.m = ids, .n = in, .k = rows, .transpose_a = true};
        product.add = attrs->adds_gradient;
        break;
    default:
        return false;
    }
    product.type = (sl_type)attrs->type;
    product.c_type = find_c_type(kind, attrs);
    *out_product = product;
    return true;
}
