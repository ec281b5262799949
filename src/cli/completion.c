/* Scripts by which bash, zsh and fish complete commands, options, values, topics and paths, from
 * the tables that --help is made of. A value is completed by its names (those in the hint that are
 * no capitals, and those of models, figures and policies), and by paths where it is one. */
#include <ctype.h>
#include <string.h>

#include "options.h"
#include "pages.h"
#include "topics.h"

typedef enum path_kind { PATH_NONE, PATH_FILE, PATH_DIRECTORY } path_kind;

static path_kind choose_path(const sl_option *option)
{
    if (!option->hint || option->is_choice)
        return PATH_NONE;
    if (strstr(option->hint, "FILE") || strstr(option->hint, "PATH"))
        return PATH_FILE;
    return strstr(option->hint, "DIR") ? PATH_DIRECTORY : PATH_NONE;
}

/* Whether a word of a hint is a value; in capitals it stands for one. */
static bool is_name(const sl_option *option, const char *word, size_t length)
{
    bool has_capital = false;
    for (size_t i = 0; i < length; i++)
        has_capital = has_capital || isupper((unsigned char)word[i]);
    return length > 0 && (option->is_choice || !has_capital);
}

/* "0..3": each number, with a space in front. */
static void print_range(const char *word, FILE *stream)
{
    for (int number = word[0] - '0'; number <= word[3] - '0'; number++)
        fprintf(stream, " %d", number);
}

/* Prints the names of a value with a space in front of each. */
static void print_names(const sl_option *option, FILE *stream)
{
    for (const char *word = option->hint ? option->hint : ""; *word;) {
        const size_t length = strcspn(word, "|"), end = strcspn(word, "|[");
        if (isdigit((unsigned char)*word) && strncmp(word + 1, "..", 2) == 0)
            print_range(word, stream);
        else if (is_name(option, word, end))
            fprintf(stream, " %.*s", (int)end, word);
        word += length + (word[length] == '|');
    }
    for (const char *const *name = option->names; name && *name; name++)
        fprintf(stream, " %s", *name);
}

static bool has_names(const sl_option *option)
{
    bool is_any = option->names != NULL;
    for (const char *word = option->hint ? option->hint : ""; *word;) {
        is_any = is_any || is_name(option, word, strcspn(word, "|["));
        word += strcspn(word, "|");
        word += *word == '|';
    }
    return is_any;
}

static void print_commands(FILE *stream)
{
    const sl_command_entry *command;
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        fprintf(stream, " %s", command->name);
}

/* What may stand behind a page: `help` and a topic, for instance. */
static void print_page_words(const char *page, FILE *stream)
{
    const sl_topic *topic;
    if (strcmp(page, "completion") == 0) {
        fputs(" bash zsh fish", stream);
        return;
    }
    print_commands(stream);
    for (uint32_t i = 0; strcmp(page, "help") == 0 && (topic = sl_topics_at(i)); i++)
        fprintf(stream, " %s", topic->name);
    if (strcmp(page, "manual") == 0)
        fputs(" words --roff --text", stream);
}

/* ---- bash ---- */

static void print_bash_value(const sl_option *option, FILE *stream)
{
    static const char *const kinds[] = {[PATH_FILE] = "-f", [PATH_DIRECTORY] = "-d"};
    const path_kind path = choose_path(option);
    if (!option->hint)
        return;
    fputs("    ", stream);
    if (option->letter)
        fprintf(stream, "-%c | ", option->letter);
    fprintf(stream, "--%s) _sluice_words '", option->name);
    print_names(option, stream);
    fputc('\'', stream);
    if (path != PATH_NONE)
        fprintf(stream, "; _sluice_paths %s", kinds[path]);
    fputs(" ;;\n", stream);
}

/* A list takes words until the next option, any other option one. */
static void print_bash_lists(const sl_command_entry *command, FILE *stream)
{
    sl_option option;
    fputs("    case $option in\n", stream);
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++)
        if (option.is_list)
            fprintf(stream, "    --%s) ;;\n", option.name);
    fputs("    *) [ \"$distance\" -eq 0 ] || option= ;;\n    esac\n", stream);
}

static void print_bash_command(const sl_command_entry *command, FILE *stream)
{
    sl_option option;
    fprintf(stream, "_sluice_%s()\n{\n", command->name);
    print_bash_lists(command, stream);
    fputs("    case $option in\n", stream);
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++)
        print_bash_value(&option, stream);
    fputs("    *) _sluice_words '", stream);
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++)
        fprintf(stream, " --%s", option.name);
    fprintf(stream, "'%s ;;\n    esac\n}\n\n",
            command->arguments && strstr(command->arguments, "DIR") ? "; _sluice_paths -d" : "");
}

