/* The kernels of this room, one for each op; see kernels/kernels.h for what they promise. */
#ifndef SL_KERNELS_CUDA_OPS_H
#define SL_KERNELS_CUDA_OPS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

#define X(NAME, name, ...) sl_status sl_cuda_##name(const sl_kernel_call *call);
SL_OP_LIST(X)
#undef X

/* In the place of a call's stream: whatever the op would launch is loaded instead. Its operands are
 * addresses that nobody follows. */
extern char sl_load_only[];

#ifdef __cplusplus
}
#endif
#endif
