/* What could be wrong here: an option that no help shows, or the short one does not lead to; a line
 * wider than a terminal; an example or a topic that names an option, value, command, file or exit
 * code that is not there; a manual page that roff complains about, or that a terminal gets raw; a
 * shell that completes what is refused.
 *
 * The command's own tables and parser are linked into this program, so that every row is walked and
 * every example is parsed as the command parses it; what is printed is asked of the built command.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <pty.h>
#include <stdbool.h>

#include "cli/examples.h"
#include "cli/options.h"
#include "cli/topics.h"
#include "command_run.h"
#include "skip.h"

enum { WORDS_MAX = 64, LINE_MAX_COLUMNS = 80, SHORT_LINES = 100, TOPIC_LINES = 40 };

/* Runs a command of a shell; its output, both of them, is in `output`. */
static int __attribute__((format(printf, 1, 2))) shell(const char *format, ...)
{
    char command[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    int length = snprintf(command, sizeof command, "{ ");
    length += vsnprintf(command + length, sizeof command - (size_t)length, format, list);
    va_end(list);
    snprintf(command + length, sizeof command - (size_t)length, "; } >out 2>&1");
    const int status = system(command);
    read_text("out", output);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- lines ---- */

static uint32_t count_lines(const char *text)
{
    uint32_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

/* No line is wider than a terminal or ends in a blank. */
static void assert_lines_fit(const char *what, const char *text)
{
    while (*text) {
        const size_t length = strcspn(text, "\n");
        size_t columns = 0;
        for (size_t i = 0; i < length; i++)
            columns += (text[i] & 0xc0) != 0x80;
        if (columns > LINE_MAX_COLUMNS || (length > 0 && text[length - 1] == ' '))
            fail_msg("%s: \"%.*s\"", what, (int)length, text);
        text += length + (text[length] == '\n');
    }
}

enum { HELP_INDENT = 2, PAGE_INDENT = 4 };

/* Whether a line of a help or of a page, where options have that indentation, begins with the
 * option. Lines of examples may begin with one, too: they are indented otherwise, or go on behind
 * one blank. */
static bool shows_option(const char *text, const sl_option *option, size_t indent)
{
    char start[96], letter[] = "-?, ";
    letter[1] = option->letter;
    const char *before = option->letter ? letter : indent == HELP_INDENT ? "    " : "";
    const int length =
        snprintf(start, sizeof start, "\n%*s%s--%s", (int)indent, "", before, option->name);
    for (const char *at = text; (at = strstr(at, start)); at++) {
        const char *end = at + length;
        if (strchr("=\n", *end) || strncmp(end, "  ", 2) == 0 || indent == PAGE_INDENT)
            return true;
    }
    return false;
}

/* ---- help ---- */

static void help_when_whole_then_has_every_option_under_its_group(void **state)
{
    (void)state;
    const sl_command_entry *command;
    sl_option option;
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        const char *at = output;
        assert_code(sluice("%s --help-all", command->name), 0);
        assert_lines_fit(command->name, output);
        for (uint32_t j = 0; sl_options_of_command(command, j, &option); j++) {
            char heading[64];
            if (!shows_option(output, &option, HELP_INDENT))
                fail_msg("%s --help-all has no --%s", command->name, option.name);
            snprintf(heading, sizeof heading, "\n %s:\n", option.group);
            const char *group = strstr(output, heading);
            assert_non_null(group);
            assert_true(group >= at); /* the groups are in the order of their rows */
            at = group;
        }
    }
}

static void help_when_short_then_has_what_is_first_and_counts_the_rest(void **state)
{
    (void)state;
    const sl_command_entry *command;
    sl_option option;
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        char rest[64] = "";
        uint32_t others = 0, shown = 0;
        assert_code(sluice("%s --help", command->name), 0);
        assert_lines_fit(command->name, output);
        if (count_lines(output) > SHORT_LINES)
            fail_msg("%s --help has %u lines", command->name, count_lines(output));
        for (uint32_t j = 0; sl_options_of_command(command, j, &option); j++) {
            others += !option.is_first && !option.is_common;
            shown += option.is_first && !option.is_common;
            if (option.is_first && !shows_option(output, &option, HELP_INDENT))
                fail_msg("%s --help has no --%s", command->name, option.name);
        }
        assert_true(shown > 0);
        snprintf(rest, sizeof rest, "\n%u more options: sluice %s --help-all\n", others,
                 command->name);
        if (others > 0)
            assert_has(output, rest);
        assert_true(others == 0 || !strstr(output, "\n      --set"));
        if (strstr(output, "--help-all\n") == NULL)
            assert_int_equal(others, 0);
    }
}

static void help_of_train_when_short_then_is_in_the_order_of_decisions(void **state)
{
    (void)state;
    static const char *const headings[] = {"\nExamples:\n",
                                           "\n Model:\n",
                                           "\n Data:\n",
                                           "\n Memory:\n",
                                           "\n Batch:\n",
                                           "\n Learning:\n",
                                           "\n Saving and resuming:\n",
                                           "\n Watching:\n",
                                           "\n Ranks:\n",
                                           "\n Common:\n"};
    assert_code(sluice("train --help"), 0);
    const char *at = output;
    for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++) {
        at = strstr(at, headings[i]);
        if (!at)
            fail_msg("\"%s\" is not there, or not behind the others", headings[i]);
    }
    assert_true(strstr(output, "--beta2") == NULL);
    assert_has(output, "compute type (bf16 on a GPU, else fp32)\n"); /* the first clause alone */
    assert_code(sluice("train --help-all"), 0);
    assert_has(output, "moments are fp32");
    assert_has(output, "\n Advanced:\n");
    assert_has(output, "\n      --lr-schedule=cosine|linear|constant|WarmupLR|WarmupDecayLR|"
                       "WarmupCosineLR\n                             how the learning rate falls;");
    assert_code(sluice("launch -?"), 0);
    assert_has(output, "Usage: sluice launch [OPTION...] -- COMMAND [OPTION...]\n");
    assert_has(output, "  -n, --ranks=N              How many ranks are started.");
}

