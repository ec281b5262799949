/* One matrix product, and which product an op is: the linear layer and the head, each forward, for
 * the gradient of its input and for that of its weight. A product passes these files in this order:
 *
 *   product.c                   an op's call becomes a product: sizes, types, operands
 *   cpu/linear.c, cpu/gemm.c    cuts it into tiles by its shape, packs, hands tiles to workers
 *   cpu/simd/gemm*.c            packs and multiplies in registers; contract: cpu/micro_kernel.h
 *   cuda/linear.c, cuda/blas.c  cuBLASLt, or where there is none, own kernels: cuda/product.cu
 */
#ifndef SL_KERNELS_PRODUCT_H
#define SL_KERNELS_PRODUCT_H

#include <stdbool.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C[m, n] (+)= op(A)[m, k] op(B)[k, n], then + bias[n], + residual[m, n], times gelu'(gelu_x[m,
 * n]), each only if not NULL. Sums are fp32 and rounded once to the type of C. All matrices are
 * dense and row-major: A is [m, k], or [k, m] if transpose_a; B is [k, n], or [n, k] if
 * transpose_b. */
typedef struct sl_product {
    sl_type type;   /* of a, b, bias, residual and gelu_x */
    sl_type c_type; /* the same; or fp32, without bias, residual and gelu_x */
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    bool add; /* add to C instead of overwriting it; excludes gelu_x */
    /* Alignment of a, b and c in bytes, by the shape alone: 16, or less if the product begins at a
     * row inside the matrix. Other operands: 16. */
    uint32_t a_alignment, b_alignment, c_alignment;
    const void *a, *b;
    void *c; /* may be the residual */
    const void *bias, *residual, *gelu_x;
} sl_product;

/* Writes the product of op `kind`, without operands; false if the op is no product. */
bool sl_product_of_op(sl_op_kind kind, const sl_op_attrs *attrs, sl_product *out_product);

/* The product of a call of an op that is a product. */
sl_product sl_product_of_call(sl_op_kind kind, const sl_kernel_call *call);

/* SL_ERROR_INTERNAL for a product without rows, columns or terms, or with types or options that
 * exclude each other. */
sl_status sl_product_check(const sl_product *product);

#ifdef __cplusplus
}
#endif
#endif
