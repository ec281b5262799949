/* Replaces cuda.c in a build without CUDA. */
#include <stddef.h>

#include "cuda.h"

const sl_device_ops *sl_cuda_ops(void)
{
    return NULL;
}

void sl_cuda_note_launches(uint32_t count)
{
    (void)count;
}

sl_status sl_cuda_probe_open(sl_cuda_probe **out_probe)
{
    (void)out_probe;
    SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA");
}

void sl_cuda_probe_close(sl_cuda_probe *probe)
{
    (void)probe;
}

sl_status sl_cuda_probe_set(sl_cuda_probe *probe, void *native_stream)
{
    (void)probe;
    (void)native_stream;
    SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA");
}

sl_status sl_cuda_probe_is_passed(sl_cuda_probe *probe, bool *out_is_passed)
{
    (void)probe;
    (void)out_is_passed;
    SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA");
}
