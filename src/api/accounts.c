/* What plan, profile and eval find, as JSON text or bytes, without a session. */
#include <stdlib.h>

#include "base/sized.h"
#include "files/json_file.h"
#include "measure/measure.h"
#include "options.h"
#include "settings.h"
#include "train/evaluate/evaluation.h"
#include "train/loading/loading.h"
#include "train/plan_account.h"
#include "train/preparation.h"

/* A run of options that ends with its account. */
typedef struct accounting {
    sl_config config;
    sl_trainer trainer; /* not moved: the engine points into it */
    uint32_t step_count;
    sl_log_receiver log;
    const volatile sig_atomic_t *stop; /* of the options */
    sl_planned_bytes *bytes;           /* of a plan, filled in; NULL: its text is asked for */
} accounting;

static sl_status run(const sl_options *options, const accounting *asked,
                     sl_status (*work)(accounting *self, char **out_text), char **out_text)
{
    SL_TRY(sl_options_check(options));
    accounting *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan");
    *self = *asked;
    self->log = options->log;
    self->stop = &options->stop;
    SL_LOG_ENTER(&self->log);
    sl_first_failure failure = {0};
    sl_status status = sl_options_copy(options, &self->config, &self->trainer.inputs);
    if (status == SL_OK)
        status = work(self, out_text);
    sl_first_failure_keep(&failure, status);
    sl_trainer_leave_ranks(&self->trainer, status);
    if (!sl_trainer_close(&self->trainer))
        SL_FAIL(SL_ERROR_SYSTEM, "a thread of the engine did not end");
    sl_config_clear(&self->config);
    free(self);
    return sl_first_failure_return(&failure);
}

/* ---- a plan ---- */

void sl_api_fill_bytes(const sl_blueprint *blueprint, sl_planned_bytes *out_bytes)
{
    const sl_plan *plan = blueprint->plans[0];
    sl_planned_bytes bytes = {.size = out_bytes->size};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        bytes.peaks[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
        bytes.live_peaks[tier] = sl_blueprint_live_peak_bytes(blueprint, (sl_tier)tier);
        bytes.budgets[tier] = blueprint->budget_bytes[tier];
        for (int kind = 0; kind < SL_BYTES_KIND_COUNT; kind++)
            bytes.kinds[kind][tier] = plan->kind_bytes[tier][kind];
    }
    sl_sized_fill(&bytes, sizeof bytes, out_bytes);
}

_Static_assert((int)SL_BYTES_KIND_COUNT == (int)SL_MEMORY_KIND_COUNT &&
                   (int)SL_BYTES_PARAMETERS == (int)SL_MEMORY_PARAM &&
                   (int)SL_BYTES_GRADIENTS == (int)SL_MEMORY_GRAD &&
                   (int)SL_BYTES_MASTERS == (int)SL_MEMORY_MASTER &&
                   (int)SL_BYTES_MOMENT1 == (int)SL_MEMORY_STATE1 &&
                   (int)SL_BYTES_MOMENT2 == (int)SL_MEMORY_STATE2 &&
                   (int)SL_BYTES_ACTIVATIONS == (int)SL_MEMORY_ACTIVATION &&
                   (int)SL_BYTES_WORKSPACE == (int)SL_MEMORY_WORKSPACE &&
                   (int)SL_BYTES_STAGING == (int)SL_MEMORY_STAGING && (int)SL_TIER_DEVICE == 0 &&
                   (int)SL_TIER_HOST == 1 && (int)SL_TIER_DISK == 2,
               "the public kinds and tiers are those of a plan, in their order");

static sl_status format_plan(accounting *self, const sl_plan_stages *stages, char **out_text)
{
    json_t *object = NULL;
    SL_TRY(sl_plan_account_format(&self->trainer, stages, true, &object));
    return sl_api_format(object, out_text);
}

static sl_status plan(accounting *self, char **out_text)
{
    sl_plan_stages stages = {0};
    sl_refusal refusal;
    sl_ranks_listen(&self->trainer.ranks, self->stop);
    SL_TRY(sl_preparation_run(&self->config, SL_CONFIG_PLAN, &self->trainer));
    sl_status status = sl_plan_stages_draw(&self->trainer, &stages, &refusal);
    if (status == SL_OK && self->bytes)
        sl_api_fill_bytes(stages.blueprint, self->bytes);
    else if (status == SL_OK)
        status = format_plan(self, &stages, out_text);
    sl_plan_stages_close(&stages);
    return status;
}

sl_status sl_session_plan(const sl_options *options, char **out_text)
{
    const accounting asked = {0};
    return run(options, &asked, plan, out_text);
}

sl_status sl_plan_bytes(const sl_options *options, sl_planned_bytes *out_bytes)
{
    const accounting asked = {.bytes = out_bytes};
    SL_TRY(sl_sized_check("sl_planned_bytes", out_bytes));
    return run(options, &asked, plan, NULL);
}

/* ---- a profile ---- */

static sl_status measure(accounting *self, sl_measured *measured, char **out_text)
{
    const sl_measure_args args = {
        .trainer = &self->trainer, .step_count = self->step_count, .stop = self->stop};
    json_t *object = NULL;
    SL_TRY(sl_measure_run(&args, measured));
    if (measured->was_stopped)
        SL_FAIL(SL_ERROR_STOPPED, "the profile was stopped");
    SL_TRY(sl_measured_format(measured, &object));
    return sl_api_format(object, out_text);
}

static sl_status profile(accounting *self, char **out_text)
{
    SL_TRY(sl_trainer_meet_ranks(&self->trainer, &self->config, self->stop));
    SL_TRY(sl_preparation_run(&self->config, SL_CONFIG_PROFILE, &self->trainer));
    sl_measured *measured = calloc(1, sizeof *measured);
    if (!measured)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what is measured");
    const sl_status status = measure(self, measured, out_text);
    sl_measured_clear(measured);
    free(measured);
    return status;
}

sl_status sl_profile(const sl_options *options, uint32_t step_count, char **out_text)
{
    if (step_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "a profile needs a step to measure");
    const accounting asked = {.step_count = step_count};
    return run(options, &asked, profile, out_text);
}

/* ---- an evaluation ---- */

sl_status sl_evaluate(const char *const *settings, char **out_text)
{
    const sl_eval_watch nobody = {0};
    sl_ranks ranks = {0};
    sl_evaluation evaluation;
    sl_config config;
    SL_TRY(sl_config_init(&config));
    sl_status status = sl_settings_read(settings, SL_CONFIG_EVAL, &config);
    if (status == SL_OK)
        status = sl_loading_meet_ranks(&config, SL_CONFIG_EVAL, NULL, &ranks);
    if (status == SL_OK)
        status = sl_evaluation_run(&config, &ranks, &nobody, &evaluation);
    if (status == SL_OK)
        status = sl_evaluation_format(&evaluation, out_text);
    status = sl_loading_leave_ranks(&ranks, status);
    sl_config_clear(&config);
    return status;
}
