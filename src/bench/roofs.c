/* Loops that do nothing else. */
#include "roofs.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "kernels/kernels.h"

enum { TILES_A_WORKER = 4, LOOPS = 400000, LOOP_TILE = 131072 };

/* ---- arithmetic ---- */

typedef struct arithmetic_job {
    sl_type type;
    _Atomic(uint64_t) flops;
} arithmetic_job;

static void run_arithmetic_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)tile_index, (void)worker_index;
    arithmetic_job *job = argument;
    job->flops += (uint64_t)sl_kernels_cpu()->multiply_adds(job->type, LOOPS);
}

double sl_roofs_flops(sl_workers *workers, sl_type type)
{
    arithmetic_job job = {.type = type};
    const uint64_t tiles = (uint64_t)sl_workers_count(workers) * TILES_A_WORKER;
    const uint64_t start = sl_clock_now_ns();
    sl_workers_run(workers, tiles, run_arithmetic_tile, &job);
    return (double)job.flops / (1e-9 * (double)(sl_clock_now_ns() - start));
}

/* ---- memory ---- */

typedef struct loop_job {
    float *array[4];
    uint64_t count;
    sl_memory_loop loop;
    float sums[1024]; /* by tile, so that reading has an effect */
} loop_job;

static void read_tile(const loop_job *job, uint64_t first, uint64_t end, float *sum)
{
    float lanes[16] = {0};
    for (uint64_t i = first; i + 16 <= end; i += 16)
        for (int k = 0; k < 4; k++)
            for (int lane = 0; lane < 16; lane++)
                lanes[lane] += job->array[k][i + (uint64_t)lane];
    for (int lane = 0; lane < 16; lane++)
        *sum += lanes[lane];
}

/* STREAM's loops (McCalpin): the first array is written. */
static void run_stream_tile(const loop_job *job, uint64_t first, uint64_t end)
{
    float *restrict a = job->array[1];
    const float *restrict b = job->array[0], *restrict c = job->array[2];
    const float factor = 0.25f;
    if (job->loop == SL_LOOP_SCALE)
        for (uint64_t i = first; i < end; i++)
            a[i] = factor * b[i];
    else
        for (uint64_t i = first; i < end; i++)
            a[i] = b[i] + factor * c[i];
}

static void run_loop_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    loop_job *job = argument;
    uint64_t first = tile_index * LOOP_TILE, end = first + LOOP_TILE;
    end = end < job->count ? end : job->count;
    if (job->loop == SL_LOOP_READ) {
        read_tile(job, first, end, &job->sums[tile_index % 1024]);
        return;
    }
    if (job->loop != SL_LOOP_UPDATE) {
        run_stream_tile(job, first, end);
        return;
    }
    const float *restrict a = job->array[0];
    float *restrict b = job->array[1], *restrict c = job->array[2], *restrict d = job->array[3];
    for (uint64_t i = first; i < end; i++) {
        float x = a[i] + b[i] + c[i] + d[i];
        b[i] = x * 0.25f;
        c[i] = x * 0.125f;
        d[i] = x * 0.0625f;
    }
}

sl_status sl_roofs_memory(sl_workers *workers, sl_memory *memory, sl_memory_loop loop,
                          uint64_t bytes, double *out_rate)
{
    static const double arrays[SL_LOOP_COUNT] = {4, 7, 2, 3}; /* that are read or written */
    loop_job job = {.count = bytes / sizeof(float), .loop = loop};
    for (int i = 0; i < 4; i++) {
        sl_memory_request request = {bytes, true, i > 0, SL_TYPE_FP32};
        void *address;
        SL_TRY(sl_memory_take(memory, request, &address));
        job.array[i] = address;
    }
    uint64_t start = sl_clock_now_ns();
    sl_workers_run(workers, (job.count + LOOP_TILE - 1) / LOOP_TILE, run_loop_tile, &job);
    double seconds = 1e-9 * (double)(sl_clock_now_ns() - start);
    *out_rate = arrays[loop] * (double)bytes / seconds;
    return SL_OK;
}
