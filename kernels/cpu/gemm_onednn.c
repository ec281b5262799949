/* oneDNN's sgemm. Debian builds it with OpenMP, so each thread that calls it first sets its own
 * OpenMP team to one thread; then no parallel region is ever entered. */
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>

#include "gemm_library.h"

static _Thread_local bool has_one_thread;

bool sl_gemm_library_multiply(const sl_gemm_tile *tile)
{
    if (!has_one_thread)
        omp_set_num_threads(1);
    has_one_thread = true;
    dnnl_status_t status =
        dnnl_sgemm(tile->transpose_a ? 'T' : 'N', tile->transpose_b ? 'T' : 'N',
                   (dnnl_dim_t)tile->m, (dnnl_dim_t)tile->n, (dnnl_dim_t)tile->k, 1.0f, tile->a,
                   (dnnl_dim_t)tile->leading_a, tile->b, (dnnl_dim_t)tile->leading_b,
                   tile->add ? 1.0f : 0.0f, tile->c, (dnnl_dim_t)tile->leading_c);
    return status == dnnl_success;
}

const char *sl_gemm_library_name(void)
{
    static _Thread_local char text[64];
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return text;
}
