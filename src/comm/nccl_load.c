/* NCCL, loaded by name when it is first asked for. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nccl.h"

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"ncclGetUniqueId", offsetof(sl_nccl_calls, get_unique_id)},
    {"ncclCommInitRankConfig", offsetof(sl_nccl_calls, init)},
    {"ncclCommGetAsyncError", offsetof(sl_nccl_calls, get_async_error)},
    {"ncclCommFinalize", offsetof(sl_nccl_calls, finalize)},
    {"ncclCommDestroy", offsetof(sl_nccl_calls, destroy)},
    {"ncclCommAbort", offsetof(sl_nccl_calls, abort)},
    {"ncclGroupStart", offsetof(sl_nccl_calls, group_start)},
    {"ncclGroupEnd", offsetof(sl_nccl_calls, group_end)},
    {"ncclSend", offsetof(sl_nccl_calls, send)},
    {"ncclRecv", offsetof(sl_nccl_calls, receive)},
    {"ncclGetErrorString", offsetof(sl_nccl_calls, get_error_string)},
    {"ncclGetVersion", offsetof(sl_nccl_calls, get_version)},
};

static sl_nccl_calls loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static char load_failure[256];

/* It stays loaded: NCCL leaves threads behind. */
static void load_library(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(load_failure, sizeof load_failure, "%s", reason ? reason : "libnccl.so.2");
        return;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy((char *)&loaded + symbols[i].offset, &symbol, sizeof symbol);
        if (!symbol)
            snprintf(load_failure, sizeof load_failure,
                     "it has no %s: version 2.14 or newer is "
                     "needed",
                     symbols[i].name);
    }
}

sl_status sl_nccl_load(const sl_nccl_calls **out_calls)
{
    pthread_once(&load_once, load_library);
    if (load_failure[0])
        SL_FAIL(SL_ERROR_SYSTEM,
                "GPUs exchange through NCCL, which cannot be loaded: %s; install libnccl2",
                load_failure);
    *out_calls = &loaded;
    return SL_OK;
}
