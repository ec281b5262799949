/* Finds the kernels of a device kind. */
#include "kernels.h"

#include <stddef.h>

const sl_kernel_table *sl_kernels_of(sl_device_kind kind)
{
    return kind == SL_DEVICE_CPU    ? sl_kernels_cpu()
           : kind == SL_DEVICE_CUDA ? sl_kernels_cuda()
                                    : NULL;
}
