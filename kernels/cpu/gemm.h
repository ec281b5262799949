/* Matrix products over the worker pool. gemm.c alone knows which library does them; it is called
 * single-threaded on tiles that the shape fixes. */
#ifndef SL_KERNELS_CPU_GEMM_H
#define SL_KERNELS_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/workers.h"

/* C[m, n] (+)= op(A)[m, k] op(B)[k, n], then + bias[n], + residual[m, n] where they are not NULL.
 * All are dense and row-major: A is [m, k], or [k, m] if transpose_a; B is [k, n], or [n, k]. */
typedef struct sl_gemm {
    const float *a, *b;
    float *c;
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    bool add; /* to C, else overwrite it */
    const float *bias, *residual;
} sl_gemm;

/* Blocks until C is complete. SL_ERROR_SYSTEM if the library fails. */
sl_status sl_gemm_run(const sl_gemm *gemm, sl_workers *workers);

/* Runs one tile of this product on every worker, on memory of its own, so that the library has its
 * code and buffers. Only the sizes and the transpositions are read. */
sl_status sl_gemm_warm_up(const sl_gemm *gemm, sl_workers *workers);

/* "oneDNN 2.6.3" */
const char *sl_gemm_library(void);

#endif
