/* One matrix product on the device, and the kernels of our own that compute it.
 *
 * Sums are fp32 and rounded once to the type of C. cuBLASLt (blas.h) computes the same products
 * where it is found.
 */
#ifndef SL_KERNELS_CUDA_PRODUCT_H
#define SL_KERNELS_CUDA_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"
#include "kernels/linear_product.h"

/* C (+)= op(A) op(B), then + bias[n], + residual[m, n], times gelu'(gelu_x[m, n]) where they are
 * not NULL. All are dense and row-major. Bias, residual and gelu_x are of the type of A and B, and
 * so is C if there is one of them. */
typedef struct sl_product {
    sl_linear_product of;
    /* Bytes that a, b and c are aligned to, by the shape alone: 16, or less where the product
     * begins at a row inside of them. The others: 16. */
    uint32_t a_alignment, b_alignment, c_alignment;
    const void *a, *b;
    void *c; /* may be the residual */
    const void *bias, *residual, *gelu_x;
} sl_product;

/* SL_ERROR_INTERNAL for a product without rows, columns or terms, or too large for a grid. */
sl_status sl_product_run(const sl_kernel_call *call, const sl_product *product);

#ifdef __cplusplus
}
#endif
#endif
