/* The best evaluation of a run: the one with the least loss, and how many came behind it. */
#ifndef SL_TRAIN_BEST_H
#define SL_TRAIN_BEST_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"

#define SL_BEST_NAME "best" /* below --save: a directory of checkpoints with one in it */

/* Counts an evaluation after step state->step, at most one of each step; a loss that is not finite
 * is never the best. Returns whether it is the best so far. */
bool sl_best_count(double loss, sl_checkpoint_state *state);

/* Whether --patience has run out. */
bool sl_best_is_stale(const sl_config *config, const sl_checkpoint_state *state);

/* Whether the run decides by its evaluations: then a resumed run first makes the one that is due
 * after the last step and is not in its checkpoint. */
bool sl_best_decides(const sl_config *config);

#endif
