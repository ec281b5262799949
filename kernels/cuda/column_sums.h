/* Sums over the rows of a matrix. */
#ifndef SL_KERNELS_CUDA_COLUMN_SUMS_H
#define SL_KERNELS_CUDA_COLUMN_SUMS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

uint64_t sl_column_sums_workspace_bytes(uint64_t row_count, uint64_t width);

/* sums[width] += the sum over the rows of x[row_count, width], in call->workspace. */
sl_status sl_column_sums_add(const sl_kernel_call *call, const void *x, sl_type type,
                             uint64_t row_count, uint64_t width, float *sums);

#ifdef __cplusplus
}
#endif
#endif
