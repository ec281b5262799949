/* The language of .cu files, for a C++ compiler: kernels run on the processor, every thread of a
 * block as a fiber (shim.cpp).
 *
 * What waits (a barrier, a shuffle) switches to another fiber. Threads of a block run in order,
 * reversed or shuffled, anew after each barrier, so a missing barrier changes results. A barrier or
 * a shuffle that can never complete, a lane that is not in its own mask, and a launch that a GPU
 * would refuse fail the launch with a message that says who waits where for whom.
 *
 * Included by cuda_runtime.h, last. Knows nothing of memory models: what another thread wrote is
 * always seen. Blocks run one after another. __shared__ is static memory in a section of its own,
 * so that it can be filled with rubbish before each block and a sanitizer sees its ends.
 */
#ifndef SL_TESTS_CUDA_SHIM_H
#define SL_TESTS_CUDA_SHIM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "shim_control.h"

extern "C" {
#include "base/status.h"
}

#define __CUDA_ARCH_LIST__ 800, 900
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("sl_shared")))

/* ---- vectors ---- */

#define SL_SHIM_VECTOR2(type, element)                                                             \
    struct __align__(2 * sizeof(element)) type                                                     \
    {                                                                                              \
        element x, y;                                                                              \
    };                                                                                             \
    static inline type make_##type(element x, element y)                                           \
    {                                                                                              \
        return type{x, y};                                                                         \
    }
#define SL_SHIM_VECTOR3(type, element)                                                             \
    struct type {                                                                                  \
        element x, y, z;                                                                           \
    };                                                                                             \
    static inline type make_##type(element x, element y, element z)                                \
    {                                                                                              \
        return type{x, y, z};                                                                      \
    }
#define SL_SHIM_VECTOR4(type, element)                                                             \
    struct __align__(16) type                                                                      \
    {                                                                                              \
        element x, y, z, w;                                                                        \
    };                                                                                             \
    static inline type make_##type(element x, element y, element z, element w)                     \
    {                                                                                              \
        return type{x, y, z, w};                                                                   \
    }

SL_SHIM_VECTOR2(int2, int)
SL_SHIM_VECTOR2(uint2, unsigned)
SL_SHIM_VECTOR2(float2, float)
SL_SHIM_VECTOR2(double2, double)
SL_SHIM_VECTOR2(ulonglong2, unsigned long long)
SL_SHIM_VECTOR3(uint3, unsigned)
SL_SHIM_VECTOR4(int4, int)
SL_SHIM_VECTOR4(uint4, unsigned)
SL_SHIM_VECTOR4(float4, float)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* Of the thread that runs. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* ---- launches ---- */

typedef struct sl_shim_grid {
    const char *name;
    dim3 grid, block;
    size_t shared_bytes;
    void *stream;
} sl_shim_grid;

/* A kernel with its arguments: call(closure) is one thread. */
typedef struct sl_shim_kernel {
    const void *kernel; /* what cudaFuncSetAttribute knows it by */
    void (*call)(const void *closure);
    const void *closure;
    size_t closure_bytes;
} sl_shim_kernel;

/* Checks the launch, copies the closure and queues the grid in the stream; a NULL stream runs it at
 * once and gives its failure back. */
sl_status sl_shim_launch_grid(const sl_shim_grid *grid, const sl_shim_kernel *kernel);

/* The arguments are converted to the parameters here and now, as in a launch. */
template <typename... parameters>
static inline sl_status sl_shim_launch(const sl_shim_grid &grid, void (*kernel)(parameters...),
                                       std::enable_if_t<true, parameters>... arguments)
{
    const auto thread = [=]() { kernel(arguments...); };
    typedef decltype(thread) closure;
    static_assert(std::is_trivially_copyable<closure>::value, "arguments of kernels are plain");
    static_assert(alignof(closure) <= 16, "arguments of kernels are plain");
    const sl_shim_kernel bound = {(const void *)kernel,
                                  [](const void *copy) { (*(closure *)copy)(); }, &thread,
                                  sizeof thread};
    return sl_shim_launch_grid(&grid, &bound);
}

/* The dynamic shared memory of the block that runs. */
void *sl_shim_dynamic_shared(void);

template <typename function>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                                function *kernel)
{
    (void)kernel;
    attributes->ptxVersion = attributes->binaryVersion = standin_image();
    return cudaSuccess;
}

template <typename function>
static inline cudaError_t cudaFuncSetAttribute(function *kernel, enum cudaFuncAttribute attribute,
                                               int value)
{
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
        sl_shim_allow_shared((const void *)kernel, (size_t)value);
    return cudaSuccess;
}

/* ---- waiting ---- */

