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

/* One option as help, manual and completion show it; its texts are borrowed and last. */
typedef struct sl_option {
    char letter;                     /* 0: it has none */
    const char *name, *help, *group; /* group: "Model" */
    const char *hint;                /* what its value is; NULL: it takes none */
    const char *initial;             /* "": none that is worth showing */
    bool is_choice, is_list;
} sl_option;

/* The option of that index from 0, group by group, what every command takes last; false: there are
 * no more. */
bool sl_options_at(const sl_command_entry *command, uint32_t index, sl_option *out_option);

struct argp_option;

/* Says what is wrong with a word of the command line that argp, with these options, stopped at:
 * SL_ERROR_USAGE, with what the word is here where another program has it, else the nearest name.
 */
sl_status sl_options_explain(const struct argp_option *options, const char *word);

enum { SL_OPTIONS_TEXT_BYTES = 1024 };

/* What holds for all options of a command, and which names some of them take. */
void sl_options_describe(const sl_command_entry *command, char *out_text, size_t capacity);

#endif
