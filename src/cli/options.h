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
    const char *const *names; /* values beside those of `hint`, NULL behind the last; or NULL */
    bool is_choice, is_list;
    bool is_first;  /* the short help shows it */
    bool is_common; /* every command takes it */
} sl_option;

/* The option of that index from 0, group by group, what every command takes last; false: there are
 * no more. */
bool sl_options_of_command(const sl_command_entry *command, uint32_t index, sl_option *out_option);

struct argp_option;

/* Says what is wrong with a word of the command line that argp, with these options, stopped at:
 * SL_ERROR_USAGE, with what the word is here where another program has it, else the nearest name.
 */
sl_status sl_options_explain(const struct argp_option *options, const char *word);

enum { SL_OPTIONS_TEXT_BYTES = 1024 };

/* What holds for all options of a command, and which names some of them take. */
void sl_options_describe(const sl_command_entry *command, char *out_text, size_t capacity);

enum { SL_OPTIONS_KEY_USAGE = 1000, SL_OPTIONS_KEY_HELP_ALL, SL_OPTIONS_KEY_ROW };

/* Whether a key of argp's asks for a help, a usage message or the version. */
bool sl_options_key_asks(int key);

/* The last rows of an argp table: what every command takes. */
#define SL_OPTIONS_HELP_ROWS                                                                       \
    {"help", '?', NULL, 0, "Give the help of the options that most runs use", -1},                 \
        {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},                                                \
        {"help-all", SL_OPTIONS_KEY_HELP_ALL, NULL, 0, "Give the help of every option", -1},       \
    {                                                                                              \
        "usage", SL_OPTIONS_KEY_USAGE, NULL, 0, "Give a short usage message", -1                   \
    }

#endif
