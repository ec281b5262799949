/* What the files of the cpu device share. */
#ifndef SL_DEVICE_CPU_H
#define SL_DEVICE_CPU_H

#include "device.h"

const sl_device_ops *sl_cpu_ops(void);

/* Maps `bytes` > 0 of zeroed memory by `flags` (sl_map_flags): huge pages if the system gives them,
 * excluded from core dumps and from forked children. Alignment: 4 KiB, from 2 MiB on 2 MiB;
 * guarded: 64 bytes. Pages are allocated when first touched. SL_ERROR_SYSTEM: the system refuses.
 * Unmap with the same `bytes` and `flags`. */
sl_status sl_cpu_memory_map(uint64_t bytes, int flags, void **out_memory);
void sl_cpu_memory_unmap(void *memory, uint64_t bytes, int flags);

/* Allocates the pages of mapped memory, large ranges by several threads; contents stay. Works in
 * steps and reads before each step how much is free. SL_ERROR_FIT, with the numbers: the step would
 * take what the process needs besides; then only some of the pages are allocated. */
sl_status sl_cpu_memory_populate(void *memory, uint64_t bytes);

/* A source for the number of free bytes. */
typedef struct sl_cpu_free {
    sl_status (*read)(void *context, uint64_t *out_bytes);
    void *context;
} sl_cpu_free;

/* sl_cpu_memory_populate with the free bytes of `free`. */
sl_status sl_cpu_memory_populate_within(void *memory, uint64_t bytes, const sl_cpu_free *free);

/* Map, then populate. */
sl_status sl_cpu_memory_take(uint64_t bytes, int flags, void **out_memory);

/* As memcpy. Large copies bypass the caches. */
void sl_cpu_memory_copy(void *to, const void *from, uint64_t bytes);

#endif
