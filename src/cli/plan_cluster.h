/* What `sluice plan --cluster FILE` says. */
#ifndef SL_CLI_PLAN_CLUSTER_H
#define SL_CLI_PLAN_CLUSTER_H

#include "config/config.h"

/* Finds how --ranks GPUs of a described cluster do a step fastest. No rank is started, no device
 * opened. SL_ERROR_FIT names what is missing. */
sl_status sl_plan_cluster(sl_config *config);

#endif
