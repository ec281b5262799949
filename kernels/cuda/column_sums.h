/* Sums over the rows of a matrix. */
#ifndef SL_KERNELS_CUDA_COLUMN_SUMS_H
#define SL_KERNELS_CUDA_COLUMN_SUMS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

uint64_t sl_column_sums_workspace_bytes(uint64_t row_count, uint64_t width);

/* The sums over the rows of x [row_count, width], of attrs->type, in call->workspace: a gradient of
 * mode G (op_list.h), by attrs->adds_gradient and attrs->grad_type of the call. */
sl_status sl_column_sums_gather(const sl_kernel_call *call, const void *x, uint64_t row_count,
                                uint64_t width, void *sums);

#ifdef __cplusplus
}
#endif
#endif
