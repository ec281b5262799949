/* What `sluice plan` says of many ranks. */
#ifndef SL_CLI_PLAN_RANKS_H
#define SL_CLI_PLAN_RANKS_H

#include "comm/groups.h"
#include "train/plan_stages.h"

/* Prints groups, stages, splits and shapes of the ranks; of one rank nothing. */
sl_status sl_plan_ranks_print(const sl_comm_layout *layout, const sl_plan_stages *stages);

#endif
