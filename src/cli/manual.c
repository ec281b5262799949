/* Manual pages in the macros of man(7), from the rows that --help is made of. */
#define _GNU_SOURCE /* open_memstream */
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "pages.h"
#include "sluice/version.h"

/* Of every command; CONTRACT for scripts. */
static const struct exit_code {
    int code;
    const char *meaning;
} exit_codes[] = {
    {0, "done"},
    {64, "wrong usage or configuration"},
    {65, "bad input data"},
    {66, "input is missing"},
    {69, "it does not fit; the message says by how much, and what would"},
    {70, "an internal error"},
    {71, "the system refused memory or a thread, or the device is missing"},
    {74, "reading or writing failed"},
    {75, "a rank died or hung"},
    {76, "a loss or gradient that is not finite, with --nonfinite stop"},
    {130, "a second signal"},
};

/* What a newcomer does, in order; the comment stands above the line. */
static const struct example {
    const char *comment, *line;
} examples[] = {
    {"What this machine has, and what is missing:", "sluice doctor --disk-dir /var/tmp"},
    {"Measure it once, so that times can be predicted:", "sluice bench --disk-dir /var/tmp"},
    {"What would a run take, before it takes anything?",
     "sluice plan --model gpt2 --policy nvme --device-memory 2G --disk-dir /var/tmp"},
    {"Train GPT-2 on a folder of text, with checkpoints:",
     "sluice train --model gpt2 --data corpus/ --tokenizer vocabulary/ --save run/ "
     "--save-every 1000"},
    {"Go on after an interruption:", "sluice train --save run/ --resume"},
    {"Let the model speak:", "sluice generate run/ --prompt 'Once upon a time'"},
};

/* Text with what roff would obey taken literally: backslashes, and a control character where a line
 * begins; `-` as the minus of options. */
static void print_text(const char *text, FILE *stream)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stream);
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
    fputc('\n', stream);
}

static void print_title(const char *name, int section, const char *summary, FILE *stream)
{
    char upper[64];
    size_t length = 0;
    for (; name[length] && length + 1 < sizeof upper; length++) {
        bool is_small = name[length] >= 'a' && name[length] <= 'z';
        upper[length] = (char)(is_small ? name[length] - 'a' + 'A' : name[length]);
    }
    upper[length] = '\0';
    fprintf(stream, ".TH %s %d \"\" \"sluice %s\" \"%s\"\n.SH NAME\n", upper, section,
            sl_version_text(), section == 1 ? "User Commands" : "Miscellaneous");
    fprintf(stream, "%s \\- ", name);
    print_text(summary, stream);
}

static void print_exit_codes(FILE *stream)
{
    fputs(".SH EXIT STATUS\n", stream);
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++) {
        fprintf(stream, ".TP\n.B %d\n", exit_codes[i].code);
        print_text(exit_codes[i].meaning, stream);
    }
}

static void print_option(const sl_option *option, FILE *stream)
{
    fputs(".TP\n.B ", stream);
    fputs("\\-\\-", stream);
    for (const char *c = option->name; *c; c++)
        fputs(*c == '-' ? "\\-" : (char[]){*c, '\0'}, stream);
    if (option->hint) {
        fputs(" \\fI", stream);
        for (const char *c = option->hint; *c; c++)
            fputs(*c == '-' ? "\\-" : (char[]){*c, '\0'}, stream);
        fputs("\\fR", stream);
    }
    fputc('\n', stream);
    print_text(option->help, stream);
    if (*option->initial) {
        fputs(".br\nDefault: ", stream);
        print_text(option->initial, stream);
    }
}

static void print_options(const sl_command_entry *command, FILE *stream)
{
    const char *group = NULL;
    sl_option option;
    fputs(".SH OPTIONS\n", stream);
    for (uint32_t i = 0; sl_options_at(command, i, &option); i++) {
        if (group != option.group)
            fprintf(stream, ".SS \"%s\"\n", option.group);
        group = option.group;
        print_option(&option, stream);
    }
}

static void print_command(const sl_command_entry *command, FILE *stream)
{
    char name[32], remark[SL_OPTIONS_TEXT_BYTES];
    snprintf(name, sizeof name, "sluice-%s", command->name);
    sl_options_describe(command, remark, sizeof remark);
    print_title(name, 1, command->summary, stream);
    fprintf(stream, ".SH SYNOPSIS\n.B sluice %s\n[\\fIOPTION\\fR...]%s%s\n.SH DESCRIPTION\n",
            command->name, command->arguments ? " " : "",
            command->arguments ? command->arguments : "");
    print_text(command->doc, stream);
    fputs(".PP\n", stream);
    print_text(remark, stream);
    print_options(command, stream);
    print_exit_codes(stream);
    fputs(".SH SEE ALSO\n.BR sluice (1)\n", stream);
}

static void print_overview(FILE *stream)
{
    const sl_command_entry *command;
    print_title("sluice", 1,
                "trains GPT-2-class transformers whose state does not fit on the device", stream);
    fputs(".SH SYNOPSIS\n.B sluice\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH DESCRIPTION\n",
          stream);
    print_text("Parameters, gradients and optimizer states live in chunks that move between the "
               "memory of a device, the host's and disks. A policy, chosen for each run, says "
               "where. The plan of a run is known to the byte before it begins, and where things "
               "are never changes the numbers.",
               stream);
    fputs(".SH COMMANDS\n", stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        fprintf(stream, ".TP\n.BR sluice\\-%s (1)\n", command->name);
        print_text(command->summary, stream);
    }
    fputs(".TP\n.B sluice manual\n[\\fICOMMAND\\fR] prints a page such as this one\n"
          ".TP\n.B sluice help words\nprints " SL_WORDS_SUMMARY ": sluice\\-words(7)\n"
          ".TP\n.B sluice completion bash\\fR|\\fBzsh\nprints what the shell completes\n"
          ".SH EXAMPLES\n",
          stream);
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        print_text(examples[i].comment, stream);
        fputs(".PP\n.nf\n.RS\n", stream);
        print_text(examples[i].line, stream);
        fputs(".RE\n.fi\n.PP\n", stream);
    }
    print_exit_codes(stream);
    fputs(".SH SEE ALSO\n", stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        fprintf(stream, ".BR sluice\\-%s (1),\n", command->name);
    fputs(".BR sluice\\-words (7)\n", stream);
}

/* The table in lines as a terminal has them. */
static sl_status print_words(FILE *stream)
{
    char *text = NULL;
    size_t bytes;
    FILE *table = open_memstream(&text, &bytes);
    if (!table)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the table of words");
    sl_topics_print_words(table);
    if (fclose(table) != 0) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the table of words");
    }
    print_title("sluice-words", 7, SL_WORDS_SUMMARY, stream);
    fputs(".SH DESCRIPTION\n.nf\n", stream);
    print_text(text, stream);
    fputs(".fi\n.SH SEE ALSO\n.BR sluice (1)\n", stream);
    free(text);
    return SL_OK;
}

sl_status sl_manual_print(const char *word, FILE *stream)
{
    const sl_command_entry *command;
    if (!word) {
        print_overview(stream);
        return SL_OK;
    }
    if (strcmp(word, "words") == 0)
        return print_words(stream);
    SL_TRY(sl_command_find(word, &command));
    print_command(command, stream);
    return SL_OK;
}
