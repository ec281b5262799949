/* Memory of the cuda device. Device memory is one cudaMalloc. Host memory is one mapping of the cpu
 * device, near the GPU, locked by cudaHostRegister in pieces, so that a refused piece does not
 * unlock the others. (cudaHostAlloc would do for copies, but the disk tier registers the same
 * memory with io_uring, which older kernels refuse for memory that a driver mapped.)
 *
 * Device memory has no pages that could be protected. Guarded device memory lies between two zones
 * of a pattern, which unmapping checks.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "cpu.h"
#include "cuda_internal.h"

enum { ALIGNMENT = 4096, ZONE_BYTES = 4096, ZONE_BYTE = 0xDB, PATTERN_BYTE = 0xA5 };

/* Larger requests could overflow when rounded; no machine has them. */
#define BYTES_MAX (UINT64_C(1) << 56)

#ifndef SL_CUDA_LOCK_BYTES /* tests use small ones */
#define SL_CUDA_LOCK_BYTES (UINT64_C(1) << 30)
#endif

struct sl_cuda_range {
    sl_cuda_range *next;
    void *memory;          /* the caller's address */
    void *base;            /* the allocation's address; of host memory, its first page */
    uint64_t locked_bytes; /* of host memory, in whole pages: bytes that CUDA was asked to lock */
    bool *is_locked;       /* of each piece of SL_CUDA_LOCK_BYTES */
};

static sl_status add_range(sl_device *device, sl_cuda_range **out_range)
{
    sl_cuda_range *range = calloc(1, sizeof *range);
    if (!range)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a note of memory");
    range->next = device->ranges;
    device->ranges = range;
    *out_range = range;
    return SL_OK;
}

/* Removes the range of `memory` from the list; the caller frees it. */
static sl_cuda_range *take_range(sl_device *device, const void *memory)
{
    for (sl_cuda_range **link = &device->ranges; *link; link = &(*link)->next) {
        if ((*link)->memory == memory) {
            sl_cuda_range *found = *link;
            *link = found->next;
            return found;
        }
    }
    return NULL;
}

/* Unmapping returns no status, so failures go to the log. */
static void log_failure(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return;
    (void)sl_cuda_fail(error, call, NULL);
    sl_log_write(SL_LOG_WARNING, "%s", sl_status_message());
}

/* ---- device memory ---- */

/* A failure names the free bytes: another process may have taken memory since the run was
 * planned. */
static sl_status allocate(uint64_t bytes, void **out_base)
{
    cudaError_t error = cudaMalloc(out_base, bytes);
    size_t free_bytes = 0, total_bytes = 0;
    if (error == cudaSuccess)
        return SL_OK;
    if (error != cudaErrorMemoryAllocation)
        return sl_cuda_fail(error, "cudaMalloc", NULL);
    sl_cuda_forget_error();
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        sl_cuda_forget_error();
    SL_FAIL(
        SL_ERROR_FIT,
        "the GPU does not give so much memory at once, %zu bytes of its %zu are free: plan with "
        "less (--device-memory), or end what else runs there",
        free_bytes, total_bytes);
}

/* cudaMalloc promises 256 bytes of alignment and in practice gives more. */
static sl_status allocate_aligned(uint64_t bytes, void **out_base, unsigned char **out_start)
{
    void *base = NULL;
    SL_TRY(allocate(bytes, &base));
    if ((uintptr_t)base % ALIGNMENT != 0) {
        SL_CUDA_TRY(NULL, cudaFree(base));
        SL_TRY(allocate(bytes + ALIGNMENT, &base));
    }
    *out_base = base;
    *out_start = (unsigned char *)base + (ALIGNMENT - (uintptr_t)base % ALIGNMENT) % ALIGNMENT;
    return SL_OK;
}

static sl_status fill_range(sl_device *device, unsigned char *start, uint64_t bytes, int flags)
{
    bool is_guarded = flags & SL_MAP_GUARDS;
    unsigned char *memory = start + (is_guarded ? ZONE_BYTES : 0);
    if (is_guarded)
        SL_CUDA_TRY(NULL, cudaMemsetAsync(start, ZONE_BYTE, bytes + 2 * (uint64_t)ZONE_BYTES,
                                          device->stream));
    SL_CUDA_TRY(NULL, cudaMemsetAsync(memory, flags & SL_MAP_PATTERN ? PATTERN_BYTE : 0, bytes,
                                      device->stream));
    SL_CUDA_TRY(NULL, cudaStreamSynchronize(device->stream));
    return SL_OK;
}

