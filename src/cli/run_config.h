/* The file of plan --write-config: the options of a plan and what it chose, for `train --config`.
 */
#ifndef SL_CLI_RUN_CONFIG_H
#define SL_CLI_RUN_CONFIG_H

#include <jansson.h>

#include "config/config.h"
#include "search/blueprint.h"

typedef struct sl_run_config_args {
    const sl_config *config; /* of plan */
    json_t *chosen;          /* options by key; they win over those that were given; borrowed */
    const char *note;        /* a line on what was planned */
    uint32_t ranks;
    uint32_t node_ranks; /* ranks of a machine; 0: all are on one */
} sl_run_config_args;

/* Whether the file may be written, before time goes into the plan. SL_ERROR_USAGE: something is
 * there that plan did not write; SL_ERROR_IO. */
sl_status sl_run_config_check(const char *path);

/* A choice as options by key, without the rows and the ranks; `schedule` of several stages. The
 * caller releases it; NULL: no memory. */
json_t *sl_run_config_format(const sl_choice *choice);

/* Writes the file and says by which commands it is run. SL_ERROR_USAGE: the run would lack
 * something, such as a place on disk. */
sl_status sl_run_config_write(const sl_run_config_args *args);

#endif
