/* Turns the call of an op into a matrix product. */
#include "product.h"

#include <stddef.h>

typedef enum size_name { NO_SIZE, ROWS, IN, OUT, IDS } size_name; /* of sl_op_attrs */
typedef enum matrix { NO_MATRIX, MATRIX_A, MATRIX_B, MATRIX_C } matrix;

/* Kinds of C: overwritten; an output that may be added to, in the compute type or in fp32; the
 * gradient of a parameter. */
typedef enum result_kind { WRITTEN, ADDED, ADDED_FP32, GRADIENT } result_kind;

typedef struct product_row {
    size_name m, n, k;
    bool transpose_a, transpose_b;
    result_kind result;
    matrix first_row;               /* the matrix that begins at attrs.first_row of a larger one */
    uint8_t a, b, c;                /* operands of the op */
    uint8_t bias, residual, gelu_x; /* operands; 0: none */
} product_row;

/* clang-format off */
static const product_row rows[SL_OP_COUNT] = {
    /*                                m     n    k     A^T B^T C           first_row  a  b  c  bias, residual, gelu_x */
    [SL_OP_LINEAR]                 = {ROWS, OUT, IN,   0,  0,  WRITTEN,    NO_MATRIX, 0, 1, 4, 2, 3, 0}, /* x W */
    [SL_OP_LINEAR_INPUT_BACKWARD]  = {ROWS, IN,  OUT,  0,  1,  ADDED,      NO_MATRIX, 0, 1, 2, 0, 0, 3}, /* dy W^T */
    [SL_OP_LINEAR_WEIGHT_BACKWARD] = {IN,   OUT, ROWS, 1,  0,  GRADIENT,   NO_MATRIX, 0, 1, 2, 0, 0, 0}, /* x^T dy */
    [SL_OP_HEAD_LOGITS]            = {ROWS, IDS, IN,   0,  1,  WRITTEN,    MATRIX_A,  0, 1, 2, 0, 0, 0}, /* x panel^T */
    [SL_OP_HEAD_INPUT_BACKWARD]    = {ROWS, IN,  IDS,  0,  0,  ADDED_FP32, MATRIX_C,  0, 1, 2, 0, 0, 0}, /* dlogits panel */
    [SL_OP_HEAD_WEIGHT_BACKWARD]   = {IDS,  IN,  ROWS, 1,  0,  GRADIENT,   MATRIX_B,  1, 0, 2, 0, 0, 0}, /* dlogits^T x */
};
/* clang-format on */

static uint64_t find_size(size_name name, const sl_op_attrs *attrs)
{
    return name == ROWS  ? attrs->row_count
           : name == IN  ? attrs->in
           : name == OUT ? attrs->out
                         : attrs->id_count;
}

enum { ALIGNMENT = 16 }; /* of the widest load; operands begin on 256 bytes */

/* The alignment that every row of x or dx has, so that row ranges of equal size are computed in the
 * same way. */
static uint32_t row_alignment(const sl_op_attrs *attrs, sl_type type)
{
    const uint64_t bytes = attrs->in * sl_type_bytes(type);
    return bytes % ALIGNMENT == 0 ? ALIGNMENT : (uint32_t)(bytes & -bytes);
}

bool sl_product_of_op(sl_op_kind kind, const sl_op_attrs *attrs, sl_product *out_product)
{
    const product_row *row = &rows[kind];
    if (row->m == NO_SIZE)
        return false;
    const sl_type type = (sl_type)attrs->type;
    const sl_type c_type = row->result == GRADIENT     ? (sl_type)attrs->grad_type
                           : row->result == ADDED_FP32 ? SL_TYPE_FP32
                                                       : type;
    *out_product = (sl_product){
        .type = type,
        .c_type = c_type,
        .m = find_size(row->m, attrs),
        .n = find_size(row->n, attrs),
        .k = find_size(row->k, attrs),
        .transpose_a = row->transpose_a,
        .transpose_b = row->transpose_b,
        .add = row->result != WRITTEN &&
               (row->result == GRADIENT ? attrs->adds_gradient : attrs->adds_output) != 0,
        .a_alignment = row->first_row == MATRIX_A ? row_alignment(attrs, type) : ALIGNMENT,
        .b_alignment = row->first_row == MATRIX_B ? row_alignment(attrs, type) : ALIGNMENT,
        .c_alignment = row->first_row == MATRIX_C ? row_alignment(attrs, c_type) : ALIGNMENT,
    };
    return true;
}

/* An operand of the call; from attrs.first_row on if `is_inside`. */
static void *find_matrix(const sl_kernel_call *call, uint8_t operand, sl_type type, bool is_inside)
{
    const uint64_t first = is_inside ? call->attrs->first_row * call->attrs->in : 0;
    return (char *)call->operand[operand] + first * sl_type_bytes(type);
}

sl_product sl_product_of_call(sl_op_kind kind, const sl_kernel_call *call)
{
    const product_row *row = &rows[kind];
    sl_product product = {0};
    sl_product_of_op(kind, call->attrs, &product);
    product.a = find_matrix(call, row->a, product.type, row->first_row == MATRIX_A);
    product.b = find_matrix(call, row->b, product.type, row->first_row == MATRIX_B);
    product.c = find_matrix(call, row->c, product.c_type, row->first_row == MATRIX_C);
    const bool is_first = call->attrs->rank_index == 0;
    product.bias = row->bias && is_first ? call->operand[row->bias] : NULL;
    product.residual = row->residual && is_first ? call->operand[row->residual] : NULL;
    product.gelu_x = row->gelu_x ? call->operand[row->gelu_x] : NULL;
    return product;
}

sl_status sl_product_check(const sl_product *product)
{
    if (product->m == 0 || product->n == 0 || product->k == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product without rows, columns or terms");
    const bool has_epilogue =
        product->bias != NULL || product->residual != NULL || product->gelu_x != NULL;
    if (product->c_type != product->type && (product->c_type != SL_TYPE_FP32 || has_epilogue))
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product of type %d into type %d%s", (int)product->type,
                (int)product->c_type, has_epilogue ? ", with bias, residual or GELU" : "");
    if (product->add && product->gelu_x != NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "a matrix product that adds to C and passes a GELU");
    return SL_OK;
}
