/* The functions of cuBLASLt, found when they are first asked for: the command runs on machines that
 * do not have it. Types are those of the header this was compiled with, functions those of the
 * library that is there, of its major version or the one before. */
#ifndef SL_KERNELS_CUDA_BLAS_LOAD_H
#define SL_KERNELS_CUDA_BLAS_LOAD_H

#include <cublasLt.h>

#define SL_BLAS_FUNCTIONS(X)                                                                       \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(GetVersion)                                                                                  \
    X(GetStatusString)                                                                             \
    X(MatmulDescCreate)                                                                            \
    X(MatmulDescDestroy)                                                                           \
    X(MatmulDescSetAttribute)                                                                      \
    X(MatrixLayoutCreate)                                                                          \
    X(MatrixLayoutDestroy)                                                                         \
    X(MatmulPreferenceCreate)                                                                      \
    X(MatmulPreferenceDestroy)                                                                     \
    X(MatmulPreferenceSetAttribute)                                                                \
    X(MatmulAlgoGetHeuristic)                                                                      \
    X(MatmulAlgoConfigGetAttribute)                                                                \
    X(Matmul)

/* Called as functions->Matmul(...), which is cublasLtMatmul(...). */
typedef struct sl_blas_functions {
#define X(name) __typeof__(cublasLt##name) *name;
    SL_BLAS_FUNCTIONS(X)
#undef X
} sl_blas_functions;

/* The functions, or NULL where there is no such library. They stay until the process ends. */
const sl_blas_functions *sl_blas_load(void);

/* "cuBLASLt 13.1.0", or what is missing. */
const char *sl_blas_load_text(void);

#endif
