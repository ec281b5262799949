/* Stands in the place of the CUDA toolkit's header of this name: the runtime's calls, and for C++
 * what lets a kernel run on the processor. */
#ifndef SL_STANDIN_CUDA_RUNTIME_H
#define SL_STANDIN_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#define SL_CUDA_SHIM 1
#include "shim.h"
#endif

#endif
