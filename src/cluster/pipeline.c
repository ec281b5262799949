#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

typedef struct simulation {
    const sl_pipeline *pipeline;
    const sl_pipeline_observer *observer;
    uint32_t *next;     /* [stages] passes that have run */
    double *free_since; /* [stages] */
    double *sent[2];    /* [stages] end of the last transfer to the next stage, to the one before */
    double *arrived[2]; /* [stages][micro_batches] of what a pass needs from its neighbour; < 0:
                           not yet. By is_backward. */
    double end;
} simulation;

static uint32_t count_warm_up(const sl_pipeline *pipeline, uint32_t stage)
{
    if (pipeline->is_gpipe)
        return pipeline->micro_batches;
    return sl_bits_min(pipeline->micro_batches, pipeline->stage_count - 1 - stage);
}

uint32_t sl_pipeline_kept(const sl_pipeline *pipeline, uint32_t stage)
{
    return sl_bits_min(pipeline->micro_batches, count_warm_up(pipeline, stage) + 1);
}

/* Pass number `index` of a stage. */
static sl_pipeline_pass pass_at(const sl_pipeline *pipeline, uint32_t stage, uint32_t index)
{
    const uint32_t warm_up = count_warm_up(pipeline, stage);
    const uint32_t pairs = pipeline->micro_batches - warm_up;
    sl_pipeline_pass pass = {.stage = stage, .micro_batch = index};
    if (index < warm_up)
        return pass;
    index -= warm_up;
    pass.is_backward = index >= 2 * pairs || index % 2 == 1;
    if (index >= 2 * pairs)
        pass.micro_batch = index - pairs;
    else
        pass.micro_batch = index / 2 + (pass.is_backward ? 0 : warm_up);
    return pass;
}

static double *arrival_of(const simulation *p, bool is_backward, uint32_t stage,
                          uint32_t micro_batch)
{
    return &p->arrived[is_backward][(size_t)stage * p->pipeline->micro_batches + micro_batch];
}

/* Where a pass sends what it made: the next stage, or the one before. */
static void send_on(simulation *p, const sl_pipeline_pass *pass)
{
    const uint32_t last = p->pipeline->stage_count - 1;
    if (pass->is_backward ? pass->stage == 0 : pass->stage == last) {
        if (!pass->is_backward) /* the last stage goes on with its own */
            *arrival_of(p, true, pass->stage, pass->micro_batch) = pass->end;
        return;
    }
    double *sent = &p->sent[pass->is_backward][pass->stage];
    *sent = (pass->end > *sent ? pass->end : *sent) + p->pipeline->send_seconds;
    const uint32_t to = pass->is_backward ? pass->stage - 1 : pass->stage + 1;
    *arrival_of(p, pass->is_backward, to, pass->micro_batch) = *sent;
}

/* Runs the next pass of a stage if what it needs has arrived. */
static bool run_next(simulation *p, uint32_t stage)
{
    if (p->next[stage] == 2 * p->pipeline->micro_batches)
        return false;
    sl_pipeline_pass pass = pass_at(p->pipeline, stage, p->next[stage]);
    const double arrival = *arrival_of(p, pass.is_backward, stage, pass.micro_batch);
    if (arrival < 0)
        return false;
    const sl_pipeline_stage *cost = &p->pipeline->stages[stage];
    pass.start = arrival > p->free_since[stage] ? arrival : p->free_since[stage];
    pass.end = pass.start + (pass.is_backward ? cost->backward_seconds : cost->forward_seconds);
    p->free_since[stage] = pass.end;
    p->end = pass.end > p->end ? pass.end : p->end;
    p->next[stage]++;
    send_on(p, &pass);
    if (p->observer)
        p->observer->passed(p->observer->user, &pass);
    return true;
}

static void close_simulation(simulation *p)
{
    free(p->next);
    free(p->free_since);
    for (int way = 0; way < 2; way++) {
        free(p->sent[way]);
        free(p->arrived[way]);
    }
}

