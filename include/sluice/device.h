/* What devices there are. A device is what computes; its memory is the tier `device`. */
#ifndef SLUICE_DEVICE_H
#define SLUICE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_device_kind { SL_DEVICE_CPU, SL_DEVICE_CUDA, SL_DEVICE_KIND_COUNT } sl_device_kind;

/* What a device says of itself. Bytes are as the operating system or driver counts them now. */
typedef struct sl_device_info {
    char name[128];      /* "NVIDIA H200"; of the cpu "" */
    char detail[256];    /* "sm_90, 132 multiprocessors, driver 13.0, runtime 13.0"; "" */
    uint64_t free_bytes; /* that an arena may take, the device being open */
    uint64_t total_bytes;
    uint64_t overhead_bytes; /* what the device's context took when it was made, without what is
                                loaded later; 0: none, or not known */
    uint32_t multiprocessor_count; /* 0 on the cpu */
    int numa_node;                 /* of the host memory beside it; -1: not known */
} sl_device_info;

/* What the cuda device does in one of two ways; zeros are the defaults. Other devices pass it over.
 * The first two change the order of sums, and with it last bits. */
typedef struct sl_cuda_options {
    bool own_products;  /* matrix products by our own kernels; cuBLASLt is not opened */
    bool no_epilogue;   /* a GELU's gradient by a kernel of its own, never in cuBLASLt's epilogue */
    bool no_wait_value; /* the control thread waits for host threads, never a stream for a word */
} sl_cuda_options;

/* Opens device `index` of a kind, asks it, and closes it. SL_ERROR_SYSTEM: this build has no such
 * kind, or the machine no such device; the message says which and what to do. */
SL_API sl_status sl_device_query(sl_device_kind kind, int index, sl_device_info *out_info);

#ifdef __cplusplus
}
#endif
#endif
