/* The factor on the loss that keeps small gradients in the range of half precision (Micikevicius et
 * al. 2018, "Mixed Precision Training").
 *
 * Dynamic: it starts at 2^16, doubles after 1000 steps in a row that were finite (up to 2^24), and
 * is halved by every step that was not, down to 1. A power of two scales without rounding. What it
 * remembers is in the state of a checkpoint, so a resumed run goes on with the same bits.
 */
#ifndef SL_TRAIN_LOSS_SCALE_H
#define SL_TRAIN_LOSS_SCALE_H

#include "session/checkpoint/checkpoint.h"
#include "session/config/config.h"

/* Sets the scale of the first step. `resumed` is the checkpoint that `state` is of, or NULL: a run
 * that goes on with a dynamic scale keeps it if it was dynamic before. */
void sl_loss_scale_start(const sl_config *config, const sl_checkpoint *resumed,
                         sl_checkpoint_state *state);

/* After a step: grows or lowers a dynamic scale; a fixed one stays. SL_ERROR_NONFINITE: the step
 * was not finite though a dynamic scale was at its minimum. */
sl_status sl_loss_scale_settle(const sl_config *config, bool is_finite, sl_checkpoint_state *state);

#endif
