/* Scripts by which bash and zsh complete commands, options and values, from the rows that --help is
 * made of. A value is completed by its names, by files where it is a path, else not at all. */
#include <string.h>

#include "options.h"
#include "pages.h"

typedef enum value_kind {
    VALUE_NONE,
    VALUE_ANY,
    VALUE_NAMES,
    VALUE_FILE,
    VALUE_DIRECTORY
} value_kind;

/* Names stand between bars, such as "fp32|bf16"; those in capitals stand for something else. */
static value_kind choose_kind(const sl_option *option)
{
    if (!option->hint)
        return VALUE_NONE;
    if (option->is_choice)
        return VALUE_NAMES;
    if (strstr(option->hint, "FILE") || strstr(option->hint, "PATH"))
        return VALUE_FILE;
    return strstr(option->hint, "DIR") ? VALUE_DIRECTORY : VALUE_ANY;
}

/* The names of a choice with spaces between them. */
static void print_names(const sl_option *option, FILE *stream)
{
    for (const char *c = option->hint; *c; c++)
        fputc(*c == '|' ? ' ' : *c, stream);
}

/* ---- bash ---- */

static void print_bash_value(const sl_option *option, FILE *stream)
{
    static const char *const actions[] = {
        [VALUE_FILE] = "compgen -f", [VALUE_DIRECTORY] = "compgen -d"};
    value_kind kind = choose_kind(option);
    if (kind == VALUE_NONE)
        return;
    fprintf(stream, "    --%s) ", option->name);
    if (kind == VALUE_NAMES) {
        fputs("_sluice_words '", stream);
        print_names(option, stream);
        fputs("' ;;\n", stream);
    } else if (kind == VALUE_ANY) {
        fputs(": ;;\n", stream);
    } else {
        fprintf(stream, "compopt -o filenames; mapfile -t COMPREPLY < <(%s -- \"$word\") ;;\n",
                actions[kind]);
    }
}

static void print_bash_command(const sl_command_entry *command, FILE *stream)
{
    sl_option option;
    fprintf(stream, "_sluice_%s()\n{\n    case $before in\n", command->name);
    for (uint32_t i = 0; sl_options_at(command, i, &option); i++)
        print_bash_value(&option, stream);
    fputs("    *) _sluice_words '", stream);
    for (uint32_t i = 0; sl_options_at(command, i, &option); i++)
        fprintf(stream, "%s--%s", i ? " " : "", option.name);
    fputs("' ;;\n    esac\n}\n\n", stream);
}

static void print_bash(FILE *stream)
{
    const sl_command_entry *command;
    fputs("# Completion of sluice for bash.\n"
          "_sluice_words()\n{\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$word\")\n}\n\n",
          stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        print_bash_command(command, stream);
    fputs("_sluice()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    COMPREPLY=()\n"
          "    [ \"$word\" != = ] || word=\n"
          "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _sluice_words '",
          stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        fprintf(stream, "%s%s", i ? " " : "", command->name);
    fputs("'\n    elif declare -F \"_sluice_${COMP_WORDS[1]}\" > /dev/null; then\n"
          "        \"_sluice_${COMP_WORDS[1]}\"\n"
          "    fi\n}\n\n"
          "complete -o bashdefault -F _sluice sluice\n",
          stream);
}

/* ---- zsh ---- */

/* A help text inside [...] and single quotes. */
static void print_zsh_help(const char *text, FILE *stream)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stream);
        else if (strchr("[]:\\", *text))
            fprintf(stream, "\\%c", *text);
        else
            fputc(*text, stream);
    }
}

static void print_zsh_option(const sl_option *option, FILE *stream)
{
    value_kind kind = choose_kind(option);
    fprintf(stream, " \\\n        '%s--%s[", option->is_list ? "*" : "", option->name);
    print_zsh_help(option->help, stream);
    fputc(']', stream);
    if (kind == VALUE_NAMES) {
        fputs(":value:(", stream);
        print_names(option, stream);
        fputc(')', stream);
    } else if (kind != VALUE_NONE) {
        fprintf(stream, ":value:%s",
                kind == VALUE_FILE        ? "_files"
                : kind == VALUE_DIRECTORY ? "_files -/"
                                          : " ");
    }
    fputc('\'', stream);
}

static void print_zsh(FILE *stream)
{
    const sl_command_entry *command;
    sl_option option;
    fputs("#compdef sluice\n# Completion of sluice for zsh.\n_sluice()\n{\n"
          "    local -a commands=(\n",
          stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        fprintf(stream, "        '%s:", command->name);
        print_zsh_help(command->summary, stream);
        fputs("'\n", stream);
    }
    fputs("    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n"
          "        return\n    fi\n    local name=$words[2]\n    shift words\n    ((CURRENT--))\n"
          "    case $name in\n",
          stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        fprintf(stream, "    %s)\n        _arguments", command->name);
        for (uint32_t j = 0; sl_options_at(command, j, &option); j++)
            print_zsh_option(&option, stream);
        fputs(" \\\n        '*:file:_files'\n        ;;\n", stream);
    }
    fputs("    esac\n}\n\n_sluice \"$@\"\n", stream);
}

sl_status sl_completion_print(const char *word, FILE *stream)
{
    if (word && strcmp(word, "bash") == 0)
        print_bash(stream);
    else if (word && strcmp(word, "zsh") == 0)
        print_zsh(stream);
    else
        SL_FAIL(SL_ERROR_USAGE, "completion is for bash or zsh: sluice completion bash > "
                                "/usr/share/bash-completion/completions/sluice");
    return SL_OK;
}
