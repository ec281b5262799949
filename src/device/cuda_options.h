/* The --cuda-... options, as the device and its kernels take them. */
#ifndef SL_DEVICE_CUDA_OPTIONS_H
#define SL_DEVICE_CUDA_OPTIONS_H

#include <stdbool.h>

/* Choices of the cuda device; all false by default. Other devices ignore them. No call of the
 * public headers takes them: a session has them as the options "cuda-products", "cuda-epilogue"
 * and "cuda-wait-value". own_products and no_epilogue change the order of sums, and so the last
 * bits of results. */
typedef struct sl_cuda_options {
    bool own_products;  /* matrix products by sluice's own kernels; cuBLASLt is not opened */
    bool no_epilogue;   /* GELU's gradient by a kernel of its own, never in cuBLASLt's epilogue */
    bool no_wait_value; /* the control thread waits for host threads; without it a stream does
                           (cuStreamWaitValue32) */
    /* The list of algorithms (machine/algorithm_list.h), borrowed until the kernels are closed; a
     * product without a line takes cuBLASLt's first algorithm. NULL: no list. */
    const char *algorithms;
    bool times_algorithms; /* preparing a product with operands times up to eight algorithms and
                              takes the fastest: set by bench and profile, never by a run that is
                              saved */
} sl_cuda_options;

#endif
