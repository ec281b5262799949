#ifndef SL_KERNELS_CUDA_HEAD_H
#define SL_KERNELS_CUDA_HEAD_H

#include "sluice/op_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* HEAD_LOSS: the sum of each group of rows. */
uint64_t sl_cuda_head_workspace_bytes(const sl_op_attrs *attrs);

#ifdef __cplusplus
}
#endif
#endif
