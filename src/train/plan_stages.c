/* Stages differ in their layers, in what else the first and the last have, and, where they
 * interleave, in how many micro-batches they keep. */
#include "plan_stages.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/stage_steps.h"

/* Memory of this machine, where stages are: device and host are the same. */
static uint64_t count_memory(const sl_plan_stage *stage)
{
    return stage->peak_bytes[SL_TIER_DEVICE] + stage->peak_bytes[SL_TIER_HOST];
}

/* A stage that was drawn and has the same plan: between first and last, with as many layers that
 * are all trained, and all micro-batches kept. NULL: none. */
static const sl_plan_stage *find_twin(const sl_plan_stages *stages, const sl_task *task,
                                      uint32_t index)
{
    if (task->schedule != SL_SCHEDULE_GPIPE || sl_update_rules_are_mixed(&task->rules))
        return NULL;
    for (uint32_t i = 1; i < index && index + 1 < stages->count; i++)
        if (stages->items[i].layer_count == stages->items[index].layer_count)
            return &stages->items[i];
    return NULL;
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

static sl_status simulate(const sl_task *task, const sl_choice *choice, sl_plan_stages *stages)
{
    double *seconds = calloc((size_t)stages->count + 1, sizeof *seconds);
    if (!seconds)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u stages", stages->count);
    for (uint32_t s = 0; s < stages->count; s++)
        seconds[s] = stages->items[s].step_seconds;
    sl_status status = sl_stage_steps_simulate(task, choice, seconds, &stages->step_seconds);
    free(seconds);
    return status;
}

static sl_status draw_all(sl_trainer *trainer, sl_plan_stages *stages, sl_refusal *out_refusal)
{
    const sl_task *task = &trainer->search.task;
    for (uint32_t i = 0; i < stages->count; i++) {
        sl_plan_stage *stage = &stages->items[i];
        const sl_plan_stage *twin;
        sl_stage_steps_layers(task, i, &stage->first_layer, &stage->layer_count);
        twin = find_twin(stages, task, i);
        if (!twin) {
            SL_TRY(draw(trainer, i, stages, out_refusal));
            continue;
        }
        memcpy(stage->peak_bytes, twin->peak_bytes, sizeof stage->peak_bytes);
        stage->step_seconds = twin->step_seconds;
    }
    trainer->search.task.stage_index = stages->shown;
    return simulate(task, &stages->blueprint->choice, stages);
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
