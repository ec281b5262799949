/* Everything is computed in double and rounded once: the same step always gets the same bits. */
#include "schedule.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/update_rules.h"
#include "files/json_file.h"

static const double largest_scale = 0x1p24; /* of one that does not start above it */
static const double earlier_start = 0x1p16; /* of versions that did not record it */

/* The n-th step of DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR
 * (runtime/lr_schedules.py): their index is n - 2, for it is -1 before the first step and counted
 * after each. */
static double follow_deepspeed(const sl_config *config, uint64_t n)
{
    const double warmup = fmax(2, (double)config->warmup.count),
                 total = (double)config->lr_decay_steps;
    const double rise = config->lr - config->warmup_lr, at = (double)n - 2;
    const bool is_cosine = config->lr_schedule == SL_CONFIG_WARMUP_COSINE_LR;
    const double left = fmax(1, total - warmup);
    if (n < 2)
        return is_cosine ? 0 : config->warmup_lr;
    if (at < warmup && config->warmup_type == SL_CONFIG_WARMUP_LOG)
        return config->warmup_lr + rise * (1 / log(warmup) * log(at + 1));
    if (at < warmup)
        return config->warmup_lr + rise * (at / warmup);
    if (config->lr_schedule == SL_CONFIG_WARMUP_LR)
        return config->lr;
    if (!is_cosine)
        return config->warmup_lr + rise * fmax(0, (total - at) / left);
    const double share = fmin(1, (at - warmup + 1) / left);
    return config->min_lr + (config->lr - config->min_lr) * ((1 + cos(M_PI * share)) / 2);
}

double sl_schedule_learning_rate(const sl_config *config, const sl_checkpoint_state *state)
{
    const bool holds = config->lr_skips == SL_CONFIG_HOLD;
    const uint64_t n = state->step - (holds ? state->skipped_steps : 0) + 1;
    const uint64_t warmup = config->warmup.count, decay = config->lr_decay_steps;
    if (config->lr_schedule >= SL_CONFIG_WARMUP_LR)
        return follow_deepspeed(config, n);
    if (n <= warmup)
        return config->lr * (double)n / (double)warmup;
    if (config->lr_schedule == SL_CONFIG_CONSTANT)
        return config->lr;
    const uint64_t at = n - state->lr_decay_lag;
    if (at >= decay)
        return config->min_lr;
    double share = (double)(at - warmup) / (double)(decay - warmup);
    double height =
        config->lr_schedule == SL_CONFIG_LINEAR ? 1 - share : 0.5 * (1 + cos(M_PI * share));
    return config->min_lr + height * (config->lr - config->min_lr);
}

sl_step_scalars sl_schedule_scalars(const sl_config *config, const sl_checkpoint_state *state)
{
    const double update = (double)(state->step - state->skipped_steps + 1);
    const sl_betas adamw = sl_update_rules_betas(config, SL_CONFIG_ADAMW);
    const sl_betas lion = sl_update_rules_betas(config, SL_CONFIG_LION);
    return (sl_step_scalars){
        .learning_rate = (float)sl_schedule_learning_rate(config, state),
        .weight_decay = (float)config->weight_decay,
        .beta1 = (float)adamw.first,
        .beta2 = (float)adamw.second,
        .epsilon = (float)config->eps,
        .bias1 = (float)(1 - pow(adamw.first, update)),
        .bias2_root = (float)sqrt(1 - pow(adamw.second, update)),
        .lion_beta1 = (float)lion.first,
        .lion_beta2 = (float)lion.second,
        .momentum = (float)sl_update_rules_momentum(config, SL_CONFIG_SGD),
        .muon_momentum = (float)sl_update_rules_momentum(config, SL_CONFIG_MUON),
        .is_nesterov = config->nesterov,
        .clip = (float)config->clip,
        .loss_scale = (float)state->loss_scale,
        .step = state->step,
    };
}

/* ---- the loss scale ---- */

/* Whether the run of a checkpoint had a dynamic scale that started where the present one does. */
static sl_status find_whether_kept(const sl_config *config, const sl_checkpoint *resumed,
                                   bool *out_is_kept)
{
    *out_is_kept = false;
    if (!resumed)
        return SL_OK;
    json_error_t error;
    json_t *before = NULL;
    const char *record = sl_checkpoint_describe(resumed)->config_json;
    SL_TRY(sl_json_file_load(record, strlen(record), 0, &error, &before));
    const char *scale = json_string_value(json_object_get(before, "loss_scale"));
    const json_t *start = json_object_get(before, "loss_scale_start");
    double first = start ? json_number_value(start) : earlier_start;
    *out_is_kept = scale && strcmp(scale, "dynamic") == 0 && first == config->loss_scale_start;
    json_decref(before);
    return SL_OK;
}

sl_status sl_schedule_start_loss_scale(const sl_config *config, const sl_checkpoint *resumed,
                                       sl_checkpoint_state *state)
{
    bool is_dynamic = sl_config_scales_dynamically(config), is_kept;
    SL_TRY(find_whether_kept(config, resumed, &is_kept));
    if (is_dynamic && is_kept)
        return SL_OK;
    state->loss_scale = is_dynamic ? config->loss_scale_start : strtod(config->loss_scale, NULL);
    state->loss_scale_good_steps = 0;
    state->loss_scale_hysteresis = 0;
    return SL_OK;
}

static sl_status lower_scale(const sl_config *config, sl_checkpoint_state *state)
{
    state->loss_scale_good_steps = 0;
    if (state->loss_scale_hysteresis + 1 < config->loss_scale_hysteresis) {
        state->loss_scale_hysteresis++;
        return SL_OK;
    }
    if (state->loss_scale <= config->loss_scale_min)
        SL_FAIL(SL_ERROR_NONFINITE,
                "step %" PRIu64 " was not finite at loss scale %g, the lowest: the model diverged; "
                "try a lower --lr, a longer --warmup or --precision bf16",
                state->step, state->loss_scale);
    state->loss_scale = fmax(state->loss_scale / 2, config->loss_scale_min);
    return SL_OK;
}

sl_status sl_schedule_update_loss_scale(const sl_config *config, bool is_finite,
                                        sl_checkpoint_state *state)
{
    if (!sl_config_scales_dynamically(config))
        return SL_OK;
    if (!is_finite)
        return lower_scale(config, state);
    state->loss_scale_good_steps++;
    if (state->loss_scale_good_steps < config->loss_scale_window)
        return SL_OK;
    state->loss_scale_good_steps = 0;
    state->loss_scale_hysteresis = 0;
    if (2 * state->loss_scale <= fmax(largest_scale, config->loss_scale_start))
        state->loss_scale *= 2;
    return SL_OK;
}
