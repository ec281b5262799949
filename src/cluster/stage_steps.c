#include "stage_steps.h"

#include <stdlib.h>

#include "pipeline.h"

void sl_stage_steps_layers(const sl_task *task, uint32_t index, uint32_t *out_first,
                           uint32_t *out_count)
{
    uint32_t first, end;
    sl_model_shape_stage(&task->shape, task->stage_count, index, &first, &end);
    if (task->stage_count > 1 && task->stage_ends[0] > 0) {
        first = index > 0 ? task->stage_ends[index - 1] : 0;
        end = task->stage_ends[index];
    }
    *out_first = first;
    *out_count = end - first;
}

static sl_status play_passes(const sl_choice *choice, const sl_pipeline *pipeline,
                             const uint32_t *layers, double *out_seconds)
{
    const bool is_long =
        (uint64_t)pipeline->stage_count * pipeline->micro_batches > SL_PIPELINE_PASSES_MAX;
    if (choice->accumulation == SL_ACCUMULATE_LAYER && pipeline->stage_count > 1)
        return sl_pipeline_play_by_layer(pipeline, layers, out_seconds);
    if (!is_long)
        return sl_pipeline_play(pipeline, NULL, out_seconds);
    *out_seconds = sl_pipeline_bound(pipeline);
    return SL_OK;
}

sl_status sl_stage_steps_simulate(const sl_task *task, const sl_choice *choice,
                                  const double *step_seconds, double *out_seconds)
{
    const uint32_t count = task->stage_count > 1 ? task->stage_count : 1;
    sl_pipeline_stage *passes = calloc(count, sizeof *passes);
    uint32_t *layers = calloc(count, sizeof *layers), first;
    const sl_pipeline pipeline = {.stages = passes,
                                  .stage_count = count,
                                  .micro_batches = choice->accumulate,
                                  .is_gpipe = task->schedule == SL_SCHEDULE_GPIPE};
    sl_status status = SL_OK;
    if (!passes || !layers) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for %u stages", count);
        goto free_both;
    }
    for (uint32_t s = 0; s < count; s++) {
        const double forward = step_seconds[s] / choice->accumulate / 3;
        passes[s] = (sl_pipeline_stage){forward, 2 * forward};
        sl_stage_steps_layers(task, s, &first, &layers[s]);
    }
    status = play_passes(choice, &pipeline, layers, out_seconds);
free_both:
    free(passes);
    free(layers);
    return status;
}
