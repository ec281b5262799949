/* What else the tables of commands and options are made into, beside --help: manual pages, and what
 * shells complete. */
#ifndef SL_CLI_PAGES_H
#define SL_CLI_PAGES_H

#include "command.h"

/* Writes the manual page of a command, or of sluice itself where `word` is NULL, as man(7) has it.
 * SL_ERROR_USAGE: no command is called that. */
sl_status sl_manual_print(const char *word, FILE *stream);

/* Writes what a shell, "bash" or "zsh", completes. SL_ERROR_USAGE: another one, or NULL. */
sl_status sl_completion_print(const char *word, FILE *stream);

#endif
