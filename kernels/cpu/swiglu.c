/* The gated unit and its gradients, element by element. */
#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ELEMENTS = 32768 };

typedef struct swiglu_job {
    sl_swiglu_span all;
    void (*run)(const sl_swiglu_span *span);
} swiglu_job;

static void *move(const void *base, uint64_t bytes)
{
    return base == NULL ? NULL : (char *)base + bytes;
}

static void run_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const swiglu_job *job = argument;
    const sl_span tile = sl_tiles_span(job->all.count, TILE_ELEMENTS, tile_index);
    const uint64_t first = tile.first * sl_type_bytes(job->all.type);
    const sl_swiglu_span span = {.gate = move(job->all.gate, first),
                                 .up = move(job->all.up, first),
                                 .y = move(job->all.y, first),
                                 .d = move(job->all.d, first),
                                 .dgate = move(job->all.dgate, first),
                                 .count = tile.count,
                                 .type = job->all.type,
                                 .is_gelu = job->all.is_gelu};
    job->run(&span);
}

static sl_status run_tiles(const sl_kernel_call *call, swiglu_job job)
{
    job.all.gate = call->operand[0];
    job.all.up = call->operand[1];
    job.all.count = call->attrs->element_count;
    job.all.type = (sl_type)call->attrs->type;
    job.all.is_gelu = call->attrs->is_gelu != 0;
    sl_workers_run(call->workers, sl_tiles_count(job.all.count, TILE_ELEMENTS), run_tile, &job);
    return SL_OK;
}

sl_status sl_cpu_swiglu(const sl_kernel_call *call)
{
    return run_tiles(call, (swiglu_job){{.y = call->operand[2]}, sl_simd_current()->swiglu});
}

sl_status sl_cpu_swiglu_backward(const sl_kernel_call *call)
{
    return run_tiles(call, (swiglu_job){{.d = call->operand[2], .dgate = call->operand[3]},
                                        sl_simd_current()->swiglu_backward});
}
