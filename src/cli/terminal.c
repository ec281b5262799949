/* A message of several lines is one write, so that ranks that share a terminal do not mix lines.
 * There is one live line at a time; a message takes its place, and the next drawing comes below. */
#define _GNU_SOURCE
#include "terminal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_COLUMNS = 80, TEXT_BYTES = 2048, SAY_INDENT = 2 };

#define ERASE_LINE "\r\033[K"

static bool expects_lines;          /* of other processes */
static _Atomic(FILE *) live_stream; /* on which a live line stands; NULL: on none */

/* ---- what a stream can show ---- */

/* errno stays: it may be told after what is printed now. */
static bool is_terminal(FILE *stream)
{
    const int error = errno;
    const bool is_one = isatty(fileno(stream)) == 1;
    errno = error;
    return is_one;
}

bool sl_terminal_is_live(FILE *stream)
{
    const char *kind = getenv("TERM");
    return is_terminal(stream) && !(kind && strcmp(kind, "dumb") == 0);
}

size_t sl_terminal_columns(FILE *stream)
{
    struct winsize size;
    if (!is_terminal(stream))
        return SIZE_MAX;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return DEFAULT_COLUMNS - 1;
    return (size_t)size.ws_col - 1;
}

/* ---- colours ---- */

static bool has_colours(FILE *stream)
{
    const char *never = getenv("NO_COLOR"), *always = getenv("CLICOLOR_FORCE"),
               *wanted = getenv("CLICOLOR");
    if (never && *never)
        return false;
    if (always && *always && strcmp(always, "0") != 0)
        return true;
    return sl_terminal_is_live(stream) && !(wanted && strcmp(wanted, "0") == 0);
}

const char *sl_terminal_begin(FILE *stream, sl_terminal_style style)
{
    static const char *const sequences[SL_TERMINAL_STYLE_COUNT] = {
        [SL_TERMINAL_PLAIN] = "\033[0m",
        [SL_TERMINAL_ERROR] = "\033[1;31m",
        [SL_TERMINAL_WARNING] = "\033[33m",
        [SL_TERMINAL_HEADING] = "\033[1m",
        [SL_TERMINAL_BOUND] = "\033[1;36m"};
    return has_colours(stream) ? sequences[style] : "";
}

/* ---- lines ---- */

/* Columns of so many bytes: of UTF-8 the bytes that begin a character, and none of a colour. */
static size_t count_columns(const char *text, size_t bytes)
{
    size_t columns = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\033') /* ESC [ ... and a letter, which stands at no column */
            i += strcspn(text + i, "mK");
        else if (text[i] != '\r')
            columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return columns;
}

/* Where a text is broken into lines. */
typedef struct writer {
    const sl_terminal_shape *shape;
    char *next;
    size_t column;
    bool is_line_new; /* nothing but the indent stands in it */
} writer;

static void end_line(writer *to)
{
    *to->next++ = '\n';
    memset(to->next, ' ', to->shape->indent);
    to->next += to->shape->indent;
    to->column = to->shape->indent;
    to->is_line_new = true;
}

/* Spaces in front of a word that does not fit the line become the line's end. */
static void write_word(writer *to, const char *text, size_t spaces, size_t bytes)
{
    const size_t columns = count_columns(text + spaces, bytes);
    if (!to->is_line_new && spaces > 0 && columns > 0 &&
        to->column + spaces + columns > to->shape->columns) {
        end_line(to);
        text += spaces;
        spaces = 0;
    }
    memcpy(to->next, text, spaces + bytes);
    to->next += spaces + bytes;
    to->column += spaces + columns;
    to->is_line_new = to->is_line_new && columns == 0;
}

char *sl_terminal_break(const char *text, const sl_terminal_shape *shape)
{
    /* each byte becomes itself, or a line end and an indent */
    char *lines = malloc(strlen(text) * (shape->indent + 1) + 1);
    writer to = {.shape = shape, .next = lines, .column = shape->column, .is_line_new = true};
    while (lines && *text) {
        const size_t spaces = strspn(text, " "), bytes = strcspn(text + spaces, " \n");
        write_word(&to, text, spaces, bytes);
        text += spaces + bytes;
        if (*text == '\n') {
            end_line(&to);
            text++;
        }
    }
    if (lines)
        *to.next = '\0';
    return lines;
}

/* Broken at the stream's width, for the caller to free; NULL: it is to be printed as it is, because
 * the stream is no terminal, or there is no memory. */
