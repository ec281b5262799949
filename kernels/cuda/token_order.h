/* The rows of a batch, ordered by token: those of each id of a panel stand together, in row order.
 * Made by a counting sort of row indices (least digit first, Knuth 1973, 5.2.5), every step of
 * which is stable, so it depends on the tokens alone. */
#ifndef SL_KERNELS_CUDA_TOKEN_ORDER_H
#define SL_KERNELS_CUDA_TOKEN_ORDER_H

#include "kernels/kernels.h"

typedef struct sl_token_order {
    /* [batch * seq]: rows of the panel's tokens, id after id; then those of other tokens */
    const uint32_t *rows;
    /* [id_count + 1]: the rows of id i stand at bounds[i] up to bounds[i + 1] */
    const uint32_t *bounds;
} sl_token_order;

/* What sl_token_order_make needs, a multiple of 256. */
uint64_t sl_token_order_bytes(const sl_op_attrs *attrs);

/* Queues the making of *out_order, which lies in `workspace`; tokens is int32 [batch * seq] on the
 * device. SL_ERROR_INTERNAL from 2^31 rows or ids on. */
sl_status sl_token_order_make(const sl_kernel_call *call, const int32_t *tokens, void *workspace,
                              sl_token_order *out_order);

#endif
