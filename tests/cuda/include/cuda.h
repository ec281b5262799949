/* Stands in the place of the CUDA driver's header of this name; see cuda_runtime_api.h here. */
#ifndef SL_STANDIN_CUDA_H
#define SL_STANDIN_CUDA_H

#include <stdint.h>

#define CUDA_VERSION 13000
#define CUDAAPI

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t cuuint32_t;
typedef unsigned long long CUdeviceptr;
typedef struct CUstream_st *CUstream;
typedef struct CUfunc_st *CUfunction;
typedef int CUdevice;

#ifndef CU_UUID_HAS_BEEN_DEFINED
#define CU_UUID_HAS_BEEN_DEFINED
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
#endif

typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_NOT_SUPPORTED = 801
} CUresult;

typedef enum CUstreamWaitValue_flags_enum {
    CU_STREAM_WAIT_VALUE_GEQ = 0x0 /* until (int32_t)(*addr - value) >= 0 */
} CUstreamWaitValue_flags;

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                     unsigned int flags);
CUresult CUDAAPI cuFuncLoad(CUfunction function);
CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device);

#ifdef __cplusplus
}
#endif
#endif
