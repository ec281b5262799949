/* Memory of an exact length with a page before and behind it that nobody may touch.
 *
 * A region lies at the start of its pages (the engine's alignment, nothing readable before it), at
 * their end as far as that alignment lets it, or flush with their last byte. What is left of the
 * pages holds the region's pattern and is checked. A touch outside of the pages, or a write to a
 * region that is read only, ends the process and says which region it was.
 */
#ifndef SL_TESTS_OP_REGION_H
#define SL_TESTS_OP_REGION_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"

enum { REGION_ALIGNMENT = 256, REGIONS_MAX = 16, REGION_FAULT_CODE = 3 };

typedef enum region_end { REGION_AT_START, REGION_AT_END, REGION_FLUSH, REGION_ENDS } region_end;

typedef struct region {
    const char *name;
    uint8_t *map; /* a guard page, the pages, a guard page */
    uint64_t map_bytes;
    uint8_t *pages;
    uint64_t page_bytes;
    uint8_t *at; /* NULL: not there */
    uint64_t bytes;
    uint8_t pattern;
} region;

/* Where a fault looks for what was touched, and in what name it reports. */
static struct {
    const region *regions;
    int count;
    bool is_quiet;
    char what[160];
} region_watch;

static inline uint64_t region_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Opens `bytes` full of `pattern`; false without memory. */
static inline bool region_open(region *self, const char *name, uint64_t bytes, region_end end,
                               uint8_t pattern)
{
    const uint64_t page = region_page(), page_bytes = sl_bits_round_up(bytes, page);
    *self = (region){.name = name, .bytes = bytes, .page_bytes = page_bytes, .pattern = pattern};
    self->map_bytes = page_bytes + 2 * page;
    void *map =
        mmap(NULL, self->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    self->map = map;
    self->pages = self->map + page;
    if (mprotect(self->pages, page_bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    memset(self->pages, pattern, page_bytes);
    const uint64_t rest = page_bytes - bytes;
    self->at = self->pages;
    if (end == REGION_AT_END)
        self->at += rest - rest % REGION_ALIGNMENT;
    if (end == REGION_FLUSH)
        self->at += rest;
    return true;
}

static inline bool region_make_read_only(const region *self)
{
    return mprotect(self->pages, self->page_bytes, PROT_READ) == 0;
}

static inline bool region_holds_pattern(const region *self, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        if (self->pages[i] != self->pattern)
            return false;
    return true;
}

/* What lies before and behind the region in its pages is as it was. */
static inline bool region_margins_hold(const region *self)
{
    const uint64_t first = (uint64_t)(self->at - self->pages);
    return region_holds_pattern(self, 0, first) &&
           region_holds_pattern(self, first + self->bytes, self->page_bytes);
}

static inline void region_close(region *self)
{
    if (self->map != NULL)
        munmap(self->map, self->map_bytes);
    *self = (region){0};
}

static inline void region_report_fault(const uint8_t *address)
{
    for (int i = 0; i < region_watch.count; i++) {
        const region *one = &region_watch.regions[i];
        if (one->map == NULL || address < one->map || address >= one->map + one->map_bytes)
            continue;
        const long long at = (long long)(address - one->at);
        const bool is_inside = address >= one->pages && address < one->pages + one->page_bytes;
        fprintf(stderr, "%s: %s, %llu bytes: byte %lld is touched, %s\n", region_watch.what,
                one->name, (unsigned long long)one->bytes, at,
                is_inside ? "which is read only" : "which is not its own");
        return;
    }
    fprintf(stderr, "%s: a fault at %p\n", region_watch.what, (const void *)address);
}

static inline void region_on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    if (!region_watch.is_quiet)
        region_report_fault(info->si_addr);
    _exit(REGION_FAULT_CODE);
}

/* From here on a fault in this process is reported and ends it. */
static inline void region_catch_faults(void)
{
    struct sigaction action = {.sa_sigaction = region_on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

#endif
