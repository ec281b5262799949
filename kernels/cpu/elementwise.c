/* The ops that work on elements one by one: SCALE, GELU and its gradient, ADD, CLEAR,
 * CLEAR_PADDING, ROUND. */
#include <string.h>

#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_ELEMENTS = 32768 };

typedef void (*elements_run)(const void *x, void *y, sl_type type, uint64_t count);

typedef struct elements_job {
    const char *x;
    char *y;
    uint64_t x_bytes, y_bytes; /* of an element */
    sl_type type;
    uint64_t element_count;
    elements_run run;
    float factor; /* SCALE */
} elements_job;

static void run_elements_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const elements_job *job = argument;
    const sl_span span = sl_tiles_span(job->element_count, TILE_ELEMENTS, tile_index);
    job->run(job->x + span.first * job->x_bytes, job->y + span.first * job->y_bytes, job->type,
             span.count);
}

static sl_status run_elements(const sl_kernel_call *call, uint64_t x_bytes, elements_run run)
{
    const sl_type type = (sl_type)call->attrs->type;
    elements_job job = {.x = call->operand[0],
                        .y = call->operand[1],
                        .x_bytes = x_bytes,
                        .y_bytes = sl_type_bytes(type),
                        .type = type,
                        .element_count = call->attrs->element_count,
                        .run = run};
    sl_workers_run(call->workers, sl_tiles_count(job.element_count, TILE_ELEMENTS),
                   run_elements_tile, &job);
    return SL_OK;
}

static uint64_t element_bytes(const sl_kernel_call *call)
{
    return sl_type_bytes((sl_type)call->attrs->type);
}

static void scale_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const elements_job *job = argument;
    const sl_span span = sl_tiles_span(job->element_count, TILE_ELEMENTS, tile_index);
    sl_simd_current()->scale(job->x + span.first * job->x_bytes, job->y + span.first * job->y_bytes,
                             job->type, span.count, job->factor);
}

sl_status sl_cpu_scale(const sl_kernel_call *call)
{
    elements_job job = {.x = call->operand[0],
                        .y = call->operand[1],
                        .x_bytes = element_bytes(call),
                        .y_bytes = element_bytes(call),
                        .type = (sl_type)call->attrs->type,
                        .element_count = call->attrs->element_count,
                        .factor = call->attrs->scale};
    sl_workers_run(call->workers, sl_tiles_count(job.element_count, TILE_ELEMENTS), scale_tile,
                   &job);
    return SL_OK;
}

sl_status sl_cpu_gelu(const sl_kernel_call *call)
{
    return run_elements(call, element_bytes(call), sl_simd_current()->gelu);
}

sl_status sl_cpu_gelu_backward(const sl_kernel_call *call)
{
    return run_elements(call, element_bytes(call), sl_simd_current()->gelu_backward);
}

sl_status sl_cpu_add(const sl_kernel_call *call)
{
    return run_elements(call, element_bytes(call), sl_simd_current()->add);
}

sl_status sl_cpu_round(const sl_kernel_call *call)
{
    return run_elements(call, sizeof(float), sl_simd_current()->round);
}

static void clear_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const elements_job *job = argument;
    const sl_span span = sl_tiles_span(job->element_count, TILE_ELEMENTS, tile_index);
    memset(job->y + span.first * job->y_bytes, 0, span.count * job->y_bytes);
}

sl_status sl_cpu_clear(const sl_kernel_call *call)
{
    elements_job job = {.y = call->operand[0],
                        .y_bytes = element_bytes(call),
                        .element_count = call->attrs->element_count};
    sl_workers_run(call->workers, sl_tiles_count(job.element_count, TILE_ELEMENTS), clear_tile,
                   &job);
    return SL_OK;
}

sl_status sl_cpu_clear_padding(const sl_kernel_call *call)
{
    char *chunk = call->operand[0];
    for (uint64_t i = 0; i < call->padding_count; i++) {
        const sl_padding *padding = &call->padding[i];
        elements_job job = {.y = chunk + padding->first * element_bytes(call),
                            .y_bytes = element_bytes(call),
                            .element_count = padding->count};
        sl_workers_run(call->workers, sl_tiles_count(job.element_count, TILE_ELEMENTS), clear_tile,
                       &job);
    }
    return SL_OK;
}
