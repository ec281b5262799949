/* What ranks exchange, timed between the ranks of a world as they were started: sums, gathers,
 * pieces of sums, and a ring of hand-overs. A time is that of the slowest rank. */
#ifndef SL_BENCH_RANK_EXCHANGES_H
#define SL_BENCH_RANK_EXCHANGES_H

#include "bench.h"
#include "comm/comm.h"

/* Adds a row for each collective, type and size, on every rank the same; a row's roof is a plain
 * copy of as many bytes that all ranks make at once. All ranks call it. SL_ERROR_SYSTEM: no memory;
 * failures of an exchange. */
sl_status sl_rank_exchanges_measure(const sl_bench_options *options, sl_comm *world,
                                    sl_bench *bench);

#endif
