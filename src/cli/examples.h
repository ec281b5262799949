/* What to type: command lines for --help and the manual pages. tests/command/test_command_help.c
 * gives each of them to the parser of options, and runs those that take moments. */
#ifndef SL_CLI_EXAMPLES_H
#define SL_CLI_EXAMPLES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sl_example {
    const char *command; /* whose help shows it */
    const char *comment; /* what it is for */
    const char *line;    /* for a shell, on one line */
    bool is_first;       /* among the first steps, which the page of sluice itself shows */
} sl_example;

/* The example of that index from 0; NULL: there are no more. */
const sl_example *sl_examples_at(uint32_t index);

#endif
