/* What `sluice COMMAND --help`, `--help-all` and `sluice help` print, from the tables of commands,
 * options, examples and topics. */
#ifndef SL_CLI_COMMAND_HELP_H
#define SL_CLI_COMMAND_HELP_H

#include "command.h"

/* Prints the help of a command: with every option and the whole text of each if `is_whole`, else
 * the options that most runs use and the first clause of each. A command that has no others is
 * printed whole in either case. */
void sl_command_help_print(const sl_command_entry *command, bool is_whole, FILE *stream);

/* Prints the commands by what they are for, and the topics. */
void sl_command_help_print_overview(FILE *stream);

#endif
