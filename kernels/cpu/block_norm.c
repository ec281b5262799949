/* The norm of the gradient: BLOCK_NORM adds the squares of a chunk, NORM_FINISH makes the
 * sl_step_control of the update from the sum. */
#include <math.h>
#include <string.h>

#include "norm_sum.h"
#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_BLOCKS = 64 };

typedef struct norm_job {
    sl_gradient_blocks gradient;
    const uint8_t *counts; /* a flag a block; NULL: all count */
    sl_norm_sum *sums;     /* one a tile */
    uint64_t block_count;
} norm_job;

static void sum_norm_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const norm_job *job = argument;
    const sl_span span = sl_tiles_span(job->block_count, TILE_BLOCKS, tile_index);
    float block_sums[TILE_BLOCKS];
    const sl_gradient_blocks gradient =
        sl_simd_gradient_from(&job->gradient, span.first * SL_BLOCK_ELEMENTS);
    sl_simd_current()->block_norm(&gradient, span.count, block_sums);
    sl_norm_sum *sum = &job->sums[tile_index];
    memset(sum, 0, sizeof *sum);
    for (uint64_t block = 0; block < span.count; block++)
        if (job->counts == NULL || job->counts[span.first + block])
            sl_norm_sum_add(sum, block_sums[block]);
}

uint64_t sl_cpu_block_norm_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                           uint32_t worker_count)
{
    (void)kind;
    (void)worker_count;
    return sl_tiles_count(attrs->element_count / SL_BLOCK_ELEMENTS, TILE_BLOCKS) *
           sizeof(sl_norm_sum);
}

sl_status sl_cpu_block_norm(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a norm of %llu elements is not whole blocks",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    norm_job job = {{call->operand[0], (sl_type)attrs->grad_type, (sl_type)attrs->type},
                    call->block_flags == NULL ? NULL : call->block_flags + attrs->first_block,
                    call->workspace,
                    attrs->element_count / SL_BLOCK_ELEMENTS};
    const uint64_t tiles = sl_tiles_count(job.block_count, TILE_BLOCKS);
    sl_workers_run(call->workers, tiles, sum_norm_tile, &job);
    sl_norm_sum *norm = call->operand[1];
    if (!attrs->adds_output)
        memset(norm, 0, sizeof *norm);
    for (uint64_t tile = 0; tile < tiles; tile++)
        sl_norm_sum_merge(norm, &job.sums[tile]);
    return SL_OK;
}

/* From the mean over all rows of the step to that over those that count: exactly 1 if all do; 0 if
 * none does. */
static double find_share(const sl_kernel_call *call)
{
    const double *counted = call->operand[2];
    if (!counted)
        return 1.0;
    return *counted > 0 ? (double)call->attrs->row_count / *counted : 0.0;
}

/* Computed in double and rounded once. A gradient that is not finite gives a NaN norm and the
 * factor 0. */
sl_status sl_cpu_norm_finish(const sl_kernel_call *call)
{
    const double loss_scale = (double)call->scalars.loss_scale, clip = (double)call->scalars.clip;
    const sl_norm_sum *sum = call->operand[0];
    const double share = find_share(call);
    const double norm = sqrt(sl_norm_sum_value(sum)) * share / loss_scale;
    sl_step_control *control = call->operand[1];
    *control = (sl_step_control){.grad_norm = (float)norm, .flags = sum->flags};
    if (!isfinite(norm) || share == 0) {
        control->skip = 1;
        return SL_OK;
    }
    double factor = clip > 0.0 ? clip / (norm + 1e-6) : 1.0;
    control->clip_scale = (float)((factor < 1.0 ? factor : 1.0) * share / loss_scale);
    return SL_OK;
}
