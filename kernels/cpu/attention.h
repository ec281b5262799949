#ifndef SL_KERNELS_CPU_ATTENTION_H
#define SL_KERNELS_CPU_ATTENTION_H

#include "sluice/op_list.h"

/* Scratch of the attention ops: one tile's worth for each worker. */
uint64_t sl_attention_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                      uint32_t worker_count);

#endif