static sl_status map_range(sl_device *device, uint64_t bytes, int flags, sl_cuda_range *range)
{
    uint64_t extra = flags & SL_MAP_GUARDS ? ZONE_BYTES : 0;
    unsigned char *start = NULL;
    SL_TRY(allocate_aligned(bytes + 2 * extra, &range->base, &start));
    range->memory = start + extra;
    return fill_range(device, start, bytes, flags);
}

static void drop_range(sl_cuda_range *range)
{
    if (range->base)
        log_failure(cudaFree(range->base), "cudaFree");
    free(range);
}

sl_status sl_cuda_map(sl_device *device, uint64_t bytes, int flags, void **out_memory)
{
    sl_cuda_range *range = NULL;
    if (bytes == 0 || bytes > BYTES_MAX)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot map %" PRIu64 " bytes of device memory", bytes);
    SL_TRY(add_range(device, &range));
    sl_status status = map_range(device, bytes, flags, range);
    if (status != SL_OK) {
        if (cudaStreamSynchronize(device->stream) != cudaSuccess) /* waits for the fill */
            sl_cuda_forget_error();
        device->ranges = range->next;
        drop_range(range);
        return sl_status_prefix(status, "%" PRIu64 " bytes of device memory", bytes);
    }
    *out_memory = range->memory;
    return SL_OK;
}

/* Logs the first byte of a zone that was written to; `at` is the zone's offset from the memory. */
static void check_zone(const unsigned char *zone, int64_t at)
{
    unsigned char seen[ZONE_BYTES];
    cudaError_t error = cudaMemcpy(seen, zone, sizeof seen, cudaMemcpyDeviceToHost);
    log_failure(error, "reading a guard");
    for (int i = 0; error == cudaSuccess && i < ZONE_BYTES; i++) {
        if (seen[i] == ZONE_BYTE)
            continue;
        sl_log_write(SL_LOG_WARNING,
                     "device memory was written outside of its bounds, at offset %" PRId64, at + i);
        return;
    }
}

void sl_cuda_unmap(sl_device *device, void *memory, uint64_t bytes, int flags)
{
    sl_cuda_range *range = memory ? take_range(device, memory) : NULL;
    if (!range)
        return;
    unsigned char *start = memory;
    if (flags & SL_MAP_GUARDS) {
        check_zone(start - ZONE_BYTES, -(int64_t)ZONE_BYTES);
        check_zone(start + bytes, (int64_t)bytes);
    }
    drop_range(range);
}

/* ---- host memory ---- */

/* Advice only: memory on another node is slower, not wrong. No page exists yet. */
static void prefer_near_node(const sl_device *device, void *start, uint64_t bytes)
{
    enum { PREFERRED = 1, NODES_MAX = 1024, WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NODES_MAX / WORD_BITS] = {0};
    int node = device->info.numa_node;
    if (node < 0 || node >= NODES_MAX)
        return;
    nodes[(unsigned)node / WORD_BITS] |= 1ul << (unsigned)node % WORD_BITS;
    (void)syscall(SYS_mbind, start, bytes, PREFERRED, nodes, (unsigned long)NODES_MAX + 1, 0);
}

/* The whole pages around the memory, which are locked. */
static unsigned char *find_pages(void *memory, uint64_t bytes, uint64_t *out_bytes)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t front_bytes = (uintptr_t)memory % page_bytes;
    *out_bytes = sl_bits_round_up(front_bytes + bytes, page_bytes);
    return (unsigned char *)memory - front_bytes;
}

static uint64_t count_pieces(const sl_cuda_range *range)
{
    return sl_bits_divide_up(range->locked_bytes, SL_CUDA_LOCK_BYTES);
}

/* The piece's first byte; *out_bytes: its length. */
static unsigned char *find_piece(const sl_cuda_range *range, uint64_t index, uint64_t *out_bytes)
{
    uint64_t first = index * SL_CUDA_LOCK_BYTES, left = range->locked_bytes - first;
    *out_bytes = left < SL_CUDA_LOCK_BYTES ? left : SL_CUDA_LOCK_BYTES;
    return (unsigned char *)range->base + first;
}

