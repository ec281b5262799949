/* The ops that are matrix products, for those who size or warm up what they use. */
#ifndef SL_KERNELS_CPU_LINEAR_H
#define SL_KERNELS_CPU_LINEAR_H

#include "gemm.h"
#include "sluice/op_list.h"

/* Writes sizes, transpositions and `add` of the product that op `kind` is; false if it is none. */
bool sl_linear_describe(sl_op_kind kind, const sl_op_attrs *attrs, sl_gemm *out_gemm);

/* The sums of dbias. */
uint64_t sl_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

#endif
