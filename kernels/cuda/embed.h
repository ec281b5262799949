#ifndef SL_KERNELS_CUDA_EMBED_H
#define SL_KERNELS_CUDA_EMBED_H

#include "sluice/op_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* EMBED_TOKENS_BACKWARD: the rows of each token in their order, and the sums of frequent ones. */
uint64_t sl_cuda_embed_workspace_bytes(const sl_op_attrs *attrs);

#ifdef __cplusplus
}
#endif
#endif
