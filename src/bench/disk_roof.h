/* What the disks do without the store: the line its rates are held against. */
#ifndef SL_BENCH_DISK_ROOF_H
#define SL_BENCH_DISK_ROOF_H

#include "bench.h"
#include "offload/store.h"

/* Raises `out_rates` to bytes a second by lane: threads that move pieces of `bytes` bytes of files
 * in the directories, past the page cache, no checksums. */
sl_status sl_disk_roof(const sl_bench_options *options, uint64_t bytes,
                       double out_rates[SL_STORE_LANE_COUNT]);

#endif
