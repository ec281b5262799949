/* Launches by nvcc's own host code: the entry points that its objects call, in the place of the
 * CUDA runtime's. What a GPU would refuse is refused; the rest goes into its stream (runtime.h) and
 * runs there when its turn comes. A fault of a running kernel breaks the context, as on a GPU, and
 * is one of the stand-in's faults.
 *
 * The order of threads is what a test chooses through shim_control.h: in order, the lanes of a warp
 * run together and copies land at once; reversed, copies land as late as they may, and lanes run
 * apart (every third time, for that takes longer); shuffled, several blocks take
 * turns by lot. Where no test chooses, launches differ in that. Approximate results are the same in
 * all of them, and in every run of a program, for they are on a GPU: SL_PTX_ARITHMETIC (a number, 1
 * unless it is set) draws them anew, 0 are the nearest ones, and SL_PTX_TRUNCATES makes the matrix
 * product keep fewer bits of its sums.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/shim_control.h"
#include "ptx.h"
#include "runtime.h"
#include "standin_objects.h"
#include "standin_watch.h"

/* Of compute capability 9.0. */
enum {
    THREADS_MOST = 1024,
    GRID_SIDE_MOST = 65535,
    SHARED_BYTES_MOST = 227 << 10,
    SHARED_BYTES_UNASKED = 48 << 10
};

typedef struct launch_shape {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} launch_shape;

/* A launch on its way through a stream; the values of its arguments follow. */
typedef struct launch_job {
    ptx_launch_args args;
    void *arguments[PTX_PARAMS_MAX];
    _Alignas(16) unsigned char values[];
} launch_job;

enum { REVERSED_APART = 3 }; /* one choice of so many */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ptx_schedule schedule;
static bool is_chosen; /* `schedule`, by a test */
static uint64_t reversed_count, launch_count, turn_count, unloaded_count;
static _Thread_local launch_shape pushed; /* by <<<...>>>, until its stub takes it */

/* ---- what tests choose and ask ---- */

void sl_shim_choose_order(sl_shim_order order, uint64_t seed)
{
    pthread_mutex_lock(&lock);
    is_chosen = true;
    schedule = (ptx_schedule){.seed = seed};
    if (order == SL_SHIM_REVERSED) {
        const bool are_apart = reversed_count++ % REVERSED_APART == 0;
        schedule.lanes = are_apart ? PTX_APART : PTX_TOGETHER;
        schedule.copies = PTX_LANDS_AT_WAIT;
    } else if (order == SL_SHIM_SHUFFLED) {
        schedule.copies = seed % 2 ? PTX_LANDS_AT_ISSUE : PTX_LANDS_AT_WAIT;
        schedule.blocks_at_once = 3;
    }
    pthread_mutex_unlock(&lock);
}

/* A thread's turn is an instruction. */
uint64_t sl_shim_turn_count(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t count = turn_count;
    pthread_mutex_unlock(&lock);
    return count;
}

