/* argp parses the words. A word that argp refuses is explained in one line: what a word of another
 * program is here, or the nearest right name. Values are collected first and applied after the
 * files, in order. */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "command_help.h"
#include "foreign/deepspeed/config_file.h"
#include "foreign/words.h"

enum {
    KEY_CONFIG = SL_OPTIONS_KEY_ROW,
    KEY_SET,
    KEY_ROW, /* the keys of rows of the list begin */
};
enum { NO_LIST = UINT32_MAX, OPTION_MAX = SL_CONFIG_ROW_COUNT + SL_CONFIG_GROUP_COUNT + 8 };

typedef struct setting {
    uint32_t row; /* or SL_CONFIG_ROW_COUNT: an assignment of --set */
    const char *text;
} setting;

typedef struct command_line {
    const sl_command_entry *command;
    struct argp argp;
    struct argp_option options[OPTION_MAX];
    setting *settings;
    uint32_t setting_count;
    const char **files;
    uint32_t file_count;
    uint32_t open_list; /* the list option that takes what stands behind it, or NO_LIST */
    int next_word;      /* of argv: behind those that were taken */
    int asked_key;      /* of --help, --usage, --version and such, the first of them; 0: none */
    sl_status status;
    char headings[SL_CONFIG_GROUP_COUNT][24];
} command_line;

static const char *const group_names[SL_CONFIG_GROUP_COUNT] = {
    [SL_CONFIG_GROUP_MODEL] = "Model",
    [SL_CONFIG_GROUP_DATA] = "Data",
    [SL_CONFIG_GROUP_SAMPLING] = "Sampling",
    [SL_CONFIG_GROUP_MEMORY] = "Memory",
    [SL_CONFIG_GROUP_BATCH] = "Batch",
    [SL_CONFIG_GROUP_LEARNING] = "Learning",
    [SL_CONFIG_GROUP_SAVING] = "Saving and resuming",
    [SL_CONFIG_GROUP_WATCHING] = "Watching",
    [SL_CONFIG_GROUP_OUTPUT] = "Output",
    [SL_CONFIG_GROUP_RANKS] = "Ranks",
    [SL_CONFIG_GROUP_ADVANCED] = "Advanced"};

static const char common_group[] = "Common", own_group[] = "Options";

static const struct argp_option common_options[] = {
    {"config", KEY_CONFIG, "FILE", 0, "JSON object of options, for every command", 90},
    {"set", KEY_SET, "KEY=VALUE", 0, "set one option, as in --config", -1},
    SL_OPTIONS_HELP_ROWS,
    {"version", 'V', NULL, 0, "Print program version", -1},
    {NULL, 0, NULL, 0, NULL, 0},
};

static bool is_switch(const sl_config_row *row)
{
    return row->kind == SL_CONFIG_SWITCH;
}

static bool takes_row(const sl_command_entry *command, const sl_config_row *row)
{
    return row->commands & command->options;
}

static struct argp_option make_heading(command_line *line, sl_config_group group)
{
    char *text = line->headings[group];
    snprintf(text, sizeof line->headings[group], "%s:", group_names[group]);
    return (struct argp_option){.doc = text, .group = (int)group + 1};
}

/* Rows of one group under its heading; a group without rows has none. */
static uint32_t add_group(command_line *line, sl_config_group group, uint32_t count)
{
    uint32_t heading = count;
    for (uint32_t i = 0; i < SL_CONFIG_ROW_COUNT; i++) {
        const sl_config_row *row = &sl_config_rows()[i];
        if (row->group != group || !takes_row(line->command, row))
            continue;
        if (count == heading)
            line->options[count++] = make_heading(line, group);
        line->options[count++] = (struct argp_option){.name = row->name,
                                                      .key = KEY_ROW + (int)i,
                                                      .arg = is_switch(row) ? NULL : row->hint,
                                                      .doc = row->help,
                                                      .group = (int)group + 1};
    }
    return count;
}

static void build_options(command_line *line)
{
    uint32_t count = 0;
    for (int group = 0; group < SL_CONFIG_GROUP_COUNT; group++)
        count = add_group(line, (sl_config_group)group, count);
    memcpy(line->options + count, common_options, sizeof common_options);
}

