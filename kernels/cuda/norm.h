#ifndef SL_KERNELS_CUDA_NORM_H
#define SL_KERNELS_CUDA_NORM_H

#include "sluice/op_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the ops of norm*.cu; 0 for any other. LAYERNORM_BACKWARD: the sums of dgamma and dbeta of each
 * group of rows. */
uint64_t sl_cuda_norm_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

#ifdef __cplusplus
}
#endif
#endif
