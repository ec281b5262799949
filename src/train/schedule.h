/* What changes from step to step: the learning rate and the other scalars of the update, and the
 * loss scale.
 *
 * The loss scale is the factor on the loss that keeps small gradients in the range of half
 * precision (Micikevicius et al. 2018, "Mixed Precision Training"). Dynamic: it starts at
 * --loss-scale-start, doubles after --loss-scale-window steps in a row that were finite (up to
 * 2^24, or its start), and is halved by every step that was not, down to --loss-scale-min; the
 * first --loss-scale-hysteresis - 1 of these are forgiven, and anew after each doubling. A power of
 * two scales without rounding. What it remembers is in the state of a checkpoint, so a resumed run
 * goes on with the same bits.
 */
#ifndef SL_TRAIN_SCHEDULE_H
#define SL_TRAIN_SCHEDULE_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "program/op_list.h"

/* The learning rate of the step after `state`. It is the n-th that is taken (with --lr-skips count:
 * the n-th of all): n / w of --lr in the w steps of --warmup, then it falls as (n - w) /
 * (--lr-decay-steps - w) grows from 0 to 1, to --min-lr, where it stays. Or as DeepSpeed computes
 * it, if --lr-schedule names one of its schedules. */
double sl_schedule_learning_rate(const sl_config *config, const sl_checkpoint_state *state);

/* The scalars of the step after `state`; where the data stand and what is drawn is left 0. Skipped
 * steps do not age the moments. */
sl_step_scalars sl_schedule_scalars(const sl_config *config, const sl_checkpoint_state *state);

/* Sets the loss scale of the first step. `resumed` is the checkpoint that `state` is of, or NULL: a
 * run that goes on with a dynamic scale keeps it if it was dynamic before and started at the same
 * one. */
sl_status sl_schedule_start_loss_scale(const sl_config *config, const sl_checkpoint *resumed,
                                       sl_checkpoint_state *state);

/* After a step: grows or lowers a dynamic scale; a fixed one stays. SL_ERROR_NONFINITE: the step
 * was not finite though a dynamic scale was at its minimum. */
sl_status sl_schedule_update_loss_scale(const sl_config *config, bool is_finite,
                                        sl_checkpoint_state *state);

#endif
