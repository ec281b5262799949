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
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/plural.h"
#include "busy_line.h"
#include "checkpoint/model_directory.h"
#include "command.h"
#include "config/config_copy.h"
#include "config/config_json.h"
#include "config/fine_tuning.h"
#include "files/output_file.h"
#include "foreign/deepspeed/config_file.h"
#include "recipe.h"
#include "recipe_data.h"
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
    sl_choice found;
    double seconds;      /* of a step, predicted */
    double eval_seconds; /* likewise, of a micro-batch of an evaluation; 0: the run has none */
    uint64_t eval_iters; /* micro-batches of an evaluation; UNSET: as many as there are */
    bool is_guess;       /* this machine was not measured */
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

static sl_status refuse_without_evaluation(const sl_config *config, const json_t *values)
{
    static const uint32_t need[] = {SL_CONFIG_ROW_eval_every, SL_CONFIG_ROW_patience,
                                    SL_CONFIG_ROW_keep_best};
    for (size_t i = 0; i < sizeof need / sizeof need[0]; i++)
        if (is_given(values, need[i]))
            SL_FAIL(SL_ERROR_USAGE,
                    "--%s needs an evaluation, and --data has too few documents for --split %s: "
                    "add --eval-data FILE",
                    sl_config_rows()[need[i]].name, config->split);
    return SL_OK;
}

/* Trains on all documents where they are too few for the recipe's shares, or where there is
 * --eval-data. */
static sl_status keep_few_whole(sl_config *config, json_t *values)
{
    bool has_shares = true;
    const bool has_split = config->split && *config->split;
    if (!has_split || is_given(values, SL_CONFIG_ROW_split))
        return SL_OK;
    if (config->eval_data.count > 0)
        return set_value(values, SL_CONFIG_ROW_split, json_string("100,0,0"));
    SL_TRY(sl_recipe_data_has_shares(config, &has_shares));
    if (has_shares)
        return SL_OK;
    SL_TRY(refuse_without_evaluation(config, values));
    sl_log_write(SL_LOG_NOTE,
                 "no validation: --data has too few documents (files) for --split %s; "
                 "--eval-data FILE gives other text, --document-per line makes lines documents",
                 config->split);
    SL_TRY(sl_config_resolve(config, SL_CONFIG_ROW_eval_every, "0"));
    SL_TRY(set_value(values, SL_CONFIG_ROW_eval_every, json_integer(0)));
    SL_TRY(set_value(values, SL_CONFIG_ROW_eval_iters, json_string("auto")));
    return set_value(values, SL_CONFIG_ROW_split, json_string("100,0,0"));
}

/* A recipe's rows may be longer than the model of --init reads. */
static sl_status fit_seq(const sl_recipe *recipe, sl_config *config, json_t *values)
{
    const uint32_t heads = config->heads == SL_CONFIG_UNSET ? 0 : (uint32_t)config->heads;
    sl_model_directory source;
    if (!config->init || strcmp(config->init, "scratch") == 0 || config->seq == SL_CONFIG_UNSET ||
        is_given(values, SL_CONFIG_ROW_seq))
        return SL_OK;
    SL_TRY(sl_model_directory_open(config->init, false, heads, &source));
    const uint64_t context = source.shape.context;
    sl_model_directory_close(&source);
    if (context == 0 || config->seq <= context)
        return SL_OK;
    sl_log_write(SL_LOG_NOTE,
                 "rows have %" PRIu64 " tokens, the model's context, in place of the %" PRIu64
                 " of recipe %s",
                 context, config->seq, recipe->name);
    config->seq = context;
    return set_value(values, SL_CONFIG_ROW_seq, json_integer((json_int_t)context));
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
    if (status == SL_OK)
        status = fit_seq(recipe, config, values);
    if (status == SL_OK && config->data.count == 0)
        status = find_text(recipe, config, values);
    return status == SL_OK ? keep_few_whole(config, values) : status;
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
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        SL_TRY(sl_config_unset(config, rows[i]));
    return SL_OK;
}

/* The run that is fitted. */
typedef struct fitting {
    const sl_trainer *trainer; /* prepared; its micro-batch is the smallest that is tried */
    const json_t *values;
    bool evaluates;
} fitting;

/* `*config` is a copy that owns nothing. */
static sl_status vary(const fitting *it, uint64_t micro_batch, uint64_t global_batch,
                      sl_config *config, sl_trainer *out_trainer)
{
    *config = *it->trainer->config;
    config->micro_batch = micro_batch;
    config->global_batch = global_batch;
    SL_TRY(sl_preparation_vary(it->trainer, config, out_trainer));
    out_trainer->search.task.with_evaluation = it->evaluates;
    return SL_OK;
}

static sl_status predict_seconds(const sl_blueprint *blueprint, uint32_t program_index,
                                 double *out_seconds)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[program_index], blueprint->plans[program_index],
                            &blueprint->machine, &simulation));
    *out_seconds = simulation.step_seconds;
    return SL_OK;
}

