/* The ops that work on elements one by one: GELU and its gradient, ADD, CLEAR. */
#include <string.h>

#include "ops.h"
#include "tiles.h"
#include "vector.h"

enum { TILE_ELEMENTS = 32768 };

typedef struct elements_job {
    const float *x;
    float *y;
    uint64_t element_count;
    void (*run)(const float *x, float *y, uint64_t count);
} elements_job;

static void run_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const elements_job *job = argument;
    const sl_span span = sl_tiles_span(job->element_count, TILE_ELEMENTS, tile_index);
    job->run(job->x + span.first, job->y + span.first, span.count);
}

static sl_status run_elements(const sl_kernel_call *call,
                              void (*run)(const float *x, float *y, uint64_t count))
{
    elements_job job = {call->operand[0], call->operand[1], call->attrs->element_count, run};
    sl_workers_run(call->workers, sl_tiles_count(job.element_count, TILE_ELEMENTS), run_tile, &job);
    return SL_OK;
}

sl_status sl_op_gelu(const sl_kernel_call *call)
{
    return run_elements(call, sl_vector_current()->gelu);
}

sl_status sl_op_gelu_backward(const sl_kernel_call *call)
{
    return run_elements(call, sl_vector_current()->gelu_backward);
}

sl_status sl_op_add(const sl_kernel_call *call)
{
    return run_elements(call, sl_vector_current()->add);
}

static void clear_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const elements_job *job = argument;
    const sl_span span = sl_tiles_span(job->element_count, TILE_ELEMENTS, tile_index);
    memset(job->y + span.first, 0, span.count * sizeof *job->y);
}

sl_status sl_op_clear(const sl_kernel_call *call)
{
    elements_job job = {.y = call->operand[0], .element_count = call->attrs->element_count};
    sl_workers_run(call->workers, sl_tiles_count(job.element_count, TILE_ELEMENTS), clear_tile,
                   &job);
    return SL_OK;
}

sl_status sl_op_round(const sl_kernel_call *call)
{
    (void)call;
    SL_FAIL(SL_ERROR_INTERNAL, "half precision is not there yet");
}

/* The cpu device has one rank in its tensor-parallel group, and the sum over one rank is what is
 * there already. A second rank brings a collective, not another kernel. */
sl_status sl_op_all_reduce(const sl_kernel_call *call)
{
    (void)call;
    return SL_OK;
}
