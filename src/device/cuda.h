/* NVIDIA GPUs as a device, and what kernels report to it. */
#ifndef SL_DEVICE_CUDA_H
#define SL_DEVICE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>

#include "device.h"

/* The table, or NULL in a build without CUDA. */
const sl_device_ops *sl_cuda_ops(void);

/* Called by a function that the device table launches, in the same thread: it has launched `count`
 * more kernels into its stream. */
void sl_cuda_note_launches(uint32_t count);

/* A point in a CUDA stream. A build without CUDA opens none. */
typedef struct sl_cuda_probe sl_cuda_probe;

/* Opens a probe on the device that the calling thread uses. */
sl_status sl_cuda_probe_open(sl_cuda_probe **out_probe);
void sl_cuda_probe_close(sl_cuda_probe *probe); /* NULL is fine */

/* Moves the probe behind all work issued so far to the stream (a cudaStream_t). */
sl_status sl_cuda_probe_set(sl_cuda_probe *probe, void *native_stream);

/* Writes whether all work before the probe has run; never blocks. Any thread may call; it then uses
 * the probe's device. */
sl_status sl_cuda_probe_is_passed(sl_cuda_probe *probe, bool *out_is_passed);

#ifdef __cplusplus
}
#endif
#endif
