/* What the files of the cpu device share. */
#ifndef SL_DEVICE_CPU_H
#define SL_DEVICE_CPU_H

#include "device.h"

const sl_device_ops *sl_cpu_ops(void);

/* Takes `bytes` > 0 of zeroed memory by `flags` (sl_map_flags), huge pages where the system gives
 * them, left out of core dumps and of children that are forked. Start: 4 KiB aligned, 2 MiB from
 * that size up; guarded: 64 bytes. Its pages come when they are touched. SL_ERROR_SYSTEM when the
 * system refuses. Unmap wants the same `bytes` and `flags`. */
sl_status sl_cpu_memory_map(uint64_t bytes, int flags, void **out_memory);
void sl_cpu_memory_unmap(void *memory, uint64_t bytes, int flags);

/* Makes the pages of fresh memory exist, cleared by several threads where it is long; what memory
 * holds stays. Goes in steps and looks before each at what is still free: SL_ERROR_FIT, with the
 * numbers, where the step would take what the process needs besides; then only a part exists. */
sl_status sl_cpu_memory_populate(void *memory, uint64_t bytes);

/* Says how many bytes are free. */
typedef struct sl_cpu_free {
    sl_status (*read)(void *context, uint64_t *out_bytes);
    void *context;
} sl_cpu_free;

/* sl_cpu_memory_populate on a machine that has free what `free` says. */
sl_status sl_cpu_memory_populate_within(void *memory, uint64_t bytes, const sl_cpu_free *free);

/* Map, then populate. */
sl_status sl_cpu_memory_take(uint64_t bytes, int flags, void **out_memory);

/* As memcpy. Large copies pass by the caches. */
void sl_cpu_memory_copy(void *to, const void *from, uint64_t bytes);

#endif
