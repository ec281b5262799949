/* What orthogonalise.c is made of: kernels of muon.cu, on matrices of call->attrs. */
#ifndef SL_KERNELS_CUDA_NEWTON_SCHULZ_H
#define SL_KERNELS_CUDA_NEWTON_SCHULZ_H

#include "kernels/newton_schulz.h"

#ifdef __cplusplus
extern "C" {
#endif

/* sums: of each tile of x, and behind them what makes the first Y of x. */
sl_status sl_cuda_matrix_norm(const sl_kernel_call *call, const void *x, float *sums);
/* y: the first Y, of x and the sums. */
sl_status sl_cuda_matrix_begin(const sl_kernel_call *call, const void *x, const float *sums,
                               void *y);
/* In the place of G: B of a step. */
sl_status sl_cuda_matrix_quadratic(const sl_kernel_call *call, uint32_t step, void *gram,
                                   const float *square);
/* y: the result, of the last Y; may be its place if both are stored alike. */
sl_status sl_cuda_matrix_end(const sl_kernel_call *call, const void *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
