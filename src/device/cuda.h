/* NVIDIA GPUs as a device, and what their kernels tell it. */
#ifndef SL_DEVICE_CUDA_H
#define SL_DEVICE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "device.h"

/* The table, or NULL in a build without CUDA. */
const sl_device_ops *sl_cuda_ops(void);

/* To be called by a function that the device table launches: it has given its stream `count` more
 * kernels. From the thread that it is called in. */
void sl_cuda_note_launches(uint32_t count);

#ifdef __cplusplus
}
#endif
#endif
