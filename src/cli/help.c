/* See help.h. */
#include "help.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "terminal.h"

enum { OPTION_COLUMN = 29, HEAD_BYTES = 128, TEXT_BYTES = 1024 };

static void begin_line(uint32_t indent, FILE *stream)
{
    fprintf(stream, "\n%*s", (int)indent, "");
}

void sl_help_print_text(const char *text, uint32_t column, uint32_t indent, FILE *stream)
{
    const sl_terminal_shape shape = {
        .columns = SL_HELP_COLUMNS - 1, .column = column, .indent = indent};
    char *lines = sl_terminal_break(text, &shape);
    fprintf(stream, "%s\n", lines ? lines : text);
    free(lines);
}

void sl_help_print_row(const char *head, const char *text, uint32_t indent, FILE *stream)
{
    const uint32_t length = (uint32_t)strlen(head);
    fputs(head, stream);
    if (length + 1 < indent)
        fprintf(stream, "%*s", (int)(indent - length), "");
    else
        begin_line(indent, stream);
    sl_help_print_text(text, indent, indent, stream);
}

/* Bytes of a command line up to the next option. */
static uint32_t find_option_end(const char *line)
{
    const char *next = strstr(line + 1, " --");
    return (uint32_t)(next ? (size_t)(next - line) : strlen(line));
}

void sl_help_print_command_line(const char *line, uint32_t indent, FILE *stream)
{
    enum { FURTHER = 3, BACKSLASH = 2 }; /* a further line begins with the blank of its option */
    uint32_t column = indent;
    fprintf(stream, "%*s", (int)indent, "");
    while (*line) {
        const uint32_t length = find_option_end(line);
        if (column > indent + FURTHER && column + length + BACKSLASH >= SL_HELP_COLUMNS) {
            column = indent + FURTHER;
            fprintf(stream, " \\\n%*s", (int)column, "");
        }
        fprintf(stream, "%.*s", (int)length, line);
        column += length;
        line += length;
    }
    fputc('\n', stream);
}

void sl_help_print_option(const sl_help_option *option, FILE *stream)
{
    char head[HEAD_BYTES], text[TEXT_BYTES], letter[] = "-?, ";
    letter[1] = option->letter;
    snprintf(head, sizeof head, "  %s--%s%s%s", option->letter ? letter : "    ", option->name,
             option->hint ? "=" : "", option->hint ? option->hint : "");
    const bool has_initial = option->initial && *option->initial;
    snprintf(text, sizeof text, "%s%s%s%s", option->text, has_initial ? " [" : "",
             has_initial ? option->initial : "", has_initial ? "]" : "");
    sl_help_print_row(head, text, OPTION_COLUMN, stream);
}
