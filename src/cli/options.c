/* argp prints the help; names are checked before argp sees them, so that a wrong one gets one line
 * and the nearest right name. Values are collected first and applied after the files, in order. */
#define _GNU_SOURCE /* asprintf */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "session/config/config_json.h"

enum { KEY_CONFIG = 1000, KEY_SET, KEY_ROW };
enum { NO_LIST = UINT32_MAX, OPTION_MAX = SL_CONFIG_ROW_COUNT + SL_CONFIG_GROUP_COUNT + 8 };

typedef struct setting {
    uint32_t row; /* or SL_CONFIG_ROW_COUNT: an assignment of --set */
    const char *text;
} setting;

typedef struct command_line {
    const sl_options_command *command;
    struct argp_option options[OPTION_MAX];
    setting *settings;
    uint32_t setting_count;
    const char **files;
    uint32_t file_count;
    uint32_t open_list; /* the list option that takes what stands behind it, or NO_LIST */
    sl_status status;
    char doc[2048];
} command_line;

static const char *const group_names[SL_CONFIG_GROUP_COUNT] = {
    "Model:", "Data:", "Training:", "Memory:", "Machine:", "Output:", "Sampling:"};

static const struct argp_option common_options[] = {
    {"config", KEY_CONFIG, "FILE", 0, "JSON object of these options", 90},
    {"set", KEY_SET, "KEY=VALUE", 0, "set one option, as in --config", 90},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
};

enum { COMMON_COUNT = sizeof common_options / sizeof common_options[0] };

static bool is_switch(const sl_config_row *row)
{
    return row->kind == SL_CONFIG_SWITCH;
}

