/* sluice init: a recipe becomes the configuration of a run on this machine.
 *
 * What the recipe leaves to the machine is found by planning: the rows of a micro-batch, whether a
 * disk tier is needed, and, where a step would take very long, fewer rows of a step. Nothing is
 * measured and nothing large is allocated. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/plural.h"
#include "command.h"
#include "config/config_copy.h"
#include "config/config_json.h"
#include "config/fine_tuning.h"
#include "files/output_file.h"
#include "foreign/deepspeed/config_file.h"
#include "recipe.h"
#include "search/search.h"
#include "terminal.h"
#include "train/plan_account.h"
#include "train/preparation.h"

enum {
    STEP_SECONDS_MOST = 60, /* a step that would take longer gets fewer rows */
    ROWS_LEAST = 8,         /* of a step */
    MICRO_BATCH_MOST = 64,
    PATH_BYTES = 256,
    CHOICE_BYTES = 512,
    NOTE_BYTES = 2048,
    SUMMARY_BYTES = 128,
    NAME_COLUMNS = 20
};

static const double DAY_SECONDS = 86400;
static const double WORTH = 0.98; /* more rows of a micro-batch take memory: they must save 2 % */

static const sl_output_file_kind configuration_kind = {"--output", "configuration", "{", true};

/* Text that a Linux machine has, the first that is there. */
static const char *const text_directories[] = {"/usr/share/doc", "/usr/share/common-licenses",
                                               "/usr/include"};

/* What a recipe came to on this machine. */
typedef struct fitted {
    uint64_t micro_batch, global_batch, seq;
    uint64_t asked_batch; /* rows of a step before they were made fewer */
    double seconds;       /* of a step, predicted */
    uint64_t peak_bytes[SL_TIER_COUNT];
    char choice[CHOICE_BYTES], size[SUMMARY_BYTES], basis[SUMMARY_BYTES];
} fitted;

static void list_recipes(void)
{
    char summary[SUMMARY_BYTES];
    const sl_recipe *recipe;
    puts("Recipes, for --recipe NAME:");
    for (uint32_t i = 0; (recipe = sl_recipe_at(i)); i++) {
        sl_recipe_summarise(recipe, summary, sizeof summary);
        sl_terminal_print(stdout, NAME_COLUMNS + 3, "  %-*s %s", NAME_COLUMNS, recipe->name,
                          summary);
    }
}

/* ---- the options: the recipe's, over them those of the command line */

/* Options of `init` itself. */
static void drop_own(json_t *given)
{
    static const uint32_t own[] = {SL_CONFIG_ROW_recipe, SL_CONFIG_ROW_output,
                                   SL_CONFIG_ROW_overwrite};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        json_object_del(given, sl_config_rows()[own[i]].name);
}

/* Names as recipes spell them, with "-". */
static sl_status format_given(const sl_config *config, json_t **out_given)
{
    json_t *object = NULL, *given = json_object();
    const char *key;
    json_t *value;
    sl_status status = given ? sl_config_format_given(config, SL_CONFIG_INIT, &object)
                             : sl_status_fail(SL_ERROR_SYSTEM, "no memory for the options");
    json_object_foreach(object, key, value)
    {
        uint32_t row;
        if (status == SL_OK)
            status = sl_config_find(SL_CONFIG_INIT, key, &row);
        if (status == SL_OK && json_object_set(given, sl_config_rows()[row].name, value) != 0)
            status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the options");
    }
    json_decref(object);
    drop_own(given);
    if (status != SL_OK) {
        json_decref(given);
        return status;
    }
    *out_given = given;
    return SL_OK;
}

/* An option whose value in the recipe is "?" must be given. An empty list of data is filled with
 * text of this machine. */
static sl_status check_needed(const sl_recipe *recipe, const sl_config *config)
{
    if (config->init && strcmp(config->init, "?") == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "recipe %s needs weights: --init DIR, a directory as transformers saves it",
                recipe->name);
    if (config->data.count == 1 && strcmp(config->data.items[0], "?") == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "recipe %s needs examples: --data FILE of JSON lines, with \"%s\" and \"%s\" in "
                "each (--prompt-key and --response-key name others)",
                recipe->name, config->prompt_key, config->response_key);
    return SL_OK;
}

