/* A step of all stages of a pipeline, from what each of them is predicted to take alone. */
#ifndef SL_CLUSTER_STAGE_STEPS_H
#define SL_CLUSTER_STAGE_STEPS_H

#include "search/blueprint.h"

/* The layers of stage `index` of a task: the first of them, and how many. */
void sl_stage_steps_layers(const sl_task *task, uint32_t index, uint32_t *out_first,
                           uint32_t *out_count);

/* Simulates the stages together. step_seconds [stage_count]: the prediction of each as if it waited
 * for no other; it is shared out evenly over micro-batches, a third of it forward, and what stages
 * give each other takes no time. Of very many micro-batches it is a lower bound. Without stages it
 * is that of the one. SL_ERROR_SYSTEM: no memory. */
sl_status sl_stage_steps_simulate(const sl_task *task, const sl_choice *choice,
                                  const double *step_seconds, double *out_seconds);

#endif
