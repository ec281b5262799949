/* Stands in for NVML, as far as src/device/cuda_context.c asks it: a GPU with all of the stand-in's
 * memory free, or, divided, one of eight times as much, of which CUDA sees an instance. A library
 * of its own, which the test finds by LD_LIBRARY_PATH. */
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
EXPORTED int nvmlDeviceGetMigMode(void *device, unsigned *out_current, unsigned *out_pending);
EXPORTED int standin_nvml(
    int is_divided); /* by which the test knows it; how the GPU is from now on */

static int is_divided_now;

int standin_nvml(int is_divided)
{
    is_divided_now = is_divided;
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *out_current, unsigned *out_pending)
{
    (void)device;
    *out_current = *out_pending = (unsigned)is_divided_now;
    return is_divided_now ? 0 : 3; /* NVML_ERROR_NOT_SUPPORTED */
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
    const unsigned long long bytes = is_divided_now ? 8ull << 30 : 1ull << 30;
    *out_memory = (nvml_memory){bytes, bytes, 0};
    return 0;
}
