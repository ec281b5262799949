/* Names of work for GPU profilers: NVTX ranges, which Nsight Systems and others show above the
 * kernels and copies that were issued in them. Only the NVTX header is needed: it looks for a tool
 * at its first call, and without a tool there is no domain. */
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