void sl_options_describe(const sl_command_entry *command, char *out_text, size_t capacity)
{
    if (command->words) {
        snprintf(out_text, capacity, "%s", command->remark);
        return;
    }
    size_t length = (size_t)snprintf(
        out_text, capacity,
        "Sizes take K, M, G and T (1024), with optional iB. A list ends at the next option. Every "
        "option can stand in a JSON file for --config; options beside it win. One file serves "
        "every command: an object named after a command holds options for that one alone.");
    const unsigned with_models =
        SL_CONFIG_TRAIN | SL_CONFIG_PLAN | SL_CONFIG_PROFILE | SL_CONFIG_INIT;
    if (!(command->options & with_models))
        return;
    const char *comma = "\nBuilt-in shapes: ";
    for (const char *const *name = sl_architecture_names(); *name && length < capacity; name++) {
        length += (size_t)snprintf(out_text + length, capacity - length, "%s%s", comma, *name);
        comma = ", ";
    }
}

/* The option that a word without one is a value of. */
static sl_status find_unnamed(const command_line *line, const char *text, uint32_t *out_row)
{
    const unsigned readers = SL_CONFIG_GENERATE | SL_CONFIG_EVAL;
    bool is_taken = false;
    *out_row = SL_CONFIG_ROW_runs;
    if (line->command->options & SL_CONFIG_REPORT)
        return SL_OK;
    for (uint32_t i = 0; i < line->setting_count; i++)
        is_taken = is_taken || line->settings[i].row == SL_CONFIG_ROW_checkpoint;
    if (!(line->command->options & readers) || is_taken)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is neither an option nor the value of one", text);
    *out_row = SL_CONFIG_ROW_checkpoint;
    return SL_OK;
}

static void add_setting(command_line *line, uint32_t row, const char *text)
{
    line->settings[line->setting_count++] = (setting){row, text};
}

static error_t take_argument(command_line *line, const char *text)
{
    uint32_t row = line->open_list;
    if (row == NO_LIST)
        line->status = find_unnamed(line, text, &row);
    if (line->status != SL_OK)
        return EINVAL;
    add_setting(line, row, text);
    return 0;
}

/* The option whose name starts with `text`: a whole name, or the only one. */
static sl_status find_long(const struct argp_option *options, const char *text,
                           const struct argp_option **out_option)
{
    sl_nearest nearest = sl_nearest_start(text);
    uint32_t matches = 0;
    for (const struct argp_option *option = options; option->key || option->doc; option++) {
        if (!option->name)
            continue;
        sl_nearest_offer(&nearest, option->name);
        if (strncmp(option->name, text, strlen(text)) != 0)
            continue;
        *out_option = option;
        if (strcmp(option->name, text) == 0)
            return SL_OK;
        matches++;
    }
    char hint[SL_WORDS_TEXT_BYTES];
    sl_words_suggest(SL_WORD_OPTION, &nearest, "--", hint);
    if (matches == 0)
        SL_FAIL(SL_ERROR_USAGE, "unknown option --%s%s", text, hint);
    if (matches > 1)
        SL_FAIL(SL_ERROR_USAGE, "--%s is short for several options%s", text, hint);
    return SL_OK;
}

