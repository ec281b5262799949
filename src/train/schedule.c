/* Everything is computed in double and rounded once: the same step always gets the same bits. */
#include "schedule.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_file.h"

enum { GOOD_STEPS = 1000 };

static const double first_scale = 0x1p16, least_scale = 1, largest_scale = 0x1p24;

double sl_schedule_learning_rate(const sl_config *config, uint64_t step)
{
    if (step < config->warmup)
        return config->lr * (double)(step + 1) / (double)config->warmup;
    if (config->lr_schedule == SL_CONFIG_CONSTANT)
        return config->lr;
    if (step >= config->steps)
        return config->min_lr;
    double share = (double)(step - config->warmup) / (double)(config->steps - config->warmup);
    double height =
        config->lr_schedule == SL_CONFIG_LINEAR ? 1 - share : 0.5 * (1 + cos(M_PI * share));
    return config->min_lr + height * (config->lr - config->min_lr);
}

sl_step_scalars sl_schedule_scalars(const sl_config *config, uint64_t step, uint64_t update)
{
    double count = (double)update;
    return (sl_step_scalars){
        .learning_rate = (float)sl_schedule_learning_rate(config, step),
        .weight_decay = (float)config->weight_decay,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .epsilon = (float)config->eps,
        .bias1 = (float)(1 - pow(config->beta1, count)),
        .bias2_root = (float)sqrt(1 - pow(config->beta2, count)),
        .clip = (float)config->clip,
        .loss_scale = 1,
    };
}

/* ---- the loss scale ---- */

static sl_status find_whether_dynamic(const sl_checkpoint *resumed, bool *out_is_dynamic)
{
    *out_is_dynamic = false;
    if (!resumed)
        return SL_OK;
    json_error_t error;
    json_t *config = NULL;
    const char *record = sl_checkpoint_describe(resumed)->config_json;
    SL_TRY(sl_json_file_load(record, strlen(record), 0, &error, &config));
    const char *text = json_string_value(json_object_get(config, "loss_scale"));
    *out_is_dynamic = text && strcmp(text, "dynamic") == 0;
    json_decref(config);
    return SL_OK;
}

sl_status sl_schedule_start_loss_scale(const sl_config *config, const sl_checkpoint *resumed,
                                       sl_checkpoint_state *state)
{
    bool is_dynamic = sl_config_scales_dynamically(config), was_dynamic;
    SL_TRY(find_whether_dynamic(resumed, &was_dynamic));
    if (is_dynamic && was_dynamic)
        return SL_OK;
    state->loss_scale = is_dynamic ? first_scale : strtod(config->loss_scale, NULL);
    state->loss_scale_good_steps = 0;
    return SL_OK;
}

sl_status sl_schedule_update_loss_scale(const sl_config *config, bool is_finite,
                                        sl_checkpoint_state *state)
{
    if (!sl_config_scales_dynamically(config))
        return SL_OK;
    if (!is_finite && state->loss_scale <= least_scale)
        SL_FAIL(SL_ERROR_NONFINITE,
                "step %" PRIu64 " was not finite at loss scale %g, the lowest: the model diverged; "
                "try a lower --lr, a longer --warmup or --precision bf16",
                state->step, state->loss_scale);
    state->loss_scale_good_steps = is_finite ? state->loss_scale_good_steps + 1 : 0;
    if (!is_finite)
        state->loss_scale /= 2;
    if (state->loss_scale_good_steps < GOOD_STEPS)
        return SL_OK;
    state->loss_scale_good_steps = 0;
    if (state->loss_scale < largest_scale)
        state->loss_scale *= 2;
    return SL_OK;
}
