/* NVIDIA GPUs as a device, and what their kernels tell it. */
#ifndef SL_DEVICE_CUDA_H
#define SL_DEVICE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>

#include "device.h"

/* The table, or NULL in a build without CUDA. */
const sl_device_ops *sl_cuda_ops(void);

/* To be called by a function that the device table launches: it has given its stream `count` more
 * kernels. From the thread that it is called in. */
void sl_cuda_note_launches(uint32_t count);

/* A point in a stream of CUDA's. A build without CUDA opens none. */
typedef struct sl_cuda_probe sl_cuda_probe;

/* Of the device that the calling thread uses. */
sl_status sl_cuda_probe_open(sl_cuda_probe **out_probe);
void sl_cuda_probe_close(sl_cuda_probe *probe); /* NULL is fine */

/* Moves it behind what the stream (a cudaStream_t) was given so far. */
sl_status sl_cuda_probe_set(sl_cuda_probe *probe, void *native_stream);

/* Whether all before it has run. Any thread, which then uses the probe's device; never blocks. */
sl_status sl_cuda_probe_is_passed(sl_cuda_probe *probe, bool *out_is_passed);

#ifdef __cplusplus
}
#endif
#endif
