/* Matrix products over the worker pool, in fp32, bf16 and fp16. Nothing is allocated. */
#ifndef SL_KERNELS_CPU_GEMM_H
#define SL_KERNELS_CPU_GEMM_H

#include "base/workers.h"
#include "kernels/product.h"

/* Depends on sizes, types and transpositions alone, for the instruction set in use. */
uint64_t sl_gemm_workspace_bytes(const sl_product *product, uint32_t worker_count);

/* Blocks until C is complete. `workspace` is 256-byte aligned and has sl_gemm_workspace_bytes
 * bytes. Errors: sl_product_check. */
sl_status sl_gemm_run(const sl_product *product, void *workspace, sl_workers *workers);

#endif
