/* Prints text for a terminal in lines of less than 80 columns: heads on the left, their meaning
 * beside them. For --help and `sluice help TOPIC`. */
#ifndef SL_CLI_HELP_H
#define SL_CLI_HELP_H

#include <stdint.h>
#include <stdio.h>

enum { SL_HELP_COLUMNS = 80 };

/* Prints words, starting at `column`, the present column of the line. Further lines begin at column
 * `indent`; a newline in `text` begins one, too. Prints a newline at the end. Never breaks a word.
 */
void sl_help_print_text(const char *text, uint32_t column, uint32_t indent, FILE *stream);

/* Prints `head`, then `text` from column `indent` on; on the next line if the head is too long. */
void sl_help_print_row(const char *head, const char *text, uint32_t indent, FILE *stream);

/* Prints a line for a shell, indented. A line that is too long is cut where an option begins, and
 * goes on behind a backslash. */
void sl_help_print_command_line(const char *line, uint32_t indent, FILE *stream);

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