static void overview_when_asked_for_then_lists_commands_and_topics(void **state)
{
    (void)state;
    const sl_command_entry *command;
    const sl_topic *topic;
    char row[64], same[TEXT_BYTES];
    assert_code(sluice("help"), 0);
    assert_lines_fit("help", output);
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        snprintf(row, sizeof row, "\n  %s ", command->name);
        assert_has(output, row);
    }
    for (uint32_t i = 0; (topic = sl_topics_at(i)); i++) {
        snprintf(row, sizeof row, "\n  %s ", topic->name);
        assert_has(output, row);
    }
    snprintf(same, sizeof same, "%s", output);
    assert_code(sluice("--help"), 0);
    assert_string_equal(output, same);
    assert_code(sluice("help train all"), 64);
    assert_one_complaint("sluice train --help-all");
    assert_code(sluice("help polices"), 64);
    assert_one_complaint("did you mean policies?");
    assert_code(sluice("help trian"), 64);
    assert_one_complaint("did you mean train?");
    assert_code(sluice("polices"), 64); /* no topic is a command */
    assert_true(strstr(complaint, "policies") == NULL);
}

/* ---- examples ---- */

/* Cuts a line into words as a shell does, of which single quotes are known; returns their number.
 */
static int split_line(const char *line, char *text, size_t capacity, char *words[WORDS_MAX])
{
    int count = 0;
    bool is_quoted = false;
    assert_true(strlen(line) < capacity);
    while (*line) {
        line += strspn(line, " ");
        assert_true(count < WORDS_MAX);
        words[count++] = text;
        for (; *line && (is_quoted || *line != ' '); line++) {
            if (*line == '\'')
                is_quoted = !is_quoted;
            else
                *text++ = *line;
        }
        *text++ = '\0';
    }
    return count;
}

