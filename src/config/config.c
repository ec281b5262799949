/* Where an option is checked, in the three steps that config.h names: its name, its value, and what
 * options mean together. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/workers.h"
#include "data_shares.h"
#include "files/fields.h"
#include "files/files.h"
#include "fine_tuning.h"
#include "foreign/words.h"
#include "optimizer.h"
#include "shares.h"
#include "stages.h"
#include "units.h"
#include "update_rules.h"

enum {
    T = SL_CONFIG_TRAIN | SL_CONFIG_PLAN | SL_CONFIG_PROFILE,
    P = SL_CONFIG_PLAN,
    R = SL_CONFIG_PROFILE,
    G = SL_CONFIG_GENERATE,
    E = SL_CONFIG_EVAL,
    TE = T | E,
    TG = T | G,
    TGE = T | G | E,
    GE = G | E,
    B = SL_CONFIG_BENCH,
    K = SL_CONFIG_TOKENIZE,
    V = SL_CONFIG_CONVERT,
    TB = T | B,
    TV = T | V,
    BK = B | K,
    O = SL_CONFIG_REPORT,
    BKO = BK | O,
    TEK = TE | K,
    TGEKV = TGE | K | V,
    TGEB = TGE | B,
    TGEV = TGE | V,
    TGEBK = TGEB | K,
    TGEBKV = TGEBK | V,
    D = SL_CONFIG_DOCTOR,
    TGEDB = TGEB | D,
    PEDB = P | E | D | B,
    I = SL_CONFIG_INIT,
    BKOI = BKO | I
};

#define KIND_TEXT SL_CONFIG_TEXT
#define KIND_LIST SL_CONFIG_LIST_OF
#define KIND_COUNT SL_CONFIG_COUNT
#define KIND_ELEMENTS SL_CONFIG_ELEMENTS
#define KIND_STEPS SL_CONFIG_STEPS
#define KIND_REAL SL_CONFIG_REAL
#define KIND_SIZE SL_CONFIG_SIZE
#define KIND_SWITCH SL_CONFIG_SWITCH
#define KIND_CHOICE SL_CONFIG_CHOICE

static const sl_config_row rows[SL_CONFIG_ROW_COUNT] = {
#define X(kind, field, name, initial, hint, low, high, commands, group, first, help)               \
    {KIND_##kind,                                                                                  \
     offsetof(sl_config, field),                                                                   \
     name,                                                                                         \
     initial,                                                                                      \
     hint,                                                                                         \
     low,                                                                                          \
     high,                                                                                         \
     (commands) | ((commands)&SL_CONFIG_TRAIN ? SL_CONFIG_INIT : 0),                               \
     SL_CONFIG_GROUP_##group,                                                                      \
     first,                                                                                        \
     help},
    SL_CONFIG_LIST(X)
#undef X
};

const sl_config_row *sl_config_rows(void)
{
    return rows;
}

static void *find_field(sl_config *config, uint32_t row)
{
    return (char *)config + rows[row].offset;
}

/* ---- 1: the name ---- */

static bool names_match(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return false;
    return *a == *b;
}

sl_status sl_config_find(sl_config_command command, const char *name, uint32_t *out_row)
{
    sl_nearest nearest = sl_nearest_start(name);
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (!(rows[row].commands & command))
            continue;
        if (names_match(rows[row].name, name)) {
            *out_row = row;
            return SL_OK;
        }
        sl_nearest_offer(&nearest, rows[row].name);
    }
    char hint[SL_WORDS_TEXT_BYTES];
    sl_words_suggest(SL_WORD_OPTION, &nearest, "", hint);
    SL_FAIL(SL_ERROR_USAGE, "unknown option \"%s\"%s", name, hint);
}

/* ---- 2: the value, against its row: kind, range, names ---- */

static sl_status copy_text(const char *text, char **out_copy)
{
    *out_copy = strdup(text);
    if (!*out_copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a setting");
    return SL_OK;
}

static void clear_list(sl_config_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (sl_config_list){0};
}

static sl_status append_item(sl_config_list *list, const char *text)
{
    char *copy;
    SL_TRY(copy_text(text, &copy));
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items) {
        free(copy);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of settings");
    }
    items[list->count++] = copy;
    list->items = items;
    return SL_OK;
}