static bool is_given(const json_t *values, uint32_t row)
{
    return json_object_get(values, sl_config_rows()[row].name) != NULL;
}

static sl_status set_value(json_t *values, uint32_t row, json_t *value)
{
    if (json_object_set_new(values, sl_config_rows()[row].name, value) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the options");
    return SL_OK;
}

static sl_status find_text(const sl_recipe *recipe, sl_config *config, json_t *values)
{
    for (size_t i = 0; i < sizeof text_directories / sizeof text_directories[0]; i++) {
        if (access(text_directories[i], R_OK | X_OK) != 0)
            continue;
        SL_TRY(sl_config_append(config, SL_CONFIG_ROW_data, text_directories[i]));
        return set_value(values, SL_CONFIG_ROW_data, json_pack("[s]", text_directories[i]));
    }
    SL_FAIL(SL_ERROR_USAGE, "recipe %s needs text: --data PATH...", recipe->name);
}

static bool is_regular(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Documents are split, and a file may be one alone: then all of it is trained on. */
static sl_status keep_one_whole(const sl_config *config, json_t *values)
{
    double weight;
    const bool has_split = config->split && *config->split;
    const bool is_one = config->data.count == 1 && config->document_per == SL_CONFIG_PER_FILE &&
                        is_regular(sl_config_weigh(config->data.items[0], &weight));
    if (!has_split || !is_one || is_given(values, SL_CONFIG_ROW_split))
        return SL_OK;
    SL_TRY(set_value(values, SL_CONFIG_ROW_eval_every, json_integer(0)));
    SL_TRY(set_value(values, SL_CONFIG_ROW_eval_iters, json_string("auto")));
    return set_value(values, SL_CONFIG_ROW_split, json_string("100,0,0"));
}

/* Fills in the recipe's options and, over them, `values`. */
static sl_status merge(const sl_recipe *recipe, json_t *values, sl_config *config)
{
    sl_config others;
    SL_TRY(sl_config_text_load(config, SL_CONFIG_TRAIN, recipe->name, recipe->text, recipe->bytes));
    SL_TRY(sl_config_init(&others));
    sl_status status = sl_config_read(config, &others, SL_CONFIG_TRAIN, values);
    sl_config_clear(&others);
    if (status == SL_OK)
        status = check_needed(recipe, config);
    if (status == SL_OK && config->data.count == 0)
        status = find_text(recipe, config, values);
    return status == SL_OK ? keep_one_whole(config, values) : status;
}

/* ---- planning */

/* The plan of a step needs neither text nor checkpoints: text may take hours to become ids. */
static sl_status leave_files_out(sl_config *config)
{
    static const uint32_t rows[] = {
        SL_CONFIG_ROW_data,         SL_CONFIG_ROW_prompt_key,    SL_CONFIG_ROW_response_key,
        SL_CONFIG_ROW_messages_key, SL_CONFIG_ROW_template_file, SL_CONFIG_ROW_split,
        SL_CONFIG_ROW_eval_data,    SL_CONFIG_ROW_epochs,        SL_CONFIG_ROW_train_tokens,
        SL_CONFIG_ROW_loss,         SL_CONFIG_ROW_pack,          SL_CONFIG_ROW_save,
        SL_CONFIG_ROW_resume,       SL_CONFIG_ROW_log_json,      SL_CONFIG_ROW_log_csv,
        SL_CONFIG_ROW_tensorboard,  SL_CONFIG_ROW_timeline,      SL_CONFIG_ROW_report,
        SL_CONFIG_ROW_save_every,   SL_CONFIG_ROW_eval_every,    SL_CONFIG_ROW_eval_iters,
        SL_CONFIG_ROW_keep,         SL_CONFIG_ROW_keep_best,     SL_CONFIG_ROW_patience,
        SL_CONFIG_ROW_save_minutes};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        SL_TRY(sl_config_set_default(config, rows[i]));
        config->given[rows[i]] = false;
    }
    return SL_OK;
}

static void describe(const sl_blueprint *blueprint, fitted *out)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        out->peak_bytes[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
    sl_command_describe_choice(&blueprint->choice, out->choice, sizeof out->choice);
    sl_command_describe_size(blueprint, out->size, sizeof out->size);
    snprintf(out->basis, sizeof out->basis, "%s", sl_machine_basis(&blueprint->machine));
}

/* Plans one size of micro-batch; keeps it in *best where it is worth it. SL_ERROR_FIT: it does not
 * fit. */
static sl_status try_micro_batch(const sl_trainer *trainer, uint64_t micro_batch,
                                 uint64_t global_batch, fitted *best)
{
    sl_config config = *trainer->config; /* a copy that owns nothing */
    sl_trainer changed;
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    sl_simulation simulation;
    config.micro_batch = micro_batch;
    config.global_batch = global_batch;
    SL_TRY(sl_preparation_vary(trainer, &config, &changed));
    SL_TRY(sl_search_find(&changed.search, &blueprint, &refusal));
    sl_status status = sl_plan_simulate(blueprint->programs[0], blueprint->plans[0],
                                        &blueprint->machine, &simulation);
    if (status == SL_OK && simulation.step_seconds < WORTH * best->seconds) {
        *best = (fitted){.micro_batch = micro_batch,
                         .global_batch = global_batch,
                         .seq = blueprint->task.seq,
                         .seconds = simulation.step_seconds};
        describe(blueprint, best);
    }
    sl_blueprint_close(blueprint);
    return status;
}

/* The first of the powers of two that divide the rows of a step whose double is not worth it. The
 * smallest must fit. */
static sl_status choose_micro_batch(const sl_trainer *trainer, const json_t *values,
                                    uint64_t global_batch, fitted *best)
{
    *best = (fitted){.seconds = DBL_MAX};
    if (is_given(values, SL_CONFIG_ROW_micro_batch))
        return try_micro_batch(trainer, trainer->config->micro_batch, global_batch, best);
    for (uint64_t rows = 1; rows <= MICRO_BATCH_MOST && global_batch % rows == 0; rows *= 2) {
        const sl_status status = try_micro_batch(trainer, rows, global_batch, best);
        if (rows > 1 && (status == SL_ERROR_FIT || best->micro_batch != rows))
            return SL_OK;
        SL_TRY(status);
    }
    return SL_OK;
}

/* As many rows, in halves of the recipe's, as a step of STEP_SECONDS_MOST has; fewer than
 * ROWS_LEAST would train badly. */
static uint64_t shorten(uint64_t global_batch, double seconds)
{
    while (seconds > STEP_SECONDS_MOST && global_batch % 2 == 0 && global_batch > ROWS_LEAST) {
        global_batch /= 2;
        seconds /= 2;
    }
    return global_batch;
}

static sl_status choose_batch(const sl_trainer *trainer, const json_t *values, fitted *best)
{
    const uint64_t rows = trainer->config->global_batch;
    SL_TRY(choose_micro_batch(trainer, values, rows, best));
    const uint64_t fewer =
        is_given(values, SL_CONFIG_ROW_global_batch) ? rows : shorten(rows, best->seconds);
    if (fewer != rows)
        SL_TRY(choose_micro_batch(trainer, values, fewer, best));
    best->asked_batch = rows;
    return SL_OK;
}

static sl_status plan(const sl_config *merged, const json_t *values, bool on_disk, fitted *out)
{
    sl_config config = {0};
    sl_trainer trainer = {0};
    sl_status status = sl_config_copy(merged, &config);
    if (status == SL_OK)
        status = leave_files_out(&config);
    if (status == SL_OK && on_disk)
        status = sl_config_append(&config, SL_CONFIG_ROW_disk_dir, ".");
    if (status == SL_OK && !is_given(values, SL_CONFIG_ROW_micro_batch))
        config.micro_batch = 1;
    if (status == SL_OK)
        status = sl_preparation_run(&config, SL_CONFIG_PLAN, &trainer);
    if (status == SL_OK)
        status = choose_batch(&trainer, values, out);
    (void)sl_trainer_close(&trainer);
    sl_config_clear(&config);
    return status;
}

/* ---- what is written */

/* Rounded to two digits, as people write learning rates. */
static double round_rate(double rate)
{
    char text[32];
    snprintf(text, sizeof text, "%.1e", rate);
    return strtod(text, NULL);
}

/* Of fewer rows the rates go down by the root of their share. */
static sl_status scale_rates(const sl_config *config, double share, json_t *values)
{
    if (!is_given(values, SL_CONFIG_ROW_lr))
        SL_TRY(
            set_value(values, SL_CONFIG_ROW_lr, json_real(round_rate(config->lr * sqrt(share)))));
    if (!is_given(values, SL_CONFIG_ROW_min_lr) && isfinite(config->min_lr))
        SL_TRY(set_value(values, SL_CONFIG_ROW_min_lr,
                         json_real(round_rate(config->min_lr * sqrt(share)))));
    return SL_OK;
}

/* --eval-iters counts micro-batches: an evaluation has as many rows as the recipe's. */
static sl_status keep_eval_rows(const sl_config *config, const fitted *found, json_t *values)
{
    if (config->eval_iters == SL_CONFIG_UNSET || is_given(values, SL_CONFIG_ROW_eval_iters) ||
        is_given(values, SL_CONFIG_ROW_micro_batch))
        return SL_OK;
    uint64_t rows;
    SL_TRY(sl_bits_multiply(config->eval_iters, config->micro_batch, "the rows of an evaluation",
                            &rows));
    const uint64_t iters = sl_bits_divide_up(rows, found->micro_batch);
    return set_value(values, SL_CONFIG_ROW_eval_iters, json_integer((json_int_t)iters));
}

static sl_status add_found(const sl_config *config, const fitted *found, bool on_disk,
                           json_t *values)
{
    SL_TRY(keep_eval_rows(config, found, values));
    SL_TRY(
        set_value(values, SL_CONFIG_ROW_micro_batch, json_integer((json_int_t)found->micro_batch)));
    if (on_disk)
        SL_TRY(set_value(values, SL_CONFIG_ROW_disk_dir, json_pack("[s]", ".")));
    if (found->global_batch == found->asked_batch)
        return SL_OK;
    SL_TRY(set_value(values, SL_CONFIG_ROW_global_batch,
                     json_integer((json_int_t)found->global_batch)));
    return scale_rates(config, (double)found->global_batch / (double)found->asked_batch, values);
}

static void write_notes(const fitted *found, char out[NOTE_BYTES])
{
    char fewer[NOTE_BYTES / 8] = "";
    if (found->global_batch != found->asked_batch)
        snprintf(fewer, sizeof fewer,
                 "\nThe recipe has %" PRIu64
                 " rows a step: fewer here, so that a step takes about a "
                 "minute,\nand learning rates go down by the root of that.",
                 found->asked_batch);
    snprintf(out, NOTE_BYTES,
             "Here a step takes %.3g s by %s:\n%s;\ndevice %s, host %s, disk %s.%s", found->seconds,
             found->basis, found->choice,
             sl_command_format_size(found->peak_bytes[SL_TIER_DEVICE]).text,
             sl_command_format_size(found->peak_bytes[SL_TIER_HOST]).text,
             sl_command_format_size(found->peak_bytes[SL_TIER_DISK]).text, fewer);
}

/* Where the length is given in steps. */
static void print_length(const sl_config *config, const fitted *found)
{
    const double days = (double)config->steps * found->seconds / DAY_SECONDS;
    if (!sl_run_length_is_open(config))
        sl_terminal_print(stdout, 2, "%" PRIu64 " %s %.1f %s", config->steps,
                          config->steps == 1 ? "step takes" : "steps take",
                          days < 1 ? 24 * days : days, days < 1 ? "hours" : "days");
}

static void print_summary(const sl_config *config, const char *path, const fitted *found)
{
    const double tokens = (double)found->global_batch * (double)found->seq;
    const double a_day = DAY_SECONDS * tokens / found->seconds;
    sl_terminal_print(
        stdout, 2, "%s: %s; %" PRIu64 " row%s of %" PRIu64 " tokens a step, %" PRIu64 " at a time",
        path, found->size, found->global_batch, sl_plural(found->global_batch), found->seq,
        found->micro_batch);
    sl_terminal_print(stdout, 2, "%s", found->choice);
    sl_terminal_print(stdout, 2, "a step takes %.3g s by %s: %.0f tokens/s, %.*f %s a day",
                      found->seconds, found->basis, tokens / found->seconds, a_day < 1e9 ? 0 : 1,
                      a_day < 1e9 ? 1e-6 * a_day : 1e-9 * a_day,
                      a_day < 1e9 ? "million" : "billion");
    print_length(config, found);
    sl_terminal_print(stdout, 2, "now: sluice train --config %s", path);
}

/* Without --overwrite nothing is replaced: a configuration is what people change. */
static sl_status check_output(const sl_config *config, const char *path)
{
    if (!config->overwrite && access(path, F_OK) == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s is there: --output FILE names another, --overwrite replaces it",
                path);
    return sl_output_file_check(&configuration_kind, path);
}

static sl_status write_configuration(const sl_recipe *recipe, const sl_config *config,
                                     const fitted *found, const json_t *values, const char *path)
{
    char notes[NOTE_BYTES], *text = NULL;
    write_notes(found, notes);
    SL_TRY(sl_recipe_fill(recipe, values, notes, &text));
    const sl_status status = sl_output_file_write_text(&configuration_kind, path, text);
    free(text);
    SL_TRY(status);
    print_summary(config, path, found);
    return SL_OK;
}

/* Without a disk tier first; what does not fit so gets one in the present directory. */
static sl_status fit(const sl_config *merged, json_t *values, fitted *out)
{
    bool on_disk = false;
    sl_status status = plan(merged, values, false, out);
    if (status == SL_ERROR_FIT && merged->disk_dir.count == 0) {
        on_disk = true;
        status = plan(merged, values, true, out);
    }
    return status == SL_OK ? add_found(merged, out, on_disk, values) : status;
}

static sl_status make(const sl_config *config)
{
    char path[PATH_BYTES];
    const sl_recipe *recipe;
    json_t *values = NULL;
    sl_config merged = {0};
    fitted found;
    SL_TRY(sl_recipe_find(config->recipe, &recipe));
    snprintf(path, sizeof path, "%s.json", recipe->name);
    const char *output = config->output ? config->output : path;
    SL_TRY(check_output(config, output));
    SL_TRY(format_given(config, &values));
    sl_status status = sl_config_init(&merged);
    if (status == SL_OK)
        status = merge(recipe, values, &merged);
    if (status == SL_OK)
        status = fit(&merged, values, &found);
    if (status == SL_OK)
        status = write_configuration(recipe, &merged, &found, values, output);
    sl_config_clear(&merged);
    json_decref(values);
    return status;
}

static int run_init(sl_config *config)
{
    if (!config->recipe || !*config->recipe) {
        list_recipes();
        return 0;
    }
    return sl_command_end(make(config));
}

const sl_command_entry sl_command_init = {
    .options = SL_CONFIG_INIT,
    .task = SL_COMMAND_TRAIN,
    .name = "init",
    .summary = "a commented configuration for this machine, from a recipe",
    .doc = "Writes the configuration of a run, with comments, from a recipe: for this machine, "
           "whose memory and speed decide how many rows are computed at once, whether states go "
           "to disk, and how many rows a step has. Options that train takes may stand beside "
           "--recipe and go into the file. Without --recipe, lists them.",
    .page = "docs/recipes.md",
    .checks_options = true,
    .run = run_init};
