/* What the files of the cpu device share. */
#ifndef SL_DEVICE_CPU_H
#define SL_DEVICE_CPU_H

#include "device.h"

const sl_device_ops *sl_cpu_ops(void);

/* Takes `bytes` > 0 of zeroed memory by `flags` (sl_map_flags), huge pages where the system gives
 * them, left out of core dumps. Start: 4 KiB aligned, 2 MiB from that size up; guarded: 64 bytes.
 * SL_ERROR_SYSTEM when the system refuses. Unmap wants the same `bytes` and `flags`. */
sl_status sl_cpu_memory_map(uint64_t bytes, int flags, void **out_memory);
void sl_cpu_memory_unmap(void *memory, uint64_t bytes, int flags);

/* Makes the pages of fresh memory exist, cleared by several threads where it is long: whoever locks
 * it later would do that by one. Advice: where it fails, pages come when they are first touched. */
void sl_cpu_memory_populate(void *memory, uint64_t bytes);

/* As memcpy. Large copies pass by the caches. */
void sl_cpu_memory_copy(void *to, const void *from, uint64_t bytes);

/* sl_device_host_free_bytes as it would be if the file system's root were the directory `root`
 * ("" is the real one). SL_ERROR_SYSTEM if even <root>/proc/meminfo cannot be read. */
sl_status sl_cpu_limits_free_bytes(const char *root, uint64_t *out_bytes);

#endif
