/* The resident set of this process, explained: the kernel's own account of every mapping
 * (/proc/self/smaps), sorted by what the mapping is for. What is left over is said to be
 * unexplained. Page tables are the kernel's, beside the resident set.
 */
#ifndef SL_MEASURE_RESIDENT_H
#define SL_MEASURE_RESIDENT_H

#include <stdint.h>

#include "base/status.h"

/* Memory whose owner is known by its address. */
typedef struct sl_resident_range {
    const void *start;
    uint64_t bytes;
} sl_resident_range;

typedef enum sl_resident_kind {
    SL_RESIDENT_ARENAS,
    SL_RESIDENT_HEAP,   /* what the allocator says that it holds */
    SL_RESIDENT_STACKS, /* of all threads */
    SL_RESIDENT_CODE,   /* programs and libraries, their data included */
    SL_RESIDENT_FILES,  /* other mapped files, and memory of devices */
    SL_RESIDENT_RINGS,  /* shared with the kernel: io_uring */
    SL_RESIDENT_UNEXPLAINED,
    SL_RESIDENT_KIND_COUNT
} sl_resident_kind;

typedef struct sl_resident {
    uint64_t total_bytes; /* the kinds add up to it */
    uint64_t kind_bytes[SL_RESIDENT_KIND_COUNT];
    uint64_t rollup_bytes; /* what /proc/self/smaps_rollup says, read right after; 0: nothing */
    uint64_t peak_bytes;   /* the most that was ever resident (VmHWM); 0: not told */
    uint64_t page_table_bytes;
    uint32_t thread_count;
} sl_resident;

/* "arenas", "heap", ... */
const char *sl_resident_name(sl_resident_kind kind);

/* Reads all of it. `heap_bytes` is what the allocator holds resident; 0: not known. Stacks are
 * found for threads that sleep: the lanes should be idle. `root` is the directory that /proc/self
 * would be: NULL is the real one, others are for tests. SL_ERROR_SYSTEM: there is no smaps. */
sl_status sl_resident_read(const char *root, const sl_resident_range *arenas, uint32_t arena_count,
                           uint64_t heap_bytes, sl_resident *out_resident);

#endif
