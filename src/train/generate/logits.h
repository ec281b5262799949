/* The logits of a program that has them as outputs, one output a panel. */
#ifndef SL_TRAIN_LOGITS_H
#define SL_TRAIN_LOGITS_H

#include "session/runtime.h"

/* Writes the logits of row `row` of plan `plan_index`, which ran last, as floats to their ids in
 * `logits` [vocab]. Of a rank that holds some of the ids, these alone. */
void sl_logits_join(const sl_runtime *runtime, uint32_t plan_index, uint64_t row, float *logits);

#endif
