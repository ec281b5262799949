/* A profiler that is attached to the stand-in, or is not: counts ranges by name. Ranges are of the
 * one thread that issues work. */
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { NAMES_MAX = 4096, NAME_BYTES = 96 };

struct nvtxDomainRegistration_st {
    char name[NAME_BYTES];
};

static struct {
    bool is_attached;
    struct nvtxDomainRegistration_st domain;
    uint32_t open_domains, depth, name_count;
    struct {
        char text[NAME_BYTES];
        uint64_t count;
    } names[NAMES_MAX];
} watcher;

void standin_attach_profiler(bool is_attached)
{
    memset(&watcher, 0, sizeof watcher);
    watcher.is_attached = is_attached;
}

uint64_t standin_range_count(const char *name)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < watcher.name_count; i++)
        if (!name || strcmp(watcher.names[i].text, name) == 0)
            count += watcher.names[i].count;
    return count;
}

uint32_t standin_range_depth(void)
{
    return watcher.depth;
}

static void fault(const char *what)
{
    pthread_mutex_lock(&standin.lock);
    standin_fault_locked("NVTX: %s", what);
    pthread_mutex_unlock(&standin.lock);
}

nvtxDomainHandle_t nvtxDomainCreateA(const char *name)
{
    if (!watcher.is_attached)
        return NULL;
    strncpy(watcher.domain.name, name, NAME_BYTES - 1);
    watcher.open_domains++;
    return &watcher.domain;
}

void nvtxDomainDestroy(nvtxDomainHandle_t domain)
{
    if (domain != &watcher.domain || watcher.open_domains-- == 0)
        fault("a domain that is not open is destroyed");
    if (watcher.depth > 0)
        fault("a domain is destroyed in the midst of a range");
}

int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    const char *text = attributes->message.ascii;
    uint32_t i = 0;
    bool is_whole = attributes->version == NVTX_VERSION &&
                    attributes->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
                    attributes->messageType == NVTX_MESSAGE_TYPE_ASCII;
    if (domain != &watcher.domain || watcher.open_domains == 0 || !is_whole)
        fault("a range that no tool would show");
    while (i < watcher.name_count && strcmp(watcher.names[i].text, text) != 0)
        i++;
    if (i == NAMES_MAX || strlen(text) >= NAME_BYTES)
        abort();
    if (i == watcher.name_count)
        memcpy(watcher.names[watcher.name_count++].text, text, strlen(text) + 1);
    watcher.names[i].count++;
    return (int)watcher.depth++;
}

int nvtxDomainRangePop(nvtxDomainHandle_t domain)
{
    if (domain != &watcher.domain || watcher.depth == 0)
        fault("a range ends that did not begin");
    else
        watcher.depth--;
    return (int)watcher.depth;
}
