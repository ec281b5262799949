/* How cuBLASLt computes one product: its description and the chosen algorithm. */
#ifndef SL_KERNELS_CUDA_BLAS_CHOICE_H
#define SL_KERNELS_CUDA_BLAS_CHOICE_H

#include "blas.h"
#include "blas_load.h"

enum {
    SL_BLAS_TEXT_BYTES = 384, /* of a choice, with its end */
    SL_BLAS_CANDIDATES = 8 /* algorithms that are asked for, where more than the first may count */
};

/* What the library does to the sums before it rounds them. */
typedef enum sl_blas_epilogue {
    SL_BLAS_PLAIN,
    SL_BLAS_BIAS,          /* adds one element a column of C */
    SL_BLAS_GELU_BACKWARD, /* multiplies with gelu'(gelu_x) */
    SL_BLAS_EPILOGUE_COUNT
} sl_blas_epilogue;

/* All that a choice depends on. No padding: its bytes compare. */
typedef struct sl_blas_key {
    uint64_t m, n, k;
    uint32_t a_alignment, b_alignment, c_alignment;
    uint8_t type, c_type;
    uint8_t transposes; /* 1: A, 2: B */
    uint8_t epilogue;   /* an sl_blas_epilogue */
} sl_blas_key;

struct sl_blas_choice {
    sl_blas_key key;
    bool is_own;    /* no algorithm: our own kernel computes the product */
    bool is_warm;   /* was launched */
    bool is_listed; /* the algorithm is the one that the list names */
    bool is_lost;   /* the library does not offer the one that the list names: its first counts */
    uint64_t workspace_bytes;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* as the library sees them: a is our B, b is our A */
    cublasLtMatmulAlgo_t algorithm;
    char text[SL_BLAS_TEXT_BYTES];
};

/* Takes an algorithm that uses at most `workspace_bytes`: the one that the `list` names for
 * this product (sl_cuda_options.algorithms), if the library offers it among its SL_BLAS_CANDIDATES
 * best; else the library's first. `list` may be NULL. SL_ERROR_SYSTEM: no memory, or cuBLASLt
 * fails. */
sl_status sl_blas_choice_open(const sl_blas_functions *functions, cublasLtHandle_t handle,
                              const sl_blas_key *key, uint64_t workspace_bytes, const char *list,
                              sl_blas_choice **out_choice);
void sl_blas_choice_close(const sl_blas_functions *functions, sl_blas_choice *choice);

/* Asks the library for up to *count algorithms, its best first, and writes them into `results`
 * [*count]. Those that break a promise of blas.h, or need more than choice->workspace_bytes, are
 * left out; *count becomes the number of the others. It is no failure if none is left. */
sl_status sl_blas_choice_list(const sl_blas_functions *functions, cublasLtHandle_t handle,
                              const sl_blas_choice *choice,
                              cublasLtMatmulHeuristicResult_t *results, uint32_t *count);

/* From now on `choice` computes its product by this algorithm. */
void sl_blas_choice_take(const sl_blas_functions *functions, sl_blas_choice *choice,
                         const cublasLtMatmulHeuristicResult_t *result);

/* Tells the library where the operand of the epilogue lies; for the next product alone. */
sl_status sl_blas_choice_point(const sl_blas_functions *functions, const sl_blas_choice *choice,
                               const sl_product *product);

/* SL_ERROR_SYSTEM with the library's words. */
sl_status sl_blas_fail(const sl_blas_functions *functions, const char *what, cublasStatus_t status);

/* As SL_TRY, of functions->call. */
#define SL_BLAS_TRY(functions, call)                                                               \
    do {                                                                                           \
        const cublasStatus_t sl_blas_status_ = (functions)->call;                                  \
        if (sl_blas_status_ != CUBLAS_STATUS_SUCCESS)                                              \
            return sl_blas_fail((functions), #call, sl_blas_status_);                              \
    } while (0)

#endif