/* Gives the words of a command to the parser of options, and checks them together: those of init
 * are checked with its recipe. */
static void assert_command_parses(const char *line, int count, char **words)
{
    sl_config config = {0};
    const sl_command_entry *command = NULL;
    bool is_answered = true;
    sl_status status = sl_command_find(words[0], false, &command);
    if (status == SL_OK)
        status = sl_options_parse(command, count, words, &config, &is_answered);
    if (status == SL_OK && command->checks_options && !config.resume &&
        command->options != SL_CONFIG_INIT)
        status = sl_config_check(&config, command->options);
    if (status != SL_OK || is_answered)
        fail_msg("%s: %s", line, status == SL_OK ? "is answered" : sl_status_message());
    sl_config_clear(&config);
}

/* Parses a line for a shell. Those of `launch` are run with --help in place of what they start,
 * which is parsed here. */
static void assert_line_parses(const char *line)
{
    char text[1024], *words[WORDS_MAX + 1] = {NULL};
    int count = split_line(line, text, sizeof text, words), first = 1;
    assert_string_equal(words[0], "sluice");
    if (strcmp(words[1], "launch") == 0) {
        assert_code(sluice("%s --help", line + strlen("sluice ")), 0);
        while (strcmp(words[first], "--") != 0)
            assert_true(++first < count);
        first++;
    }
    words[count] = NULL;
    assert_command_parses(line, count - first, words + first);
}

static void examples_when_parsed_then_are_taken_and_each_command_has_some(void **state)
{
    (void)state;
    const sl_command_entry *command;
    const sl_example *example;
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        uint32_t count = 0;
        for (uint32_t j = 0; (example = sl_examples_at(j)); j++)
            count += strcmp(example->command, command->name) == 0;
        if (count < 2 || count > 5)
            fail_msg("%s has %u examples", command->name, count);
    }
    for (uint32_t i = 0; (example = sl_examples_at(i)); i++) {
        char start[64];
        snprintf(start, sizeof start, "sluice %s", example->command);
        assert_memory_equal(example->line, start, strlen(start));
        assert_true(strstr(example->line, "  ") == NULL);
        assert_line_parses(example->line);
        assert_code(sluice("%s --help", example->command), 0);
        assert_has(output, example->comment);
    }
}

/* What its names stand for: texts, a vocabulary, a model with checkpoints, logs, and a disk. */
static void write_what_examples_name(void)
{
    assert_int_equal(system("mkdir -p corpus nvme && cp '" SL_TEST_SOURCE_DIRECTORY
                            "'/../docs/*.md corpus && cp corpus/numbers.md held-out.txt"),
                     0);
    FILE *file = fopen("web.jsonl", "w");
    assert_non_null(file);
    for (int i = 0; i < 40; i++)
        fprintf(file, "{\"text\": \"document %d, %0*d\"}\n", i, 500, i);
    fclose(file);
    assert_code(sluice("train " TINY "--data held-out.txt --steps 1 --quiet --save first "
                       "--log-json run.jsonl"),
                0);
    assert_int_equal(system("for name in small large tuned; do cp run.jsonl $name.jsonl; done"), 0);
}

/* Cuts `part` out of a text, wherever it stands. */
static void cut_out(char *text, const char *part)
{
    for (char *at = text; (at = strstr(at, part));)
        memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

/* Runs a line with directories at hand: nvme, and first for out/first, because `out` is a file
 * here. A training is planned, which checks it as far; a plan gets the budgets that a line leaves
 * out, so that it depends on no machine. */
static void assert_line_runs(const char *line)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", line + strlen("sluice "));
    cut_out(text, "/mnt/");
    cut_out(text, "out/");
    const bool is_training = strncmp(text, "train ", 6) == 0;
    const bool is_plan = is_training || strncmp(text, "plan ", 5) == 0;
    if (sluice("%s%s%s%s", is_training ? "plan " : "", text + (is_training ? 6 : 0),
               is_plan && !strstr(text, "--device-memory") ? " --device-memory 64G" : "",
               is_plan && !strstr(text, "--host-memory") ? " --host-memory 64G" : "") != 0)
        fail_msg("%s: %s", line, complaint);
}

