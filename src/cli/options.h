/* The command line of one command, made from the list of options. */
#ifndef SL_CLI_OPTIONS_H
#define SL_CLI_OPTIONS_H

#include "session/config/config.h"

typedef struct sl_options_command {
    sl_config_command command;
    const char *name;      /* "sluice train" */
    const char *arguments; /* what may stand beside the options, or NULL */
    const char *doc;       /* one paragraph */
} sl_options_command;

/* Fills in and checks a configuration: defaults, --config files, then options and --set in order.
 * Prints help or the version and exits where they are asked for. SL_ERROR_USAGE and the failures of
 * reading a file; the caller clears the configuration in any case. */
sl_status sl_options_parse(const sl_options_command *command, int argc, char **argv,
                           sl_config *config);

#endif
