#ifndef SL_KERNELS_CPU_NORM_H
#define SL_KERNELS_CPU_NORM_H

#include "sluice/op_list.h"

/* LAYERNORM_BACKWARD: the sums of dgamma and dbeta of each tile of rows. */
uint64_t sl_norm_workspace_bytes(const sl_op_attrs *attrs);

#endif