static sl_status describe(const fitting *it, const sl_blueprint *blueprint, fitted *out)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        out->peak_bytes[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
    sl_command_describe_choice(&blueprint->choice, out->choice, sizeof out->choice);
    sl_command_describe_size(blueprint, out->size, sizeof out->size);
    snprintf(out->basis, sizeof out->basis, "%s", sl_machine_basis(&blueprint->machine));
    out->is_guess = sl_machine_is_guess(&blueprint->machine);
    return it->evaluates ? predict_seconds(blueprint, 1, &out->eval_seconds) : SL_OK;
}

/* The first size is searched for, as train does. A larger one is planned as that search found, with
 * its homes: a search of each size would take most of a minute for a large model. */
static sl_status plan_size(const fitting *it, const sl_trainer *changed, const fitted *best,
                           sl_blueprint **out_blueprint)
{
    const sl_search *search = &changed->search;
    sl_fit_failure failure;
    sl_refusal refusal;
    sl_task task = search->task;
    sl_choice choice = best->found;
    if (best->micro_batch > 0) {
        task.is_probe = true;
        choice.micro_batch = search->fixed.micro_batch;
        choice.accumulate = search->fixed.accumulate;
        return sl_blueprint_build(&task, &choice, out_blueprint, &failure);
    }
    const sl_status status = sl_search_probe(search, out_blueprint, &failure);
    if (status == SL_ERROR_FIT && it->trainer->config->disk_dir.count > 0)
        return sl_search_find(search, out_blueprint, &refusal); /* says what would fit */
    return status;
}

/* Plans one size of micro-batch; keeps it in *best where it is worth it. What its arithmetic alone
 * takes may say already that it is not. SL_ERROR_FIT: it does not fit; of the first size, if a disk
 * tier was tried too, the message says what would. */
static sl_status try_micro_batch(const fitting *it, uint64_t micro_batch, uint64_t global_batch,
                                 fitted *best)
{
    sl_config config;
    sl_trainer changed;
    sl_blueprint *blueprint = NULL;
    double bound, seconds = 0;
    SL_TRY(vary(it, micro_batch, global_batch, &config, &changed));
    SL_TRY(sl_blueprint_bound_seconds(&changed.search.task, &changed.search.fixed, &bound));
    if (bound >= WORTH * best->seconds)
        return SL_OK;
    SL_TRY(plan_size(it, &changed, best, &blueprint));
    sl_status status = predict_seconds(blueprint, 0, &seconds);
    if (status == SL_OK && seconds < WORTH * best->seconds) {
        *best = (fitted){.micro_batch = micro_batch,
                         .global_batch = global_batch,
                         .seq = blueprint->task.seq,
                         .found = blueprint->choice,
                         .seconds = seconds};
        status = describe(it, blueprint, best);
    }
    sl_blueprint_close(blueprint);
    return status;
}

/* The first of the powers of two that divide the rows of a step whose double is not worth it. The
 * smallest must fit. */
static sl_status choose_micro_batch(const fitting *it, uint64_t global_batch, fitted *best)
{
    const uint64_t least = it->trainer->config->micro_batch;
    *best = (fitted){.seconds = DBL_MAX};
    SL_TRY(try_micro_batch(it, least, global_batch, best));
    if (is_given(it->values, SL_CONFIG_ROW_micro_batch))
        return SL_OK;
    for (uint64_t rows = 2 * least; rows <= MICRO_BATCH_MOST && global_batch % rows == 0;
         rows *= 2) {
        const sl_status status = try_micro_batch(it, rows, global_batch, best);
        if (status == SL_ERROR_FIT)
            return SL_OK;
        SL_TRY(status);
        if (best->micro_batch != rows)
            return SL_OK;
    }
    return SL_OK;
}

/* As many rows, in halves of the recipe's, as a step of STEP_SECONDS_MOST has; fewer than
 * ROWS_LEAST would train badly. */
static uint64_t shorten(uint64_t rows, uint64_t micro_batch, double seconds)
{
    while (seconds > STEP_SECONDS_MOST && rows % (2 * micro_batch) == 0 && rows > ROWS_LEAST) {
        rows /= 2;
        seconds /= 2;
    }
    return rows;
}

/* How many rows: first by what arithmetic alone takes, for which nothing is planned, then by a
 * plan.
 */
static sl_status choose_batch(const fitting *it, fitted *best)
{
    const sl_config *config = it->trainer->config;
    const uint64_t asked = config->global_batch;
    const sl_search *search = &it->trainer->search;
    const bool is_open = !is_given(it->values, SL_CONFIG_ROW_global_batch);
    double seconds;
    SL_TRY(sl_blueprint_bound_seconds(&search->task, &search->fixed, &seconds));
    const uint64_t rows = is_open ? shorten(asked, config->micro_batch, seconds) : asked;
    SL_TRY(choose_micro_batch(it, rows, best));
    const uint64_t fewer = is_open ? shorten(rows, config->micro_batch, best->seconds) : rows;
    if (fewer != rows)
        SL_TRY(choose_micro_batch(it, fewer, best));
    best->asked_batch = asked;
    return SL_OK;
}

