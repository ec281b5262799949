/* The ops that are matrix products, for those who size what they use. */
#ifndef SL_KERNELS_CPU_LINEAR_H
#define SL_KERNELS_CPU_LINEAR_H

#include "sluice/op_list.h"

/* The packed operands and the sums of dbias; 0 for an op that is no product. */
uint64_t sl_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                   uint32_t worker_count);

#endif
