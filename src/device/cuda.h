/* NVIDIA GPUs as a device. */
#ifndef SL_DEVICE_CUDA_H
#define SL_DEVICE_CUDA_H

#include "device.h"

/* The table, or NULL in a build without CUDA. */
const sl_device_ops *sl_cuda_ops(void);

#endif