static sl_status open_simulation(const sl_pipeline *pipeline, simulation *p)
{
    const size_t stages = pipeline->stage_count;
    const size_t count = stages * pipeline->micro_batches;
    p->next = calloc(stages, sizeof *p->next);
    p->free_since = calloc(stages, sizeof *p->free_since);
    for (int way = 0; way < 2; way++) {
        p->sent[way] = calloc(stages, sizeof *p->sent[way]);
        p->arrived[way] = malloc(count * sizeof *p->arrived[way]);
        if (!p->sent[way] || !p->arrived[way])
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pipeline");
        for (size_t i = 0; i < count; i++)
            p->arrived[way][i] = -1;
    }
    if (!p->next || !p->free_since)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pipeline");
    for (uint32_t i = 0; i < pipeline->micro_batches; i++)
        p->arrived[0][i] = 0; /* the first stage has its rows */
    return SL_OK;
}

static void simulate(simulation *p)
{
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t stage = 0; stage < p->pipeline->stage_count; stage++)
            while (run_next(p, stage))
                has_moved = true;
    }
}

sl_status sl_pipeline_play(const sl_pipeline *pipeline, const sl_pipeline_observer *observer,
                           double *out_seconds)
{
    simulation p = {.pipeline = pipeline, .observer = observer};
    if ((uint64_t)pipeline->stage_count * pipeline->micro_batches > SL_PIPELINE_PASSES_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "a pipeline of %u stages and %u micro-batches is too long to simulate",
                pipeline->stage_count, pipeline->micro_batches);
    sl_status status = open_simulation(pipeline, &p);
    if (status == SL_OK) {
        simulate(&p);
        *out_seconds = p.end;
    }
    close_simulation(&p);
    return status;
}

/* One way through a stage that is free at `time`. arrived [micro_batches]: when each one's input is
 * there, and then when the next stage has its output. Returns when the last one is through. */
static double pass_by_layer(const sl_pipeline *pipeline, uint32_t layers, double seconds,
                            double time, double *arrived)
{
    const uint32_t count = pipeline->micro_batches;
    const double of_layer = seconds / layers;
    double end = time;
    for (uint32_t i = 0; i < count; i++) {
        end = (arrived[i] > end ? arrived[i] : end) + of_layer;
        arrived[i] = end;
    }
    if (layers > 1)
        end += (layers - 2) * of_layer * count;
    for (uint32_t i = 0; i < count; i++) {
        end = layers > 1 ? end + of_layer : end;
        arrived[i] = (layers > 1 ? end : arrived[i]) + pipeline->send_seconds;
    }
    return end;
}

sl_status sl_pipeline_play_by_layer(const sl_pipeline *pipeline, const uint32_t *layers,
                                    double *out_seconds)
{
    double *arrived = calloc(pipeline->micro_batches, sizeof *arrived);
    double *free_since = calloc(pipeline->stage_count, sizeof *free_since);
    double end = 0;
    sl_status status = SL_OK;
    if (!arrived || !free_since) {
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a pipeline");
        goto free_both;
    }
    for (uint32_t s = 0; s < pipeline->stage_count; s++)
        free_since[s] =
            pass_by_layer(pipeline, layers[s], pipeline->stages[s].forward_seconds, 0, arrived);
    memset(arrived, 0, pipeline->micro_batches * sizeof *arrived); /* of the last stage's own */
    for (uint32_t s = pipeline->stage_count; s-- > 0;) {
        const double through = pass_by_layer(
            pipeline, layers[s], pipeline->stages[s].backward_seconds, free_since[s], arrived);
        end = through > end ? through : end;
    }
    *out_seconds = end;
free_both:
    free(arrived);
    free(free_since);
    return status;
}

double sl_pipeline_bound(const sl_pipeline *pipeline)
{
    double before = 0, bound = 0;
    for (uint32_t s = 0; s < pipeline->stage_count; s++) {
        const double both =
            pipeline->stages[s].forward_seconds + pipeline->stages[s].backward_seconds;
        const double own = before + both * pipeline->micro_batches;
        bound = own > bound ? own : bound;
        before += both + 2 * pipeline->send_seconds;
    }
    return bound;
}
