#ifndef SL_KERNELS_CUDA_EMBED_H
#define SL_KERNELS_CUDA_EMBED_H

#include "sluice/op_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the ops of embed*.cu; 0 for any other. EMBED_TOKENS_BACKWARD: the rows in the order of their
 * tokens, and sums of rows of frequent ones. */
uint64_t sl_cuda_embed_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

#ifdef __cplusplus
}
#endif
#endif
