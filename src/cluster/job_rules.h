/* Checks a job's rules and adapters: they name tensors of its model and treat all blocks alike,
 * because estimates count one layer for all (layer_cost.h). */
#ifndef SL_CLUSTER_JOB_RULES_H
#define SL_CLUSTER_JOB_RULES_H

#include "estimate.h"

/* Checks the job's rules and adapters, and fills in its parameters, trained and token_flops.
 * SL_ERROR_USAGE: an option is refused as by `plan`, or treats blocks unequally; names the tensor
 * and the way out. SL_ERROR_SYSTEM. */
sl_status sl_cluster_check_rules(sl_cluster_job *job);

#endif
