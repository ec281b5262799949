/* A pool of workers, bound to the cores of the first node, reads memory that is bound to the
 * second. This file alone knows hwloc.
 */
#include "numa.h"

#include <stdio.h>

#ifndef SL_HAS_HWLOC

sl_status sl_numa_measure(const sl_bench_options *options, sl_bench *bench)
{
    (void)options;
    snprintf(bench->numa_note, sizeof bench->numa_note,
             "this build has no hwloc: install libhwloc-dev and build again");
    return SL_OK;
}

#else

#include <hwloc.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/workers.h"

enum { TILE_BYTES = 1 << 20, QUICK_ROUNDS = 3, ROUNDS = 7 };

static const uint64_t memory_bytes[2] = {UINT64_C(512) << 20, UINT64_C(64) << 20}; /* [is_quick] */

typedef struct reading {
    hwloc_topology_t topology;
    hwloc_obj_t from, to; /* nodes: whose cores, whose memory */
    uint64_t *words;
    uint64_t bytes;
    bool is_filling;
    _Atomic uint64_t sum; /* so that reading has an effect */
    _Atomic int has_failed;
} reading;

/* The node that the calling thread is bound to by this file. */
static _Thread_local hwloc_obj_t bound_to;

static void bind_thread(reading *job)
{
    if (bound_to == job->from)
        return;
    if (hwloc_set_cpubind(job->topology, job->from->cpuset, HWLOC_CPUBIND_THREAD) != 0)
        atomic_store(&job->has_failed, 1);
    bound_to = job->from;
}

static void run_tile(void *argument, uint64_t tile, uint32_t worker)
{
    (void)worker;
    reading *job = argument;
    const size_t count = TILE_BYTES / sizeof *job->words;
    uint64_t *words = job->words + tile * count, sums[8] = {0};
    bind_thread(job);
    for (size_t i = 0; job->is_filling && i < count; i++)
        words[i] = (tile * count + i) * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; !job->is_filling && i < count; i += 8)
        for (size_t k = 0; k < 8; k++)
            sums[k] += words[i + k];
    for (size_t k = 0; k < 8; k++)
        atomic_fetch_add_explicit(&job->sum, sums[k], memory_order_relaxed);
}

static void read_rounds(reading *job, sl_workers *workers, uint32_t rounds, sl_samples *seconds)
{
    const uint64_t tiles = job->bytes / TILE_BYTES;
    job->is_filling = true;
    sl_workers_run(workers, tiles, run_tile, job);
    job->is_filling = false;
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t start = sl_clock_now_ns();
        sl_workers_run(workers, tiles, run_tile, job);
        sl_samples_add(seconds, 1e-9 * (double)(sl_clock_now_ns() - start));
    }
}

static sl_status add_row(const reading *job, const sl_samples *seconds, sl_bench *bench)
{
    sl_bench_row row = {.group = "numa", .type = ""};
    snprintf(row.name, sizeof row.name, "cores of node %u read memory of node %u",
             job->from->os_index, job->to->os_index);
    row.rate = sl_samples_rate(seconds, (double)job->bytes);
    row.seconds = sl_samples_median(seconds);
    return sl_bench_add(bench, &row);
}

static sl_status measure_pair(reading *job, const sl_bench_options *options, sl_bench *bench)
{
    sl_samples seconds = {.count = 0};
    sl_workers *workers = NULL;
    const int cores = hwloc_bitmap_weight(job->from->cpuset);
    const uint32_t most = cores > 0 ? (uint32_t)cores : 1;
    SL_TRY(sl_workers_open(options->thread_count < most ? options->thread_count : most, &workers));
    job->words = hwloc_alloc_membind(job->topology, job->bytes, job->to->nodeset,
                                     HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET);
    if (job->words)
        read_rounds(job, workers, options->is_quick ? QUICK_ROUNDS : ROUNDS, &seconds);
    sl_workers_close(workers);
    bool has_failed = !job->words || atomic_load(&job->has_failed);
    if (job->words)
        hwloc_free(job->topology, job->words, job->bytes);
    if (!has_failed)
        return add_row(job, &seconds, bench);
    snprintf(bench->numa_note, sizeof bench->numa_note,
             "threads or memory cannot be bound to node %u and %u here", job->from->os_index,
             job->to->os_index);
    return SL_OK;
}

static sl_status measure_nodes(hwloc_topology_t topology, const sl_bench_options *options,
                               sl_bench *bench)
{
    hwloc_obj_t from = NULL, to = NULL;
    while ((from = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, from)) != NULL) {
        if (hwloc_bitmap_iszero(from->cpuset))
            continue; /* a node of memory alone */
        while ((to = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, to)) != NULL) {
            reading job = {.topology = topology,
                           .from = from,
                           .to = to,
                           .bytes = memory_bytes[options->is_quick]};
            SL_TRY(measure_pair(&job, options, bench));
        }
    }
    return SL_OK;
}

/* The calling thread works in the pools too, and must be free again. */
static sl_status measure_unbound(hwloc_topology_t topology, const sl_bench_options *options,
                                 sl_bench *bench)
{
    hwloc_bitmap_t before = hwloc_bitmap_alloc();
    if (!before)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a set of cores");
    const bool is_known = hwloc_get_cpubind(topology, before, HWLOC_CPUBIND_THREAD) == 0;
    sl_status status = SL_OK;
    if (is_known)
        status = measure_nodes(topology, options, bench);
    else
        snprintf(bench->numa_note, sizeof bench->numa_note, "threads cannot be bound here");
    if (is_known)
        hwloc_set_cpubind(topology, before, HWLOC_CPUBIND_THREAD);
    bound_to = NULL;
    hwloc_bitmap_free(before);
    return status;
}

sl_status sl_numa_measure(const sl_bench_options *options, sl_bench *bench)
{
    hwloc_topology_t topology;
    if (options->progress)
        options->progress(options->user, "memory by NUMA node");
    if (hwloc_topology_init(&topology) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the machine's topology");
    sl_status status = SL_OK;
    if (hwloc_topology_load(topology) == 0)
        status = measure_unbound(topology, options, bench);
    else
        snprintf(bench->numa_note, sizeof bench->numa_note, "hwloc cannot read the topology");
    hwloc_topology_destroy(topology);
    return status;
}

#endif
