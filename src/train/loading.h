/* Runs a command that loads a checkpoint; starts it over if the checkpoint proves to be damaged. */
#ifndef SL_TRAIN_LOADING_H
#define SL_TRAIN_LOADING_H

#include "config/config.h"

/* Calls `work`, which opens and loads a checkpoint by the configuration. If it returns
 * SL_ERROR_DAMAGED, warns and calls it once more with the configuration as it was at first, but
 * with checks_checkpoints set: each checkpoint is then read in full before it is taken, so that the
 * newest whole one is loaded. On several ranks `work` must return SL_ERROR_DAMAGED on all of them
 * or none. */
sl_status sl_loading_run(sl_config *config, sl_status (*work)(sl_config *config, void *user),
                         void *user);

#endif
