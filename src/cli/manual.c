/* Manual pages, from the rows that --help is made of. On a terminal `man` shows them. */
#define _GNU_SOURCE /* open_memstream */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples.h"
#include "man.h"
#include "options.h"
#include "page_writer.h"
#include "pages.h"
#include "topics.h"

static void write_topic_rows(sl_page_writer *page, const char *heading, const char *topic)
{
    sl_page_writer_section(page, heading);
    for (const sl_topic_row *row = sl_topics_find(topic)->rows; row->head; row++)
        sl_page_writer_item(page, &(sl_page_item){.bold = row->head, .text = row->text});
}

/* Of a command; of the first steps where `command` is NULL. */
static sl_status write_examples(sl_page_writer *page, const char *command)
{
    const sl_example *example;
    bool is_begun = false;
    for (uint32_t i = 0; (example = sl_examples_at(i)); i++) {
        if (command ? strcmp(example->command, command) != 0 : !example->is_first)
            continue;
        if (!is_begun)
            sl_page_writer_section(page, "EXAMPLES");
        is_begun = true;
        SL_TRY(sl_page_writer_example(page, example->comment, example->line));
    }
    return SL_OK;
}

static void write_option(sl_page_writer *page, const sl_option *option)
{
    char name[64], letter[] = "-?, ";
    letter[1] = option->letter;
    snprintf(name, sizeof name, "%s--%s", option->letter ? letter : "", option->name);
    sl_page_writer_item(page, &(sl_page_item){.bold = name,
                                              .italic = option->hint,
                                              .text = option->help,
                                              .initial = option->initial});
}

static void write_options(sl_page_writer *page, const sl_command_entry *command)
{
    const char *group = NULL;
    sl_option option;
    sl_page_writer_section(page, "OPTIONS");
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++) {
        if (group != option.group)
            sl_page_writer_subsection(page, option.group);
        group = option.group;
        write_option(page, &option);
    }
}

static sl_status write_command(sl_page_writer *page, const sl_command_entry *command)
{
    char name[32], typed[32], words[64], remark[SL_OPTIONS_TEXT_BYTES];
    snprintf(name, sizeof name, "sluice-%s", command->name);
    snprintf(typed, sizeof typed, "sluice %s", command->name);
    snprintf(words, sizeof words, "[OPTION...]%s%s", command->arguments ? " " : "",
             command->arguments ? command->arguments : "");
    sl_options_describe(command, remark, sizeof remark);
    sl_page_writer_begin(page, name, 1, command->summary);
    sl_page_writer_section(page, "SYNOPSIS");
    sl_page_writer_synopsis(page, typed, words);
    sl_page_writer_section(page, "DESCRIPTION");
    sl_page_writer_paragraph(page, command->doc);
    sl_page_writer_paragraph(page, remark);
    SL_TRY(write_examples(page, command->name));
    write_options(page, command);
    write_topic_rows(page, "EXIT STATUS", "exit-codes");
    sl_page_writer_section(page, "SEE ALSO");
    sl_page_writer_paragraph(page, "sluice(1), sluice-words(7), sluice help");
    if (command->page)
        sl_page_writer_paragraph(page, command->page);
    return SL_OK;
}

static void write_commands(sl_page_writer *page)
{
    const sl_command_entry *command;
    const sl_command_page *other;
    char name[64];
    sl_page_writer_section(page, "COMMANDS");
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        snprintf(name, sizeof name, "sluice-%s(1)", command->name);
        sl_page_writer_item(page, &(sl_page_item){.bold = name, .text = command->summary});
    }
    for (uint32_t i = 0; (other = sl_command_page_at(i)); i++) {
        snprintf(name, sizeof name, "sluice %s", other->name);
        sl_page_writer_item(page, &(sl_page_item){.bold = name, .text = other->summary});
    }
}

static sl_status write_overview(sl_page_writer *page)
{
    sl_page_writer_begin(page, "sluice", 1,
                         "trains transformers whose state does not fit on the device");
    sl_page_writer_section(page, "SYNOPSIS");
    sl_page_writer_synopsis(page, "sluice", "COMMAND [OPTION...]");
    sl_page_writer_section(page, "DESCRIPTION");
    sl_page_writer_paragraph(
        page, "Parameters, gradients and optimizer states live in chunks that move between the "
              "memory of a device, the host's and disks. A policy, chosen for each run, says "
              "where. The plan of a run is known to the byte before it begins, and where things "
              "are never changes the numbers.");
    SL_TRY(write_examples(page, NULL));
    write_commands(page);
    write_topic_rows(page, "EXIT STATUS", "exit-codes");
    write_topic_rows(page, "ENVIRONMENT", "environment");
    write_topic_rows(page, "FILES", "files");
    sl_page_writer_section(page, "SEE ALSO");
    sl_page_writer_paragraph(page, "sluice-words(7), sluice help");
    return SL_OK;
}

/* The table in lines as a terminal has them. */
static sl_status write_words(sl_page_writer *page)
{
    char *text = NULL;
    size_t bytes;
    FILE *table = open_memstream(&text, &bytes);
    if (!table)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the table of words");
    sl_words_table_print(table);
    if (fclose(table) != 0) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the table of words");
    }
    sl_page_writer_begin(page, "sluice-words", 7, SL_WORDS_SUMMARY);
    sl_page_writer_section(page, "DESCRIPTION");
    sl_page_writer_lines(page, text);
    sl_page_writer_section(page, "SEE ALSO");
    sl_page_writer_paragraph(page, "sluice(1)");
    free(text);
    return SL_OK;
}

static sl_status write_page(sl_page_writer *page, const char *word)
{
    const sl_command_entry *command;
    if (!word)
        return write_overview(page);
    if (strcmp(word, "words") == 0)
        return write_words(page);
    SL_TRY(sl_command_find(word, false, &command));
    return write_command(page, command);
}

/* Shows the page by man; where there is none that can, as text. */
static sl_status show_page(const char *word)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a page");
    sl_status status = write_page(&(sl_page_writer){.stream = stream}, word);
    if (fclose(stream) != 0 && status == SL_OK)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a page");
    const bool is_shown = status == SL_OK && sl_man_show(text, bytes);
    free(text);
    if (status != SL_OK || is_shown)
        return status;
    return write_page(&(sl_page_writer){.stream = stdout, .is_text = true}, word);
}

sl_status sl_manual_print(int argc, char **argv)
{
    const char *form = argc > 1 && argv[1][0] == '-' ? argv[1] : NULL;
    const char *word = argv[form ? 2 : 1];
    const bool is_text = form && strcmp(form, "--text") == 0;
    if (argc > (form ? 3 : 2) || (form && !is_text && strcmp(form, "--roff") != 0))
        SL_FAIL(SL_ERROR_USAGE, "sluice manual [--roff|--text] [COMMAND|words]: one of them");
    if (!form && isatty(STDOUT_FILENO) == 1)
        return show_page(word);
    return write_page(&(sl_page_writer){.stream = stdout, .is_text = is_text}, word);
}
