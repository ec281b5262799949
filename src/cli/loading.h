/* Commands that load a checkpoint, and may find only then that it is damaged. */
#ifndef SL_CLI_LOADING_H
#define SL_CLI_LOADING_H

#include "session/config/config.h"

/* Calls `work`, which opens and loads with the configuration. If what it loads is damaged
 * (SL_ERROR_DAMAGED), says so and calls it once more with the configuration as it was at first, but
 * for checks_checkpoints: then a checkpoint is read in full before it is taken, so the newest whole
 * one is. Of many ranks all come to the same end of `work`. */
sl_status sl_loading_run(sl_config *config, sl_status (*work)(sl_config *config, void *user),
                         void *user);

#endif
