/* Devices: the CPU or a CUDA GPU. A device computes; its memory is the tier `device`. */
#ifndef SLUICE_DEVICE_H
#define SLUICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of devices; SL_DEVICE_KIND_COUNT is their number. */
typedef enum sl_device_kind { SL_DEVICE_CPU, SL_DEVICE_CUDA, SL_DEVICE_KIND_COUNT } sl_device_kind;

/* Properties of a device. Bytes are as the operating system or the driver counts them now. */
typedef struct sl_device_info {
    char name[128];          /* "NVIDIA H200"; "" for the cpu */
    char detail[256];        /* "sm_90, 132 multiprocessors, driver 13.0, runtime 13.0"; "" for the
                                cpu */
    uint64_t free_bytes;     /* of memory, while the device is open: what a session may plan with */
    uint64_t total_bytes;    /* of memory */
    uint64_t overhead_bytes; /* taken by creating the device's context, without modules that are
                                loaded later; 0: none or unknown */
    uint32_t multiprocessor_count; /* 0 on the cpu */
    int numa_node;                 /* nearest to the device; -1: unknown */
    char uuid[40];                 /* of the GPU, or of its MIG instance; "": unknown, or the cpu */
} sl_device_info;

/* Opens device `index` of a kind, from 0, reads its properties, and closes it. The caller owns
 * `out_info`. On a GPU the first call creates the context of CUDA in this process, which takes
 * memory and stays. SL_ERROR_SYSTEM: this build has no such kind, or the machine no such GPU, or it
 * is older than compute capability 8.0; the message says what to do. SL_ERROR_USAGE: a cpu other
 * than 0. sl_device_query_sized is given the size of the caller's struct, as `bytes`: later
 * versions add fields behind these, and fill in as many as it holds. */
SL_API sl_status sl_device_query_sized(sl_device_kind kind, int index, sl_device_info *out_info,
                                       size_t bytes);
static inline sl_status sl_device_query(sl_device_kind kind, int index, sl_device_info *out_info)
{
    return sl_device_query_sized(kind, index, out_info, sizeof *out_info);
}

#ifdef __cplusplus
}
#endif
#endif
