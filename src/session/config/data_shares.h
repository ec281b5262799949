/* Weights in front of the paths of --data; config.h has the calls for others. */
#ifndef SL_SESSION_CONFIG_DATA_SHARES_H
#define SL_SESSION_CONFIG_DATA_SHARES_H

#include "config.h"

/* SL_ERROR_USAGE: weights that are none, that some paths lack, or where none belong. */
sl_status sl_data_shares_check(const sl_config *config, sl_config_command command);

#endif
