/* What calls are given and give: options of a command as names and values, one behind the other,
 * NULL at their end; bytes of a plan; JSON text. Private to the room. */
#ifndef SL_API_SETTINGS_H
#define SL_API_SETTINGS_H

#include <jansson.h>

#include "config/config.h"
#include "search/blueprint.h"
#include "sluice/session.h"

/* Sets them; a list has one item more with each of its values. NULL: there are none.
 * SL_ERROR_USAGE: an option that the command does not have, or a wrong value. */
sl_status sl_settings_read(const char *const *settings, sl_config_command command,
                           sl_config *config);

/* The bytes of a plan, as many fields as the struct of the program holds. */
void sl_api_fill_bytes(const sl_blueprint *blueprint, sl_planned_bytes *out_bytes);

/* What a call gives as JSON text: numbers with all their digits. Frees the object. */
sl_status sl_api_format(json_t *object, char **out_text);

#endif
