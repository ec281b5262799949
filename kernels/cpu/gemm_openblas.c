/* OpenBLAS's sgemm. The library is set to one thread, for the process; each calling thread takes a
 * buffer from the library's own pool at its first call. */
#include <cblas.h>
#include <pthread.h>
#include <stdio.h>

#include "gemm_library.h"

static pthread_once_t is_set_up = PTHREAD_ONCE_INIT;

static void set_one_thread(void)
{
    openblas_set_num_threads(1);
}

bool sl_gemm_library_multiply(const sl_gemm_tile *tile)
{
    pthread_once(&is_set_up, set_one_thread);
    cblas_sgemm(CblasRowMajor, tile->transpose_a ? CblasTrans : CblasNoTrans,
                tile->transpose_b ? CblasTrans : CblasNoTrans, (blasint)tile->m, (blasint)tile->n,
                (blasint)tile->k, 1.0f, tile->a, (blasint)tile->leading_a, tile->b,
                (blasint)tile->leading_b, tile->add ? 1.0f : 0.0f, tile->c,
                (blasint)tile->leading_c);
    return true;
}

const char *sl_gemm_library_name(void)
{
    static _Thread_local char text[96];
    char version[64] = "";
    sscanf(openblas_get_config(), "OpenBLAS %63s", version);
    snprintf(text, sizeof text, "OpenBLAS %s (%s)", version, openblas_get_corename());
    return text;
}
