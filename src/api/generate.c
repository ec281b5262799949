/* Text of a checkpoint, or of an open session: a generator over a copy of its parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config_list.h"
#include "session.h"
#include "settings.h"
#include "train/generate/generate.h"
#include "train/loading/loading.h"

/* The function that takes the text. */
typedef struct listener {
    sl_text text;
    void *user;
    bool has_failed;
} listener;

static sl_status pass_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    listener *self = user;
    sl_status_guard guard;
    sl_status_guard_begin(&guard);
    const sl_status status = sl_status_guard_end(
        &guard, self->text(self->user, sample, bytes, byte_count), "the function that takes text");
    self->has_failed |= status != SL_OK;
    return status;
}

static void pass_end(void *user, uint32_t sample)
{
    (void)user;
    (void)sample;
}

/* What has no meaning where the prompt is an argument. */
static sl_status refuse(const sl_config *config, const uint32_t *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (config->given[rows[i]])
            SL_FAIL(SL_ERROR_USAGE, "%s is no setting of this call",
                    sl_config_rows()[rows[i]].name);
    return SL_OK;
}

static sl_status run(const sl_generate_args *args)
{
    sl_generator *generator = NULL;
    SL_TRY(sl_generator_open(args, &generator));
    const sl_status status = sl_generator_run(generator);
    sl_generator_close(generator);
    return status;
}

/* ---- of a checkpoint ---- */

sl_status sl_generate(const char *const *settings, const char *prompt, sl_text text, void *user)
{
    static const volatile sig_atomic_t never = 0;
    static const uint32_t of_prompt[] = {SL_CONFIG_ROW_prompt, SL_CONFIG_ROW_prompt_file,
                                         SL_CONFIG_ROW_interactive};
    listener to = {text, user, false};
    sl_ranks ranks = {0};
    sl_config config;
    const sl_generate_args args = {.config = &config,
                                   .ranks = &ranks,
                                   .prompt = prompt ? prompt : "",
                                   .prompt_bytes = prompt ? strlen(prompt) : 0,
                                   .sink = {pass_text, pass_end, &to},
                                   .stop = &never};
    SL_TRY(sl_config_init(&config));
    sl_status status = sl_settings_read(settings, SL_CONFIG_GENERATE, &config);
    if (status == SL_OK)
        status = refuse(&config, of_prompt, sizeof of_prompt / sizeof *of_prompt);
    if (status == SL_OK)
        status = sl_loading_meet_ranks(&config, SL_CONFIG_GENERATE, NULL, &ranks);
    if (status == SL_OK)
        status = run(&args);
    status = sl_loading_leave_ranks(&ranks, status);
    sl_config_clear(&config);
    return status;
}

/* ---- of a session ---- */

static sl_status take_over(uint32_t row, const char *text, sl_config *config)
{
    return config->given[row] ? SL_OK : sl_config_set(config, row, text);
}

/* How the session's ranks share the model. */
static void take_layout(const sl_config *session, sl_config *config)
{
    config->tp = session->tp;
    config->pp = session->pp;
    config->dp = session->dp;
    config->zero = session->zero;
    config->local_rank = session->local_rank;
    config->machine_ranks = session->machine_ranks;
    if (!config->given[SL_CONFIG_ROW_rank_timeout])
        config->rank_timeout = session->rank_timeout;
}

static sl_status settle(const sl_session *session, const char *const *settings, sl_config *config)
{
    const sl_task *task = &session->trainer.runtime->blueprint->task;
    char threads[32];
    snprintf(threads, sizeof threads, "%" PRIu32, task->target.worker_count);
    static const uint32_t of_session[] = {
        SL_CONFIG_ROW_prompt,     SL_CONFIG_ROW_prompt_file, SL_CONFIG_ROW_interactive,
        SL_CONFIG_ROW_checkpoint, SL_CONFIG_ROW_tokenizer,   SL_CONFIG_ROW_tp,
        SL_CONFIG_ROW_pp,         SL_CONFIG_ROW_dp,          SL_CONFIG_ROW_zero};
    SL_TRY(sl_settings_read(settings, SL_CONFIG_GENERATE, config));
    SL_TRY(refuse(config, of_session, sizeof of_session / sizeof *of_session));
    SL_TRY(take_over(SL_CONFIG_ROW_device, session->config.device, config));
    SL_TRY(take_over(SL_CONFIG_ROW_threads, threads, config));
    SL_TRY(take_over(SL_CONFIG_ROW_precision, sl_type_name(task->type), config));
    SL_TRY(sl_config_set(config, SL_CONFIG_ROW_checkpoint, "the session"));
    take_layout(&session->config, config);
    return sl_config_check(config, SL_CONFIG_GENERATE);
}

static sl_status check_model(const sl_session *session)
{
    const sl_trainer *trainer = &session->trainer;
    const sl_config *config = &session->config;
    const bool is_bytes =
        sl_config_names_tokenizer(config) && strcmp(config->tokenizer, "byte") == 0;
    if (trainer->shape.architecture == SL_ARCHITECTURE_OWN)
        SL_FAIL(SL_ERROR_USAGE, "a model of the program's own generates no text");
    if (!trainer->vocabulary && !is_bytes)
        SL_FAIL(SL_ERROR_USAGE, "how text becomes the ids of this model is not known: set the "
                                "option tokenizer");
    return SL_OK;
}

/* The copy's ranks are those of the session, whose lanes are idle meanwhile. */
static sl_status generate(sl_session *session, sl_config *config, const char *prompt, listener *to)
{
    sl_trainer *trainer = &session->trainer;
    const sl_model_directory source = {.open_io = &trainer->runtime->io,
                                       .open_tensors = session->tensors,
                                       .open_ranks = sl_ranks_others(&trainer->ranks.table),
                                       .shape = trainer->shape,
                                       .texts = trainer->texts};
    const sl_generate_args args = {.config = config,
                                   .ranks = &trainer->ranks,
                                   .prompt = prompt,
                                   .prompt_bytes = strlen(prompt),
                                   .source = &source,
                                   .vocabulary = trainer->vocabulary,
                                   .sink = {pass_text, pass_end, to},
                                   .stop = &session->stop};
    sl_ranks_set_work(&trainer->ranks, true);
    const sl_status status = run(&args);
    sl_ranks_set_work(&trainer->ranks, false);
    sl_trainer_set_patience(trainer);
    return status;
}

/* A wrong setting, and a copy that does not fit, are found by all ranks together; with another
 * failure of one rank the others wait. */
static bool is_alone_with(sl_status status, const listener *to)
{
    const bool is_common = status == SL_OK || status == SL_ERROR_USAGE || status == SL_ERROR_FIT;
    return to->has_failed || !is_common;
}

sl_status sl_session_generate(sl_session *session, const char *const *settings, const char *prompt,
                              sl_text text, void *user)
{
    listener to = {text, user, false};
    sl_config config;
    SL_SESSION_ENTER(session);
    SL_TRY(sl_session_check_running(session));
    SL_TRY(check_model(session));
    SL_TRY(sl_config_init(&config));
    sl_status status =
        sl_ranks_agree_on_usage(&session->trainer.ranks, settle(session, settings, &config));
    if (status == SL_OK)
        status = generate(session, &config, prompt ? prompt : "", &to);
    if (session->training.has_others && is_alone_with(status, &to))
        (void)sl_session_note(session, status, NULL);
    sl_config_clear(&config);
    return status;
}
