/* The ops that are one matrix product each, whoever computes it. */
#ifndef SL_KERNELS_LINEAR_PRODUCT_H
#define SL_KERNELS_LINEAR_PRODUCT_H

#include <stdbool.h>

#include "sluice/op_list.h"

/* C[m, n] (+)= op(A)[m, k] op(B)[k, n]; A is [m, k], or [k, m] if transpose_a; B is [k, n], or
 * [n, k] if transpose_b. */
typedef struct sl_linear_product {
    sl_type type;   /* of A and B */
    sl_type c_type; /* the same, or fp32 */
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    bool add; /* to C, else overwrite it */
} sl_linear_product;

/* Writes the product that op `kind` is; false if it is none. */
bool sl_linear_product_of(sl_op_kind kind, const sl_op_attrs *attrs,
                          sl_linear_product *out_product);

#endif
