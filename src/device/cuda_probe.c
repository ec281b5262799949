/* A point in a stream that any thread may query without waiting; see cuda.h. */
#include <stdlib.h>

#include "cuda_internal.h"

struct sl_cuda_probe {
    cudaEvent_t event;
    int device;
};

sl_status sl_cuda_probe_open(sl_cuda_probe **out_probe)
{
    sl_cuda_probe *probe = calloc(1, sizeof *probe);
    if (!probe)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a probe");
    const char *call = "cudaGetDevice";
    cudaError_t error = cudaGetDevice(&probe->device);
    if (error == cudaSuccess) {
        call = "cudaEventCreateWithFlags";
        error = cudaEventCreateWithFlags(&probe->event, cudaEventDisableTiming);
    }
    if (error != cudaSuccess) {
        free(probe);
        return sl_cuda_fail(error, call, NULL);
    }
    *out_probe = probe;
    return SL_OK;
}

void sl_cuda_probe_close(sl_cuda_probe *probe)
{
    if (!probe)
        return;
    if (cudaEventDestroy(probe->event) != cudaSuccess)
        sl_cuda_forget_error();
    free(probe);
}

sl_status sl_cuda_probe_set(sl_cuda_probe *probe, void *native_stream)
{
    SL_CUDA_TRY(NULL, cudaEventRecord(probe->event, native_stream));
    sl_cuda_note_launches(1);
    return SL_OK;
}

sl_status sl_cuda_probe_is_passed(sl_cuda_probe *probe, bool *out_is_passed)
{
    /* without this the thread would create a context of hundreds of MiB on the first device */
    SL_CUDA_TRY(NULL, cudaSetDevice(probe->device));
    const cudaError_t error = cudaEventQuery(probe->event);
    *out_is_passed = error == cudaSuccess;
    if (error == cudaErrorNotReady)
        sl_cuda_forget_error();
    return error == cudaSuccess || error == cudaErrorNotReady
               ? SL_OK
               : sl_cuda_fail(error, "cudaEventQuery", NULL);
}