/* Of the others: `bench` takes minutes, `profile` computes steps of 124M, `launch` is run above. */
static void examples_when_run_then_succeed(void **state)
{
    (void)state;
    const sl_example *example;
    write_what_examples_name();
    for (uint32_t i = 0; (example = sl_examples_at(i)); i++)
        if (!strstr("bench profile launch", example->command))
            assert_line_runs(example->line);
}

/* ---- topics ---- */

/* Each word that begins with "--" is an option of some command. */
static void assert_options_exist(const char *topic, const char *text)
{
    for (const char *at = text; (at = strstr(at, "--")); at += 2) {
        const size_t length = strspn(at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
        const sl_command_entry *command;
        sl_option option;
        bool is_found = length == 0 || strncmp(at, "--help-all", 10) == 0;
        for (uint32_t i = 0; !is_found && (command = sl_command_at(i)); i++)
            for (uint32_t j = 0; !is_found && sl_options_of_command(command, j, &option); j++)
                is_found =
                    strlen(option.name) == length && strncmp(option.name, at + 2, length) == 0;
        if (!is_found)
            fail_msg("%s: --%.*s is no option", topic, (int)length, at + 2);
    }
}

static void assert_page_is_there(const char *what, const char *page)
{
    char path[PATH_BYTES];
    if (!page)
        return;
    snprintf(path, sizeof path, "%s/../%s", SL_TEST_SOURCE_DIRECTORY, page);
    if (access(path, R_OK) != 0)
        fail_msg("%s: there is no %s", what, page);
}

static void topics_when_printed_then_fit_a_screen_and_name_what_exists(void **state)
{
    (void)state;
    assert_int_equal(shell("echo '{\"model\": \"gpt2\"}' >run.json"), 0);
    const sl_command_entry *command;
    const sl_topic *topic;
    for (uint32_t i = 0; (topic = sl_topics_at(i)); i++) {
        assert_code(sluice("help %s", topic->name), 0);
        assert_lines_fit(topic->name, output);
        if (strcmp(topic->name, "words") == 0)
            continue;                                             /* a table of what is no option */
        const bool is_table = strcmp(topic->name, "models") == 0; /* a line for each shape */
        if (!is_table && count_lines(output) > TOPIC_LINES)
            fail_msg("%s has %u lines", topic->name, count_lines(output));
        if (strcmp(topic->name, "config") != 0) /* which has --NAME */
            assert_options_exist(topic->name, output);
        for (const char *const *line = topic->lines; line && *line; line++)
            assert_line_parses(*line);
        assert_page_is_there(topic->name, topic->page);
    }
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        assert_page_is_there(command->name, command->page);
}

static void topics_when_they_list_values_then_have_those_that_there_are(void **state)
{
    (void)state;
    static const sl_status statuses[] = {
        SL_OK,         SL_ERROR_USAGE,     SL_ERROR_DATA,   SL_ERROR_MISSING,
        SL_ERROR_FIT,  SL_ERROR_INTERNAL,  SL_ERROR_SYSTEM, SL_ERROR_IO,
        SL_ERROR_RANK, SL_ERROR_NONFINITE, SL_ERROR_DAMAGED};
    static const char *const choices[][2] = {{"policies", "policy"}, {"precision", "precision"}};
    sl_config config;
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        char code[16];
        bool is_listed = false;
        snprintf(code, sizeof code, "%d", sl_status_exit_code(statuses[i]));
        for (const sl_topic_row *row = sl_topics_find("exit-codes")->rows; row->head; row++)
            is_listed = is_listed || strcmp(row->head, code) == 0;
        assert_true(is_listed);
    }
    assert_int_equal(sl_config_init(&config), SL_OK);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        uint32_t row;
        assert_int_equal(sl_config_find(SL_CONFIG_TRAIN, choices[i][1], &row), SL_OK);
        for (const sl_topic_row *it = sl_topics_find(choices[i][0])->rows; it->head; it++)
            if (sl_config_set(&config, row, it->head) != SL_OK)
                fail_msg("%s: %s", choices[i][0], sl_status_message());
    }
    sl_config_clear(&config);
    assert_code(sluice("help models"), 0);
    for (const char *const *name = sl_architecture_names(); *name; name++)
        assert_has(output, *name);
}

