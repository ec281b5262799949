/* Kernels by device kind: one body for every op of sluice/op_list.h.
 *
 * Contract of every kernel: it computes what op_list.h says, from call->operand in that order; it
 * allocates nothing, calls nothing that does, and touches only its operands and its workspace; its
 * result depends on shapes and inputs alone, not on addresses (256-byte aligned), workspace
 * content, or the number of workers. It returns SL_ERROR_INTERNAL for a shape that it does not
 * cover.
 */
#ifndef SL_KERNELS_KERNELS_H
#define SL_KERNELS_KERNELS_H

#include "base/queue.h"
#include "base/status.h"
#include "base/workers.h"
#include "sluice/op_list.h"

typedef struct sl_kernel_call {
    const sl_op_attrs *attrs;
    void *operand[SL_OPERAND_MAX]; /* NULL where absent */
    void *workspace;               /* 256-byte aligned, workspace_bytes(...) long */
    const uint8_t *block_flags;    /* ADAMW: flags of the whole group, one byte a block */
    sl_workers *workers;           /* cpu */
    void *stream;                  /* cuda */
    sl_step_scalars scalars;
} sl_kernel_call;

typedef sl_status (*sl_kernel)(const sl_kernel_call *call);

typedef struct sl_kernel_table {
    sl_kernel run[SL_OP_COUNT];
    /* Workspace of an op when `worker_count` workers run it. */
    uint64_t (*workspace_bytes)(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t worker_count);
    /* Takes whatever the kernels' libraries allocate lazily, on every worker, for one op's shapes;
     * called once for each distinct op before the first step. May allocate. */
    sl_status (*warm_up)(sl_op_kind kind, const sl_op_attrs *attrs, sl_workers *workers);
    const char *(*description)(void); /* the instruction set */
} sl_kernel_table;

const sl_kernel_table *sl_kernels_cpu(void);

#endif
