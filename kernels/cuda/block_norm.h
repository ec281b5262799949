#ifndef SL_KERNELS_CUDA_BLOCK_NORM_H
#define SL_KERNELS_CUDA_BLOCK_NORM_H

#include "sluice/op_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BLOCK_NORM: a float for each block. */
uint64_t sl_cuda_block_norm_workspace_bytes(const sl_op_attrs *attrs);

#ifdef __cplusplus
}
#endif
#endif
