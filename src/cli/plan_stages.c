/* Stages differ in their layers, in what else the first and the last have, and, where they
 * interleave, in how many micro-batches they keep. */
#include "plan_stages.h"

#include <stdlib.h>
#include <string.h>

#include "session/cluster/pipeline.h"

/* Memory of this machine, where stages are: device and host are the same. */
static uint64_t count_memory(const sl_plan_stage *stage)
{
    return stage->peak_bytes[SL_TIER_DEVICE] + stage->peak_bytes[SL_TIER_HOST];
}

/* A stage that was drawn and has the same plan: between first and last, with as many layers, and
 * all micro-batches kept. NULL: none. */
static const sl_plan_stage *find_twin(const sl_plan_stages *stages, const sl_task *task,
                                      uint32_t index)
{
    if (task->schedule != SL_SCHEDULE_GPIPE)
        return NULL;
    for (uint32_t i = 1; i < index && index + 1 < stages->count; i++)
        if (stages->items[i].layer_count == stages->items[index].layer_count)
            return &stages->items[i];
    return NULL;
}

static void find_layers(const sl_task *task, uint32_t index, sl_plan_stage *stage)
{
    uint32_t first, end;
    sl_gpt2_stage_layers(&task->shape, task->stage_count, index, &first, &end);
    if (task->stage_count > 1 && task->stage_ends[0] > 0) {
        first = index > 0 ? task->stage_ends[index - 1] : 0;
        end = task->stage_ends[index];
    }
    stage->first_layer = first;
    stage->layer_count = end - first;
}

static sl_status name_stage(sl_status status, const sl_trainer *trainer, uint32_t index)
{
    const sl_comm_layout *layout = &trainer->ranks.layout;
    const uint32_t count = layout->tensor * layout->data;
    if (status != SL_ERROR_FIT || layout->stages == 1)
        return status;
    if (count == 1)
        return sl_status_prefix(status, "stage %u of %u (rank %u)", index, layout->stages, index);
    return sl_status_prefix(status, "stage %u of %u (ranks %u to %u)", index, layout->stages,
                            index * count, (index + 1) * count - 1);
}

/* Takes the blueprint over. */
static void keep_larger(sl_plan_stages *stages, uint32_t index, sl_blueprint *blueprint,
                        const sl_search_candidates *candidates)
{
    const sl_plan_stage *shown = &stages->items[stages->shown];
    if (stages->blueprint && count_memory(&stages->items[index]) <= count_memory(shown)) {
        sl_blueprint_close(blueprint);
        return;
    }
    sl_blueprint_close(stages->blueprint);
    stages->blueprint = blueprint;
    stages->candidates = *candidates;
    stages->shown = index;
}

static sl_status describe(const sl_blueprint *blueprint, sl_plan_stage *stage)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    stage->step_seconds = simulation.step_seconds;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        stage->peak_bytes[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
    return SL_OK;
}

static sl_status draw(sl_trainer *trainer, uint32_t index, sl_plan_stages *stages,
                      sl_refusal *out_refusal)
{
    sl_search_candidates candidates = {.count = 0};
    sl_blueprint *blueprint = NULL;
    trainer->search.task.stage_index = index;
    trainer->search.candidates = &candidates;
    sl_status status = sl_search_find(&trainer->search, &blueprint, out_refusal);
    trainer->search.candidates = NULL;
    SL_TRY(name_stage(status, trainer, index));
    status = describe(blueprint, &stages->items[index]);
    if (status == SL_OK)
        keep_larger(stages, index, blueprint, &candidates);
    else
        sl_blueprint_close(blueprint);
    return status;
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

/* The prediction of a stage is shared out evenly over its micro-batches, a third of it forward, and
 * what stages give each other takes no time. */
static sl_status play(const sl_task *task, const sl_choice *choice, sl_plan_stages *stages)
{
    sl_pipeline_stage *passes = calloc((size_t)stages->count + 1, sizeof *passes);
    uint32_t *layers = calloc((size_t)stages->count + 1, sizeof *layers);
    const sl_pipeline pipeline = {.stages = passes,
                                  .stage_count = stages->count,
                                  .micro_batches = choice->accumulate,
                                  .is_gpipe = task->schedule == SL_SCHEDULE_GPIPE};
    sl_status status = SL_OK;
    if (!passes || !layers) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for %u stages", stages->count);
        goto free_both;
    }
    for (uint32_t s = 0; s < stages->count; s++) {
        const double forward = stages->items[s].step_seconds / choice->accumulate / 3;
        passes[s] = (sl_pipeline_stage){forward, 2 * forward};
        layers[s] = stages->items[s].layer_count;
    }
    status = play_passes(choice, &pipeline, layers, &stages->step_seconds);
free_both:
    free(passes);
    free(layers);
    return status;
}

static sl_status draw_all(sl_trainer *trainer, sl_plan_stages *stages, sl_refusal *out_refusal)
{
    const sl_task *task = &trainer->search.task;
    for (uint32_t i = 0; i < stages->count; i++) {
        sl_plan_stage *stage = &stages->items[i];
        const sl_plan_stage *twin;
        find_layers(task, i, stage);
        twin = find_twin(stages, task, i);
        if (!twin) {
            SL_TRY(draw(trainer, i, stages, out_refusal));
            continue;
        }
        memcpy(stage->peak_bytes, twin->peak_bytes, sizeof stage->peak_bytes);
        stage->step_seconds = twin->step_seconds;
    }
    trainer->search.task.stage_index = stages->shown;
    return play(task, &stages->blueprint->choice, stages);
}

sl_status sl_plan_stages_draw(sl_trainer *trainer, sl_plan_stages *out_stages,
                              sl_refusal *out_refusal)
{
    const uint32_t count = trainer->ranks.layout.stages;
    *out_stages = (sl_plan_stages){.count = count};
    if (count > trainer->shape.layers)
        SL_FAIL(SL_ERROR_USAGE, "%u layers are too few for %u stages (--pp): each takes one",
                trainer->shape.layers, count);
    out_stages->items = calloc(count, sizeof *out_stages->items);
    if (!out_stages->items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u stages", count);
    return draw_all(trainer, out_stages, out_refusal);
}

void sl_plan_stages_close(sl_plan_stages *stages)
{
    free(stages->items);
    sl_blueprint_close(stages->blueprint);
    *stages = (sl_plan_stages){0};
}