static bool takes_row(const sl_options_command *command, const sl_config_row *row)
{
    return row->commands & command->command;
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
            line->options[count++] =
                (struct argp_option){.doc = group_names[group], .group = (int)group + 1};
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

/* What stands before the options, and behind them after a vertical tab. */
static void build_doc(command_line *line)
{
    size_t length =
        (size_t)snprintf(line->doc, sizeof line->doc,
                         "%s\vSizes take K, M, G and T (1024), with optional iB. A list ends at "
                         "the next option. Every "
                         "option can stand in a JSON file for --config; options beside it win.\n",
                         line->command->doc);
    if (!(line->command->command & (SL_CONFIG_TRAIN | SL_CONFIG_PLAN)))
        return;
    const char *comma = "\nBuilt-in shapes: ";
    for (const char *const *name = sl_gpt2_names(); *name && length < sizeof line->doc; name++) {
        length +=
            (size_t)snprintf(line->doc + length, sizeof line->doc - length, "%s%s", comma, *name);
        comma = ", ";
    }
}

static sl_status find_checkpoint_argument(command_line *line, const char *text, uint32_t *out_row)
{
    const unsigned readers = SL_CONFIG_GENERATE | SL_CONFIG_EVAL;
    bool is_taken = false;
    for (uint32_t i = 0; i < line->setting_count; i++)
        is_taken = is_taken || line->settings[i].row == SL_CONFIG_ROW_checkpoint;
    if (!(line->command->command & readers) || is_taken)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is not an option and belongs to none", text);
    *out_row = SL_CONFIG_ROW_checkpoint;
    return SL_OK;
}

static void push(command_line *line, uint32_t row, const char *text)
{
    line->settings[line->setting_count++] = (setting){row, text};
}

static error_t take_argument(command_line *line, const char *text)
{
    uint32_t row = line->open_list;
    if (row == NO_LIST)
        line->status = find_checkpoint_argument(line, text, &row);
    if (line->status != SL_OK)
        return EINVAL;
    push(line, row, text);
    return 0;
}

static error_t take_option(int key, char *text, struct argp_state *state)
{
    command_line *line = state->input;
    if (key == ARGP_KEY_ARG)
        return take_argument(line, text);
    if (key != 'h' && (key < KEY_CONFIG || key >= KEY_ROW + SL_CONFIG_ROW_COUNT))
        return ARGP_ERR_UNKNOWN;
    line->open_list = NO_LIST;
    if (key == 'h') {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
    } else if (key == KEY_CONFIG) {
        line->files[line->file_count++] = text;
    } else if (key == KEY_SET) {
        push(line, SL_CONFIG_ROW_COUNT, text);
    } else {
        uint32_t row = (uint32_t)(key - KEY_ROW);
        push(line, row, text ? text : "true");
        if (sl_config_rows()[row].kind == SL_CONFIG_LIST_OF)
            line->open_list = row;
    }
    return 0;
}

typedef struct long_name {
    const char *name;
    bool takes_value;
} long_name;

/* The option whose name starts with `length` letters of `text`: a whole name, or the only one. */
static sl_status find_long(const command_line *line, const char *text, size_t length,
                           long_name *out_name)
{
    static const char *const own[] = {"help", "usage", "version"};
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    sl_nearest nearest = sl_nearest_start(name);
    uint32_t matches = 0;
    const struct argp_option *option = line->options;
    for (size_t i = 0; i < OPTION_MAX + sizeof own / sizeof own[0]; i++) {
        const char *known = i < OPTION_MAX ? option[i].name : own[i - OPTION_MAX];
        if (!known)
            continue;
        sl_nearest_offer(&nearest, known);
        if (strncmp(known, name, strlen(name)) != 0)
            continue;
        *out_name = (long_name){known, i < OPTION_MAX && option[i].arg};
        if (strcmp(known, name) == 0)
            return SL_OK;
        matches++;
    }
    char hint[96];
    sl_nearest_format(&nearest, "--", hint, sizeof hint);
    if (matches == 0)
        SL_FAIL(SL_ERROR_USAGE, "unknown option --%s%s", name, hint);
    if (matches > 1)
        SL_FAIL(SL_ERROR_USAGE, "--%s is short for several options%s", name, hint);
    return SL_OK;
}

/* Looks at one word that starts with "-"; *index moves past a value that stands apart. */
static sl_status check_word(const command_line *line, int argc, char **argv, int *index)
{
    const char *word = argv[*index];
    if (word[1] != '-') {
        if (strcmp(word, "-h") != 0 && strcmp(word, "-?") != 0 && strcmp(word, "-V") != 0)
            SL_FAIL(SL_ERROR_USAGE, "unknown option %s: options have long names, see --help", word);
        return SL_OK;
    }
    long_name found = {0};
    size_t length = strcspn(word + 2, "=");
    bool has_value = word[2 + length] == '=';
    SL_TRY(find_long(line, word + 2, length, &found));
    if (has_value && !found.takes_value)
        SL_FAIL(SL_ERROR_USAGE, "--%s takes no value", found.name);
    if (!has_value && found.takes_value && ++*index >= argc)
        SL_FAIL(SL_ERROR_USAGE, "--%s needs a value", found.name);
    return SL_OK;
}

static sl_status check_names(const command_line *line, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (argv[i][0] == '-' && argv[i][1] != '\0')
            SL_TRY(check_word(line, argc, argv, &i));
    return SL_OK;
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
    sl_config_command command = line->command->command;
    for (uint32_t i = 0; i < line->file_count; i++)
        SL_TRY(sl_config_load(config, command, line->files[i]));
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

/* Adds the default to an option's help; argp frees what is returned. */
static char *show_default(int key, const char *text, void *user)
{
    (void)user;
    if (key < KEY_ROW || key >= KEY_ROW + SL_CONFIG_ROW_COUNT)
        return (char *)text;
    const sl_config_row *row = &sl_config_rows()[key - KEY_ROW];
    char *longer;
    if (!*row->initial || is_switch(row) || strcmp(row->initial, "auto") == 0 ||
        asprintf(&longer, "%s [%s]", text, row->initial) < 0)
        return (char *)text;
    return longer;
}

static sl_status parse_words(command_line *line, int argc, char **argv)
{
    struct argp argp = {.options = line->options,
                        .parser = take_option,
                        .args_doc = line->command->arguments,
                        .doc = line->doc,
                        .help_filter = show_default};
    SL_TRY(check_names(line, argc, argv));
    error_t error = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, line);
    if (line->status != SL_OK)
        return line->status;
    if (error)
        SL_FAIL(SL_ERROR_USAGE, "the command line: %s", strerror(error));
    return SL_OK;
}

sl_status sl_options_parse(const sl_options_command *command, int argc, char **argv,
                           sl_config *config)
{
    command_line line = {.command = command, .open_list = NO_LIST};
    char *name = (char *)command->name; /* argp prints argv[0] and writes to nothing */
    argv[0] = name;
    line.settings = calloc((size_t)argc + 1, sizeof *line.settings);
    line.files = calloc((size_t)argc + 1, sizeof *line.files);
    sl_status status = sl_config_init(config);
    if (status == SL_OK && (!line.settings || !line.files))
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the command line");
    build_options(&line);
    build_doc(&line);
    if (status == SL_OK)
        status = parse_words(&line, argc, argv);
    if (status == SL_OK)
        status = apply_settings(&line, config);
    if (status == SL_OK)
        status = sl_config_check(config, command->command);
    free(line.settings);
    free(line.files);
    return status;
}
