#ifndef SL_KERNELS_CPU_BLOCK_NORM_H
#define SL_KERNELS_CPU_BLOCK_NORM_H

#include "sluice/op_list.h"

/* BLOCK_NORM: one exact sum for each tile of blocks. */
uint64_t sl_block_norm_workspace_bytes(const sl_op_attrs *attrs);

#endif
