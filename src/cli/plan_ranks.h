/* What `sluice plan` says of many ranks. */
#ifndef SL_CLI_PLAN_RANKS_H
#define SL_CLI_PLAN_RANKS_H

#include <jansson.h>

#include "session/config/config.h"
#include "session/search/blueprint.h"

/* Prints groups, splits and shapes of the ranks of --ranks, or else of --tp; of one rank nothing.
 * SL_ERROR_USAGE: the ranks do not divide. */
sl_status sl_plan_ranks_print(const sl_config *config, const sl_blueprint *blueprint);

/* The same as the key "ranks" of the object of `plan --json`: nothing is added for one rank. */
sl_status sl_plan_ranks_add_json(const sl_config *config, const sl_blueprint *blueprint,
                                 json_t *object);

#endif
