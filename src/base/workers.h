/* A pool of compute threads that run the tiles of one job at a time.
 *
 * Which thread runs a tile, and how many threads there are, cannot change a result. Tiles are
 * independent of each other, except those that wait at a gate (below). Several threads may call
 * sl_workers_run at once; their jobs run one after the other, in the order in which the calls came.
 */
#ifndef SL_BASE_WORKERS_H
#define SL_BASE_WORKERS_H

#include <stdint.h>

#include "status.h"

typedef struct sl_workers sl_workers;

/* One tile of a job. worker_index < worker_count: for scratch memory only, never for results. */
typedef void (*sl_tile_function)(void *job, uint64_t tile_index, uint32_t worker_index);

/* Starts a pool of `worker_count` >= 1 workers; the caller of sl_workers_run is one of them. */
sl_status sl_workers_open(uint32_t worker_count, sl_workers **out_workers);

uint32_t sl_workers_count(const sl_workers *workers);

/* Runs tiles 0 .. tile_count - 1 and returns when all are done. Allocates nothing. */
void sl_workers_run(sl_workers *workers, uint64_t tile_count, sl_tile_function tile, void *job);

/* Counts tiles of a job, for tiles that need them done. A tile may wait only for tiles of lower
 * indices that do not wait themselves: tiles are taken in order, so a worker runs each of those. */
typedef struct sl_workers_gate {
    uint64_t done_count; /* changed atomically; C++ has no _Atomic */
} sl_workers_gate;

/* Sets the count to 0. No tile may be running. */
void sl_workers_gate_close(sl_workers_gate *gate);

/* One more tile is done. */
void sl_workers_gate_count(sl_workers_gate *gate);

/* Returns when `count` tiles are done; sees what they wrote. */
void sl_workers_gate_wait(sl_workers_gate *gate, uint64_t count);

/* Stops and joins the threads. No run may be in progress. NULL is fine. */
void sl_workers_close(sl_workers *workers);

/* The processors this process may run on (its affinity mask). */
uint32_t sl_workers_allowed_cpu_count(void);

/* The allowed processors, or the quota of the cgroups rounded up if that is less: threads beyond
 * the quota would stop each other. At least 1. */
uint32_t sl_workers_usable_cpu_count(void);

#endif