uint64_t sl_shim_unloaded_count(void)
{
    pthread_mutex_lock(&lock);
    const uint64_t count = unloaded_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- a launch that runs ---- */

static void run_job(void *argument)
{
    launch_job *job = argument;
    ptx_launch_counts run = {0};
    ptx_fault fault = {{0}};
    if (!ptx_launch(&job->args, &run, &fault)) {
        fprintf(stderr, "%s\n", fault.text);
        standin_fault("%s", fault.text);
        standin_break(cudaErrorLaunchFailure);
    }
    standin_watch_tell_touched();
    pthread_mutex_lock(&lock);
    turn_count += run.lanes;
    pthread_mutex_unlock(&lock);
}

/* With the lock held. */
static ptx_schedule choose_schedule(void)
{
    const uint64_t n = launch_count++;
    if (is_chosen)
        return schedule;
    return (ptx_schedule){.copies = n % 2 ? PTX_LANDS_AT_WAIT : PTX_LANDS_AT_ISSUE,
                          .blocks_at_once = n % 4 < 2 ? 1 : 3,
                          .seed = n};
}

/* The job, whose arguments are copied: the caller's are gone when it runs. */
static launch_job *make_job(const standin_function *function, const launch_shape *shape,
                            void *const *arguments)
{
    const ptx_kernel_facts *facts = &function->facts;
    launch_job *job = calloc(1, sizeof *job + facts->param_bytes);
    if (job == NULL)
        abort();
    for (uint32_t i = 0; i < facts->param_count; i++) {
        job->arguments[i] = job->values + facts->argument_offset[i];
        memcpy(job->arguments[i], arguments[i], facts->argument_bytes[i]);
    }
    const char *seed = getenv("SL_PTX_ARITHMETIC");
    pthread_mutex_lock(&lock);
    unloaded_count += !function->is_loaded;
    job->args = (ptx_launch_args){.kernel = function->kernel,
                                  .grid = {shape->grid.x, shape->grid.y, shape->grid.z},
                                  .block = {shape->block.x, shape->block.y, shape->block.z},
                                  .dynamic_shared_bytes = (uint32_t)shape->shared_bytes,
                                  .arguments = job->arguments,
                                  .schedule = choose_schedule(),
                                  .arithmetic_seed = seed ? strtoull(seed, NULL, 0) : 1,
                                  .truncates_mma = getenv("SL_PTX_TRUNCATES") != NULL,
                                  .watch = standin_watch()};
    pthread_mutex_unlock(&lock);
    return job;
}

/* ---- a launch that is asked for ---- */

static bool is_block_sound(const standin_function *function, dim3 block)
{
    const uint64_t count = (uint64_t)block.x * block.y * block.z;
    const uint32_t named = function->facts.threads_max;
    return count > 0 && count <= (named > 0 ? named : THREADS_MOST) && block.z <= 64;
}

static bool is_grid_sound(dim3 grid)
{
    return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= INT32_MAX &&
           grid.y <= GRID_SIDE_MOST && grid.z <= GRID_SIDE_MOST;
}

static bool is_shared_sound(const standin_function *function, size_t dynamic_bytes)
{
    const uint64_t bytes = dynamic_bytes + function->facts.static_shared_bytes;
    return bytes <= SHARED_BYTES_UNASKED ||
           (dynamic_bytes <= function->dynamic_most && bytes <= SHARED_BYTES_MOST);
}

/* With the stand-in's lock held. */
static cudaError_t check_launch(const standin_function *function, const launch_shape *shape)
{
    if (!is_block_sound(function, shape->block) || !is_grid_sound(shape->grid))
        return cudaErrorInvalidConfiguration;
    return is_shared_sound(function, shape->shared_bytes) ? cudaSuccess : cudaErrorInvalidValue;
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * 0x9e3779b97f4a7c15u >> 7 ^ hash << 13; /* any mixture does */
}

/* Of all that a launch says but addresses. With the stand-in's lock held. */
static uint64_t hash_shape(const launch_job *job, uint32_t param_bytes)
{
    uint64_t hash = job->args.dynamic_shared_bytes, word;
    for (int i = 0; i < 3; i++)
        hash = hash_word(hash, (uint64_t)job->args.grid[i] << 32 | job->args.block[i]);
    for (uint32_t at = 0; at < param_bytes; at += (uint32_t)sizeof word) {
        word = 0;
        memcpy(&word, job->values + at, at + 8 <= param_bytes ? 8 : param_bytes - at);
        const void *pointer = (const void *)(uintptr_t)word;
        if (standin_place_of(pointer, 1) == STANDIN_HOST) /* else a pointer into device memory */
            hash = hash_word(hash, word);
    }
    return hash;
}

static void note_shape(standin_function *function, const launch_job *job)
{
    const uint64_t hash = hash_shape(job, function->facts.param_bytes);
    function->launch_count++;
    for (uint32_t i = 0; i < function->shape_count; i++)
        if (function->shapes[i] == hash)
            return;
    if (function->shape_count < STANDIN_SHAPES_MOST)
        function->shapes[function->shape_count++] = hash;
}

static cudaError_t append_job(standin_function *function, const launch_shape *shape,
                              void *const *arguments)
{
    launch_job *job = make_job(function, shape, arguments);
    note_shape(function, job);
    const standin_work work = {function->name, run_job, job, true};
    cudaError_t error = standin_append(shape->stream, &work);
    if (error != cudaSuccess)
        free(job);
    else if (shape->stream == NULL)
        error = standin_drain(NULL);
    return error;
}

/* Counts a fault where a function cannot be run here at all. */
static cudaError_t find_kernel(standin_function *function)
{
    ptx_fault fault = {{0}};
    if (function == NULL || standin_function_find(function, &fault))
        return function == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess;
    fprintf(stderr, "%s\n", fault.text);
    standin_fault("%s", fault.text);
    return cudaErrorNoKernelImageForDevice;
}

static cudaError_t launch(standin_function *function, const launch_shape *shape,
                          void *const *arguments)
{
    const cudaError_t found = find_kernel(function);
    cudaError_t error = standin_enter("cudaLaunchKernel");
    if (error == cudaSuccess)
        error = found;
    if (error == cudaSuccess)
        error = check_launch(function, shape);
    if (error == cudaSuccess)
        error = append_job(function, shape, arguments);
    return standin_leave(error);
}

/* ---- what nvcc's host code calls ---- */

__attribute__((constructor)) static void open_watch(void)
{
    standin_watch_open();
}

cudaError_t __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                        cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                       void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                               size_t sharedMem, cudaStream_t stream);

