/* What changes from step to step: the learning rate and the other scalars of the update, and the
 * loss scale.
 *
 * The loss scale is the factor on the loss that keeps small gradients in the range of half
 * precision (Micikevicius et al. 2018, "Mixed Precision Training"). Dynamic: it starts at 2^16,
 * doubles after 1000 steps in a row that were finite (up to 2^24), and is halved by every step that
 * was not, down to 1. A power of two scales without rounding. What it remembers is in the state of
 * a checkpoint, so a resumed run goes on with the same bits.
 */
#ifndef SL_TRAIN_SCHEDULE_H
#define SL_TRAIN_SCHEDULE_H

#include "session/checkpoint/checkpoint.h"
#include "session/config/config.h"
#include "sluice/op_list.h"

/* The learning rate of step `step`, counted from 0: a linear warm-up to --lr, then the schedule
 * down to --min-lr, which the last step nearly reaches; past the last step it stays there. */
double sl_schedule_learning_rate(const sl_config *config, uint64_t step);

/* The scalars of step `step` from 0, with a loss scale of 1. `update` >= 1 counts the updates up to
 * and with this one: skipped steps do not age the moments. */
sl_step_scalars sl_schedule_scalars(const sl_config *config, uint64_t step, uint64_t update);

/* Sets the loss scale of the first step. `resumed` is the checkpoint that `state` is of, or NULL: a
 * run that goes on with a dynamic scale keeps it if it was dynamic before. */
sl_status sl_schedule_start_loss_scale(const sl_config *config, const sl_checkpoint *resumed,
                                       sl_checkpoint_state *state);

/* After a step: grows or lowers a dynamic scale; a fixed one stays. SL_ERROR_NONFINITE: the step
 * was not finite though a dynamic scale was at its minimum. */
sl_status sl_schedule_update_loss_scale(const sl_config *config, bool is_finite,
                                        sl_checkpoint_state *state);

#endif
