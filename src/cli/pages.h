/* What else the tables of commands, options and words are made into, beside --help: manual pages,
 * what shells complete, and topics of help. */
#ifndef SL_CLI_PAGES_H
#define SL_CLI_PAGES_H

#include "command.h"

/* Writes the manual page of a command, of "words", or of sluice itself where `word` is NULL, as
 * man(7) has it. SL_ERROR_USAGE: no command is called that. SL_ERROR_SYSTEM: no memory. */
sl_status sl_manual_print(const char *word, FILE *stream);

/* Writes what a shell, "bash" or "zsh", completes. SL_ERROR_USAGE: another one, or NULL. */
sl_status sl_completion_print(const char *word, FILE *stream);

/* Prints what words of other programs are here: `sluice help words`. */
void sl_topics_print_words(FILE *stream);

#define SL_WORDS_SUMMARY "what options, values and models of other programs are here"

#endif