static void print_bash_page(const char *name, FILE *stream)
{
    fprintf(stream, "_sluice_%s()\n{\n    _sluice_words '", name);
    print_page_words(name, stream);
    fputs("'\n}\n\n", stream);
}

static const char bash_start[] =
    "# Completion of sluice for bash.\n"
    "_sluice_words()\n{\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$word\")\n}\n\n"
    "_sluice_paths()\n{\n"
    "    local paths\n"
    "    compopt -o filenames 2> /dev/null\n"
    "    mapfile -t paths < <(compgen \"$1\" -- \"$word\")\n"
    "    COMPREPLY+=(\"${paths[@]}\")\n}\n\n";

/* `option` is the last option before the word, `distance` the words between them. Behind
 * `launch ... --` a command line begins anew. */
static const char bash_middle[] =
    "_sluice()\n{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} option= distance=0 at=1 i\n"
    "    COMPREPLY=()\n"
    "    [ \"$word\" != = ] || word=\n"
    "    if [ \"${COMP_WORDS[1]}\" = launch ]; then\n"
    "        for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "            [ \"${COMP_WORDS[i]}\" != -- ] || at=$((i + 1))\n"
    "        done\n"
    "    fi\n"
    "    for ((i = COMP_CWORD - 1; i > at; i--)); do\n"
    "        case ${COMP_WORDS[i]} in\n"
    "        =) ;;\n"
    "        -*)\n"
    "            option=${COMP_WORDS[i]}\n"
    "            break\n"
    "            ;;\n"
    "        *) distance=$((distance + 1)) ;;\n"
    "        esac\n"
    "    done\n"
    "    [ \"${word#-}\" = \"$word\" ] || option=\n"
    "    if [ \"$COMP_CWORD\" -eq \"$at\" ]; then\n        _sluice_words '";

static void print_bash(FILE *stream)
{
    const sl_command_entry *command;
    const sl_command_page *page;
    fputs(bash_start, stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        print_bash_command(command, stream);
    for (uint32_t i = 0; (page = sl_command_page_at(i)); i++)
        print_bash_page(page->name, stream);
    fputs(bash_middle, stream);
    print_commands(stream);
    for (uint32_t i = 0; (page = sl_command_page_at(i)); i++)
        fprintf(stream, " %s", page->name);
    fputs(" --help --version'\n"
          "    elif declare -F \"_sluice_${COMP_WORDS[at]}\" > /dev/null; then\n"
          "        \"_sluice_${COMP_WORDS[at]}\"\n"
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

static void print_zsh_value(const sl_option *option, FILE *stream)
{
    static const char *const kinds[] = {
        [PATH_NONE] = " ", [PATH_FILE] = "_files", [PATH_DIRECTORY] = "_files -/"};
    const path_kind path = choose_path(option);
    fputs(":value:", stream); /* of a list the first; `_arguments` would end none at an option */
    if (!has_names(option)) {
        fputs(kinds[path], stream);
        return;
    }
    fputs(path == PATH_NONE ? "(" : "{compadd --", stream);
    print_names(option, stream);
    if (path == PATH_NONE)
        fputc(')', stream);
    else
        fprintf(stream, "; %s}", kinds[path]);
}

static void print_zsh_option(const sl_option *option, FILE *stream)
{
    fprintf(stream, " \\\n        '%s--%s%s[", option->is_list ? "*" : "", option->name,
            option->hint ? "=" : ""); /* --NAME VALUE and --NAME=VALUE */
    print_zsh_help(option->help, stream);
    fputc(']', stream);
    if (option->hint)
        print_zsh_value(option, stream);
    fputc('\'', stream);
}

static void print_zsh_name(const char *name, const char *summary, FILE *stream)
{
    fprintf(stream, "        '%s:", name);
    print_zsh_help(summary, stream);
    fputs("'\n", stream);
}

static void print_zsh_words(FILE *stream)
{
    const sl_command_entry *command;
    const sl_command_page *page;
    fputs("#compdef sluice\n# Completion of sluice for zsh.\n_sluice()\n{\n"
          "    local -a commands=(\n",
          stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        print_zsh_name(command->name, command->summary, stream);
    for (uint32_t i = 0; (page = sl_command_page_at(i)); i++)
        print_zsh_name(page->name, page->summary, stream);
    fputs("    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n"
          "        return\n    fi\n    local name=$words[2]\n    shift words\n    ((CURRENT--))\n"
          "    case $name in\n",
          stream);
}

/* Behind `launch ... --` a command line begins anew. */
static const char zsh_launch[] = "        local at=$words[(i)--]\n"
                                 "        if ((at < CURRENT)); then\n"
                                 "            words=(sluice \"${(@)words[at + 1,-1]}\")\n"
                                 "            ((CURRENT -= at - 1))\n"
                                 "            _sluice\n"
                                 "            return\n"
                                 "        fi\n";

static void print_zsh_command(const sl_command_entry *command, FILE *stream)
{
    sl_option option;
    fprintf(stream, "    %s)\n%s        _arguments", command->name,
            command == &sl_command_launch ? zsh_launch : "");
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++)
        print_zsh_option(&option, stream);
    fputs(" \\\n        '*:file:_files'\n        ;;\n", stream);
}

static void print_zsh(FILE *stream)
{
    const sl_command_entry *command;
    const sl_command_page *page;
    print_zsh_words(stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        print_zsh_command(command, stream);
    for (uint32_t i = 0; (page = sl_command_page_at(i)); i++) {
        fprintf(stream, "    %s)\n        compadd --", page->name);
        print_page_words(page->name, stream);
        fputs("\n        ;;\n", stream);
    }
    fputs("    esac\n}\n\n_sluice \"$@\"\n", stream);
}

/* ---- fish ---- */

/* A text inside single quotes. */
static void print_fish_text(const char *text, FILE *stream)
{
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', stream);
        fputc(*text, stream);
    }
}

static void print_fish_name(const char *name, const char *summary, FILE *stream)
{
    fprintf(stream, "complete -c sluice -n __fish_use_subcommand -a %s -d '", name);
    print_fish_text(summary, stream);
    fputs("'\n", stream);
}

static void print_fish_option(const char *command, const sl_option *option, FILE *stream)
{
    const path_kind path = choose_path(option);
    fprintf(stream, "complete -c sluice -n '__fish_seen_subcommand_from %s' -l %s", command,
            option->name);
    if (option->letter)
        fprintf(stream, " -s '%c'", option->letter); /* "?" would be a pattern */
    if (option->hint) {
        fprintf(stream, "%s -a '", path == PATH_FILE ? " -r -F" : " -x");
        print_names(option, stream);
        fprintf(stream, "%s'", path == PATH_DIRECTORY ? " (__fish_complete_directories)" : "");
    }
    fputs(" -d '", stream);
    print_fish_text(option->help, stream);
    fputs("'\n", stream);
}

/* Behind `launch ... --` a command line begins anew, which fish completes by the lines above. */
static const char fish_end[] =
    "function __sluice_launched\n"
    "    set -l words (commandline -opc)\n"
    "    set -l last (commandline -ct)\n"
    "    set -l at (contains -i -- -- $words); or return\n"
    "    set -l rest $words[(math $at + 1)..-1]\n"
    "    complete -C \"sluice $rest $last\"\n"
    "end\n"
    "complete -c sluice -n '__fish_seen_subcommand_from launch' -a '(__sluice_launched)'\n";

static void print_fish_command(const sl_command_entry *command, FILE *stream)
{
    sl_option option;
    print_fish_name(command->name, command->summary, stream);
    for (uint32_t i = 0; sl_options_of_command(command, i, &option); i++)
        print_fish_option(command->name, &option, stream);
    if (command->arguments && strstr(command->arguments, "DIR"))
        fprintf(stream,
                "complete -c sluice -n '__fish_seen_subcommand_from %s' -a "
                "'(__fish_complete_directories)'\n",
                command->name);
}

static void print_fish(FILE *stream)
{
    const sl_command_entry *command;
    const sl_command_page *page;
    fputs("# Completion of sluice for fish.\ncomplete -c sluice -f\n", stream);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        print_fish_command(command, stream);
    for (uint32_t i = 0; (page = sl_command_page_at(i)); i++) {
        print_fish_name(page->name, page->summary, stream);
        fprintf(stream, "complete -c sluice -n '__fish_seen_subcommand_from %s' -a '", page->name);
        print_page_words(page->name, stream);
        fputs("'\n", stream);
    }
    fputs(fish_end, stream);
}

sl_status sl_completion_print(int argc, char **argv)
{
    static const struct shell {
        const char *name;
        void (*print)(FILE *stream);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; argc == 2 && i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, argv[1]) == 0) {
            shells[i].print(stdout);
            return SL_OK;
        }
    SL_FAIL(SL_ERROR_USAGE, "completion is for bash, zsh or fish: sluice completion bash > "
                            "/usr/share/bash-completion/completions/sluice");
}
