/* See page_writer.h. */
#define _GNU_SOURCE /* open_memstream */
#include "page_writer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "help.h"
#include "sluice/version.h"

enum { TEXT_INDENT = 7, ITEM_HEAD = 4, ITEM_INDENT = 11, EXAMPLE_INDENT = 2, LINE_BYTES = 1024 };

/* ---- man(7) ---- */

/* Characters with what roff would obey taken literally: backslashes, and `-` as the minus of
 * options. */
static void print_escaped(const char *text, FILE *stream)
{
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", stream);
        else if (*text == '-')
            fputs("\\-", stream);
        else if (*text == '\n')
            fputs("\n.br\n", stream);
        else
            fputc(*text, stream);
    }
}

/* A line of text: a control character at its start is one of the text, too. */
static void print_roff(const char *text, FILE *stream)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stream);
    print_escaped(text, stream);
    fputc('\n', stream);
}

static void begin_roff(const char *name, int section, const char *summary, FILE *stream)
{
    fputs(".TH ", stream);
    for (const char *c = name; *c; c++)
        fputc(toupper((unsigned char)*c), stream);
    fprintf(stream, " %d \"\" \"sluice %s\" \"%s\"\n.SH NAME\n", section, sl_version_text(),
            section == 1 ? "User Commands" : "Miscellaneous");
    print_escaped(name, stream);
    fputs(" \\- ", stream);
    print_roff(summary, stream);
}

static void print_roff_item(const sl_page_item *item, FILE *stream)
{
    fputs(".TP\n.B ", stream);
    print_escaped(item->bold, stream);
    if (item->italic) {
        fputs(" \\fI", stream);
        print_escaped(item->italic, stream);
        fputs("\\fR", stream);
    }
    fputc('\n', stream);
    print_roff(item->text, stream);
    if (item->initial && *item->initial) {
        fputs(".br\nDefault: ", stream);
        print_roff(item->initial, stream);
    }
}

/* ---- either ---- */

static void print_indented(const char *text, FILE *stream)
{
    fprintf(stream, "%*s", TEXT_INDENT, "");
    sl_help_print_text(text, TEXT_INDENT, TEXT_INDENT, stream);
}

/* In text a blank line stands between two paragraphs. */
static void begin_paragraph(sl_page_writer *self)
{
    if (!self->is_text)
        fputs(".PP\n", self->stream);
    else if (!self->is_section)
        fputc('\n', self->stream);
    self->is_section = false;
}

void sl_page_writer_begin(sl_page_writer *self, const char *name, int section, const char *summary)
{
    char text[LINE_BYTES];
    if (!self->is_text) {
        begin_roff(name, section, summary, self->stream);
        return;
    }
    snprintf(text, sizeof text, "%s - %s", name, summary);
    fputs("NAME\n", self->stream);
    print_indented(text, self->stream);
}

void sl_page_writer_section(sl_page_writer *self, const char *name)
{
    self->is_section = true;
    fprintf(self->stream, self->is_text ? "\n%s\n" : ".SH %s\n", name);
}

void sl_page_writer_subsection(sl_page_writer *self, const char *name)
{
    self->is_section = true;
    fprintf(self->stream, self->is_text ? "\n   %s\n" : ".SS \"%s\"\n", name);
}

void sl_page_writer_synopsis(sl_page_writer *self, const char *bold, const char *rest)
{
    char text[LINE_BYTES];
    if (!self->is_text) {
        fputs(".PP\n.B ", self->stream);
        print_roff(bold, self->stream);
        print_roff(rest, self->stream);
        return;
    }
    snprintf(text, sizeof text, "%s %s", bold, rest);
    print_indented(text, self->stream);
}

void sl_page_writer_paragraph(sl_page_writer *self, const char *text)
{
    begin_paragraph(self);
    if (self->is_text)
        print_indented(text, self->stream);
    else
        print_roff(text, self->stream);
}

void sl_page_writer_item(sl_page_writer *self, const sl_page_item *item)
{
    char head[LINE_BYTES], text[LINE_BYTES];
    if (!self->is_text) {
        print_roff_item(item, self->stream);
        return;
    }
    const bool has_initial = item->initial && *item->initial;
    snprintf(head, sizeof head, "%*s%s%s%s", ITEM_HEAD, "", item->bold, item->italic ? " " : "",
             item->italic ? item->italic : "");
    snprintf(text, sizeof text, "%s%s%s%s", item->text, has_initial ? " [" : "",
             has_initial ? item->initial : "", has_initial ? "]" : "");
    sl_help_print_row(head, text, ITEM_INDENT, self->stream);
}

void sl_page_writer_lines(sl_page_writer *self, const char *text)
{
    begin_paragraph(self);
    if (self->is_text) {
        fputs(text, self->stream);
        return;
    }
    fputs(".nf\n", self->stream);
    print_roff(text, self->stream);
    fputs(".fi\n", self->stream);
}

sl_status sl_page_writer_example(sl_page_writer *self, const char *comment, const char *line)
{
    char *text = NULL;
    size_t bytes;
    FILE *lines = open_memstream(&text, &bytes);
    if (!lines)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an example");
    sl_help_print_command_line(line, self->is_text ? TEXT_INDENT + EXAMPLE_INDENT : EXAMPLE_INDENT,
                               lines);
    if (fclose(lines) != 0) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an example");
    }
    sl_page_writer_paragraph(self, comment);
    self->is_section = true; /* the line belongs to its comment */
    sl_page_writer_lines(self, text);
    free(text);
    return SL_OK;
}
