/* The command line of one command, made from the list of options. */
#ifndef SL_CLI_OPTIONS_H
#define SL_CLI_OPTIONS_H

#include "command.h"

/* Fills in a configuration: defaults, --config files, then options and --set in order; and checks
 * it, unless the command does. Where help or the version is asked for, prints it and does nothing
 * else: *out_is_answered.
 * SL_ERROR_USAGE and the failures of reading a file; the caller clears the configuration in any
 * case. */
sl_status sl_options_parse(const sl_command_entry *command, int argc, char **argv,
                           sl_config *config, bool *out_is_answered);

#endif
