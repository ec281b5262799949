/* The products and the attention of models as people know them, one by one, each beside what
 * registers alone allow. No part of a machine profile: plans are not predicted by these rows. */
#ifndef SL_BENCH_KERNELS_H
#define SL_BENCH_KERNELS_H

#include "bench.h"
#include "timed_device.h"

/* Adds the rows of `figures`, a set of 1 << SL_BENCH_PRODUCT and 1 << SL_BENCH_ATTENTION, that
 * options->match leaves. Shapes whose operands are too large for the free memory of `device` are
 * left out. SL_ERROR_USAGE: options->match leaves no row. */
sl_status sl_kernels_measure(const sl_bench_options *options, uint32_t figures,
                             sl_timed_device *device, sl_bench *bench);

#endif
