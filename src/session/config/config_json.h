/* The configuration as JSON: read from files, printed resolved. */
#ifndef SL_SESSION_CONFIG_CONFIG_JSON_H
#define SL_SESSION_CONFIG_CONFIG_JSON_H

#include <jansson.h>

#include "config.h"

/* Applies the keys of a JSON object in file `path`. A key is an option's name ("-" and "_" are the
 * same); a value is a number, a string, true or false, null (the default) or, for a list, an array
 * of strings. Duplicate keys, unknown keys and wrong values are SL_ERROR_USAGE, named with the
 * file; SL_ERROR_MISSING: no such file; SL_ERROR_DATA: not JSON, with line and column. */
sl_status sl_config_load(sl_config *config, sl_config_command command, const char *path);

/* A new object with every option that `command` takes; "auto" where still unset. */
sl_status sl_config_format(const sl_config *config, sl_config_command command, json_t **out_object);

#endif
