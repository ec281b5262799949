/* A copy of a configuration, for a command that may have to start again with the same options. */
#ifndef SL_CONFIG_CONFIG_COPY_H
#define SL_CONFIG_CONFIG_COPY_H

#include "config.h"

/* Makes a copy that owns its texts; sl_config_clear frees it. SL_ERROR_SYSTEM: no memory. */
sl_status sl_config_copy(const sl_config *config, sl_config *out_copy);

#endif
