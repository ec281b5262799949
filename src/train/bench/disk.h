/* The disk tier's rates, through the disk store itself. */
#ifndef SL_TRAIN_BENCH_DISK_H
#define SL_TRAIN_BENCH_DISK_H

#include "bench.h"

/* Measures the directories of the options, if any: adds rows and the disk part of the machine. */
sl_status sl_disk_measure(const sl_bench_options *options, sl_bench *bench);

#endif
