/* Memory and processors that this process may use (Linux, cgroups of versions 1 and 2). Every call
 * reads the limits anew. `root` is put in front of "/proc/..." and of cgroup directories: "" except
 * in tests. */
#ifndef SL_BASE_LIMITS_H
#define SL_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

typedef struct sl_limits_memory {
    uint64_t free_bytes;         /* that this process may still take: the smaller of the next two */
    uint64_t available_bytes;    /* on the machine */
    uint64_t cgroup_free_bytes;  /* of the cgroup with the fewest free bytes; UINT64_MAX: no cgroup
                                    has a limit */
    uint64_t cgroup_limit_bytes; /* of that cgroup; UINT64_MAX: none */
} sl_limits_memory;

/* SL_ERROR_SYSTEM: <root>/proc/meminfo cannot be read. */
sl_status sl_limits_read_memory(const char *root, sl_limits_memory *out_memory);

/* The processor time that the cgroups allow, in processors; 0: no limit. */
double sl_limits_cpu_quota(const char *root);

/* `allowed_count`, or the quota of the cgroups rounded up if that is less: leaving a part of a
 * processor idle costs more than sharing it. */
uint32_t sl_limits_cpu_count(const char *root, uint32_t allowed_count);

/* True if the files of a directory are in memory: tmpfs and ramfs. */
bool sl_limits_is_in_memory(const char *directory);

#endif
