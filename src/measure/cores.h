/* The processor time that this process had, and the time that its threads were ready and had to
 * wait for a core, because other work ran on it or a cgroup's quota was used up: the scheduler's
 * own account (/proc/self/task/N/schedstat).
 */
#ifndef SL_MEASURE_CORES_H
#define SL_MEASURE_CORES_H

#include <stdint.h>

/* Sums over the threads that are there now, since each began. Zeros where the kernel does not say.
 */
typedef struct sl_cores {
    uint64_t used_ns, waited_ns;
} sl_cores;

/* `root` is the directory that /proc/self would be: NULL is the real one, others are for tests. */
sl_cores sl_cores_read(const char *root);

/* The share of the time between two readings, 0 to 1, that threads which could have run waited for
 * a core; 0 where none ran, or threads ended meanwhile, whose sums are gone. */
double sl_cores_find_waited(const sl_cores *before, const sl_cores *after);

#endif
