/* Memory of the cpu device: anonymous mappings, and copies between them. Knows nothing of its
 * users.
 *
 * A guarded mapping is [guard page | slack < 1 page | memory | guard page] with the memory's size
 * rounded up to 64 bytes, so that a write past its end faults at once. Unmapping finds the mapping
 * from the address, the size and the flags; no list of mappings is kept.
 *
 * Large copies use non-temporal stores. memcpy reads every line of the destination before it
 * overwrites the line, because it uses such stores only above three quarters of the last level's
 * cache, which few chunks reach. Copying four pages side by side keeps more memory banks busy than
 * one page (Emerald Rapids, 32 MiB, GB/s: memcpy 6.8, one page 10.1, four 11.6).
 */
#define _GNU_SOURCE
#include "cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/heartbeat.h"
#include "base/workers.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define GUARD_ALIGNMENT UINT64_C(64)

/* The system's header may be older than the kernel. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PATTERN_BYTE = 0xA5, POPULATE_THREADS_MAX = 16 };
static const uint64_t POPULATE_TILE_BYTES = UINT64_C(32) << 20;

/* Larger requests could overflow when rounded; no machine has them. */
#define BYTES_MAX (UINT64_C(1) << 56)

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static sl_status map_pages(uint64_t bytes, int protection, unsigned char **out_base)
{
    void *base = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        SL_FAIL(SL_ERROR_SYSTEM, "the system refuses %" PRIu64 " bytes of memory: %s", bytes,
                strerror(errno));
    *out_base = base;
    return SL_OK;
}

/* Advice only: without it memory is still correct. MADV_DONTFORK: after a fork that shared these
 * pages, this process would write to copies of them, while disk and GPU still use the original
 * pages. */
static void advise_pages(void *memory, uint64_t bytes)
{
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    (void)madvise(memory, bytes, MADV_DONTDUMP);
    (void)madvise(memory, bytes, MADV_DONTFORK);
}

static sl_status map_guarded(uint64_t bytes, int flags, void **out_memory)
{
    uint64_t used_bytes = sl_bits_round_up(bytes, GUARD_ALIGNMENT);
    uint64_t inner_bytes = sl_bits_round_up(used_bytes, page_size());
    unsigned char *base = NULL;
    SL_TRY(map_pages(inner_bytes + 2 * page_size(), PROT_NONE, &base));
    unsigned char *inner = base + page_size();
    if (mprotect(inner, inner_bytes, PROT_READ | PROT_WRITE) != 0) {
        int error = errno;
        munmap(base, inner_bytes + 2 * page_size());
        SL_FAIL(SL_ERROR_SYSTEM, "the system refuses %" PRIu64 " bytes of guarded memory: %s",
                bytes, strerror(error));
    }
    advise_pages(inner, inner_bytes);
    if (flags & SL_MAP_PATTERN)
        memset(inner, PATTERN_BYTE, inner_bytes);
    *out_memory = inner + (inner_bytes - used_bytes);
    return SL_OK;
}

/* Maps enough for a range that starts on a huge page, and unmaps the rest. */
static sl_status map_aligned(uint64_t bytes, void **out_memory)
{
    unsigned char *base = NULL;
    SL_TRY(map_pages(bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, &base));
    uint64_t front_bytes = sl_bits_round_up((uintptr_t)base, HUGE_PAGE_BYTES) - (uintptr_t)base;
    if (front_bytes > 0)
        munmap(base, front_bytes);
    if (front_bytes < HUGE_PAGE_BYTES)
        munmap(base + front_bytes + bytes, HUGE_PAGE_BYTES - front_bytes);
    *out_memory = base + front_bytes;
    return SL_OK;
}

static sl_status map_plain(uint64_t bytes, int flags, void **out_memory)
{
    uint64_t page_bytes = sl_bits_round_up(bytes, page_size());
    void *memory;
    if (page_bytes >= HUGE_PAGE_BYTES) {
        SL_TRY(map_aligned(page_bytes, &memory));
    } else {
        unsigned char *base = NULL;
        SL_TRY(map_pages(page_bytes, PROT_READ | PROT_WRITE, &base));
        memory = base;
    }
    advise_pages(memory, page_bytes);
    if (flags & SL_MAP_PATTERN)
        memset(memory, PATTERN_BYTE, page_bytes);
    *out_memory = memory;
    return SL_OK;
}

