/* See opening.h. */
#include "opening.h"

#include "config/config_json.h"
#include "preparation.h"
#include "search/plan_json.h"
#include "train/loading/loading.h"

typedef struct beginning {
    sl_trainer *trainer;
    const sl_engine_progress *within;
} beginning;

static sl_status prepare_and_open(sl_config *config, const beginning *self)
{
    sl_trainer *trainer = self->trainer;
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    SL_TRY(sl_preparation_run(config, SL_CONFIG_TRAIN, trainer));
    SL_TRY(sl_search_find(&trainer->search, &blueprint, &refusal));
    trainer->hooks.progress = self->within;
    sl_status status = sl_trainer_open(trainer, blueprint);
    trainer->hooks.progress = NULL;
    return status;
}

static sl_status begin(sl_config *config, void *user)
{
    const beginning *self = user;
    sl_first_failure damage = {0};
    sl_status status = prepare_and_open(config, self);
    if (status != SL_ERROR_DAMAGED)
        return status;
    sl_first_failure_keep(&damage, status);
    sl_trainer_start_over(self->trainer);
    return sl_first_failure_return(&damage);
}

sl_status sl_opening_run(sl_config *config, sl_trainer *trainer, const sl_engine_progress *within)
{
    beginning self = {trainer, within};
    return sl_loading_run(config, begin, &self);
}

/* The plan's own step is this rank's, as if it waited for no other. */
static sl_status add_step_of_all(const sl_trainer *trainer, json_t *plan)
{
    json_t *ranks = json_pack("{s:f}", "predicted_step_ms", 1e3 * trainer->step_seconds);
    if (!ranks || json_object_set_new(plan, "ranks", ranks) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan as JSON");
    return SL_OK;
}

sl_status sl_opening_tell(sl_trainer *trainer)
{
    sl_start_report report = {.first_step = trainer->state.step + 1,
                              .last_step = trainer->config->steps};
    sl_status status = sl_config_print(trainer->config, SL_CONFIG_TRAIN, &report.config);
    if (status == SL_OK)
        status = sl_plan_json_format(trainer->runtime->blueprint, &report.plan);
    if (status == SL_OK && trainer->ranks.world)
        status = add_step_of_all(trainer, report.plan);
    if (status == SL_OK)
        status = sl_layout_choice_add(&trainer->layout_choice, report.plan);
    if (status == SL_OK)
        status = sl_sinks_start(&trainer->sinks, &report);
    json_decref(report.config);
    json_decref(report.plan);
    return status;
}