sl_status sl_options_explain(const struct argp_option *options, const char *word)
{
    char text[64], meaning[SL_WORDS_TEXT_BYTES];
    const struct argp_option *option = NULL;
    if (word[1] != '-')
        SL_FAIL(SL_ERROR_USAGE, "unknown option %s%s", word,
                sl_words_explain(SL_WORD_OPTION, NULL, word, meaning)
                    ? meaning
                    : ": options have long names, see --help");
    snprintf(text, sizeof text, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    SL_TRY(find_long(options, text, &option));
    SL_FAIL(SL_ERROR_USAGE, "--%s %s", option->name,
            option->arg ? "needs a value" : "takes no value");
}

/* Prints what is asked for. */
static void answer(const command_line *line)
{
    char name[32];
    snprintf(name, sizeof name, "sluice %s", line->command->name);
    if (line->asked_key == 'V')
        sl_command_print_version(stdout);
    else if (line->asked_key == SL_OPTIONS_KEY_USAGE)
        argp_help(&line->argp, stdout, ARGP_HELP_USAGE, name);
    else
        sl_command_help_print(line->command, line->asked_key == SL_OPTIONS_KEY_HELP_ALL, stdout);
}

bool sl_options_key_asks(int key)
{
    return key == 'h' || key == '?' || key == 'V' || key == SL_OPTIONS_KEY_USAGE ||
           key == SL_OPTIONS_KEY_HELP_ALL;
}

/* argp takes the beginning of a name for the name. One that is the whole name of an option of
 * another command means that option. */
static sl_status refuse_other_name(const command_line *line, uint32_t row, const char *word)
{
    const char *name = sl_config_rows()[row].name, *typed = word + strspn(word, "-");
    const size_t length = strcspn(typed, "=");
    if (strlen(name) == length)
        return SL_OK;
    for (uint32_t i = 0; i < SL_CONFIG_ROW_COUNT; i++) {
        const char *other = sl_config_rows()[i].name;
        if (strlen(other) == length && strncmp(other, typed, length) == 0)
            SL_FAIL(SL_ERROR_USAGE,
                    "--%s is no option of sluice %s, and not taken for the beginning of --%s: give "
                    "that one in full, if it is meant",
                    other, line->command->name, name);
    }
    return SL_OK;
}

static void take_row(command_line *line, uint32_t row, const char *text)
{
    add_setting(line, row, text ? text : "true");
    if (sl_config_rows()[row].kind == SL_CONFIG_LIST_OF)
        line->open_list = row;
}

/* `word` is as it was typed. */
static error_t take_option(command_line *line, int key, const char *text, const char *word)
{
    line->open_list = NO_LIST;
    if (sl_options_key_asks(key))
        line->asked_key = line->asked_key ? line->asked_key : key;
    else if (key == KEY_CONFIG)
        line->files[line->file_count++] = text;
    else if (key == KEY_SET)
        add_setting(line, SL_CONFIG_ROW_COUNT, text);
    else if (key >= KEY_ROW && key < KEY_ROW + SL_CONFIG_ROW_COUNT) {
        line->status = refuse_other_name(line, (uint32_t)(key - KEY_ROW), word);
        take_row(line, (uint32_t)(key - KEY_ROW), text);
    } else
        return ARGP_ERR_UNKNOWN;
    return line->status == SL_OK ? 0 : EINVAL;
}

/* Called by argp for each word, and once more after one that it does not take. */
static error_t take_word(int key, char *text, struct argp_state *state)
{
    command_line *line = state->input;
    if (key == ARGP_KEY_ERROR && line->status == SL_OK)
        line->status = sl_options_explain(line->options, state->argv[line->next_word]);
    error_t error = key == ARGP_KEY_ARG
                        ? take_argument(line, text)
                        : take_option(line, key, text, state->argv[line->next_word]);
    if (error == 0)
        line->next_word = state->next;
    return error;
}

/* A list on the command line replaces the one in a file, then grows. */
static sl_status apply_list(sl_config *config, bool *is_open, uint32_t row, const char *text)
{
    if (!is_open[row])
        SL_TRY(sl_config_set(config, row, ""));
    is_open[row] = true;
    return sl_config_append(config, row, text);
}

static sl_status apply_settings(const command_line *line, sl_config *config)
{
    bool is_open[SL_CONFIG_ROW_COUNT] = {false};
    sl_config_command command = line->command->options;
    for (uint32_t i = 0; i < line->file_count; i++)
        SL_TRY(sl_config_file_load(config, command, line->files[i]));
    for (uint32_t i = 0; i < line->setting_count; i++) {
        uint32_t row = line->settings[i].row;
        const char *text = line->settings[i].text;
        if (row == SL_CONFIG_ROW_COUNT)
            SL_TRY(sl_config_assign(config, command, text));
        else if (sl_config_rows()[row].kind == SL_CONFIG_LIST_OF)
            SL_TRY(apply_list(config, is_open, row, text));
        else
            SL_TRY(sl_config_set(config, row, text));
    }
    return SL_OK;
}

static const char *choose_initial(const sl_config_row *row)
{
    bool is_shown = !is_switch(row) && strcmp(row->initial, "auto") != 0;
    return is_shown ? row->initial : "";
}

static sl_status parse_words(command_line *line, int argc, char **argv)
{
    line->argp = (struct argp){
        .options = line->options, .parser = take_word, .args_doc = line->command->arguments};
    error_t error = argp_parse(&line->argp, argc, argv, ARGP_IN_ORDER | ARGP_SILENT, NULL, line);
    if (line->status != SL_OK)
        return line->status;
    if (error)
        SL_FAIL(SL_ERROR_USAGE, "the command line: %s", strerror(error));
    return SL_OK;
}

sl_status sl_options_parse(const sl_command_entry *command, int argc, char **argv,
                           sl_config *config, bool *out_is_answered)
{
    command_line line = {.command = command, .open_list = NO_LIST, .next_word = 1};
    line.settings = calloc((size_t)argc + 1, sizeof *line.settings);
    line.files = calloc((size_t)argc + 1, sizeof *line.files);
    sl_status status = sl_config_init(config);
    if (status == SL_OK && (!line.settings || !line.files))
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the command line");
    build_options(&line);
    if (status == SL_OK)
        status = parse_words(&line, argc, argv);
    if (status == SL_OK && line.asked_key)
        answer(&line);
    if (status == SL_OK && !line.asked_key)
        status = apply_settings(&line, config);
    if (status == SL_OK && !line.asked_key && !command->checks_options)
        status = sl_config_check(config, command->options);
    free(line.settings);
    free(line.files);
    *out_is_answered = line.asked_key != 0;
    return status;
}

/* ---- options as others show them ---- */

/* The index-th row that a command takes, in the order of groups; *index is less by those passed. */
static const sl_config_row *find_row(const sl_command_entry *command, uint32_t *index)
{
    for (int group = 0; group < SL_CONFIG_GROUP_COUNT; group++) {
        for (uint32_t i = 0; i < SL_CONFIG_ROW_COUNT; i++) {
            const sl_config_row *row = &sl_config_rows()[i];
            if ((int)row->group == group && takes_row(command, row) && (*index)-- == 0)
                return row;
        }
    }
    return NULL;
}

/* argp's keys of options without a letter are no printable characters. */
static bool is_letter(int key)
{
    return key > ' ' && key < 127;
}

/* The index-th word with a name of an argp table; *index is less by those passed. */
static const struct argp_option *find_word(const struct argp_option *words, uint32_t *index)
{
    for (; words->key; words++)
        if (words->name && (*index)-- == 0)
            return words;
    return NULL;
}

/* Values that a hint does not list: those of models, figures and policies. */
static const char *const *choose_names(uint32_t row)
{
    static const char *figures[SL_BENCH_FIGURE_COUNT + 1];
    static const char *const policies[] = {"device", "host", "static", "nvme", "auto", NULL};
    if (row == SL_CONFIG_ROW_model)
        return sl_architecture_names();
    if (row == SL_CONFIG_ROW_compare)
        return policies;
    if (row != SL_CONFIG_ROW_only)
        return NULL;
    for (int i = 0; i < SL_BENCH_FIGURE_COUNT; i++)
        figures[i] = sl_bench_figure_name((sl_bench_figure)i);
    return figures;
}

static sl_option show_row(const sl_command_entry *command, const sl_config_row *row)
{
    return (sl_option){.name = row->name,
                       .help = row->help,
                       .group = group_names[row->group],
                       .hint = is_switch(row) ? NULL : row->hint,
                       .initial = choose_initial(row),
                       .names = choose_names((uint32_t)(row - sl_config_rows())),
                       .is_choice = row->kind == SL_CONFIG_CHOICE,
                       .is_list = row->kind == SL_CONFIG_LIST_OF,
                       .is_first = row->first & command->options};
}

bool sl_options_of_command(const sl_command_entry *command, uint32_t index, sl_option *out_option)
{
    const sl_config_row *row = command->words ? NULL : find_row(command, &index);
    if (row) {
        *out_option = show_row(command, row);
        return true;
    }
    const struct argp_option *word =
        find_word(command->words ? command->words : common_options, &index);
    if (!word)
        return false;
    *out_option =
        (sl_option){.letter = (char)(is_letter(word->key) ? word->key : 0),
                    .name = word->name,
                    .help = word->doc,
                    .group = word->group < 0 || !command->words ? common_group : own_group,
                    .hint = word->arg,
                    .initial = "",
                    .is_first = word->group >= 0,
                    .is_common = word->group < 0 || !command->words};
    return true;
}
