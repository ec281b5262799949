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
} listener;

static sl_status pass_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    const listener *self = user;
    sl_status_guard guard;
    sl_status_guard_begin(&guard);
    return sl_status_guard_end(&guard, self->text(self->user, sample, bytes, byte_count),
                               "the function that takes text");
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
    listener to = {text, user};
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

static sl_status settle(const sl_session *session, const char *const *settings, sl_config *config)
{
    const sl_task *task = &session->trainer.runtime->blueprint->task;
    char threads[32];
    snprintf(threads, sizeof threads, "%" PRIu32, task->target.worker_count);
    static const uint32_t of_model[] = {SL_CONFIG_ROW_prompt, SL_CONFIG_ROW_prompt_file,
                                        SL_CONFIG_ROW_interactive, SL_CONFIG_ROW_checkpoint,
                                        SL_CONFIG_ROW_tokenizer};
    SL_TRY(sl_settings_read(settings, SL_CONFIG_GENERATE, config));
    SL_TRY(refuse(config, of_model, sizeof of_model / sizeof *of_model));
    SL_TRY(take_over(SL_CONFIG_ROW_device, session->config.device, config));
    SL_TRY(take_over(SL_CONFIG_ROW_threads, threads, config));
    SL_TRY(take_over(SL_CONFIG_ROW_precision, sl_type_name(task->type), config));
    SL_TRY(sl_config_set(config, SL_CONFIG_ROW_checkpoint, "the session"));
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
    if (trainer->runtime->io.is_spread || trainer->ranks.world)
        SL_FAIL(SL_ERROR_USAGE, "a session with other ranks generates no text: save a checkpoint, "
                                "and call sl_generate");
    if (!trainer->vocabulary && !is_bytes)
        SL_FAIL(SL_ERROR_USAGE, "how text becomes the ids of this model is not known: set the "
                                "option tokenizer");
    return SL_OK;
}

static sl_status generate(sl_session *session, sl_config *config, const char *prompt, listener *to)
{
    const sl_trainer *trainer = &session->trainer;
    sl_ranks alone = {0};
    const sl_model_directory source = {.open_io = &trainer->runtime->io,
                                       .open_tensors = trainer->runtime->tensors,
                                       .open_count = trainer->runtime->tensor_count,
                                       .shape = trainer->shape};
    const sl_generate_args args = {.config = config,
                                   .ranks = &alone,
                                   .prompt = prompt,
                                   .prompt_bytes = strlen(prompt),
                                   .source = &source,
                                   .vocabulary = trainer->vocabulary,
                                   .sink = {pass_text, pass_end, to},
                                   .stop = &session->stop};
    return run(&args);
}

sl_status sl_session_generate(sl_session *session, const char *const *settings, const char *prompt,
                              sl_text text, void *user)
{
    listener to = {text, user};
    sl_config config;
    SL_SESSION_ENTER(session);
    SL_TRY(sl_session_check(session));
    SL_TRY(check_model(session));
    SL_TRY(sl_config_init(&config));
    sl_status status = settle(session, settings, &config);
    if (status == SL_OK)
        status = generate(session, &config, prompt ? prompt : "", &to);
    sl_config_clear(&config);
    return status;
}
