/* What the options of the loss scale and of the learning rate mean together: contradictions are
 * refused, and what was left open is filled in. Steps of sl_config_check. */
#ifndef SL_CONFIG_RECIPE_H
#define SL_CONFIG_RECIPE_H

#include "config.h"

/* The scale and what a step that is not finite does, from the compute type, which is resolved. What
 * is said of a dynamic scale is refused where the scale is fixed. SL_ERROR_USAGE. */
sl_status sl_recipe_check_loss_scale(sl_config *config);

/* Warm-up, decay and the last learning rate. SL_ERROR_USAGE. */
sl_status sl_recipe_check_schedule(sl_config *config);

/* Data-parallel ranks of a process that is alone: those of --ranks, which a plan is for. What is
 * filled in already stays. SL_ERROR_USAGE: --tp and --dp make another number. */
sl_status sl_recipe_plan_ranks(sl_config *config);

/* The rows of a step: --micro-batch * --accumulate * --dp, which is filled in. Where --global-batch
 * is known and `is_free`, --accumulate follows from it. SL_ERROR_USAGE: they do not fit. */
sl_status sl_recipe_settle_batch(sl_config *config, bool is_free);

#endif
