/* How fast the cores of one NUMA node read the memory of another. */
#ifndef SL_BENCH_NUMA_H
#define SL_BENCH_NUMA_H

#include "bench.h"

/* Adds a row for each pair of nodes, or writes bench->numa_note: a build without hwloc, a machine
 * whose nodes cannot be seen, threads that may not be bound. */
sl_status sl_numa_measure(const sl_bench_options *options, sl_bench *bench);

#endif
