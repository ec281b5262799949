/* Stands in the place of kernels/cuda/blas_load.c: the functions of cublaslt.c, unless hidden. */
#include "cublaslt.h"
#include "kernels/cuda/blas_load.h"

#include <stddef.h>
#include <stdlib.h>

static const sl_blas_functions functions = {
#define X(name) .name = cublasLt##name,
    SL_BLAS_FUNCTIONS(X)
#undef X
};

const sl_blas_functions *sl_blas_load(void)
{
    return standin_blas_is_hidden() ? NULL : &functions;
}

const char *sl_blas_load_text(void)
{
    const char *version = getenv("STANDIN_BLAS_VERSION"); /* "cuBLASLt 13.1.0" */
    if (standin_blas_is_hidden())
        return "cuBLASLt is hidden";
    return version != NULL ? version : "cuBLASLt for tests";
}
