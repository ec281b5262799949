/* Text for a terminal, in lines of at most 80 columns: heads on the left, what they mean beside
 * them. What --help and `sluice help TOPIC` are printed by. */
#ifndef SL_CLI_HELP_H
#define SL_CLI_HELP_H

#include <stdint.h>
#include <stdio.h>

enum { SL_HELP_COLUMNS = 80 };

/* Prints words from column `column`, where the line ends now, on lines that begin at `indent`; a
 * newline in the text begins one, too, and one ends the text. A word is never broken. */
void sl_help_print_text(const char *text, uint32_t column, uint32_t indent, FILE *stream);

/* Prints `head`, and from column `indent` on the text; below the head where that is too long. */
void sl_help_print_row(const char *head, const char *text, uint32_t indent, FILE *stream);

/* One option of --help. */
typedef struct sl_help_option {
    char letter; /* 0: it has none */
    const char *name;
    const char *hint; /* what its value is; NULL: it takes none */
    const char *text;
    const char *initial; /* its default, shown in brackets; "" or NULL: none */
} sl_help_option;

void sl_help_print_option(const sl_help_option *option, FILE *stream);

#endif
