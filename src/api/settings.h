/* Options of a command as names and values, one behind the other, NULL at their end. Private to the
 * room. */
#ifndef SL_API_SETTINGS_H
#define SL_API_SETTINGS_H

#include "config/config.h"

/* Sets them; a list has one item more with each of its values. NULL: there are none.
 * SL_ERROR_USAGE: an option that the command does not have, or a wrong value. */
sl_status sl_settings_read(const char *const *settings, sl_config_command command,
                           sl_config *config);

#endif
