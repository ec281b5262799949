/* What the table asks of the attention kernels besides running them. */
#ifndef SL_KERNELS_CUDA_ATTENTION_H
#define SL_KERNELS_CUDA_ATTENTION_H

#include "kernels/kernels.h"

/* Workspace of an attention op in bytes, a multiple of 256; 0 for other ops. */
uint64_t sl_cuda_attention_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

/* Lets the open device's kernels of an attention op have the shared memory that they launch with;
 * does nothing for other ops. */
sl_status sl_cuda_attention_prepare(sl_op_kind kind, const sl_op_attrs *attrs);

#endif
