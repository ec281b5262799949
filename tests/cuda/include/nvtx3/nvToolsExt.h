/* Stands in the place of the CUDA toolkit's header of this name: the part of NVTX that sluice uses,
 * with the real signatures and values. tests/cuda/runtime_profiler.c is the tool that it finds. */
#ifndef SL_STANDIN_NVTX_H
#define SL_STANDIN_NVTX_H

#include <stddef.h>
#include <stdint.h>

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))

typedef struct nvtxDomainRegistration_st *nvtxDomainHandle_t;

typedef enum nvtxMessageType_t { NVTX_MESSAGE_TYPE_ASCII = 1 } nvtxMessageType_t;

typedef union nvtxMessageValue_t {
    const char *ascii;
} nvtxMessageValue_t;

typedef struct nvtxEventAttributes_v2 {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType;
    int32_t reserved0;
    uint64_t payload;
    int32_t messageType;
    nvtxMessageValue_t message;
} nvtxEventAttributes_t;

nvtxDomainHandle_t nvtxDomainCreateA(const char *name);
void nvtxDomainDestroy(nvtxDomainHandle_t domain);
int nvtxDomainRangePushEx(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes);
int nvtxDomainRangePop(nvtxDomainHandle_t domain);

#endif
