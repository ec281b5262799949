/* The disk tier's rates, through the disk store itself. */
#ifndef SL_BENCH_DISK_H
#define SL_BENCH_DISK_H

#include "bench.h"
#include "rig.h"

/* Measures the directories of the options, if any, through host memory of `rig`, as a run does:
 * adds rows and the disk part of the machine. */
sl_status sl_disk_measure(const sl_bench_options *options, const sl_rig *rig, sl_bench *bench);

#endif