static sl_status set_text(char **field, const char *text)
{
    char *copy = NULL;
    if (*text)
        SL_TRY(copy_text(text, &copy));
    free(*field);
    *field = copy;
    return SL_OK;
}

static sl_status check_range(const sl_config_row *row, double value)
{
    if (row->low < row->high && (value < row->low || value > row->high))
        SL_FAIL(SL_ERROR_USAGE, "%.10g is not in the range %.10g to %.10g", value, row->low,
                row->high);
    return SL_OK;
}

static sl_status set_count(const sl_config_row *row, uint64_t *field, const char *text)
{
    uint64_t value;
    SL_TRY(row->kind == SL_CONFIG_ELEMENTS ? sl_units_parse_elements(text, &value)
                                           : sl_units_parse_count(text, &value));
    SL_TRY(check_range(row, (double)value));
    *field = value;
    return SL_OK;
}

static sl_status set_steps(const sl_config_row *row, sl_config_steps *field, const char *text)
{
    double share;
    uint64_t count;
    if (sl_units_parse_real(text, &share) == SL_OK && share > 0 && share < 1) {
        *field = (sl_config_steps){SL_CONFIG_UNSET, share};
        return SL_OK;
    }
    if (sl_units_parse_count(text, &count) != SL_OK)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is neither a number of steps nor a share of them below 1",
                text);
    SL_TRY(check_range(row, (double)count));
    *field = (sl_config_steps){.count = count};
    return SL_OK;
}

static sl_status set_real(const sl_config_row *row, double *field, const char *text)
{
    double value;
    SL_TRY(sl_units_parse_real(text, &value));
    SL_TRY(check_range(row, value));
    *field = value;
    return SL_OK;
}

/* Whether "auto" is a value: it is the default, or stands at the end of the hint. */
static bool takes_auto(const sl_config_row *row)
{
    return strcmp(row->initial, "auto") == 0 ||
           (row->hint && sl_files_name_ends(row->hint, "|auto"));
}

/* "auto" leaves a number open. */
static bool unset_number(const sl_config_row *row, void *field, const char *text)
{
    if (strcmp(text, "auto") != 0 || !takes_auto(row))
        return false;
    switch (row->kind) {
    case SL_CONFIG_COUNT:
    case SL_CONFIG_ELEMENTS:
    case SL_CONFIG_SIZE:
        *(uint64_t *)field = SL_CONFIG_UNSET;
        return true;
    case SL_CONFIG_STEPS:
        *(sl_config_steps *)field = (sl_config_steps){.count = SL_CONFIG_UNSET};
        return true;
    case SL_CONFIG_REAL:
        *(double *)field = NAN;
        return true;
    default:
        return false;
    }
}

static sl_status set_switch(bool *field, const char *text)
{
    bool is_on = strcmp(text, "true") == 0 || strcmp(text, "on") == 0 || strcmp(text, "1") == 0;
    bool is_off = strcmp(text, "false") == 0 || strcmp(text, "off") == 0 || strcmp(text, "0") == 0;
    if (!is_on && !is_off)
        SL_FAIL(SL_ERROR_USAGE, "\"%s\" is neither true nor false", text);
    *field = is_on;
    return SL_OK;
}

static sl_status set_list(sl_config_list *list, const char *text)
{
    clear_list(list);
    return *text ? append_item(list, text) : SL_OK;
}

static sl_status set_field(sl_config *config, uint32_t row, const char *text)
{
    void *field = find_field(config, row);
    if (unset_number(&rows[row], field, text))
        return SL_OK;
    switch (rows[row].kind) {
    case SL_CONFIG_TEXT:
        return set_text(field, *text ? text : rows[row].initial);
    case SL_CONFIG_LIST_OF:
        return set_list(field, text);
    case SL_CONFIG_COUNT:
    case SL_CONFIG_ELEMENTS:
        return set_count(&rows[row], field, text);
    case SL_CONFIG_STEPS:
        return set_steps(&rows[row], field, text);
    case SL_CONFIG_REAL:
        return set_real(&rows[row], field, text);
    case SL_CONFIG_SIZE:
        return sl_units_parse_size(text, field);
    case SL_CONFIG_SWITCH:
        return set_switch(field, text);
    case SL_CONFIG_CHOICE:
        return sl_fields_find_name(rows[row].hint, text, field);
    }
    SL_FAIL(SL_ERROR_INTERNAL, "option %s has no kind", rows[row].name);
}