static sl_status plan(const sl_config *merged, const json_t *values, bool on_disk, fitted *out)
{
    sl_config config = {0};
    sl_trainer trainer = {0};
    const fitting it = {&trainer, values, merged->eval_every > 0};
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
        status = choose_batch(&it, out);
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

/* --eval-iters counts micro-batches: an evaluation has as many rows as the recipe's. UNSET: as many
 * as there are. */
static sl_status count_eval_iters(const sl_config *config, const json_t *values, fitted *found)
{
    uint64_t rows;
    found->eval_iters = config->eval_iters;
    if (config->eval_iters == SL_CONFIG_UNSET || is_given(values, SL_CONFIG_ROW_eval_iters) ||
        is_given(values, SL_CONFIG_ROW_micro_batch))
        return SL_OK;
    SL_TRY(sl_bits_multiply(config->eval_iters, config->micro_batch, "the rows of an evaluation",
                            &rows));
    found->eval_iters = sl_bits_divide_up(rows, found->micro_batch);
    return SL_OK;
}

static sl_status add_found(const sl_config *config, const fitted *found, bool on_disk,
                           json_t *values)
{
    if (found->eval_iters != config->eval_iters)
        SL_TRY(set_value(values, SL_CONFIG_ROW_eval_iters,
                         json_integer((json_int_t)found->eval_iters)));
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
                 " rows a step. Here a step has fewer, so that it does not take "
                 "much longer than\na minute, and learning rates go down by the root of that.",
                 found->asked_batch);
    snprintf(out, NOTE_BYTES, "Here a step takes %s by %s:\n%s;\ndevice %s, host %s, disk %s.%s",
             sl_command_format_duration(found->seconds).text, found->basis, found->choice,
             sl_command_format_size(found->peak_bytes[SL_TIER_DEVICE]).text,
             sl_command_format_size(found->peak_bytes[SL_TIER_HOST]).text,
             sl_command_format_size(found->peak_bytes[SL_TIER_DISK]).text, fewer);
}

static void print_evaluations(const sl_config *config, const fitted *found)
{
    const double seconds = (double)found->eval_iters * found->eval_seconds;
    if (found->eval_seconds > 0 && found->eval_iters != SL_CONFIG_UNSET)
        sl_terminal_print(stdout, 2,
                          "an evaluation, of at most %" PRIu64 " rows after every %" PRIu64
                          " step%s, takes %s",
                          found->eval_iters * found->micro_batch, config->eval_every,
                          sl_plural(config->eval_every), sl_command_format_duration(seconds).text);
}

static void print_length(const sl_config *config, const fitted *found, double step_tokens)
{
    const double steps = (double)config->steps;
    if (sl_run_length_is_open(config))
        sl_terminal_print(stdout, 2,
                          "train counts the rows of the data before its first step, and says how "
                          "many steps that is");
    else
        sl_terminal_print(stdout, 2, "%" PRIu64 " step%s of %.0f tokens take%s %s", config->steps,
                          sl_plural(config->steps), step_tokens, config->steps == 1 ? "s" : "",
                          sl_command_format_duration(steps * found->seconds).text);
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
    sl_terminal_print(stdout, 2, "a step takes %s by %s: %.0f tokens/s, %.*f %s a day",
                      sl_command_format_duration(found->seconds).text, found->basis,
                      tokens / found->seconds, a_day < 1e9 ? 0 : 1,
                      a_day < 1e9 ? 1e-6 * a_day : 1e-9 * a_day,
                      a_day < 1e9 ? "million" : "billion");
    print_evaluations(config, found);
    print_length(config, found, tokens);
    if (found->is_guess)
        sl_terminal_print(
            stdout, 2,
            "these times are guesses: sluice bench measures this machine in a minute, "
            "then init --overwrite knows better");
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
    if (status == SL_OK)
        status = count_eval_iters(merged, values, out);
    return status == SL_OK ? add_found(merged, out, on_disk, values) : status;
}

static sl_status make(const sl_config *config)
{
    char path[PATH_BYTES];
    const sl_recipe *recipe;
    json_t *values = NULL;
    sl_config merged = {0};
    sl_busy_line line;
    fitted found;
    SL_TRY(sl_recipe_find(config->recipe, &recipe));
    snprintf(path, sizeof path, "%s.json", recipe->name);
    const char *output = config->output ? config->output : path;
    SL_TRY(check_output(config, output));
    SL_TRY(format_given(config, &values));
    sl_status status = sl_config_init(&merged);
    if (status == SL_OK)
        status = merge(recipe, values, &merged);
    sl_busy_line_begin(&line, config, "planning", NULL);
    if (status == SL_OK)
        status = fit(&merged, values, &found);
    sl_busy_line_end(&line);
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