/* ---- words of other programs ---- */

/* Whether a word that begins with "--" is an option of some command, by their help. */
static void assert_is_option(const char *helps, const char *name, int length)
{
    char start[96];
    snprintf(start, sizeof start, " %.*s", length, name);
    const char *at = helps;
    while ((at = strstr(at, start)) && !strchr("= \n", at[1 + length]))
        at++;
    if (!at)
        fail_msg("%.*s is no option", length, name);
}

/* What stands in the right column: options, and commands behind "sluice". */
static void check_meaning(const char *helps, const char *text)
{
    for (const char *at = text; (at = strstr(at, "--")); at += 2)
        if (at > text && at[-1] == ' ' && at[2] != ' ')
            assert_is_option(helps, at, (int)strcspn(at, " ,:;)\n"));
    for (const char *at = text; (at = strstr(at, "sluice ")); at += 7) {
        char command[32];
        snprintf(command, sizeof command, "\nUsage: sluice %.*s ",
                 (int)strspn(at + 7, "abcdefghijklmnopqrstuvwxyz"), at + 7);
        assert_has(helps, command);
    }
}

static void words_when_asked_for_then_name_options_and_commands_that_exist(void **state)
{
    (void)state;
    static const char *const tools[] = {"Megatron-LM", "DeepSpeed",  "Hugging Face",
                                        "nanoGPT",     "llm.c",      "torchrun",
                                        "accelerate",  "ColossalAI", "LiBai"};
    static char helps[8 * TEXT_BYTES], words[TEXT_BYTES];
    const sl_command_entry *command;
    char *rest = NULL;
    size_t count = 0;
    helps[0] = '\n';
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        assert_code(sluice("%s --help-all", command->name), 0);
        strncat(helps, output, sizeof helps - strlen(helps) - 2);
        helps[strlen(helps)] = '\n'; /* the rest is zeros */
    }
    assert_code(sluice("help words"), 0);
    assert_string_equal(complaint, "");
    snprintf(words, sizeof words, "%s", output);
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++) {
        char heading[64];
        snprintf(heading, sizeof heading, "\n\n%s\n", tools[i]);
        assert_has(words, heading);
    }
    for (char *line = strtok_r(words, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const size_t blanks = strspn(line, " ");
        count += blanks == 2;
        if (blanks == 34 || (blanks == 2 && strlen(line) > 34))
            check_meaning(helps, line + 33);
    }
    assert_true(count >= 120);
    assert_code(sluice("help words"), 0); /* of two programs, as each spells it */
    assert_has(output, "\n  --hidden-size  ");
    assert_has(output, "\n  --hidden_size  ");
    assert_code(sluice("manual words"), 0);
    assert_has(output, ".TH SLUICE-WORDS 7");
    assert_has(output, "\\-\\-num\\-layers");
}

/* ---- manual pages ---- */

static bool has_program(const char *name)
{
    return shell("command -v %s", name) == 0;
}

/* Of the page of sluice where `name` is "". */
static void assert_roff_is_clean(const char *name)
{
    assert_int_equal(shell("'%s' manual %s >page.1", binary, name), 0);
    shell("groff -man -ww -z page.1");
    if (*output)
        fail_msg("manual %s: groff says \"%s\"", name, output);
    if (*name || !has_program("man")) /* which runs groff, slowly: one page is enough */
        return;
    shell("MANWIDTH=80 man --warnings -l page.1 >/dev/null");
    if (*output)
        fail_msg("manual %s: man says \"%s\"", name, output);
}

