/* Stands in the place of cuda.c in a build without CUDA. */
#include <stddef.h>

#include "cuda.h"

const sl_device_ops *sl_cuda_ops(void)
{
    return NULL;
}
