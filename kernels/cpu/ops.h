/* The kernels of this room, one for each op; see kernels/kernels.h for what they promise. */
#ifndef SL_KERNELS_CPU_OPS_H
#define SL_KERNELS_CPU_OPS_H

#include "kernels/kernels.h"

#define X(NAME, name, ...) sl_status sl_op_##name(const sl_kernel_call *call);
SL_OP_LIST(X)
#undef X

#endif
