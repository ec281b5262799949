/* How the commands print for people. On a terminal: lines as wide as that is, broken between words,
 * a few colours, and one live line that is drawn over. Elsewhere, in a pipe or a file: whole lines
 * without colours, which scripts search.
 *
 * Every message on standard error, every live line, every colour and every line that may be longer
 * than a terminal is wide is printed through this file.
 */
#ifndef SL_CLI_TERMINAL_H
#define SL_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* ---- what a stream can show ---- */

/* Whether a line of the stream can be drawn over: it goes to a terminal that is not dumb. */
bool sl_terminal_is_live(FILE *stream);

/* Columns that a line may have: one less than the terminal has, because some wrap when the last one
 * is filled; 79 where the width is not known. SIZE_MAX: the stream is no terminal. */
size_t sl_terminal_columns(FILE *stream);

/* ---- colours ---- */

typedef enum sl_terminal_style {
    SL_TERMINAL_PLAIN, /* ends any other */
    SL_TERMINAL_ERROR,
    SL_TERMINAL_WARNING,
    SL_TERMINAL_HEADING,
    SL_TERMINAL_BOUND, /* the resource that binds, the row that wins */
    SL_TERMINAL_STYLE_COUNT
} sl_terminal_style;

/* Text that makes what follows it look so; "" where there are no colours. NO_COLOR, if it is not
 * empty: there are none; else CLICOLOR_FORCE, if not "0": there are; else a live terminal has them,
 * unless CLICOLOR is "0". */
const char *sl_terminal_begin(FILE *stream, sl_terminal_style style);

/* ---- lines ---- */

typedef struct sl_terminal_shape {
    size_t columns; /* of a line; SIZE_MAX: it is not broken */
    size_t column;  /* at which the text begins */
    size_t indent;  /* spaces in front of each further line */
} sl_terminal_shape;

/* Returns the text with line ends in place of spaces, so that lines have no more columns than
 * `shape` says: a word is never broken, a longer one has a line of its own. The caller frees it.
 * NULL: no memory. */
char *sl_terminal_break(const char *text, const sl_terminal_shape *shape);

/* Prints a text and a line end; where the stream is a terminal, broken at its width, with `indent`
 * spaces in front of each further line. */
void sl_terminal_print(FILE *stream, size_t indent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same of each line of a text that ends with a line end. */
void sl_terminal_print_lines(FILE *stream, size_t indent, const char *text);

/* A line that is put together from parts; what is beyond its room is left out. */
typedef struct sl_terminal_text {
    char text[1024];
    size_t used;
} sl_terminal_text;

void sl_terminal_add(sl_terminal_text *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints "sluice: " and a message to standard error, as a line of its own. PLAIN, ERROR or WARNING,
 * which puts "warning: " before it. Any thread. */
void sl_terminal_say(sl_terminal_style style, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes the line that sl_terminal_say would print of a message now, for a signal's handler to
 * write; "" for an empty message, or NULL. On a terminal it takes the place of a live line. */
void sl_terminal_keep(const char *message, char *out_line, size_t capacity);

/* ---- the live line ---- */

/* Replaces the stream's live line by a text, cut to the terminal's width; elsewhere prints a line.
 */
void sl_terminal_draw(FILE *stream, const char *text);

/* Ends a live line, if there is one, so that other text begins on a line of its own. */
void sl_terminal_end_line(void);

/* From here on other processes, whose live lines this one does not know, print to the terminal:
 * each message takes the place of what stands in its line. */
void sl_terminal_expect_lines(void);

/* Forgets a live line, because something was written over it. A signal's handler may call it. */
void sl_terminal_forget_line(void);

#endif