static void pages_when_formatted_then_roff_does_not_complain(void **state)
{
    (void)state;
    const sl_command_entry *command;
    if (!has_program("groff"))
        skip_because("groff is not installed");
    assert_roff_is_clean("");
    assert_roff_is_clean("words");
    for (uint32_t i = 0; (command = sl_command_at(i)); i++)
        assert_roff_is_clean(command->name);
}

static void pages_when_printed_then_have_options_examples_and_exit_codes(void **state)
{
    (void)state;
    static const char *const forms[] = {"--text", "--roff"};
    const sl_command_entry *command;
    const sl_example *example;
    for (uint32_t i = 0; (command = sl_command_at(i)); i++) {
        sl_option option;
        assert_code(sluice("manual --text %s", command->name), 0);
        assert_lines_fit(command->name, output);
        assert_true(strstr(output, "\\-") == NULL && strstr(output, "\\f") == NULL);
        for (uint32_t j = 0; sl_options_of_command(command, j, &option); j++)
            if (!shows_option(output, &option, PAGE_INDENT))
                fail_msg("the page of %s has no --%s", command->name, option.name);
        assert_has(output, "\nEXIT STATUS\n");
        for (uint32_t j = 0; (example = sl_examples_at(j)); j++)
            if (strcmp(example->command, command->name) == 0)
                assert_has(output, example->comment);
        assert_code(sluice("manual --roff %s", command->name), 0);
        assert_has(output, ".SH EXAMPLES\n");
    }
    for (int i = 0; i < 2; i++) {
        assert_code(sluice("manual %s", forms[i]), 0);
        assert_has(output, "SLUICE_MPI_PLUGIN");
        assert_has(output, "machine.json");
    }
    assert_code(sluice("manual --pdf train"), 64);
    assert_one_complaint("--text");
    assert_code(sluice("manual polices"), 64);
    assert_one_complaint("unknown command");
}

/* Runs `sluice manual WORDS` on a terminal, with what is in `path` alone; its output is in
 * `output`. */
