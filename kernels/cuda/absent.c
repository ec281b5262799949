/* Replaces this room in a build without CUDA. */
#include <stddef.h>

#include "kernels/kernels.h"

const sl_kernel_table *sl_kernels_cuda(void)
{
    return NULL;
}
