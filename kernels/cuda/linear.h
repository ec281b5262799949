/* The ops that are matrix products, for those who size and prepare what they use. */
#ifndef SL_KERNELS_CUDA_LINEAR_H
#define SL_KERNELS_CUDA_LINEAR_H

#include "blas.h"

/* What cuBLASLt may use, or the sums of dbias; 0 for an op that is no product. */
uint64_t sl_cuda_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

/* Prepares every product that the op may turn out to be; none for an op that is no product. */
sl_status sl_cuda_linear_prepare(sl_blas *blas, sl_op_kind kind, const sl_op_attrs *attrs);

#endif