sl_status sl_cpu_memory_map(uint64_t bytes, int flags, void **out_memory)
{
    if (bytes == 0 || bytes > BYTES_MAX)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot map %" PRIu64 " bytes of memory", bytes);
    if (flags & SL_MAP_GUARDS)
        return map_guarded(bytes, flags, out_memory);
    return map_plain(bytes, flags, out_memory);
}

void sl_cpu_memory_unmap(void *memory, uint64_t bytes, int flags)
{
    if (!memory)
        return;
    if (!(flags & SL_MAP_GUARDS)) {
        munmap(memory, sl_bits_round_up(bytes, page_size()));
        return;
    }
    uint64_t used_bytes = sl_bits_round_up(bytes, GUARD_ALIGNMENT);
    uint64_t inner_bytes = sl_bits_round_up(used_bytes, page_size());
    unsigned char *inner = (unsigned char *)memory - (inner_bytes - used_bytes);
    munmap(inner - page_size(), inner_bytes + 2 * page_size());
}

/* ---- making pages exist ----
 *
 * Mapped memory without pages is a promise; if the system cannot keep it, it kills a process. So
 * all pages are allocated at once, in steps, and the free bytes are read again before each step,
 * because other processes allocate too. A step takes at most a quarter of the free bytes: so even a
 * few processes that read the same number at the same moment cannot take more than there is, and
 * some is left for what the process needs besides.
 */

static const uint64_t STEP_BYTES_MIN = UINT64_C(2) << 20;

typedef struct populate_job {
    unsigned char *start;
    uint64_t bytes;
    _Atomic int error; /* an errno; 0: none yet */
} populate_job;

/* Kernels before 5.14 do not know MADV_POPULATE_WRITE: then a byte of each page is written. */
static void populate_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    populate_job *job = argument;
    volatile unsigned char *tile = job->start + tile_index * POPULATE_TILE_BYTES;
    uint64_t left = job->bytes - tile_index * POPULATE_TILE_BYTES;
    uint64_t bytes = left < POPULATE_TILE_BYTES ? left : POPULATE_TILE_BYTES;
    if (madvise((void *)tile, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) {
        atomic_store(&job->error, errno);
        return;
    }
    for (uint64_t i = 0; i < bytes; i += page_size())
        tile[i] = tile[i];
}

static sl_status populate_step(sl_workers *workers, populate_job *job)
{
    uint64_t tiles = sl_bits_round_up(job->bytes, POPULATE_TILE_BYTES) / POPULATE_TILE_BYTES;
    sl_workers_run(workers, tiles, populate_tile, job);
    int error = atomic_load(&job->error);
    if (error != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "the system refuses %" PRIu64 " bytes of memory: %s", job->bytes,
                strerror(error));
    return SL_OK;
}

/* How many of `left` bytes the next step may take; 0: too little is free. */
static uint64_t find_step(uint64_t left, uint64_t free_bytes, uint64_t keep)
{
    uint64_t spare = free_bytes > keep ? free_bytes - keep : 0;
    uint64_t most = POPULATE_TILE_BYTES * POPULATE_THREADS_MAX;
    uint64_t step = spare / 4 / STEP_BYTES_MIN * STEP_BYTES_MIN;
    step = step < STEP_BYTES_MIN ? STEP_BYTES_MIN : step;
    step = step < most ? step : most;
    step = step < left ? step : left;
    return step <= spare ? step : 0;
}

static sl_status populate_steps(sl_workers *workers, unsigned char *start, uint64_t bytes,
                                const sl_cpu_free *free)
{
    uint64_t keep = UINT64_MAX, step;
    for (uint64_t done = 0; done < bytes; done += step) {
        uint64_t free_bytes;
        SL_TRY(free->read(free->context, &free_bytes));
        if (keep == UINT64_MAX)
            keep = sl_device_host_reserve_bytes(free_bytes);
        step = find_step(bytes - done, free_bytes, keep);
        if (step == 0)
            SL_FAIL(SL_ERROR_FIT,
                    "%" PRIu64 " of %" PRIu64 " bytes of memory were taken, and only %" PRIu64
                    " are still free: other work takes memory at the same time; wait for it, or "
                    "give smaller budgets",
                    done, bytes, free_bytes);
        populate_job job = {.start = start + done, .bytes = step};
        SL_TRY(populate_step(workers, &job));
        SL_TRY(sl_heartbeat_give());
    }
    return SL_OK;
}