static int run_on_terminal(const char *path, const char *words)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int terminal, status;
    size_t used = 0;
    ssize_t count;
    const pid_t child = forkpty(&terminal, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child == 0) {
        char command[COMMAND_BYTES];
        setenv("PATH", path, 1);
        snprintf(command, sizeof command, "exec '%s' manual %s", binary, words);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while ((count = read(terminal, output + used, TEXT_BYTES - 1 - used)) > 0)
        used += (size_t)count;
    output[used] = '\0';
    close(terminal);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void write_man(const char *script)
{
    FILE *file = fopen("programs/man", "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    assert_int_equal(system("chmod +x programs/man"), 0);
}

static void manual_when_on_a_terminal_then_is_shown_by_man_or_as_text(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    assert_int_equal(system("mkdir -p programs none"), 0);
    snprintf(path, sizeof path, "%s/programs:/usr/bin:/bin", work_directory);
    write_man("echo \"formatted $*\"; cat >page");
    assert_code(run_on_terminal(path, "train"), 0);
    assert_string_equal(output, "formatted -l -\r\n");
    read_text("page", output);
    assert_has(output, ".TH SLUICE-TRAIN 1");
    write_man("exit 0"); /* takes nothing: who reads has left */
    assert_code(run_on_terminal(path, "train"), 0);
    assert_string_equal(output, "");
    write_man("cat >/dev/null; exit 1"); /* a man that has no -l */
    assert_code(run_on_terminal(path, "train"), 0);
    assert_memory_equal(output, "NAME\r\n", 6);
    snprintf(path, sizeof path, "%s/none", work_directory);
    assert_code(run_on_terminal(path, "train"), 0);
    assert_memory_equal(output, "NAME\r\n", 6);
    assert_has(output, "\r\nEXAMPLES\r\n");
    assert_code(run_on_terminal(path, "--roff train"), 0);
    assert_memory_equal(output, ".TH", 3);
    assert_code(run_on_terminal(path, "polices"), 64);
    assert_has(output, "unknown command");
}

/* ---- completion ---- */

/* What bash completes for the last of the words, with blanks between. */
static void complete(const char *words)
{
    assert_int_equal(
        shell("bash -c '. ./completion; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
              "_sluice; echo \"${COMPREPLY[*]}\"'",
              words),
        0);
    output[strcspn(output, "\n")] = '\0';
}

static void bash_when_it_completes_then_gives_names_values_and_paths(void **state)
{
    (void)state;
    static const struct {
        const char *words, *answer;
    } cases[] = {
        {"sluice t", "train tokenize"},
        {"sluice man", "manual"},
        {"sluice train --pol", "--policy"},
        {"sluice train --policy nv", "nvme"},
        {"sluice train --policy = nv", "nvme"},
        {"sluice train --policy host --recompute f", "full"},
        {"sluice train --precision b", "bf16"},
        {"sluice train --lr-schedule Warmup", "WarmupLR WarmupDecayLR WarmupCosineLR"},
        {"sluice train --model gpt2-1", "gpt2-10b gpt2-12b gpt2-14b gpt2-15b gpt2-18b"},
        {"sluice train --zero \"\"", "0 1 2 3 auto"},
        {"sluice train --device c", "cpu cuda"},
        {"sluice train --tokenizer by", "byte"},
        {"sluice train --tokenizer tre", "trees"},
        {"sluice train --save tre", "trees"},
        {"sluice train --save lea", ""}, /* which is a file */
        {"sluice train --data lea", "leaf"},
        {"sluice train --data leaf tre", "trees"},
        {"sluice train --data leaf --dat", "--data --data-order"},
        {"sluice train --save trees --dat", "--data --data-order"},
        {"sluice train --lr \"\"", ""},
        {"sluice plan --compare h", "host"},
        {"sluice bench --only me", "memory"},
        {"sluice convert --type q", "q8_0"},
        {"sluice convert --format gg", "gguf"},
        {"sluice tokenize --format n", "nanogpt"},
        {"sluice generate tre", "trees"},
        {"sluice generate --pro", "--prompt --prompt-file"},
        {"sluice plan --offload", "--offload-params --offload-grads --offload-optimizer "
                                  "--offload-activations --offload-updates"},
        {"sluice help pol", "policies"},
        {"sluice help pla", "plan"},
        {"sluice manual wo", "words"},
        {"sluice completion \"\"", "bash zsh fish"},
        {"sluice launch --re", "--restarts"},
        {"sluice launch -n 2 -- tr", "train"},
        {"sluice launch -n 2 -- train --zer", "--zero"},
        {"sluice launch -n 2 -- train --policy nv", "nvme"},
        {"sluice nothing --a", ""},
    };
    if (!has_program("bash"))
        skip_because("bash is not installed");
    assert_int_equal(system("mkdir -p trees && touch leaf"), 0);
    assert_int_equal(shell("'%s' completion bash >completion", binary), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        complete(cases[i].words);
        if (strcmp(output, cases[i].answer) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].words, output, cases[i].answer);
    }
}

/* The values that bash completes for an option are taken by it, and those of a choice are all. */
static void bash_when_it_completes_a_value_then_the_option_takes_it(void **state)
{
    (void)state;
    sl_config config;
    sl_option option;
    uint32_t row, count = 0;
    if (!has_program("bash"))
        skip_because("bash is not installed");
    assert_int_equal(shell("'%s' completion bash >completion", binary), 0);
    assert_int_equal(sl_config_init(&config), SL_OK);
    for (uint32_t i = 0; sl_options_of_command(&sl_command_train, i, &option); i++) {
        char words[128], *rest = NULL;
        if (!option.hint || option.is_common || strstr(option.hint, "DIR") ||
            strstr(option.hint, "FILE") || strstr(option.hint, "PATH"))
            continue;
        assert_int_equal(sl_config_find(SL_CONFIG_TRAIN, option.name, &row), SL_OK);
        snprintf(words, sizeof words, "sluice train --%s \"\"", option.name);
        complete(words);
        assert_true(!option.is_choice || *output);
        for (char *name = strtok_r(output, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            count++;
            if (sl_config_set(&config, row, name) != SL_OK)
                fail_msg("--%s: %s", option.name, sl_status_message());
        }
    }
    sl_config_clear(&config);
    assert_true(count > 60);
}

/* `fish -n` reads lines that fish refuses when they run. */
static void fish_when_it_completes_then_gives_names_values_and_paths(void **state)
{
    (void)state;
    static const struct {
        const char *line, *answer;
    } cases[] = {
        {"sluice tr", "train "},
        {"sluice train --pol", "--policy "},
        {"sluice train --policy nv", "nvme "},
        {"sluice train --zero ", "0 1 2 3 "},
        {"sluice train --model gpt2-x", "gpt2-xl "},
        {"sluice train --save tre", "trees/ "},
        {"sluice train --data lea", "leaf "},
        {"sluice generate tre", "trees/ "},
        {"sluice help pol", "policies "},
        {"sluice completion z", "zsh "},
        {"sluice launch --re", "--restarts "},
        {"sluice launch -n 2 -- tr", "train "},
        {"sluice launch -n 2 -- train --zer", "--zero "},
        {"sluice launch -n 2 -- train --policy nv", "nvme "},
    };
    if (!has_program("fish"))
        skip_because("fish is not installed");
    assert_int_equal(system("mkdir -p trees && touch leaf"), 0);
    assert_int_equal(shell("'%s' completion fish >completion", binary), 0);
    assert_int_equal(shell("HOME=$PWD fish -c 'source completion'"), 0);
    assert_string_equal(output, "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        shell("HOME=$PWD fish -c 'source completion; complete -C \"%s\"' | cut -f1 | tr '\\n' ' '",
              cases[i].line);
        if (strcmp(output, cases[i].answer) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].line, output, cases[i].answer);
    }
}

