/* Times the algorithms that cuBLASLt offers for one product, and takes the fastest.
 *
 * All algorithms multiply the same ordinary numbers: on zeros a GPU takes less power and has a
 * higher clock. Each round runs every algorithm; the least time of each algorithm counts. An
 * algorithm replaces the library's first one if it takes less than 98 % of that one's time, gives
 * the same bits twice, and gives numbers near those of the first one. */
#ifndef SL_KERNELS_CUDA_BLAS_TIME_H
#define SL_KERNELS_CUDA_BLAS_TIME_H

#include "blas_choice.h"

typedef struct sl_blas_trial {
    const sl_blas *blas;
    const sl_blas_functions *functions;
    sl_blas_choice *choice;
    const sl_kernel_call *call; /* with operands, a workspace and an idle stream */
    const sl_product *product;
} sl_blas_trial;

/* Times the algorithms `results` [count], of which the first is the library's first and `count` is
 * at most SL_BLAS_CANDIDATES, and lets trial->choice take one. Blocks until all is done. Afterwards
 * A and B hold other numbers, and what C holds is undefined. An algorithm that the library does not
 * launch is passed over with a note. SL_ERROR_SYSTEM: no memory, or the device fails. */
sl_status sl_blas_time(const sl_blas_trial *trial, const cublasLtMatmulHeuristicResult_t *results,
                       uint32_t count);

#endif
