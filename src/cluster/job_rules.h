/* Rules and adapters of a job: that they are of its model, and the same in all blocks, as estimates
 * take a layer for each of them (layer_cost.h). */
#ifndef SL_CLUSTER_JOB_RULES_H
#define SL_CLUSTER_JOB_RULES_H

#include "estimate.h"

/* Checks the job's rules and adapters, and fills in its parameters, trained and token_flops.
 * SL_ERROR_USAGE: an option is refused as by `plan`, or treats blocks unequally; names the tensor
 * and the way out. SL_ERROR_SYSTEM. */
sl_status sl_cluster_check_rules(sl_cluster_job *job);

#endif