/* Once per device. The driver pins pages by itself, regardless of RLIMIT_MEMLOCK. */
static void warn_of_locking(sl_device *device, uint64_t missing_bytes, uint64_t bytes,
                            cudaError_t error)
{
    bool has_warned = device->has_unlocked;
    device->has_unlocked = true;
    if (!has_warned)
        sl_log_write(SL_LOG_WARNING,
                     "CUDA does not lock %" PRIu64 " of %" PRIu64 " bytes of host memory (%s): "
                     "copies of these are slower, and the GPU does not work beside them; the rest "
                     "is locked. Take less host memory (--host-memory); ulimit -l is not what "
                     "limits it",
                     missing_bytes, bytes, cudaGetErrorString(error));
}

static void lock_range(sl_device *device, sl_cuda_range *range)
{
    cudaError_t last_error = cudaSuccess;
    uint64_t missing_bytes = 0;
    for (uint64_t i = 0; i < count_pieces(range); i++) {
        uint64_t bytes;
        void *piece = find_piece(range, i, &bytes);
        cudaError_t error = cudaHostRegister(piece, bytes, cudaHostRegisterPortable);
        range->is_locked[i] = error == cudaSuccess;
        if (range->is_locked[i])
            continue;
        sl_cuda_forget_error();
        last_error = error;
        missing_bytes += bytes;
    }
    if (missing_bytes > 0)
        warn_of_locking(device, missing_bytes, range->locked_bytes, last_error);
}

static void unlock_range(const sl_cuda_range *range)
{
    for (uint64_t i = 0; i < count_pieces(range); i++) {
        uint64_t bytes;
        void *piece = find_piece(range, i, &bytes);
        if (range->is_locked[i])
            log_failure(cudaHostUnregister(piece), "cudaHostUnregister");
    }
}

/* A copy ends at the edge of a locked piece, because each piece is a registration of its own. */
static uint64_t find_part(const sl_device *device, const unsigned char *start, uint64_t bytes)
{
    for (const sl_cuda_range *range = device->ranges; range; range = range->next) {
        const unsigned char *base = range->base;
        if (!range->is_locked || start < base || start >= base + range->locked_bytes)
            continue;
        const uint64_t left = SL_CUDA_LOCK_BYTES - (uint64_t)(start - base) % SL_CUDA_LOCK_BYTES;
        return left < bytes ? left : bytes;
    }
    return bytes;
}

uint64_t sl_cuda_copy_part(const sl_device *device, const void *to, const void *from,
                           uint64_t bytes)
{
    return find_part(device, from, find_part(device, to, bytes));
}

static sl_status map_host_range(uint64_t bytes, int flags, sl_cuda_range *range)
{
    SL_TRY(sl_cpu_memory_map(bytes, flags, &range->memory));
    range->base = find_pages(range->memory, bytes, &range->locked_bytes);
    range->is_locked = calloc(count_pieces(range), sizeof *range->is_locked);
    if (range->is_locked)
        return SL_OK;
    sl_cpu_memory_unmap(range->memory, bytes, flags);
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a note of locked memory");
}

/* With SL_MAP_PATTERN pages exist before the node is chosen; only tests use it. */
sl_status sl_cuda_map_host(sl_device *device, uint64_t bytes, int flags, void **out_memory)
{
    sl_cuda_range *range = NULL;
    SL_TRY(add_range(device, &range));
    sl_status status = map_host_range(bytes, flags, range);
    if (status != SL_OK) {
        device->ranges = range->next;
        free(range);
        return status;
    }
    prefer_near_node(device, range->base, range->locked_bytes);
    status = sl_cpu_memory_populate(range->base, range->locked_bytes);
    if (status != SL_OK) {
        sl_cuda_unmap_host(device, range->memory, bytes, flags);
        return status;
    }
    lock_range(device, range);
    *out_memory = range->memory;
    return SL_OK;
}

void sl_cuda_unmap_host(sl_device *device, void *memory, uint64_t bytes, int flags)
{
    sl_cuda_range *range = memory ? take_range(device, memory) : NULL;
    if (!range)
        return;
    unlock_range(range);
    free(range->is_locked);
    free(range);
    sl_cpu_memory_unmap(memory, bytes, flags);
}
