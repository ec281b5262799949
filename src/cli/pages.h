/* What else the tables of commands, options and words are made into, beside --help: manual pages,
 * what shells complete, and the table of words. */
#ifndef SL_CLI_PAGES_H
#define SL_CLI_PAGES_H

#include "command.h"

/* sluice manual [--roff|--text] [COMMAND|words]: shows the page of a command, of the words of other
 * programs, or of sluice itself. Without a form a terminal gets the formatted page, and anything
 * else the macros of man(7). SL_ERROR_USAGE: other words. SL_ERROR_SYSTEM: no memory. */
sl_status sl_manual_print(int argc, char **argv);

/* sluice completion bash|zsh|fish: prints what that shell completes. SL_ERROR_USAGE: other words.
 */
sl_status sl_completion_print(int argc, char **argv);

/* Prints what words of other programs are here: `sluice help words`. */
void sl_words_table_print(FILE *stream);

#define SL_WORDS_SUMMARY "what options, values and models of other programs are here"

#endif
