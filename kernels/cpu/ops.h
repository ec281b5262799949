/* The kernels of this room, one for each op, and their workspaces: the entries of table.c. Their
 * contract is in kernels/kernels.h. */
#ifndef SL_KERNELS_CPU_OPS_H
#define SL_KERNELS_CPU_OPS_H

#include "kernels/kernels.h"

#define X(NAME, name, ...) sl_status sl_cpu_##name(const sl_kernel_call *call);
SL_OP_LIST(X)
#undef X
#define X(NAME, name) sl_status sl_cpu_ranks_##name(const sl_kernel_call *call);
SL_RANK_KERNEL_LIST(X)
#undef X

/* The matrices between the steps, and what their products take. */
uint64_t sl_cpu_orthogonalise_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                              uint32_t worker_count);

/* The packed operands of the product, and the sums of dbias. */
uint64_t sl_cpu_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                       uint32_t worker_count);

/* The scratch of one tile for each worker. */
uint64_t sl_cpu_attention_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                          uint32_t worker_count);

/* The sums of dgamma and dbeta of each tile of rows. */
uint64_t sl_cpu_layernorm_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                   uint32_t worker_count);

/* The sums of dgamma of each tile of rows. */
uint64_t sl_cpu_rmsnorm_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                 uint32_t worker_count);

/* The rows of each token, as a list. */
uint64_t sl_cpu_embed_tokens_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                      uint32_t worker_count);

/* Rows in fp32 for each worker, the weight in fp32, and the gradient of each tile of rows. */
uint64_t sl_cpu_custom_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                       uint32_t worker_count);

/* One exact sum for each tile of blocks. */
uint64_t sl_cpu_block_norm_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                           uint32_t worker_count);

#endif
