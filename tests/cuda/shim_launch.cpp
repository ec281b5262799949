/* Launches: refuses what a GPU would refuse and puts the rest into its stream, where it runs when
 * its turn comes. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda.h"
#include "kernels/cuda/ops.h"
#include "shim_grid.h"
#include "shim_order.h"
#include "standin.h"

/* Of compute capability 9.0. */
enum {
    SHARED_BYTES_MOST = 227 << 10,
    SHARED_BYTES_UNASKED = 48 << 10,
    KERNELS_MOST = 256 /* that ask for more shared memory; that are loaded */
};

/* A launch on its way through a stream; its closure follows. */
typedef struct job {
    sl_shim_grid grid;
    sl_shim_kernel kernel;
    char *out_message; /* SHIM_MESSAGE_BYTES of who waits for it; NULL in a stream */
    alignas(16) unsigned char closure[];
} job;

static pthread_mutex_t asked_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *kernel;
    size_t bytes;
} asked[KERNELS_MOST];
static uint32_t asked_count;

void sl_shim_allow_shared(const void *kernel, size_t bytes)
{
    pthread_mutex_lock(&asked_lock);
    uint32_t i = 0;
    while (i < asked_count && asked[i].kernel != kernel)
        i++;
    if (i < KERNELS_MOST) {
        asked[i].kernel = kernel;
        asked[i].bytes = bytes;
        asked_count += i == asked_count;
    }
    pthread_mutex_unlock(&asked_lock);
}

/* ---- loading ---- */

static const void *loaded[KERNELS_MOST];
static uint32_t loaded_count;
static uint64_t unloaded_launches;

/* With the lock held. */
static bool is_loaded(const void *kernel)
{
    for (uint32_t i = 0; i < loaded_count; i++)
        if (loaded[i] == kernel)
            return true;
    return false;
}

static void load_kernel(const void *kernel)
{
    pthread_mutex_lock(&asked_lock);
    if (!is_loaded(kernel) && loaded_count < KERNELS_MOST)
        loaded[loaded_count++] = kernel;
    pthread_mutex_unlock(&asked_lock);
}

static void note_launch(const void *kernel)
{
    pthread_mutex_lock(&asked_lock);
    unloaded_launches += !is_loaded(kernel);
    pthread_mutex_unlock(&asked_lock);
}

uint64_t sl_shim_unloaded_count(void)
{
    pthread_mutex_lock(&asked_lock);
    const uint64_t count = unloaded_launches;
    pthread_mutex_unlock(&asked_lock);
    return count;
}

/* ---- launching ---- */

static sl_shim_note told_note;
static void *told_user;

void sl_shim_tell_launches(sl_shim_note note, void *user)
{
    told_note = note;
    told_user = user;
}

static size_t find_asked(const void *kernel)
{
    size_t bytes = SHARED_BYTES_UNASKED;
    pthread_mutex_lock(&asked_lock);
    for (uint32_t i = 0; i < asked_count; i++)
        if (asked[i].kernel == kernel && asked[i].bytes > bytes)
            bytes = asked[i].bytes;
    pthread_mutex_unlock(&asked_lock);
    return bytes < SHARED_BYTES_MOST ? bytes : (size_t)SHARED_BYTES_MOST;
}

static sl_status check_launch(const sl_shim_grid *g, const void *kernel)
{
    const dim3 block = g->block, grid = g->grid;
    const uint64_t count = (uint64_t)block.x * block.y * block.z;
    const size_t shared_most = find_asked(kernel);
    if (count == 0 || count > SHIM_THREADS_MOST || block.x > 1024 || block.y > 1024 || block.z > 64)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: a block of %u x %u x %u threads", g->name, block.x, block.y,
                block.z);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
        grid.z > 65535)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: a grid of %u x %u x %u blocks", g->name, grid.x, grid.y,
                grid.z);
    if (g->shared_bytes > shared_most)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: %zu bytes of shared memory, where %zu were asked for",
                g->name, g->shared_bytes, shared_most);
    return SL_OK;
}

static void run_job(void *argument)
{
    job *j = (job *)argument;
    char message[SHIM_MESSAGE_BYTES];
    const bool has_failed = !shim_grid_run(&j->grid, &j->kernel, message);
    if (j->out_message != NULL) {
        memcpy(j->out_message, message, sizeof message);
    } else if (has_failed) {
        fprintf(stderr, "%s\n", message);
        standin_break(cudaErrorLaunchFailure);
    }
}

sl_status sl_shim_launch_grid(const sl_shim_grid *grid, const sl_shim_kernel *kernel)
{
    char message[SHIM_MESSAGE_BYTES] = "";
    if (grid->stream == sl_load_only) {
        load_kernel(kernel->kernel);
        return SL_OK;
    }
    SL_TRY(check_launch(grid, kernel->kernel));
    if (told_note != NULL) {
        told_note(told_user, grid->name);
        return SL_OK;
    }
    note_launch(kernel->kernel);
    job *j = (job *)malloc(sizeof *j + kernel->closure_bytes);
    if (j == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: no memory", grid->name);
    j->grid = *grid;
    j->kernel = *kernel;
    memcpy(j->closure, kernel->closure, kernel->closure_bytes);
    j->kernel.closure = j->closure;
    j->out_message = grid->stream == NULL ? message : NULL;
    const int error = standin_queue_owned(grid->stream, grid->name, run_job, j);
    if (error != cudaSuccess) {
        free(j);
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA refuses to launch %s: error %d", grid->name, error);
    }
    sl_cuda_note_launches(1);
    if (message[0] != '\0')
        SL_FAIL(SL_ERROR_SYSTEM, "%s", message);
    return SL_OK;
}
