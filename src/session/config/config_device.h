/* Which device a configuration means. */
#ifndef SL_SESSION_CONFIG_CONFIG_DEVICE_H
#define SL_SESSION_CONFIG_CONFIG_DEVICE_H

#include "config.h"
#include "sluice/device.h"

/* "cpu", "cuda" or "cuda:N". SL_ERROR_USAGE. */
sl_status sl_config_parse_device(const char *text, sl_device_kind *out_kind, int *out_index);

/* Writes the device's one spelling ("cpu", "cuda:0") in the place of "auto" and "cuda", and the
 * compute type that it has by default. Opens a GPU to see whether it does, only for "auto". */
sl_status sl_config_resolve_device(sl_config *config);

/* Asks the device of a resolved configuration. SL_ERROR_SYSTEM names the option and what is
 * missing. */
sl_status sl_config_query_device(const sl_config *config, sl_device_info *out_info);

#endif
