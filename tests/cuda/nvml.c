/* Stands in for NVML, as far as src/device/cuda_context.c asks it: a GPU with all of the stand-in's
 * memory free. A library of its own, which the test finds by LD_LIBRARY_PATH. */
#include <stddef.h>

#include "standin.h"

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int nvmlInit_v2(void);
EXPORTED int nvmlShutdown(void);
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out_device);
EXPORTED int nvmlDeviceGetMemoryInfo(void *device, nvml_memory *out_memory);
EXPORTED int standin_nvml(void); /* by which the test knows it */

int standin_nvml(void)
{
    return 0;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out_device)
{
    *out_device = NULL;
    return bus_id[0] == 'F' ? 0 : 6; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetMemoryInfo(void *device, nvml_memory *out_memory)
{
    (void)device;
    *out_memory = (nvml_memory){1ull << 30, 1ull << 30, 0};
    return 0;
}
