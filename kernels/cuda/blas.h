/* Products by cuBLASLt.
 *
 * For each product, by its sizes, types and transpositions, prepare queries the library's
 * heuristic once, with a workspace that follows from the sizes. It keeps the first algorithm, or
 * the one that a list names; the list was made before the run. So the results depend on shapes, the
 * machine and that list alone, and a step queries nothing. Only bench and profile time algorithms,
 * to make such a list (blas_time.h).
 *
 * What keeps a product's numbers the same and as precise as the other kernels':
 * - sums are fp32 (CUBLAS_COMPUTE_32F). Of fp32 operands it takes true fp32 products, no TF32:
 *   algorithms that would use it, or halves in its place, are refused by mask.
 * - if the terms are split over blocks (split-K), the partial sums are added in the workspace, in
 *   fp32, by a separate step; schemes that add in the result's own memory or type are refused.
 * - bias, residual and GELU are applied to the fp32 sums before they are rounded.
 *
 * A product for which the library has no such algorithm is computed by our own kernel.
 */
#ifndef SL_KERNELS_CUDA_BLAS_H
#define SL_KERNELS_CUDA_BLAS_H

#include "kernels/product.h"

typedef struct sl_blas sl_blas;               /* an open library with what was prepared */
typedef struct sl_blas_choice sl_blas_choice; /* how one product is computed */

/* What it costs to do without. */
#define SL_BLAS_COST                                                                               \
    "no matrix products on a GPU but by our own slower kernels, with --cuda-products own"

/* Opens cuBLASLt on the current device; options->algorithms is borrowed until the close.
 * SL_ERROR_SYSTEM: there is none, or it cannot use the device. */
sl_status sl_blas_open(const sl_cuda_options *options, sl_blas **out_blas);
void sl_blas_close(sl_blas *blas); /* NULL is fine */

/* Of sizes alone. */
uint64_t sl_blas_workspace_bytes(const sl_product *product);

/* True if the library may be asked to pass a GELU in the product's epilogue: of halves, for its
 * hyperbolic tangent may be a short one; with columns that it takes an x of; from compute
 * capability 9.0 on, for before that it is known to write bf16 twice (llm.c measured it); and not
 * if it was opened without epilogue (--cuda-epilogue off). */
bool sl_blas_passes_gelu(const sl_blas *blas, const sl_product *product);

/* Chooses for the product; its pointers count only as present or not. May allocate. */
sl_status sl_blas_prepare(sl_blas *blas, const sl_product *product);

/* Launches what was chosen for the product, unless that was done before, and waits for it: the
 * library loads its code when it is first launched, which takes device memory and may wait for all
 * that the GPU was given. What the operands hold does not count. C is zero afterwards; A and B hold
 * other numbers if algorithms were timed. An algorithm of the list that the library does
 * not launch is replaced by the library's first, with a warning. */
sl_status sl_blas_warm_up(sl_blas *blas, const sl_kernel_call *call, const sl_product *product);

/* What prepare chose, or NULL if it was not asked. */
const sl_blas_choice *sl_blas_find(const sl_blas *blas, const sl_product *product);

/* The product is left to sl_cuda_product_run. */
bool sl_blas_is_own(const sl_blas_choice *choice);

/* Queues the product in call->stream. Allocates nothing of ours. */
sl_status sl_blas_run(const sl_blas *blas, const sl_blas_choice *choice, const sl_kernel_call *call,
                      const sl_product *product);

/* The choices as text, in an order of their own, for what is recorded of a run: "768x3072x1024 bf16
 * NT bias: algorithm 66, tile 20, ..."; NULL from `index` = their number on. */
const char *sl_blas_text(const sl_blas *blas, uint64_t index);

#endif