/* Explains a refused value that is a word of another program; of any other value the message that
 * refused it stays. */
static sl_status explain_value(const char *option, const char *text)
{
    char meaning[SL_WORDS_TEXT_BYTES];
    if (!sl_words_explain(SL_WORD_VALUE, option, text, meaning))
        return SL_ERROR_USAGE;
    SL_FAIL(SL_ERROR_USAGE, "\"%s\" is%s", text, meaning + strlen(":"));
}

sl_status sl_config_set_default(sl_config *config, uint32_t row)
{
    SL_TRY(set_field(config, row, rows[row].initial));
    config->given[row] = true;
    return SL_OK;
}

sl_status sl_config_unset(sl_config *config, uint32_t row)
{
    SL_TRY(set_field(config, row, rows[row].initial));
    config->given[row] = false;
    return SL_OK;
}

sl_status sl_config_set(sl_config *config, uint32_t row, const char *text)
{
    if (row == SL_CONFIG_ROW_save && !*text)
        SL_FAIL(SL_ERROR_USAGE,
                "--save: the name of the directory is empty; leave --save out if nothing "
                "is to be saved");
    sl_status status = set_field(config, row, text);
    if (status == SL_ERROR_USAGE)
        status = explain_value(rows[row].name, text);
    if (status != SL_OK)
        return sl_status_prefix(status, "--%s", rows[row].name);
    config->given[row] = true;
    return SL_OK;
}

sl_status sl_config_resolve(sl_config *config, uint32_t row, const char *text)
{
    bool was_given = config->given[row];
    SL_TRY(sl_config_set(config, row, text));
    config->given[row] = was_given;
    return SL_OK;
}

sl_status sl_config_append(sl_config *config, uint32_t row, const char *text)
{
    if (rows[row].kind != SL_CONFIG_LIST_OF)
        SL_FAIL(SL_ERROR_USAGE, "--%s takes one value", rows[row].name);
    config->given[row] = true;
    return append_item(find_field(config, row), text);
}

sl_status sl_config_assign(sl_config *config, sl_config_command command, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    char name[64];
    if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof name)
        SL_FAIL(SL_ERROR_USAGE, "--set \"%s\": use key=value", assignment);
    memcpy(name, assignment, (size_t)(equals - assignment));
    name[equals - assignment] = '\0';
    uint32_t row;
    SL_TRY(sl_config_find(command, name, &row));
    return sl_config_set(config, row, equals + 1);
}

sl_status sl_config_init(sl_config *config)
{
    memset(config, 0, sizeof *config);
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        sl_status status = set_field(config, row, rows[row].initial);
        if (status != SL_OK) {
            sl_config_clear(config);
            return sl_status_prefix(status == SL_ERROR_SYSTEM ? status : SL_ERROR_INTERNAL,
                                    "default of --%s", rows[row].name);
        }
    }
    return SL_OK;
}

void sl_config_clear(sl_config *config)
{
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++) {
        if (rows[row].kind == SL_CONFIG_TEXT)
            free(*(char **)find_field(config, row));
        else if (rows[row].kind == SL_CONFIG_LIST_OF)
            clear_list(find_field(config, row));
    }
    free(config->explanation);
    memset(config, 0, sizeof *config);
}

/* ---- the device that a configuration names: its spelling, which one "auto" is, and the compute
 * type that follows from it (docs/decisions/0008) ---- */

enum { DEVICE_BYTES = 16, INDEX_MAX = 1023 };

/* Writes why a text is no device: it is a word of another program, or unknown. */
static void explain_device(const char *text, char out_text[SL_WORDS_TEXT_BYTES])
{
    if (!sl_words_explain(SL_WORD_VALUE, "device", text, out_text))
        snprintf(out_text, SL_WORDS_TEXT_BYTES, ": none of cpu|cuda[:N]");
}

