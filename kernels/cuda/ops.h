/* The kernels of this room, one for each op, and their workspaces: the entries of table.c. Their
 * contract is in kernels/kernels.h; workspaces do not depend on `worker_count`. */
#ifndef SL_KERNELS_CUDA_OPS_H
#define SL_KERNELS_CUDA_OPS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/product.h"

#define X(NAME, name, ...) sl_status sl_cuda_##name(const sl_kernel_call *call);
SL_OP_LIST(X)
#undef X
#define X(NAME, name) sl_status sl_cuda_ranks_##name(const sl_kernel_call *call);
SL_RANK_KERNEL_LIST(X)
#undef X

/* What cuBLASLt may use, and the sums of dbias. */
uint64_t sl_cuda_linear_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                        uint32_t worker_count);

/* The matrices between the steps, and what their products take. */
uint64_t sl_cuda_orthogonalise_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                               uint32_t worker_count);

/* Partial results and dot products; a multiple of 256. */
uint64_t sl_cuda_attention_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                           uint32_t worker_count);

/* The sums of dgamma and dbeta of each group of rows. */
uint64_t sl_cuda_layernorm_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                    uint32_t worker_count);

/* The sums of dgamma of each group of rows. */
uint64_t sl_cuda_rmsnorm_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                  uint32_t worker_count);

/* The sum of each group of rows. */
uint64_t sl_cuda_head_loss_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                           uint32_t worker_count);

/* The rows in the order of their tokens, and sums of rows of frequent ones. */
uint64_t sl_cuda_embed_tokens_backward_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                                       uint32_t worker_count);

/* A float for each block. */
uint64_t sl_cuda_block_norm_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                            uint32_t worker_count);

/* Which of this room's code is loaded (kernels.h). */
sl_status sl_cuda_image(sl_kernel_image *out_image);

/* ---- what linear.c makes its ops of ---- */

/* A product by cuBLASLt or by our own kernels, whatever the call's library has; prepared before
 * (sl_cuda_linear_prepare_product). */
sl_status sl_cuda_linear_product(const sl_kernel_call *call, const sl_product *product);

/* A product by our own kernels (cuBLASLt, blas.h, computes the same where it is found). Returns
 * what sl_product_check does, and SL_ERROR_INTERNAL for a product too large for a grid. */
sl_status sl_cuda_product_run(const sl_kernel_call *call, const sl_product *product);

/* The sums over the rows of x [row_count, width], of attrs->type, in call->workspace: a gradient of
 * mode GRADIENT (op_list.h), by attrs->adds_gradient and attrs->grad_type of the call. */
sl_status sl_cuda_column_sums_run(const sl_kernel_call *call, const void *x, uint64_t row_count,
                                  uint64_t width, void *sums);
uint64_t sl_cuda_column_sums_workspace_bytes(uint64_t row_count, uint64_t width);

/* ---- loading ---- */

/* In the place of a call's stream: whatever the op would launch is loaded instead. Its operands are
 * addresses that nobody follows. */
extern char sl_load_only[];

#ifdef __cplusplus
}
#endif
#endif