/* Where in a kernel a thread waits. */
typedef struct sl_shim_site {
    const char *what, *file;
    int line;
} sl_shim_site;

/* Ends the launch with a message; does not return. */
[[noreturn]] void sl_shim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits for all threads of the block; returns the number of them that came with `predicate`. */
int sl_shim_block_wait(const sl_shim_site *site, bool predicate);

/* Waits for the lanes of `mask`, each with data of its own. The last to come calls meet(lanes,
 * mask), where lanes[i] is what lane i brought, then all go on. This is how every warp function is
 * made, here and in emulations of wider instructions. */
void sl_shim_warp_meet(const sl_shim_site *site, unsigned mask, void *mine,
                       void (*meet)(void *const *lanes, unsigned mask));

#define SL_SHIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(SL_SHIM_SITE)
{
    const sl_shim_site site = {"__syncthreads", file, line};
    sl_shim_block_wait(&site, false);
}

static inline int __syncthreads_count(int predicate, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__syncthreads_count", file, line};
    return sl_shim_block_wait(&site, predicate != 0);
}

static inline int __syncthreads_or(int predicate, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__syncthreads_or", file, line};
    return sl_shim_block_wait(&site, predicate != 0) > 0;
}

static inline int __syncthreads_and(int predicate, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__syncthreads_and", file, line};
    return sl_shim_block_wait(&site, predicate == 0) == 0;
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__syncwarp", file, line};
    sl_shim_warp_meet(&site, mask, NULL, [](void *const *, unsigned) {});
}

/* What one lane brings to a shuffle. */
typedef struct sl_shim_shuffle {
    uint64_t value, result;
    int source; /* lane */
} sl_shim_shuffle;

void sl_shim_shuffle_meet(void *const *lanes, unsigned mask);

template <typename type>
static inline type sl_shim_shuffled(const sl_shim_site *site, unsigned mask, type value, int source)
{
    static_assert(sizeof(type) == 4 || sizeof(type) == 8, "shuffles take 4 or 8 bytes");
    sl_shim_shuffle mine = {0, 0, source};
    memcpy(&mine.value, &value, sizeof value);
    sl_shim_warp_meet(site, mask, &mine, sl_shim_shuffle_meet);
    memcpy(&value, &mine.result, sizeof value);
    return value;
}

static inline int sl_shim_lane(void)
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % warpSize);
}

template <typename type>
static inline type __shfl_sync(unsigned mask, type value, int source, int width = warpSize,
                               SL_SHIM_SITE)
{
    const sl_shim_site site = {"__shfl_sync", file, line};
    const int first = sl_shim_lane() / width * width;
    return sl_shim_shuffled(&site, mask, value, first + (source & (width - 1)));
}

/* A lane outside of the segment of `width` lanes stands for oneself. */
template <typename type>
static inline type __shfl_xor_sync(unsigned mask, type value, int lane_mask, int width = warpSize,
                                   SL_SHIM_SITE)
{
    const sl_shim_site site = {"__shfl_xor_sync", file, line};
    const int lane = sl_shim_lane(), source = lane ^ lane_mask;
    const bool is_beyond = source >= lane / width * width + width;
    return sl_shim_shuffled(&site, mask, value, is_beyond ? lane : source);
}

template <typename type>
static inline type __shfl_up_sync(unsigned mask, type value, unsigned delta, int width = warpSize,
                                  SL_SHIM_SITE)
{
    const sl_shim_site site = {"__shfl_up_sync", file, line};
    const int lane = sl_shim_lane(), source = lane - (int)delta;
    return sl_shim_shuffled(&site, mask, value, source < lane / width * width ? lane : source);
}

template <typename type>
static inline type __shfl_down_sync(unsigned mask, type value, unsigned delta, int width = warpSize,
                                    SL_SHIM_SITE)
{
    const sl_shim_site site = {"__shfl_down_sync", file, line};
    const int lane = sl_shim_lane(), source = lane + (int)delta;
    const bool is_beyond = source >= lane / width * width + width;
    return sl_shim_shuffled(&site, mask, value, is_beyond ? lane : source);
}

unsigned sl_shim_ballot(const sl_shim_site *site, unsigned mask, bool predicate);

static inline unsigned __ballot_sync(unsigned mask, int predicate, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__ballot_sync", file, line};
    return sl_shim_ballot(&site, mask, predicate != 0);
}

static inline int __any_sync(unsigned mask, int predicate, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__any_sync", file, line};
    return sl_shim_ballot(&site, mask, predicate != 0) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, SL_SHIM_SITE)
{
    const sl_shim_site site = {"__all_sync", file, line};
    return sl_shim_ballot(&site, mask, predicate != 0) == mask;
}

#include "shim_intrinsics.h"

#endif
