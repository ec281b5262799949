/* Finds the table of a device kind. Knows the kinds that were built and nothing of what they do. */
#include "device.h"

#include "cpu.h"

const sl_device_ops *sl_device_ops_of(sl_device_kind kind)
{
    switch (kind) {
    case SL_DEVICE_CPU:
        return sl_cpu_ops();
    case SL_DEVICE_CUDA:
        break;
    }
    return NULL;
}

sl_status sl_device_host_free_bytes(uint64_t *out_bytes)
{
    return sl_cpu_limits_free_bytes("", out_bytes);
}
