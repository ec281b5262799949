/* What the rules of this process leave of the machine: memory and processors (Linux, cgroups of
 * both versions). Every call reads the rules anew. `root` is the directory that the file system's
 * root would be: "" is the real one. */
#ifndef SL_BASE_LIMITS_H
#define SL_BASE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

typedef struct sl_limits_memory {
    uint64_t free_bytes;         /* that this process may still take: the least of what follows */
    uint64_t available_bytes;    /* the machine has */
    uint64_t cgroup_free_bytes;  /* that the cgroup which leaves least leaves; UINT64_MAX: none has
                                    a limit */
    uint64_t cgroup_limit_bytes; /* of that cgroup; UINT64_MAX: none */
} sl_limits_memory;

/* SL_ERROR_SYSTEM if even <root>/proc/meminfo cannot be read. */
sl_status sl_limits_read_memory(const char *root, sl_limits_memory *out_memory);

/* Processors' worth of time that the cgroups leave; 0: they leave all. */
double sl_limits_cpu_quota(const char *root);

/* How many of `allowed_count` processors that is: rounded up, for to leave a part of one idle costs
 * more than to share it. */
uint32_t sl_limits_cpu_count(const char *root, uint32_t allowed_count);

/* True if what is stored in a directory takes memory: tmpfs and ramfs. */
bool sl_limits_is_in_memory(const char *directory);

#endif
