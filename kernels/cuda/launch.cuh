/* How the kernels of this room are written: plain C with threads.
 *
 * A file is a noun, as in kernels/cpu: static __global__ functions, and one host function for each
 * op, sl_cuda_<op>, which checks the call, works out the grid from shapes alone and launches into
 * call->stream. Templates have types and tile sizes as parameters, nothing else of C++ is used.
 *
 * The same files also compile for the processor, where a test runs every CUDA thread as a fiber
 * (tests/cuda). So a launch and dynamic shared memory are written by the macros below, and whatever
 * is written in the machine's own instructions stands in mma.cuh.
 *
 * Every launch is counted for the device (device/cuda.h).
 *
 * Launches are an op's only calls of CUDA: so a call with the stream sl_load_only (ops.h) takes the
 * same path and loads the op's kernels.
 *
 * No float atomics; sums have one fixed order. 16-byte accesses wherever a row's width allows them.
 */
#ifndef SL_KERNELS_CUDA_LAUNCH_CUH
#define SL_KERNELS_CUDA_LAUNCH_CUH

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "base/bits.h"
#include "device/cuda.h"
#include "kernels/kernels.h"
#include "ops.h"
}

enum { SL_WARP = 32 };

/* Blocks of the first dimension of a grid; of the others. */
static const uint32_t SL_GRID_MOST = 0x7fffffff, SL_GRID_SIDE_MOST = 65535;

/* Refuses a shape that no grid covers. */
static inline sl_status sl_launch_covers(uint64_t block_count, const char *kernel)
{
    if (block_count == 0 || block_count > SL_GRID_MOST)
        SL_FAIL(SL_ERROR_INTERNAL, "%s does not cover %llu blocks", kernel,
                (unsigned long long)block_count);
    return SL_OK;
}

#define SL_EVERY_LANE 0xffffffffu /* the mask of a whole warp */

#ifdef SL_CUDA_SHIM
#define SL_LAUNCH(call, grid, block, shared_bytes, kernel, ...)                                    \
    sl_shim_launch({#kernel, (grid), (block), (shared_bytes), (call)->stream}, kernel,             \
                   ##__VA_ARGS__)
#define SL_DYNAMIC_SHARED(type, name) type *name = (type *)sl_shim_dynamic_shared()
#else

/* What the launch itself says; a failure of the running kernel comes from its stream. */
static inline sl_status sl_launch_check(const char *kernel)
{
    const cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA refuses to launch %s: %s", kernel,
                cudaGetErrorString(error));
    sl_cuda_note_launches(1);
    return SL_OK;
}

/* Asks for a kernel, which finds its code, and then for the code itself: a driver may put that off
 * until the first launch. One that knows no such call has loaded it by now. */
static inline cudaError_t sl_launch_find_loader(CUresult (**out_load)(CUfunction))
{
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion("cuFuncLoad", (void **)out_load, 12040,
                                            cudaEnableDefault, NULL);
#else
    return cudaGetDriverEntryPoint("cuFuncLoad", (void **)out_load, cudaEnableDefault, NULL);
#endif
}

template <typename function>
static inline sl_status sl_launch_load(function *kernel, const char *name)
{
    CUresult (*load)(CUfunction) = NULL;
    cudaFunction_t found = NULL;
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess)
        error = cudaGetFuncBySymbol(&found, (const void *)kernel);
    if (error == cudaSuccess && sl_launch_find_loader(&load) == cudaSuccess && load != NULL)
        error = (cudaError_t)load(found); /* both kinds of results count errors alike */
    (void)cudaGetLastError();
    if (error != cudaSuccess)
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA cannot load %s: %s", name, cudaGetErrorString(error));
    return SL_OK;
}

/* Launches kernel(...) over `grid` blocks of `block` threads; an sl_status. */
#define SL_LAUNCH(call, grid, block, shared_bytes, kernel, ...)                                    \
    ((call)->stream == sl_load_only                                                                \
         ? sl_launch_load(kernel, #kernel)                                                         \
         : (kernel<<<(grid), (block), (shared_bytes), (cudaStream_t)(call)->stream>>>(             \
                __VA_ARGS__),                                                                      \
            sl_launch_check(#kernel)))

/* The block's dynamic shared memory, 16-byte aligned. */
#define SL_DYNAMIC_SHARED(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char sl_dynamic_shared[];                             \
    type *name = (type *)sl_dynamic_shared
#endif

#endif
