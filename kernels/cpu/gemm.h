/* Matrix products over the worker pool, in fp32, bf16 and fp16.
 *
 * gemm.c cuts a product into rounds, strips and tiles, by its shape and the instruction set alone;
 * both operands are packed into strips in the workspace, and a micro-kernel (gemm_micro.h)
 * multiplies them. Sums are fp32 and rounded once to the type of C. Nothing is allocated.
 */
#ifndef SL_KERNELS_CPU_GEMM_H
#define SL_KERNELS_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/workers.h"
#include "sluice/op_list.h"

/* C[m, n] (+)= op(A)[m, k] op(B)[k, n], then + bias[n], + residual[m, n], times gelu'(gelu_x[m, n])
 * where they are not NULL. All are dense and row-major: A is [m, k], or [k, m] if transpose_a; B is
 * [k, n], or [n, k]. */
typedef struct sl_gemm {
    sl_type type;   /* of a, b, bias, residual and gelu_x */
    sl_type c_type; /* the same; or fp32, then without these three */
    const void *a, *b;
    void *c;
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    bool add; /* to C, else overwrite it */
    const void *bias, *residual, *gelu_x;
    void *workspace; /* 256-byte aligned, sl_gemm_workspace_bytes(...) long */
} sl_gemm;

/* Of sizes, types and transpositions alone; for any of the instruction sets of this processor. */
uint64_t sl_gemm_workspace_bytes(const sl_gemm *gemm, uint32_t worker_count);

/* Blocks until C is complete. SL_ERROR_INTERNAL for a product without rows, columns or terms, or
 * with a c_type that is not allowed. */
sl_status sl_gemm_run(const sl_gemm *gemm, sl_workers *workers);

#endif
