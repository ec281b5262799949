/* Memory of the cpu device: anonymous mappings. Knows nothing of who uses them.
 *
 * A guarded mapping is [guard page | slack < 1 page | memory | guard page] with the memory's size
 * rounded up to 64 bytes, so that a write past its end faults at once. Unmapping finds the mapping
 * from the address, the size and the flags alone: nothing is remembered.
 */
#define _GNU_SOURCE
#include "cpu.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define GUARD_ALIGNMENT UINT64_C(64)

enum { PATTERN_BYTE = 0xA5 };

/* Larger requests could overflow when rounded; no machine has them. */
#define BYTES_MAX (UINT64_C(1) << 56)

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static sl_status reserve(uint64_t bytes, int protection, unsigned char **out_base)
{
    void *base = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        SL_FAIL(SL_ERROR_SYSTEM, "the system refuses %" PRIu64 " bytes of memory: %s", bytes,
                strerror(errno));
    *out_base = base;
    return SL_OK;
}

/* Advice only: a kernel that knows neither still gives correct memory. */
static void advise(void *memory, uint64_t bytes)
{
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    (void)madvise(memory, bytes, MADV_DONTDUMP);
}

static sl_status map_guarded(uint64_t bytes, int flags, void **out_memory)
{
    uint64_t used_bytes = sl_bits_round_up(bytes, GUARD_ALIGNMENT);
    uint64_t inner_bytes = sl_bits_round_up(used_bytes, page_size());
    unsigned char *base = NULL;
    SL_TRY(reserve(inner_bytes + 2 * page_size(), PROT_NONE, &base));
    unsigned char *inner = base + page_size();
    if (mprotect(inner, inner_bytes, PROT_READ | PROT_WRITE) != 0) {
        int error = errno;
        munmap(base, inner_bytes + 2 * page_size());
        SL_FAIL(SL_ERROR_SYSTEM, "the system refuses %" PRIu64 " bytes of guarded memory: %s",
                bytes, strerror(error));
    }
    advise(inner, inner_bytes);
    if (flags & SL_MAP_PATTERN)
        memset(inner, PATTERN_BYTE, inner_bytes);
    *out_memory = inner + (inner_bytes - used_bytes);
    return SL_OK;
}

/* Maps enough to cut out a stretch that starts on a huge page, and gives the rest back. */
static sl_status map_aligned(uint64_t bytes, void **out_memory)
{
    unsigned char *base = NULL;
    SL_TRY(reserve(bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, &base));
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
        SL_TRY(reserve(page_bytes, PROT_READ | PROT_WRITE, &base));
        memory = base;
    }
    advise(memory, page_bytes);
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
