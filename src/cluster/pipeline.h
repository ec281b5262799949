/* The stages of a pipeline over the micro-batches of a step, simulated together.
 *
 * A stage works in order; a pass starts when the stage is free and what it needs from its
 * neighbour has arrived. What is sent goes beside the work, one after the other on each way.
 * 1F1B: stage s of P runs min(m, P - s - 1) forward passes, then pairs, then the backward passes
 * that are left; gpipe: all forward passes, then all backward passes, in order of index.
 */
#ifndef SL_CLUSTER_PIPELINE_H
#define SL_CLUSTER_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_pipeline_stage {
    double forward_seconds, backward_seconds; /* of a micro-batch */
} sl_pipeline_stage;

typedef struct sl_pipeline {
    const sl_pipeline_stage *stages; /* [stage_count] */
    uint32_t stage_count, micro_batches;
    bool is_gpipe;
    double send_seconds; /* from one stage to the next */
} sl_pipeline;

/* One pass of a micro-batch through a stage. */
typedef struct sl_pipeline_pass {
    uint32_t stage, micro_batch;
    bool is_backward;
    double start, end; /* seconds from the first one's start */
} sl_pipeline_pass;

/* Is told of each pass; of one stage in the order of time. */
typedef struct sl_pipeline_observer {
    void (*passed)(void *user, const sl_pipeline_pass *pass);
    void *user;
} sl_pipeline_observer;

enum { SL_PIPELINE_PASSES_MAX = 1 << 22 }; /* stages times micro-batches */

/* Plays a step: the time until the last pass has ended. `observer` may be NULL. SL_ERROR_USAGE:
 * more than SL_PIPELINE_PASSES_MAX; SL_ERROR_SYSTEM: no memory. */
sl_status sl_pipeline_play(const sl_pipeline *pipeline, const sl_pipeline_observer *observer,
                           double *out_seconds);

/* The same in layer order: a stage takes its layers one after the other, each over all
 * micro-batches, all forward and then all back, and sends each of them on in the last one. layers
 * [stage_count]: of each, at least 1. */
sl_status sl_pipeline_play_by_layer(const sl_pipeline *pipeline, const uint32_t *layers,
                                    double *out_seconds);

/* No schedule is faster: some stage has all its work to do, after what is before it and before what
 * is behind. */
double sl_pipeline_bound(const sl_pipeline *pipeline);

/* Micro-batches that stage s keeps at most between their passes. */
uint32_t sl_pipeline_kept(const sl_pipeline *pipeline, uint32_t stage);

#endif