/* Success is 0: the launch that follows is made. */
cudaError_t __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                        cudaStream_t stream)
{
    pushed = (launch_shape){gridDim, blockDim, sharedMem, stream};
    return cudaSuccess;
}

cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                       void *stream)
{
    *gridDim = pushed.grid;
    *blockDim = pushed.block;
    *sharedMem = pushed.shared_bytes;
    memcpy(stream, &pushed.stream, sizeof pushed.stream);
    return cudaSuccess;
}

/* A kernel's handle is the function. */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *stub)
{
    *kernel = (cudaKernel_t)(void *)standin_function_of(stub);
    return *kernel != NULL ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                               size_t sharedMem, cudaStream_t stream)
{
    const launch_shape shape = {gridDim, blockDim, sharedMem, stream};
    return launch((standin_function *)(void *)kernel, &shape, args);
}

/* What toolkits before 13 call. */
cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                             size_t sharedMem, cudaStream_t stream)
{
    const launch_shape shape = {gridDim, blockDim, sharedMem, stream};
    return launch(standin_function_of(func), &shape, args);
}

/* ---- what is asked of a kernel ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    standin_function *function = standin_function_of(func);
    const cudaError_t found = find_kernel(function);
    const int image = standin_image(); /* which takes the lock, too */
    cudaError_t error = standin_enter("cudaFuncGetAttributes");
    if (error == cudaSuccess)
        error = found;
    memset(attr, 0, sizeof *attr);
    if (error == cudaSuccess) {
        const ptx_kernel_facts *facts = &function->facts;
        attr->sharedSizeBytes = facts->static_shared_bytes;
        attr->localSizeBytes = facts->local_bytes;
        attr->maxThreadsPerBlock = facts->threads_max > 0 ? (int)facts->threads_max : THREADS_MOST;
        attr->binaryVersion = attr->ptxVersion = image;
        attr->maxDynamicSharedSizeBytes = (int)function->dynamic_most;
    }
    return standin_leave(error);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
    cudaError_t error = standin_enter("cudaGetFuncBySymbol");
    standin_function *function = standin_function_of(symbolPtr);
    if (error == cudaSuccess && function == NULL)
        error = cudaErrorInvalidDeviceFunction;
    *functionPtr = (cudaFunction_t)(void *)function;
    return standin_leave(error);
}

/* Given out by cudaGetDriverEntryPointByVersion (runtime_streams.c). */
CUresult cuFuncLoad(CUfunction function)
{
    const cudaError_t error = standin_enter("cuFuncLoad");
    if (error == cudaSuccess)
        ((standin_function *)(void *)function)->is_loaded = true;
    pthread_mutex_unlock(&standin.lock);
    return (CUresult)error;
}

/* By cudaFuncSetAttribute (runtime.c). */
void sl_shim_allow_shared(const void *kernel, size_t bytes)
{
    standin_function *function = standin_function_of(kernel);
    if (function != NULL)
        function->dynamic_most = (uint32_t)bytes;
}