sl_status sl_cpu_memory_populate_within(void *memory, uint64_t bytes, const sl_cpu_free *free)
{
    uint64_t front_bytes = (uintptr_t)memory % page_size();
    uint64_t page_bytes = sl_bits_round_up(front_bytes + bytes, page_size());
    uint64_t tiles = sl_bits_round_up(page_bytes, POPULATE_TILE_BYTES) / POPULATE_TILE_BYTES;
    uint64_t cpus = sl_workers_usable_cpu_count();
    cpus = cpus < POPULATE_THREADS_MAX ? cpus : POPULATE_THREADS_MAX;
    sl_workers *workers = NULL;
    SL_TRY(sl_workers_open((uint32_t)(cpus < tiles ? cpus : tiles), &workers));
    sl_status status =
        populate_steps(workers, (unsigned char *)memory - front_bytes, page_bytes, free);
    sl_workers_close(workers);
    return status;
}

static sl_status read_free_bytes(void *context, uint64_t *out_bytes)
{
    (void)context;
    return sl_device_host_free_bytes(out_bytes);
}

sl_status sl_cpu_memory_populate(void *memory, uint64_t bytes)
{
    const sl_cpu_free here = {read_free_bytes, NULL};
    return sl_cpu_memory_populate_within(memory, bytes, &here);
}

sl_status sl_cpu_memory_take(uint64_t bytes, int flags, void **out_memory)
{
    void *memory = NULL;
    SL_TRY(sl_cpu_memory_map(bytes, flags, &memory));
    sl_status status = sl_cpu_memory_populate(memory, bytes);
    if (status != SL_OK) {
        sl_cpu_memory_unmap(memory, bytes, flags);
        return status;
    }
    *out_memory = memory;
    return SL_OK;
}

/* ---- copies ---- */

enum { COPY_LEAST_BYTES = 1 << 20, LINE_BYTES = 64, PAGE_BYTES = 4096, PAGES = 4 };
enum { GROUP_BYTES = PAGES * PAGE_BYTES };

#if defined(__x86_64__)
#include <immintrin.h>

/* Both functions need an aligned destination and whole groups. */
__attribute__((target("avx512f"))) static void copy_past_caches_avx512(unsigned char *to,
                                                                       const unsigned char *from,
                                                                       uint64_t bytes)
{
    for (uint64_t group = 0; group < bytes; group += GROUP_BYTES)
        for (uint64_t line = group; line < group + PAGE_BYTES; line += LINE_BYTES)
            for (uint64_t at = line; at < line + GROUP_BYTES; at += PAGE_BYTES)
                _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
    _mm_sfence();
}

__attribute__((target("avx2"))) static void copy_past_caches_avx2(unsigned char *to,
                                                                  const unsigned char *from,
                                                                  uint64_t bytes)
{
    for (uint64_t group = 0; group < bytes; group += GROUP_BYTES)
        for (uint64_t line = group; line < group + PAGE_BYTES; line += LINE_BYTES)
            for (uint64_t at = line; at < line + GROUP_BYTES; at += PAGE_BYTES) {
                __m256i low = _mm256_loadu_si256((const void *)(from + at));
                __m256i high = _mm256_loadu_si256((const void *)(from + at + LINE_BYTES / 2));
                _mm256_stream_si256((void *)(to + at), low);
                _mm256_stream_si256((void *)(to + at + LINE_BYTES / 2), high);
            }
    _mm_sfence();
}

/* False if this processor has no such stores. */
static bool copy_past_caches(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    if (__builtin_cpu_supports("avx512f"))
        copy_past_caches_avx512(to, from, bytes);
    else if (__builtin_cpu_supports("avx2"))
        copy_past_caches_avx2(to, from, bytes);
    else
        return false;
    return true;
}
#else
static bool copy_past_caches(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return false;
}
#endif

void sl_cpu_memory_copy(void *to, const void *from, uint64_t bytes)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    uint64_t head = (LINE_BYTES - (uintptr_t)to % LINE_BYTES) % LINE_BYTES;
    uint64_t body = bytes < COPY_LEAST_BYTES ? 0 : (bytes - head) / GROUP_BYTES * GROUP_BYTES;
    if (body == 0 || !copy_past_caches(target + head, source + head, body)) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(target, source, head);
    memcpy(target + head + body, source + head + body, bytes - head - body);
}
