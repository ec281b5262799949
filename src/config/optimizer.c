/* See optimizer.h. */
#include "optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "units.h"

/* ---- the loss scale ---- */

/* A dynamic scale finds its way by skipping steps; a fixed one in fp16 skips unless --nonfinite
 * says otherwise.
 */
static sl_status resolve_loss_scale(sl_config *config)
{
    if (!config->loss_scale || strcmp(config->loss_scale, "auto") == 0)
        SL_TRY(sl_config_resolve(config, SL_CONFIG_ROW_loss_scale,
                                 config->precision == SL_CONFIG_FP16 ? "dynamic" : "1"));
    if (!sl_config_scales_dynamically(config)) {
        if (!config->given[SL_CONFIG_ROW_nonfinite] && config->precision == SL_CONFIG_FP16)
            config->nonfinite = SL_CONFIG_SKIP;
        return SL_OK;
    }
    if (config->given[SL_CONFIG_ROW_nonfinite] && config->nonfinite == SL_CONFIG_STOP)
        SL_FAIL(SL_ERROR_USAGE, "--loss-scale dynamic finds the scale by skipping steps that "
                                "overflow: use --nonfinite skip, or a fixed scale");
    config->nonfinite = SL_CONFIG_SKIP;
    return SL_OK;
}

static sl_status check_dynamic_scale(const sl_config *config)
{
    if (config->loss_scale_min > config->loss_scale_start)
        SL_FAIL(SL_ERROR_USAGE, "--loss-scale-min %g is above --loss-scale-start %g",
                config->loss_scale_min, config->loss_scale_start);
    return SL_OK;
}

static bool is_default_number(const sl_config *config, uint32_t row)
{
    const sl_config_row *of = &sl_config_rows()[row];
    const void *field = (const char *)config + of->offset;
    double value =
        of->kind == SL_CONFIG_REAL ? *(const double *)field : (double)*(const uint64_t *)field;
    return value == strtod(of->initial, NULL);
}

sl_status sl_optimizer_check_loss_scale(sl_config *config)
{
    static const uint32_t dynamic_rows[] = {
        SL_CONFIG_ROW_loss_scale_start, SL_CONFIG_ROW_loss_scale_window,
        SL_CONFIG_ROW_loss_scale_hysteresis, SL_CONFIG_ROW_loss_scale_min};
    const sl_config_row *rows = sl_config_rows();
    double scale = 0;
    SL_TRY(resolve_loss_scale(config));
    if (sl_config_scales_dynamically(config))
        return check_dynamic_scale(config);
    for (size_t i = 0; i < sizeof dynamic_rows / sizeof dynamic_rows[0]; i++) {
        const sl_config_row *row = &rows[dynamic_rows[i]];
        if (config->given[dynamic_rows[i]] && !is_default_number(config, dynamic_rows[i]))
            SL_FAIL(SL_ERROR_USAGE,
                    "--%s is for a dynamic loss scale: use --precision fp16 or --loss-scale "
                    "dynamic, or leave it out",
                    row->name);
        SL_TRY(sl_config_resolve(config, dynamic_rows[i], row->initial)); /* nobody asked for it */
    }
    sl_status status = sl_units_parse_real(config->loss_scale, &scale);
    if (status != SL_OK || !(scale > 0 && scale <= 0x1p64))
        SL_FAIL(SL_ERROR_USAGE, "--loss-scale: \"%s\" is neither dynamic nor a number above 0",
                config->loss_scale);
    return SL_OK;
}

/* ---- the schedule ---- */

/* What only DeepSpeed's schedules know is as if it was not there in others. */
static sl_status check_warmup(sl_config *config)
{
    const bool is_deepspeed = config->lr_schedule >= SL_CONFIG_WARMUP_LR;
    const uint32_t type = SL_CONFIG_ROW_warmup_type, rate = SL_CONFIG_ROW_warmup_lr;
    const bool is_typed = config->given[type] && config->warmup_type != SL_CONFIG_WARMUP_LINEAR;
    if (is_deepspeed && config->warmup_lr > config->lr)
        SL_FAIL(SL_ERROR_USAGE, "--warmup-lr %g is above --lr %g", config->warmup_lr, config->lr);
    if (is_deepspeed)
        return SL_OK;
    if (is_typed || (config->given[rate] && config->warmup_lr > 0))
        SL_FAIL(SL_ERROR_USAGE,
                "--%s is for --lr-schedule WarmupLR, WarmupDecayLR or WarmupCosineLR: warm-up is "
                "linear from 0 in others",
                sl_config_rows()[is_typed ? type : rate].name);
    config->warmup_type = SL_CONFIG_WARMUP_LINEAR;
    config->warmup_lr = 0;
    return SL_OK;
}

/* The last learning rate, where it was left open. */
static sl_status resolve_min_lr(sl_config *config)
{
    if (isnan(config->min_lr) && config->lr_schedule == SL_CONFIG_WARMUP_DECAY_LR)
        config->min_lr = config->warmup_lr;
    if (isnan(config->min_lr))
        config->min_lr =
            (config->lr_schedule == SL_CONFIG_WARMUP_COSINE_LR ? 1e-4 : 0.1) * config->lr;
    if (config->min_lr > config->lr)
        SL_FAIL(SL_ERROR_USAGE, "--min-lr %g is above --lr %g", config->min_lr, config->lr);
    return SL_OK;
}

/* Replaces an unset warm-up, or a share of the steps, by a number of steps. */
static void resolve_warmup(sl_config *config)
{
    sl_config_steps *warmup = &config->warmup;
    if (warmup->share > 0)
        *warmup =
            (sl_config_steps){.count = (uint64_t)round(warmup->share * (double)config->steps)};
    else if (warmup->count == SL_CONFIG_UNSET)
        warmup->count = config->steps / 100;
}

sl_status sl_optimizer_check_schedule(sl_config *config)
{
    resolve_warmup(config);
    if (config->lr_decay_steps == SL_CONFIG_UNSET)
        config->lr_decay_steps = config->steps ? config->steps : 1;
    const uint64_t warmup = config->warmup.count;
    if (config->lr_decay_steps < warmup && config->given[SL_CONFIG_ROW_lr_decay_steps])
        SL_FAIL(SL_ERROR_USAGE,
                "--lr-decay-steps %llu counts warm-up too, which takes %llu (--warmup)",
                (unsigned long long)config->lr_decay_steps, (unsigned long long)warmup);
    if (config->lr_decay_steps < warmup)
        config->lr_decay_steps = warmup;
    SL_TRY(check_warmup(config));
    return resolve_min_lr(config);
}
