/* Times the algorithms that cuBLASLt offers for one product, and takes the fastest.
 *
 * All multiply the same ordinary numbers: of zeros a GPU takes less power, and clocks higher.
 * Rounds alternate over the algorithms, and the least time of each counts. One takes the place of
 * the library's first if it is faster by more than a fiftieth, gives the same bits twice, and
 * numbers near those of the first. */
#ifndef SL_KERNELS_CUDA_BLAS_TIME_H
#define SL_KERNELS_CUDA_BLAS_TIME_H

#include "blas_choice.h"

typedef struct sl_blas_trial {
    const sl_blas *blas;
    const sl_blas_functions *functions;
    sl_blas_choice *choice;
    const sl_kernel_call *call; /* with operands, a workspace and a stream without work */
    const sl_product *product;
} sl_blas_trial;

/* Times the algorithms [count], at most SL_BLAS_CANDIDATES of them, and lets trial->choice take
 * one. A and B hold other numbers afterwards, C holds anything. SL_ERROR_SYSTEM: there is no
 * memory, or the device fails; an algorithm that the library does not launch is passed over. */
sl_status sl_blas_time(const sl_blas_trial *trial, const cublasLtMatmulHeuristicResult_t *results,
                       uint32_t count);

#endif
