#ifndef SL_KERNELS_CUDA_HEAD_H
#define SL_KERNELS_CUDA_HEAD_H

#include "sluice/op_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the ops of head*.cu; 0 for any other. HEAD_LOSS: the sum of each group of rows. */
uint64_t sl_cuda_head_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

#ifdef __cplusplus
}
#endif
#endif