static void shells_when_given_their_completion_then_read_it(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh", "fish"};
    uint32_t read_count = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(shell("'%s' completion %s >completion.%s", binary, shells[i], shells[i]),
                         0);
        if (!has_program(shells[i]))
            continue;
        read_count++;
        if (shell("%s -n completion.%s", shells[i], shells[i]) != 0 || *output)
            fail_msg("%s: %s", shells[i], output);
    }
    assert_code(sluice("completion tcsh"), 64);
    assert_one_complaint("bash, zsh or fish");
    if (read_count == 0)
        skip_because("neither bash nor zsh nor fish is installed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_when_whole_then_has_every_option_under_its_group),
        cmocka_unit_test(help_when_short_then_has_what_is_first_and_counts_the_rest),
        cmocka_unit_test(help_of_train_when_short_then_is_in_the_order_of_decisions),
        cmocka_unit_test(overview_when_asked_for_then_lists_commands_and_topics),
        cmocka_unit_test(examples_when_parsed_then_are_taken_and_each_command_has_some),
        cmocka_unit_test(examples_when_run_then_succeed),
        cmocka_unit_test(topics_when_printed_then_fit_a_screen_and_name_what_exists),
        cmocka_unit_test(topics_when_they_list_values_then_have_those_that_there_are),
        cmocka_unit_test(words_when_asked_for_then_name_options_and_commands_that_exist),
        cmocka_unit_test(pages_when_formatted_then_roff_does_not_complain),
        cmocka_unit_test(pages_when_printed_then_have_options_examples_and_exit_codes),
        cmocka_unit_test(manual_when_on_a_terminal_then_is_shown_by_man_or_as_text),
        cmocka_unit_test(bash_when_it_completes_then_gives_names_values_and_paths),
        cmocka_unit_test(bash_when_it_completes_a_value_then_the_option_takes_it),
        cmocka_unit_test(fish_when_it_completes_then_gives_names_values_and_paths),
        cmocka_unit_test(shells_when_given_their_completion_then_read_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
