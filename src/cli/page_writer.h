/* Writes a manual page: in the macros of man(7), or as plain text where nothing formats these. */
#ifndef SL_CLI_PAGE_WRITER_H
#define SL_CLI_PAGE_WRITER_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

typedef struct sl_page_writer {
    FILE *stream;
    bool is_text;    /* else man(7) */
    bool is_section; /* of text: what was written last is a heading */
} sl_page_writer;

/* Begins the page, with its section NAME. */
void sl_page_writer_begin(sl_page_writer *self, const char *name, int section, const char *summary);

/* Begins a section, "OPTIONS", or a part of one, "Memory". */
void sl_page_writer_section(sl_page_writer *self, const char *name);
void sl_page_writer_subsection(sl_page_writer *self, const char *name);

/* Writes `bold`, then `rest`, as a paragraph: what is typed, and what stands for something. */
void sl_page_writer_synopsis(sl_page_writer *self, const char *bold, const char *rest);

/* Writes a paragraph; a newline in it begins a line. */
void sl_page_writer_paragraph(sl_page_writer *self, const char *text);

/* One entry of a list. */
typedef struct sl_page_item {
    const char *bold;
    const char *italic; /* what stands behind it; NULL: nothing */
    const char *text;
    const char *initial; /* a default; "" or NULL: none */
} sl_page_item;

void sl_page_writer_item(sl_page_writer *self, const sl_page_item *item);

/* Writes a line for a shell, under what it is for. SL_ERROR_SYSTEM: no memory. */
sl_status sl_page_writer_example(sl_page_writer *self, const char *comment, const char *line);

/* Writes lines as they are. */
void sl_page_writer_lines(sl_page_writer *self, const char *text);

#endif