static char *break_for(FILE *stream, size_t indent, const char *start, const char *text)
{
    const sl_terminal_shape shape = {.columns = sl_terminal_columns(stream),
                                     .column = count_columns(start, strlen(start)),
                                     .indent = indent};
    return shape.columns == SIZE_MAX ? NULL : sl_terminal_break(text, &shape);
}

static void print_line(FILE *stream, size_t indent, const char *start, const char *text)
{
    char *lines = break_for(stream, indent, start, text);
    fprintf(stream, "%s%s\n", start, lines ? lines : text);
    free(lines);
}

/* Allocates nothing unless a text is longer than most. Returns `room`, or what the caller frees. */
static char *format_text(char room[TEXT_BYTES], const char *format, va_list arguments)
{
    char *longer = NULL;
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(room, TEXT_BYTES, format, arguments);
    if (length >= TEXT_BYTES && vasprintf(&longer, format, again) < 0)
        longer = NULL; /* it is cut */
    va_end(again);
    return longer ? longer : room;
}

void sl_terminal_print(FILE *stream, size_t indent, const char *format, ...)
{
    char room[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    char *text = format_text(room, format, arguments);
    va_end(arguments);
    print_line(stream, indent, "", text);
    if (text != room)
        free(text);
}

void sl_terminal_print_lines(FILE *stream, size_t indent, const char *text)
{
    while (*text) {
        const size_t length = strcspn(text, "\n");
        sl_terminal_print(stream, indent, "%.*s", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

void sl_terminal_add(sl_terminal_text *to, const char *format, ...)
{
    const size_t room = sizeof to->text - to->used;
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(to->text + to->used, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        to->used += (size_t)length < room ? (size_t)length : room - 1;
}

/* A message takes the place of a live line. */
static const char *erase_live_line(void)
{
    if (!sl_terminal_is_live(stderr))
        return "";
    if (!atomic_exchange(&live_stream, NULL) && !expects_lines)
        return "";
    return ERASE_LINE;
}

void sl_terminal_say(sl_terminal_style style, const char *format, ...)
{
    char room[TEXT_BYTES], start[64];
    va_list arguments;
    va_start(arguments, format);
    char *message = format_text(room, format, arguments);
    va_end(arguments);
    const char *begin = sl_terminal_begin(stderr, style);
    const char *end =
        style == SL_TERMINAL_PLAIN ? "" : sl_terminal_begin(stderr, SL_TERMINAL_PLAIN);
    if (style == SL_TERMINAL_WARNING)
        snprintf(start, sizeof start, "%ssluice: %swarning:%s ", erase_live_line(), begin, end);
    else
        snprintf(start, sizeof start, "%s%ssluice:%s ", erase_live_line(),
                 style == SL_TERMINAL_PLAIN ? "" : begin, end);
    print_line(stderr, SAY_INDENT, start, message);
    if (message != room)
        free(message);
}

void sl_terminal_keep(const char *message, char *out_line, size_t capacity)
{
    static const char start[] = "sluice: ";
    out_line[0] = '\0';
    if (!message || !*message)
        return;
    char *lines = break_for(stderr, SAY_INDENT, start, message);
    snprintf(out_line, capacity, "%s%s%s\n", sl_terminal_is_live(stderr) ? ERASE_LINE : "", start,
             lines ? lines : message);
    free(lines);
}

/* ---- the live line ---- */

/* Bytes of a text that fill so many columns. */
static int cut_to(const char *text, size_t columns)
{
    size_t bytes = strlen(text);
    while (bytes > 0 && count_columns(text, bytes) > columns)
        bytes--;
    return (int)bytes;
}

void sl_terminal_draw(FILE *stream, const char *text)
{
    if (!sl_terminal_is_live(stream)) {
        fprintf(stream, "%s\n", text);
    } else {
        fprintf(stream, ERASE_LINE "%.*s", cut_to(text, sl_terminal_columns(stream)), text);
        atomic_store(&live_stream, stream);
    }
    fflush(stream);
}

void sl_terminal_end_line(void)
{
    FILE *stream = atomic_exchange(&live_stream, NULL);
    if (!stream)
        return;
    fputc('\n', stream);
    fflush(stream);
}

void sl_terminal_expect_lines(void)
{
    expects_lines = true;
}

void sl_terminal_forget_line(void)
{
    atomic_store(&live_stream, NULL);
}
