/* What changes from step to step: the learning rate and the other scalars of the update. */
#ifndef SL_TRAIN_SCHEDULE_H
#define SL_TRAIN_SCHEDULE_H

#include "session/config/config.h"
#include "sluice/op_list.h"

/* The learning rate of step `step`, counted from 0: a linear warm-up to --lr, then the schedule
 * down to --min-lr, which the last step nearly reaches; past the last step it stays there. */
double sl_schedule_learning_rate(const sl_config *config, uint64_t step);

/* The scalars of step `step` from 0, with a loss scale of 1. `update` >= 1 counts the updates up to
 * and with this one: skipped steps do not age the moments. */
sl_step_scalars sl_schedule_scalars(const sl_config *config, uint64_t step, uint64_t update);

#endif
