/* See command_help.h. */
#include "command_help.h"

#include <string.h>

#include "examples.h"
#include "help.h"
#include "options.h"
#include "topics.h"

enum { CLAUSE_BYTES = 512, LINE_BYTES = 200, EXAMPLE_INDENT = 2, COMMAND_COLUMN = 15 };

static const char *const task_names[SL_COMMAND_TASK_COUNT] = {"Train", "Use a model", "Data",
                                                              "The machine"};

/* How many of its own options the short help of a command leaves out. */
static uint32_t count_others(const sl_command_entry *command)
{
    uint32_t count = 0;
    sl_option option;
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++)
        count += !option.is_first && !option.is_common;
    return count;
}

/* A help text up to its first semicolon or colon that is in no brackets. */
static void copy_clause(const char *text, char out_clause[CLAUSE_BYTES])
{
    int depth = 0;
    size_t length = 0;
    for (; text[length] && (depth > 0 || !strchr(";:", text[length])); length++)
        depth += (text[length] == '(') - (text[length] == ')');
    snprintf(out_clause, CLAUSE_BYTES, "%.*s", (int)length, text);
}

static void print_option(const sl_option *option, bool is_whole, FILE *stream)
{
    char clause[CLAUSE_BYTES];
    copy_clause(option->help, clause);
    sl_help_print_option(&(sl_help_option){.letter = option->letter,
                                           .name = option->name,
                                           .hint = option->hint,
                                           .text = is_whole ? option->help : clause,
                                           .initial = option->initial},
                         stream);
}

/* Under the heading of its group each. */
static void print_options(const sl_command_entry *command, bool is_whole, FILE *stream)
{
    const char *group = NULL;
    sl_option option;
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++) {
        if (!is_whole && !option.is_first)
            continue;
        if (group != option.group)
            fprintf(stream, "\n %s:\n", option.group);
        group = option.group;
        print_option(&option, is_whole, stream);
    }
}

static void print_examples(const sl_command_entry *command, FILE *stream)
{
    const sl_example *example;
    const char *heading = "\nExamples:\n";
    for (uint32_t i = 0; (example = sl_examples_at(i)); i++) {
        if (strcmp(example->command, command->name) != 0)
            continue;
        fputs(heading, stream);
        heading = "";
        fprintf(stream, "  # %s\n", example->comment);
        sl_help_print_command_line(example->line, EXAMPLE_INDENT, stream);
    }
}

static void print_remark(const sl_command_entry *command, FILE *stream)
{
    char text[SL_OPTIONS_TEXT_BYTES];
    sl_options_describe(command, text, sizeof text);
    fputc('\n', stream);
    sl_help_print_text(text, 0, 0, stream);
}

static void print_ways_on(const sl_command_entry *command, uint32_t others, FILE *stream)
{
    fputc('\n', stream);
    if (others > 0)
        fprintf(stream, "%u more options: sluice %s --help-all\n", others, command->name);
    fprintf(stream, "Manual page: sluice manual %s; topics: sluice help%s%s\n", command->name,
            command->page ? "; more: " : "", command->page ? command->page : "");
}

void sl_command_help_print(const sl_command_entry *command, bool is_whole, FILE *stream)
{
    const uint32_t others = count_others(command);
    is_whole = is_whole || others == 0;
    fprintf(stream, "Usage: sluice %s [OPTION...]%s%s\n", command->name,
            command->arguments ? " " : "", command->arguments ? command->arguments : "");
    sl_help_print_text(command->doc, 0, 0, stream);
    print_examples(command, stream);
    print_options(command, is_whole, stream);
    if (is_whole)
        print_remark(command, stream);
    print_ways_on(command, is_whole ? 0 : others, stream);
}

static void print_row(const char *name, const char *summary, FILE *stream)
{
    char head[LINE_BYTES];
    snprintf(head, sizeof head, "  %s", name);
    sl_help_print_row(head, summary, COMMAND_COLUMN, stream);
}

static void print_commands(sl_command_task task, FILE *stream)
{
    const sl_command_entry *command;
    fprintf(stream, "\n %s:\n", task_names[task]);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        if (command->task == task)
            print_row(command->name, command->summary, stream);
}

void sl_command_help_print_overview(FILE *stream)
{
    const sl_command_page *page;
    const sl_topic *topic;
    fputs("Usage: sluice COMMAND [OPTION...]\n"
          "Trains GPT-2, Llama and Qwen models whose state does not fit on the device.\n",
          stream);
    for (int task = 0; task < SL_COMMAND_TASK_COUNT; task++)
        print_commands((sl_command_task)task, stream);
    fputs("\n Help:\n", stream);
    for (uint32_t i = 0; (page = sl_command_page_at(i)); i++)
        print_row(page->name, page->summary, stream);
    fputs("\n Topics, each a screen of sluice help TOPIC:\n", stream);
    for (uint32_t i = 0; (topic = sl_topics_at(i)); i++)
        print_row(topic->name, topic->summary, stream);
    fputs("\n  sluice COMMAND --help      the options that most runs use\n"
          "  sluice COMMAND --help-all  every option\n"
          "  sluice --version           version, libraries and processor features\n",
          stream);
}
