/* Finds the table of a device kind. Knows which kinds were built, and nothing of their work. */
#include "device.h"

#include "base/sized.h"
#include "cpu.h"
#include "cuda.h"

const sl_device_ops *sl_device_ops_of(sl_device_kind kind)
{
    return kind == SL_DEVICE_CPU ? sl_cpu_ops() : kind == SL_DEVICE_CUDA ? sl_cuda_ops() : NULL;
}

sl_status sl_device_query_sized(sl_device_kind kind, int index, sl_device_info *out_info,
                                size_t bytes)
{
    const sl_cuda_options asks_only = {.no_wait_value = true}; /* no stream will wait */
    const sl_device_ops *ops = sl_device_ops_of(kind);
    sl_device *device = NULL;
    sl_device_info info;
    if (!ops)
        SL_FAIL(SL_ERROR_SYSTEM,
                "this build has no CUDA: build it where nvcc is found, or use --device cpu");
    SL_TRY(ops->open(index, &asks_only, &device));
    sl_status status = ops->describe(device, &info);
    ops->close(device);
    if (status == SL_OK)
        sl_sized_give(&info, sizeof info, out_info, bytes);
    return status;
}