sl_status sl_config_parse_device(const char *text, sl_device_kind *out_kind, int *out_index)
{
    uint64_t index = 0;
    char why[SL_WORDS_TEXT_BYTES];
    bool is_cpu = strcmp(text, "cpu") == 0;
    bool is_cuda = strncmp(text, "cuda", 4) == 0 && (text[4] == '\0' || text[4] == ':');
    const bool is_bad_index =
        is_cuda && text[4] == ':' &&
        (sl_units_parse_count(text + 5, &index) != SL_OK || index > INDEX_MAX);
    explain_device(text, why);
    if ((!is_cpu && !is_cuda) || is_bad_index)
        SL_FAIL(SL_ERROR_USAGE, "--device: \"%s\" is%s", text, why + strlen(":"));
    *out_kind = is_cpu ? SL_DEVICE_CPU : SL_DEVICE_CUDA;
    *out_index = (int)index;
    return SL_OK;
}

/* The first GPU, of ranks each its own, if it opens; `doctor` says why one does not. */
static const char *choose_device(const sl_config *config)
{
    sl_device_info info;
    const int index = (int)config->local_rank;
    return sl_device_query(SL_DEVICE_CUDA, index, &info) == SL_OK ? "cuda:0" : "cpu";
}

sl_status sl_config_use_one_spelling(sl_config *config)
{
    sl_device_kind kind;
    int index;
    char name[DEVICE_BYTES];
    if (config->policy >= SL_CONFIG_POLICY_COUNT) /* other names stand behind these */
        config->policy -= SL_CONFIG_POLICY_COUNT;
    if (!config->device || strcmp(config->device, "auto") == 0)
        return SL_OK;
    SL_TRY(sl_config_parse_device(config->device, &kind, &index));
    snprintf(name, sizeof name, "cuda:%d", index);
    return sl_config_resolve(config, SL_CONFIG_ROW_device, kind == SL_DEVICE_CPU ? "cpu" : name);
}

/* Also the compute type that it has by default. Opens a GPU to see whether it does, only for
 * "auto". */
static sl_status resolve_device(sl_config *config)
{
    if (!config->device || strcmp(config->device, "auto") == 0)
        SL_TRY(sl_config_resolve(config, SL_CONFIG_ROW_device, choose_device(config)));
    SL_TRY(sl_config_use_one_spelling(config));
    if (config->precision == SL_CONFIG_PRECISION_AUTO)
        config->precision = strcmp(config->device, "cpu") == 0 ? SL_CONFIG_FP32 : SL_CONFIG_BF16;
    return SL_OK;
}

sl_cuda_options sl_config_cuda(const sl_config *config)
{
    return (sl_cuda_options){.own_products = config->cuda_products == SL_CONFIG_OWN,
                             .no_epilogue = config->cuda_epilogue == SL_CONFIG_OFF,
                             .no_wait_value = config->cuda_wait_value == SL_CONFIG_OFF};
}

sl_status sl_config_query_device(const sl_config *config, sl_device_info *out_info)
{
    sl_device_kind kind;
    int index;
    SL_TRY(sl_config_parse_device(config->device, &kind, &index));
    index += kind == SL_DEVICE_CUDA ? (int)config->local_rank : 0;
    sl_status status = sl_device_query(kind, index, out_info);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--device %s", config->device);
}

/* ---- 3: what options mean together ---- */

bool sl_config_names_tokenizer(const sl_config *config)
{
    return config->tokenizer && strcmp(config->tokenizer, "auto") != 0;
}

/* A plan can be made for a device of another machine; everything else queries it first. */
static sl_status check_device(sl_config *config, sl_config_command command)
{
    sl_device_info info;
    SL_TRY(resolve_device(config));
    return command == SL_CONFIG_PLAN ? SL_OK : sl_config_query_device(config, &info);
}

static sl_status check_placement(sl_config *config)
{
    if (config->compare.count == 0) /* else of each row */
        SL_TRY(sl_shares_check(config));
    const bool needs_states = config->adam == SL_UPDATE_HOST || config->adam == SL_UPDATE_SHARED;
    if (needs_states && config->policy == SL_POLICY_DEVICE)
        SL_FAIL(SL_ERROR_USAGE, "--adam %s needs states on the host: use --policy host or static",
                config->adam == SL_UPDATE_HOST ? "host" : "shared");
    if (config->offload_updates > 0 && config->adam != SL_UPDATE_SHARED)
        SL_FAIL(SL_ERROR_USAGE, "--offload-updates is for --adam shared: add it");
    if (config->disk_dir.count)
        return SL_OK;
    if (config->policy == SL_POLICY_NVME)
        SL_FAIL(SL_ERROR_USAGE, "--policy nvme needs a place on disk: add --disk-dir DIR");
    if (config->disk_space != SL_CONFIG_UNSET && config->disk_space > 0)
        SL_FAIL(SL_ERROR_USAGE, "--disk-space needs a place on disk: add --disk-dir DIR");
    config->disk_space = 0;
    return SL_OK;
}

