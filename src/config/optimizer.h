/* What the options of the loss scale and of the learning rate mean together: contradictions are
 * refused, and what was left open is filled in. Steps of sl_config_check. */
#ifndef SL_CONFIG_OPTIMIZER_H
#define SL_CONFIG_OPTIMIZER_H

#include "config.h"

/* The scale and what a step that is not finite does, from the compute type, which is resolved. What
 * is said of a dynamic scale is refused where the scale is fixed. SL_ERROR_USAGE. */
sl_status sl_optimizer_check_loss_scale(sl_config *config);

/* Warm-up, decay and the last learning rate. SL_ERROR_USAGE. */
sl_status sl_optimizer_check_schedule(sl_config *config);

#endif
