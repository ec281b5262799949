/* Names of work for profilers of GPUs: ranges of NVTX, which Nsight Systems and others show above
 * the kernels and copies that were issued in them. The header alone is needed: it looks for a tool
 * when it is first called, and without one there is no domain. */
#include <nvtx3/nvToolsExt.h>

#include "cuda_internal.h"

static void begin_range(void *user, const char *name)
{
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = name};
    nvtxDomainRangePushEx(user, &attributes);
}

static void end_range(void *user)
{
    nvtxDomainRangePop(user);
}

void sl_cuda_watcher_open(sl_device_watcher *watcher)
{
    *watcher = (sl_device_watcher){begin_range, end_range, nvtxDomainCreateA("sluice")};
}

void sl_cuda_watcher_close(sl_device_watcher *watcher)
{
    if (watcher->user)
        nvtxDomainDestroy(watcher->user);
    watcher->user = NULL;
}