bool sl_config_scales_dynamically(const sl_config *config)
{
    return strcmp(config->loss_scale, "dynamic") == 0;
}

static sl_status check_saving(const sl_config *config)
{
    if (config->resume && config->overwrite)
        SL_FAIL(SL_ERROR_USAGE, "--resume goes on from the checkpoints that --overwrite removes: "
                                "give one of them");
    if (config->save)
        return SL_OK;
    if (config->overwrite)
        SL_FAIL(SL_ERROR_USAGE, "--overwrite needs --save DIR");
    if (config->resume)
        SL_FAIL(SL_ERROR_USAGE, "--resume needs --save DIR: the directory to go on from");
    if (config->save_every)
        SL_FAIL(SL_ERROR_USAGE, "--save-every needs --save DIR");
    if (config->save_minutes > 0)
        SL_FAIL(SL_ERROR_USAGE, "--save-minutes needs --save DIR");
    if (config->keep)
        SL_FAIL(SL_ERROR_USAGE, "--keep needs --save DIR");
    if (config->keep_best)
        SL_FAIL(SL_ERROR_USAGE, "--keep-best needs --save DIR");
    return SL_OK;
}

static sl_status check_evaluation(const sl_config *config)
{
    double of_data[SL_CONFIG_SHARES];
    SL_TRY(sl_config_split(config, of_data));
    bool has_share = of_data[SL_CONFIG_VALIDATION_SHARE] > 0;
    bool has_any = has_share || config->eval_data.count > 0 || config->has_own_eval_rows;
    if (has_share && config->has_own_eval_rows)
        SL_FAIL(SL_ERROR_USAGE, "the program gives the rows to evaluate on: make the validation "
                                "share of --split 0");
    if (has_share && config->eval_data.count > 0)
        SL_FAIL(SL_ERROR_USAGE, "--eval-data and a validation share of --split are one too many: "
                                "leave --eval-data out, or make the share 0");
    if (config->eval_every && !has_any)
        SL_FAIL(SL_ERROR_USAGE, "--eval-every needs --eval-data, or a validation share of --split");
    if (config->keep_best && !has_any)
        SL_FAIL(SL_ERROR_USAGE, "--keep-best needs --eval-data, or a validation share of --split");
    if (config->patience && !config->eval_every)
        SL_FAIL(SL_ERROR_USAGE, "--patience counts the evaluations of --eval-every N: add it");
    if (config->eval_iters != SL_CONFIG_UNSET && !has_any && of_data[SL_CONFIG_TEST_SHARE] == 0)
        SL_FAIL(SL_ERROR_USAGE, "--eval-iters needs --eval-data, or a share of --split");
    return SL_OK;
}

/* Of plan: answers that would stand in each other's way. */
static sl_status check_answers(const sl_config *config)
{
    if (config->compare.count > 0 && (config->report || config->explain || config->write_config))
        SL_FAIL(SL_ERROR_USAGE, "--compare prints a table alone: leave --report, --explain and "
                                "--write-config out");
    if (config->json && config->explain)
        SL_FAIL(SL_ERROR_USAGE, "--explain is for people: leave --json out");
    return SL_OK;
}

static sl_status check_own_rows(const sl_config *config)
{
    if (config->has_own_rows && (config->data.count > 0 || config->split))
        SL_FAIL(SL_ERROR_USAGE, "the program gives the rows to train on: leave --data and --split "
                                "out");
    if (config->has_own_eval_rows && config->eval_data.count > 0)
        SL_FAIL(SL_ERROR_USAGE, "the program gives the rows to evaluate on: leave --eval-data out");
    return SL_OK;
}

