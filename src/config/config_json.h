/* The configuration as JSON: read from files, printed resolved or as it was given. */
#ifndef SL_CONFIG_CONFIG_JSON_H
#define SL_CONFIG_CONFIG_JSON_H

#include <jansson.h>

#include "config.h"

/* Sets the options that the keys of an object give. A key is an option's name ("-" and "_" are the
 * same); a value is a number, a string, true or false, null (the default) or, for a list, an array
 * of strings.
 *
 * One file serves every command: options of other commands are checked and passed over. An object
 * under the name of a command holds options for that command alone, which win over those beside it;
 * `plan` takes those of `train` too. A name that commands use differently (`output`) can only stand
 * there.
 *
 * `others` takes the options of other commands. SL_ERROR_USAGE: an unknown key or a wrong value. */
sl_status sl_config_read(sl_config *config, sl_config *others, sl_config_command command,
                         json_t *object);

/* Sets an option from a value as it stands in such a file. SL_ERROR_USAGE. */
sl_status sl_config_set_json(sl_config *config, uint32_t row, const json_t *value);

/* A new object with every option that `command` takes; "auto" where still unset. Paths are
 * absolute, seen from the present directory; null for a text that is not UTF-8, which JSON has no
 * spelling for. SL_ERROR_IO: that directory has no name. SL_ERROR_SYSTEM. */
sl_status sl_config_format(const sl_config *config, sl_config_command command, json_t **out_object);

/* The same as a file of --config takes it, which gives one length of a run: where --epochs or
 * --tokens says how long the run is, without the steps that follow from it. */
sl_status sl_config_print(const sl_config *config, sl_config_command command, json_t **out_object);

/* As sl_config_print, with those options only that a file or the command line gave. SL_ERROR_USAGE:
 * a text is not UTF-8; names the option. */
sl_status sl_config_print_given(const sl_config *config, sl_config_command command,
                                json_t **out_object);

/* As sl_config_format, with those options only that a file or the command line gave; "auto" where
 * that was given, also if a value was chosen since (was_auto). */
sl_status sl_config_format_given(const sl_config *config, sl_config_command command,
                                 json_t **out_object);

/* The text of such an object, which is taken over; the caller frees the text. SL_ERROR_SYSTEM. */
sl_status sl_config_dump(json_t *object, char **out_text);

/* Whether such an object would say all: what a checkpoint records has to come back when the run
 * goes on. SL_ERROR_USAGE: a text is not UTF-8; names the option. SL_ERROR_IO, SL_ERROR_SYSTEM as
 * above. */
sl_status sl_config_check_recorded(const sl_config *config, sl_config_command command);

/* The key of an option in these objects: its name with "_" for "-". */
void sl_config_format_key(uint32_t row, char *out_key, size_t capacity);

#endif
