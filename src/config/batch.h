/* Data-parallel ranks, and the rows of a step: what follows from --ranks and --global-batch. */
#ifndef SL_CONFIG_BATCH_H
#define SL_CONFIG_BATCH_H

#include "config.h"

/* Whether --micro-batch is chosen with --tp or --pp: one of them is auto, and --micro-batch was not
 * given. */
bool sl_batch_is_chosen(const sl_config *config);

/* Data-parallel ranks of a process that is alone: those of --ranks, which a plan is for. What is
 * filled in already stays. SL_ERROR_USAGE: --tp and --dp make another number. */
sl_status sl_batch_plan_ranks(sl_config *config);

/* The rows of a step: --micro-batch * --accumulate * --dp, which is filled in. Where --global-batch
 * is known and `is_free`, --accumulate follows from it. SL_ERROR_USAGE: they do not fit. */
sl_status sl_batch_settle(sl_config *config, bool is_free);

#endif