static sl_status check_training(sl_config *config, sl_config_command command)
{
    if (command == SL_CONFIG_PLAN)
        SL_TRY(check_answers(config));
    SL_TRY(sl_stages_check(config));
    SL_TRY(sl_optimizer_check_loss_scale(config));
    SL_TRY(sl_update_rules_check_options(config));
    SL_TRY(sl_update_rules_check_frozen_type(config, SL_CONFIG_ROW_frozen_type));
    SL_TRY(sl_update_rules_check_master_type(config));
    SL_TRY(check_saving(config));
    SL_TRY(check_own_rows(config));
    SL_TRY(sl_fine_tuning_check(config));
    SL_TRY(sl_run_length_check(config));
    if (command == SL_CONFIG_TRAIN && config->data.count == 0 && !config->has_own_rows)
        SL_FAIL(SL_ERROR_USAGE, "--data is missing: give the text or token files to train on");
    SL_TRY(sl_data_shares_check(config, command));
    SL_TRY(check_evaluation(config));
    return sl_run_length_is_open(config) ? SL_OK : sl_optimizer_check_schedule(config);
}

static sl_status check_split_share(const sl_config *config)
{
    static const char *const names[] = {"training", "validation", "test"};
    double of_data[SL_CONFIG_SHARES];
    SL_TRY(sl_config_split(config, of_data));
    if (config->split && of_data[config->share] == 0)
        SL_FAIL(SL_ERROR_USAGE, "--split %s leaves nothing for --share %s: name another share",
                config->split, names[config->share]);
    return SL_OK;
}

static sl_status check_evaluating(sl_config *config)
{
    if (config->data.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "--data is missing: give the files to evaluate on");
    if (sl_config_has_examples(config) && (config->overlap > 0 || config->last_word))
        SL_FAIL(SL_ERROR_USAGE, "examples are evaluated in rows of whole ones: leave out --overlap "
                                "and --last-word");
    SL_TRY(sl_fine_tuning_check(config));
    if (config->documents == SL_CONFIG_RESET && (config->overlap > 0 || config->last_word))
        SL_FAIL(SL_ERROR_USAGE, "--documents reset is for rows of several documents: leave out "
                                "--overlap and --last-word");
    if (config->overlap > 0 && config->last_word)
        SL_FAIL(SL_ERROR_USAGE, "--last-word reads documents, and --overlap windows of all data: "
                                "give one of them");
    if (config->split && config->last_word)
        SL_FAIL(SL_ERROR_USAGE, "--last-word reads every document: leave --split out");
    return check_split_share(config);
}

static sl_status check_prompt(const sl_config *config)
{
    bool is_input = config->prompt && strcmp(config->prompt, "-") == 0;
    if (config->prompt && config->prompt_file)
        SL_FAIL(SL_ERROR_USAGE, "--prompt and --prompt-file both say what to continue: give one");
    if (config->interactive && is_input)
        SL_FAIL(SL_ERROR_USAGE, "--interactive reads its prompts from standard input: leave out "
                                "--prompt -");
    if (config->interactive && config->samples > 1)
        SL_FAIL(SL_ERROR_USAGE, "--interactive shows one sample: leave out --samples");
    for (uint32_t i = 0; i < config->stop.count; i++)
        if (!*config->stop.items[i])
            SL_FAIL(SL_ERROR_USAGE, "--stop: an empty text is everywhere: give one with a letter");
    return SL_OK;
}

static sl_status check_reading(sl_config *config, sl_config_command command)
{
    if (!config->checkpoint)
        SL_FAIL(SL_ERROR_USAGE, "--checkpoint is missing: give a directory that train saved, or a "
                                "Hugging Face directory");
    SL_TRY(sl_update_rules_check_frozen_type(config, SL_CONFIG_ROW_weights));
    if (command == SL_CONFIG_EVAL)
        SL_TRY(check_evaluating(config));
    else
        SL_TRY(check_prompt(config));
    return sl_data_shares_check(config, command);
}

static sl_status check_tokenizing(const sl_config *config)
{
    bool is_byte = config->tokenizer && strcmp(config->tokenizer, "byte") == 0;
    if (config->data.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "--data is missing: give the files to %s",
                config->decode ? "decode" : "tokenize");
    if (!sl_config_names_tokenizer(config))
        SL_FAIL(SL_ERROR_USAGE, "--tokenizer is missing: give a directory with vocab.json and "
                                "merges.txt or tokenizer.json, or with --learn N one to be made");
    if (config->learn > 0 && (is_byte || config->decode))
        SL_FAIL(SL_ERROR_USAGE, "--learn puts a new vocabulary into --tokenizer DIR: %s",
                is_byte ? "byte is no directory" : "it does not go with --decode");
    if (config->learn > 0 && config->learn < 257)
        SL_FAIL(SL_ERROR_USAGE, "--learn %llu: 256 bytes and end of text are 257 tokens already",
                (unsigned long long)config->learn);
    if (!config->output && !config->decode && config->learn == 0)
        SL_FAIL(SL_ERROR_USAGE, "--output is missing: name the file of tokens");
    return SL_OK;
}

