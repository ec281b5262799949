/* The check of the weights in front of the paths of --data. sl_config_weigh and sl_config_split,
 * which are in the same file, are declared in config.h. */
#ifndef SL_CONFIG_DATA_SHARES_H
#define SL_CONFIG_DATA_SHARES_H

#include "config.h"

/* Checks the weights in --data and --eval-data. SL_ERROR_USAGE: a weight is not above 0, only some
 * paths have one, or the command takes none. */
sl_status sl_data_shares_check(const sl_config *config, sl_config_command command);

#endif