/* Without --format, an ending of --to that belongs to one format chooses that format. */
static sl_status choose_format(sl_config *config)
{
    static const struct {
        const char *ending, *format;
    } endings[] = {{".gguf", "gguf"}, {".safetensors", "weights"}};
    const bool is_open = config->to && !config->given[SL_CONFIG_ROW_convert_format];
    for (size_t i = 0; is_open && i < sizeof endings / sizeof *endings; i++) {
        if (!sl_files_name_ends(config->to, endings[i].ending))
            continue;
        sl_log_write(SL_LOG_NOTE, "--to ends in %s: the model is written as by --format %s",
                     endings[i].ending, endings[i].format);
        return sl_config_resolve(config, SL_CONFIG_ROW_convert_format, endings[i].format);
    }
    return SL_OK;
}

static sl_status check_converting(sl_config *config)
{
    static const uint64_t default_shard_bytes = 5000000000; /* as a printed configuration has it */
    enum { HF = 0, MEGATRON = 4, PEFT = 5, CHECKPOINT = 6 };
    SL_TRY(choose_format(config));
    bool makes_directory = config->convert_format == HF || config->convert_format == MEGATRON ||
                           config->convert_format == PEFT || config->convert_format == CHECKPOINT;
    const char *what = makes_directory ? "directory" : "file";
    if (!config->from)
        SL_FAIL(SL_ERROR_USAGE, "--from is missing: give a directory that train saved, a Hugging "
                                "Face directory, pieces of Megatron, torch or DeepSpeed, or a "
                                "model of llm.c");
    if (!config->to)
        SL_FAIL(SL_ERROR_USAGE, "--to is missing: name the %s that is made", what);
    if (strcmp(config->to, "-") == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--to -: a model is no text for standard output: name the %s that "
                "is made (./- where it shall be called so)",
                what);
    if (config->merge && config->convert_format == PEFT)
        SL_FAIL(SL_ERROR_USAGE, "--format peft writes the adapters alone: leave --merge out");
    if (config->tp == SL_CONFIG_UNSET || config->pp == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE, "--%s auto: pieces are made for a number of ranks: give it",
                config->tp == SL_CONFIG_UNSET ? "tp" : "pp");
    if (config->convert_format != MEGATRON && (config->tp > 1 || config->pp > 1))
        SL_FAIL(SL_ERROR_USAGE, "--%s is for --format megatron: the others are not divided",
                config->tp > 1 ? "tp" : "pp");
    if (config->convert_format != HF && config->shard_size != default_shard_bytes)
        SL_FAIL(SL_ERROR_USAGE, "--shard-size is for --format hf: the others are not in shards");
    return SL_OK;
}

static sl_status check_reporting(const sl_config *config)
{
    if (config->runs.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "report draws logs of --log-json: name at least one, as in "
                                "sluice report run.jsonl --output run.html");
    if (!config->output)
        SL_FAIL(SL_ERROR_USAGE, "--output: name the page, such as run.html");
    return SL_OK;
}

sl_status sl_config_check(sl_config *config, sl_config_command command)
{
    if (config->threads == SL_CONFIG_UNSET)
        config->threads = sl_workers_usable_cpu_count();
    if (command & SL_CONFIG_DOCTOR)
        return SL_OK;
    if (command & SL_CONFIG_TOKENIZE)
        return check_tokenizing(config);
    if (command & SL_CONFIG_CONVERT)
        return check_converting(config);
    if (command & SL_CONFIG_REPORT)
        return check_reporting(config);
    if (command & SL_CONFIG_BENCH)
        return resolve_device(config);
    SL_TRY(sl_config_use_one_spelling(config));
    SL_TRY(check_placement(config));
    SL_TRY(check_device(config, command));
    if (command & (SL_CONFIG_TRAIN | SL_CONFIG_PLAN | SL_CONFIG_PROFILE))
        return check_training(config, command);
    return check_reading(config, command);
}
