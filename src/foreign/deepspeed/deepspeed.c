/* What DeepSpeed's keys become: a function for each group of keys sets options, and remembers in
 * words what it set. */
#define _GNU_SOURCE /* asprintf, open_memstream */
#include "deepspeed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"
#include "deepspeed_file.h"
#include "files/files.h"

enum { HINT_BYTES = 96 };

typedef struct reading {
    sl_config *config, *others;
    sl_config_command command;
    sl_deepspeed_file file;
} reading;

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])
#define ROW(field) SL_CONFIG_ROW_##field
#define KEY(name) SL_DEEPSPEED_##name

bool sl_deepspeed_is_meant(const json_t *object)
{
    return sl_deepspeed_file_is_recognised(object);
}

/* The configuration that takes an option. */
static sl_config *find_taker(const reading *self, uint32_t row)
{
    return sl_config_rows()[row].commands & self->command ? self->config : self->others;
}

/* What the file leaves out does not win over what was given before it. */
static bool is_kept(const reading *self, uint32_t row, bool is_given)
{
    return !is_given && find_taker(self, row)->given[row];
}

/* Sets an option without a note; `is_given`: a user said so. */
static sl_status set_quietly(const reading *self, uint32_t key, uint32_t row, const char *text,
                             bool is_given)
{
    sl_config *config = find_taker(self, row);
    if (is_kept(self, row, is_given))
        return SL_OK;
    sl_status status =
        is_given ? sl_config_set(config, row, text) : sl_config_resolve(config, row, text);
    return status == SL_OK ? SL_OK
                           : sl_status_prefix(status, "key \"%s\"", sl_deepspeed_file_path(key));
}

/* Sets the option that a key means, given if the key is there. */
static sl_status set(reading *self, uint32_t key, uint32_t row, const char *text)
{
    const bool is_given = !sl_deepspeed_file_is_open(&self->file, key);
    SL_TRY(set_quietly(self, key, row, text, is_given));
    if (is_kept(self, row, is_given))
        sl_deepspeed_file_note(&self->file, key, "--%s as given before",
                               sl_config_rows()[row].name);
    else
        sl_deepspeed_file_note(&self->file, key, "--%s %s", sl_config_rows()[row].name, text);
    return SL_OK;
}

static sl_status set_number(reading *self, uint32_t key, uint32_t row, double number)
{
    char text[SL_DEEPSPEED_NUMBER_BYTES];
    return set(self, key, row, sl_deepspeed_file_format_number(number, text));
}

/* A number that becomes an option as it is; `fallback` is DeepSpeed's default. */
static sl_status take_number(reading *self, uint32_t key, uint32_t row, double fallback)
{
    if (!sl_deepspeed_file_is_auto(&self->file, key))
        return set_number(self, key, row, sl_deepspeed_file_number(&self->file, key, fallback));
    sl_deepspeed_file_note(&self->file, key, "decided here, by --%s", sl_config_rows()[row].name);
    return SL_OK;
}

/* ---- batch: train_batch_size = micro-batch * accumulation * data-parallel ranks ----
 *
 * How many ranks there will be is not known here: the total becomes --global-batch, by which the
 * accumulation is found, or checked, once it is. Until then there is one rank. */

static const double batch_max = 1e12;

static sl_status read_batch(const reading *self, uint32_t key, double *out_rows)
{
    *out_rows = sl_deepspeed_file_number(&self->file, key, 0);
    if (!sl_deepspeed_file_is_open(&self->file, key) && !(*out_rows >= 1 && *out_rows <= batch_max))
        return sl_deepspeed_file_refuse(&self->file, key, "it is at least 1, and at most %g",
                                        batch_max);
    return SL_OK;
}

static sl_status refuse_batch(const reading *self, double total, double micro, double count)
{
    char needed[64] = "";
    if (fmod(total, micro) == 0)
        snprintf(needed, sizeof needed, "; gradient_accumulation_steps %.0f would do",
                 total / micro);
    return sl_deepspeed_file_refuse(
        &self->file, KEY(TRAIN_BATCH),
        "no multiple of train_micro_batch_size_per_gpu %.0f * gradient_accumulation_steps %.0f%s",
        micro, count, needed);
}

/* Any two give the third; of a total alone, there is one micro-batch. What follows for one rank is
 * found again when the ranks are known. */
static sl_status solve_batch(const reading *self, double total, double *micro, double *count)
{
    if (total > 0 && *micro <= 0)
        *micro = floor(total / (*count > 0 ? *count : 1));
    if (total > 0 && *micro > 0 && *count <= 0)
        *count = floor(total / *micro);
    if (total > 0 && (*micro * *count == 0 || fmod(total, *micro * *count) != 0))
        return refuse_batch(self, total, *micro, *count);
    if (*micro > 0 && *count <= 0 && !sl_deepspeed_file_is_auto(&self->file, KEY(ACCUMULATION)))
        *count = 1;
    return SL_OK;
}

static sl_status take_batch(reading *self)
{
    double total, micro, count;
    SL_TRY(read_batch(self, KEY(TRAIN_BATCH), &total));
    SL_TRY(read_batch(self, KEY(MICRO_BATCH), &micro));
    SL_TRY(read_batch(self, KEY(ACCUMULATION), &count));
    const bool is_solved = total > 0 && count <= 0 && !self->config->given[ROW(accumulate)];
    self->config->solves_micro_batch = total > 0 && micro <= 0;
    SL_TRY(solve_batch(self, total, &micro, &count));
    sl_deepspeed_file_note(&self->file, KEY(MICRO_BATCH), "decided here, by --micro-batch");
    sl_deepspeed_file_note(&self->file, KEY(ACCUMULATION), "decided here, by --accumulate");
    if (micro > 0)
        SL_TRY(set_number(self, KEY(MICRO_BATCH), ROW(micro_batch), micro));
    if (count > 0)
        SL_TRY(set_number(self, KEY(ACCUMULATION), ROW(accumulate), count));
    if (is_solved) /* follows from the total, whatever the number of ranks */
        self->config->given[ROW(accumulate)] = false;
    if (total > 0)
        SL_TRY(set_number(self, KEY(TRAIN_BATCH), ROW(global_batch), total));
    else if (self->file.values[KEY(TRAIN_BATCH)])
        sl_deepspeed_file_note(&self->file, KEY(TRAIN_BATCH),
                               "decided here, by --micro-batch and --accumulate");
    return SL_OK;
}

/* ---- precision and loss scale ---- */

static sl_status take_loss_scale(reading *self)
{
    static const uint32_t scale_keys[] = {KEY(LOSS_SCALE), KEY(SCALE_POWER), KEY(SCALE_WINDOW),
                                          KEY(HYSTERESIS), KEY(MIN_SCALE),   KEY(CONSECUTIVE)};
    const double fixed = sl_deepspeed_file_number(&self->file, KEY(LOSS_SCALE), 0);
    const bool has_scale = sl_deepspeed_file_is_on(&self->file, KEY(FP16_ENABLED)) ||
                           sl_deepspeed_file_is_auto(&self->file, KEY(FP16_ENABLED));
    if (!has_scale || fixed != 0)
        for (size_t i = 0; i < COUNT_OF(scale_keys); i++)
            sl_deepspeed_file_note_nothing(&self->file, scale_keys[i],
                                           has_scale ? "the scale is fixed" : "fp16 is off");
    if (!has_scale)
        return SL_OK;
    if (fixed != 0)
        return set_number(self, KEY(LOSS_SCALE), ROW(loss_scale), fixed);
    const struct {
        uint32_t key, row;
        double value;
    } numbers[] = {
        {KEY(SCALE_POWER), ROW(loss_scale_start),
         exp2(sl_deepspeed_file_number(&self->file, KEY(SCALE_POWER), 16))},
        {KEY(SCALE_WINDOW), ROW(loss_scale_window),
         sl_deepspeed_file_number(&self->file, KEY(SCALE_WINDOW), 1000)},
        {KEY(HYSTERESIS), ROW(loss_scale_hysteresis),
         sl_deepspeed_file_number(&self->file, KEY(HYSTERESIS), 2)},
        {KEY(MIN_SCALE), ROW(loss_scale_min),
         sl_deepspeed_file_number(&self->file, KEY(MIN_SCALE), 1)},
    };
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        char text[SL_DEEPSPEED_NUMBER_BYTES];
        sl_deepspeed_file_format_number(numbers[i].value, text);
        /* Not given: where another option fixes the scale, they say nothing. */
        SL_TRY(set_quietly(self, numbers[i].key, numbers[i].row, text, false));
        sl_deepspeed_file_note(&self->file, numbers[i].key, "--%s %s",
                               sl_config_rows()[numbers[i].row].name, text);
    }
    sl_deepspeed_file_note(&self->file, KEY(LOSS_SCALE), "--loss-scale dynamic");
    if (sl_deepspeed_file_is_on(&self->file, KEY(CONSECUTIVE)) &&
        sl_deepspeed_file_number(&self->file, KEY(HYSTERESIS), 2) > 1)
        return sl_deepspeed_file_refuse_unequal(
            &self->file, KEY(CONSECUTIVE), "overflows are forgiven anew when the scale doubles");
    sl_deepspeed_file_note_nothing(&self->file, KEY(CONSECUTIVE),
                                   "overflows are forgiven anew when the scale doubles");
    return SL_OK;
}

static sl_status take_data_types(reading *self, const char *precision)
{
    if (strcmp(sl_deepspeed_file_text(&self->file, KEY(GRAD_DTYPE), "fp32"), "fp32") != 0)
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(GRAD_DTYPE),
                                                "gradients are added in fp32");
    sl_deepspeed_file_note_nothing(&self->file, KEY(GRAD_DTYPE),
                                   "gradients are added in fp32 always");
    if (strcmp(sl_deepspeed_file_text(&self->file, KEY(PARAM_DTYPE), precision), precision) != 0)
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(PARAM_DTYPE),
                                                "parameters have the compute type");
    sl_deepspeed_file_note_nothing(&self->file, KEY(PARAM_DTYPE),
                                   "parameters have the compute type always");
    return SL_OK;
}

/* In bf16 a step that is not finite is skipped there, unless it is not looked for. */
static sl_status take_overflow_check(reading *self)
{
    if (!sl_deepspeed_file_is_on(&self->file, KEY(BF16_ENABLED))) {
        sl_deepspeed_file_note_nothing(&self->file, KEY(BF16_CHECK), "bf16 is off");
        return SL_OK;
    }
    return set(self, KEY(BF16_CHECK), ROW(nonfinite),
               sl_deepspeed_file_is_off(&self->file, KEY(BF16_CHECK)) ? "stop" : "skip");
}

static sl_status take_precision(reading *self)
{
    const bool is_half = sl_deepspeed_file_is_on(&self->file, KEY(FP16_ENABLED));
    const bool is_brain = sl_deepspeed_file_is_on(&self->file, KEY(BF16_ENABLED));
    const char *name = is_half ? "fp16" : is_brain ? "bf16" : "fp32";
    const bool is_decided = is_half || is_brain;
    if (is_half && is_brain)
        return sl_deepspeed_file_refuse(&self->file, KEY(BF16_ENABLED),
                                        "fp16.enabled is too: one compute type at a time");
    if (!is_decided && (sl_deepspeed_file_is_auto(&self->file, KEY(FP16_ENABLED)) ||
                        sl_deepspeed_file_is_auto(&self->file, KEY(BF16_ENABLED))))
        sl_deepspeed_file_note(&self->file,
                               sl_deepspeed_file_is_auto(&self->file, KEY(BF16_ENABLED))
                                   ? KEY(BF16_ENABLED)
                                   : KEY(FP16_ENABLED),
                               "decided here, by --precision");
    else
        SL_TRY(set(self, is_brain ? KEY(BF16_ENABLED) : KEY(FP16_ENABLED), ROW(precision), name));
    SL_TRY(take_overflow_check(self));
    SL_TRY(take_data_types(self, name));
    return take_loss_scale(self);
}

/* ---- the optimizer ---- */

/* The types that have an equal here, with DeepSpeed's and PyTorch's defaults. */
static const struct optimizer_type {
    const char *type, *option;
    double betas[2]; /* 0: it has none */
    bool is_adam, is_decoupled;
} optimizer_types[] = {
    {"AdamW", "adamw", {0.9, 0.999}, true, true}, {"Adam", "adamw", {0.9, 0.999}, true, false},
    {"SGD", "sgd", {0, 0}, false, false},         {"Lion", "lion", {0.9, 0.99}, false, true},
    {"Muon", "muon", {0.9, 0.95}, false, true},
};

static sl_status take_betas(reading *self, const struct optimizer_type *type)
{
    const json_t *betas = self->file.values[KEY(BETAS)];
    double values[2] = {type->betas[0], type->betas[1]};
    char first[SL_DEEPSPEED_NUMBER_BYTES], second[SL_DEEPSPEED_NUMBER_BYTES];
    if (sl_deepspeed_file_is_auto(&self->file, KEY(BETAS))) {
        sl_deepspeed_file_note(&self->file, KEY(BETAS), "decided here, by --beta1 and --beta2");
        return SL_OK;
    }
    for (size_t i = 0; betas && i < 2; i++) {
        const json_t *item = json_array_get(betas, i);
        if (json_array_size(betas) != 2 || !json_is_number(item))
            return sl_deepspeed_file_refuse(&self->file, KEY(BETAS),
                                            "it is two numbers, [0.9, 0.999]");
        values[i] = json_number_value(item);
    }
    sl_deepspeed_file_format_number(values[0], first);
    sl_deepspeed_file_format_number(values[1], second);
    SL_TRY(set_quietly(self, KEY(BETAS), ROW(beta1), first, betas != NULL));
    SL_TRY(set_quietly(self, KEY(BETAS), ROW(beta2), second, betas != NULL));
    sl_deepspeed_file_note(&self->file, KEY(BETAS), "--beta1 %s --beta2 %s", first, second);
    return SL_OK;
}

/* What is said of one dimension: DeepSpeed decays all tensors. */
static void note_decay(reading *self)
{
    size_t used = strlen(self->file.meanings[KEY(WEIGHT_DECAY)]);
    snprintf(self->file.meanings[KEY(WEIGHT_DECAY)] + used, SL_DEEPSPEED_MEANING_BYTES - used,
             " (not of tensors of one dimension)");
}

/* Decay beside the gradient, as AdamW has it; PyTorch's own AdamW has one by default. */
static sl_status take_adam_decay(reading *self, bool is_decoupled)
{
    const double fallback =
        sl_deepspeed_file_is_on(&self->file, KEY(TORCH_ADAM)) && is_decoupled ? 0.01 : 0;
    if (!is_decoupled && (sl_deepspeed_file_is_auto(&self->file, KEY(WEIGHT_DECAY)) ||
                          sl_deepspeed_file_number(&self->file, KEY(WEIGHT_DECAY), fallback) != 0))
        return sl_deepspeed_file_refuse_unequal(
            &self->file, KEY(ADAM_W_MODE),
            "weight_decay would be a part of the gradient, and is decoupled here");
    SL_TRY(take_number(self, KEY(WEIGHT_DECAY), ROW(weight_decay), fallback));
    note_decay(self);
    sl_deepspeed_file_note_nothing(&self->file, KEY(ADAM_W_MODE),
                                   "decay is decoupled, or there is none");
    sl_deepspeed_file_note_nothing(&self->file, KEY(TORCH_ADAM), "there is one AdamW");
    return SL_OK;
}

static const struct optimizer_type *find_optimizer(const reading *self)
{
    const char *type = sl_deepspeed_file_text(&self->file, KEY(OPTIMIZER_TYPE), "AdamW");
    for (size_t i = 0; i < COUNT_OF(optimizer_types); i++)
        if (strcasecmp(type, optimizer_types[i].type) == 0 &&
            !sl_deepspeed_file_is_auto(&self->file, KEY(OPTIMIZER_TYPE)))
            return &optimizer_types[i];
    return NULL;
}

static sl_status take_adam(reading *self, const struct optimizer_type *type)
{
    if (sl_deepspeed_file_is_off(&self->file, KEY(BIAS_CORRECTION)))
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(BIAS_CORRECTION),
                                                "moments are corrected for their start");
    sl_deepspeed_file_note_nothing(&self->file, KEY(BIAS_CORRECTION),
                                   "moments are corrected for their start always");
    SL_TRY(take_number(self, KEY(EPS), ROW(eps), 1e-8));
    return take_adam_decay(self, type->is_decoupled ||
                                     !sl_deepspeed_file_is_off(&self->file, KEY(ADAM_W_MODE)));
}

/* Keys of another type's parameters are refused, as PyTorch does. */
static sl_status refuse_parameters(const reading *self, const struct optimizer_type *type)
{
    static const struct {
        uint32_t key;
        bool is_of_adam, is_of_sgd, is_of_muon;
    } keys[] = {{KEY(EPS), true, false, true},          {KEY(TORCH_ADAM), true, false, false},
                {KEY(ADAM_W_MODE), true, false, false}, {KEY(BIAS_CORRECTION), true, false, false},
                {KEY(MOMENTUM), false, true, true},     {KEY(NESTEROV), false, true, false}};
    const bool is_sgd = strcmp(type->option, "sgd") == 0;
    const bool is_muon = strcmp(type->option, "muon") == 0;
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (self->file.values[keys[i].key] &&
            !((keys[i].is_of_adam && type->is_adam) || (keys[i].is_of_sgd && is_sgd) ||
              (keys[i].is_of_muon && is_muon)))
            return sl_deepspeed_file_refuse(&self->file, keys[i].key, "no parameter of %s",
                                            type->type);
    if (is_sgd && self->file.values[KEY(BETAS)])
        return sl_deepspeed_file_refuse(&self->file, KEY(BETAS), "no parameter of SGD");
    return SL_OK;
}

static sl_status take_decay(reading *self)
{
    SL_TRY(take_number(self, KEY(WEIGHT_DECAY), ROW(weight_decay), 0));
    note_decay(self);
    return SL_OK;
}

static sl_status take_sgd(reading *self)
{
    SL_TRY(take_number(self, KEY(MOMENTUM), ROW(momentum), 0));
    SL_TRY(set(self, KEY(NESTEROV), ROW(nesterov),
               sl_deepspeed_file_is_on(&self->file, KEY(NESTEROV)) ? "true" : "false"));
    return take_decay(self);
}

/* Without "lr" DeepSpeed has two rates. */
static sl_status take_muon(reading *self)
{
    if (!self->file.values[KEY(LR)])
        return sl_deepspeed_file_refuse(&self->file, KEY(OPTIMIZER_TYPE),
                                        "without lr it has two rates: give lr, and --lr-of");
    SL_TRY(set_quietly(self, KEY(OPTIMIZER_TYPE), ROW(muon_scale), "original", true));
    sl_deepspeed_file_note(&self->file, KEY(OPTIMIZER_TYPE),
                           "--optimizer muon --muon-scale original");
    SL_TRY(take_number(self, KEY(MOMENTUM), ROW(momentum), 0.95));
    SL_TRY(take_number(self, KEY(EPS), ROW(eps), 1e-10));
    return take_decay(self);
}

static sl_status take_by_type(reading *self, const struct optimizer_type *type)
{
    if (type->is_adam)
        return take_adam(self, type);
    if (strcmp(type->option, "muon") == 0)
        return take_muon(self);
    return strcmp(type->option, "sgd") == 0 ? take_sgd(self) : take_decay(self);
}

static sl_status take_optimizer(reading *self)
{
    const struct optimizer_type *type = find_optimizer(self);
    if (!type)
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(OPTIMIZER_TYPE),
                                                "Adam, AdamW, SGD, Lion and Muon alone are known");
    if (sl_deepspeed_file_is_off(&self->file, KEY(FP32_STATES)))
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(FP32_STATES), "see --state-type");
    sl_deepspeed_file_note_nothing(&self->file, KEY(FP32_STATES),
                                   "moments are fp32 unless --state-type says otherwise");
    SL_TRY(refuse_parameters(self, type));
    SL_TRY(set(self, KEY(OPTIMIZER_TYPE), ROW(optimizer), type->option));
    SL_TRY(take_number(self, KEY(LR), ROW(lr), 1e-3));
    if (type->betas[0] > 0)
        SL_TRY(take_betas(self, type));
    SL_TRY(take_by_type(self, type));
    return take_number(self, KEY(CLIPPING), ROW(clip), 0);
}

/* ---- the schedule: the three that are computed here as there ---- */

enum { FOR_LR = 1, FOR_DECAY = 2, FOR_COSINE = 4 };

static const struct scheduler_key {
    uint32_t key;
    unsigned schedulers; /* those that know it */
} scheduler_keys[] = {
    {KEY(WARMUP_MIN_LR), FOR_LR | FOR_DECAY},   {KEY(WARMUP_MAX_LR), FOR_LR | FOR_DECAY},
    {KEY(TOTAL_STEPS), FOR_DECAY | FOR_COSINE}, {KEY(WARMUP_MIN_RATIO), FOR_COSINE},
    {KEY(COS_MIN_RATIO), FOR_COSINE},
};

static sl_status find_scheduler(const reading *self, const char *type, unsigned *out_scheduler)
{
    static const char *const names[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
    sl_nearest nearest = sl_nearest_start(type);
    char hint[HINT_BYTES];
    for (unsigned i = 0; i < COUNT_OF(names); i++) {
        sl_nearest_offer(&nearest, names[i]);
        if (strcmp(names[i], type) == 0) {
            *out_scheduler = 1u << i;
            return SL_OK;
        }
    }
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    return sl_deepspeed_file_refuse(
        &self->file, KEY(SCHEDULER_TYPE),
        "WarmupLR, WarmupDecayLR and WarmupCosineLR alone have an equal here%s", hint);
}

static sl_status check_scheduler_keys(const reading *self, const char *type, unsigned scheduler)
{
    for (size_t i = 0; i < COUNT_OF(scheduler_keys); i++)
        if (self->file.values[scheduler_keys[i].key] && !(scheduler_keys[i].schedulers & scheduler))
            return sl_deepspeed_file_refuse(&self->file, scheduler_keys[i].key,
                                            "no parameter of %s", type);
    if (scheduler != FOR_LR && !self->file.values[KEY(TOTAL_STEPS)])
        return sl_deepspeed_file_refuse(&self->file, KEY(TOTAL_STEPS), "%s needs it", type);
    if (sl_deepspeed_file_number(&self->file, KEY(WARMUP_STEPS), 1) < 1)
        return sl_deepspeed_file_refuse(&self->file, KEY(WARMUP_STEPS), "it is at least 1");
    if (sl_deepspeed_file_number(&self->file, KEY(LAST_ITERATION), -1) != -1)
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(LAST_ITERATION),
                                                "a schedule begins at its beginning");
    return SL_OK;
}

/* A share of the peak becomes a learning rate. */
static sl_status take_ratio(reading *self, uint32_t key, uint32_t row)
{
    if (sl_deepspeed_file_is_auto(&self->file, key))
        sl_deepspeed_file_note(&self->file, key, "decided here, by --%s",
                               sl_config_rows()[row].name);
    if (sl_deepspeed_file_is_open(&self->file, key))
        return SL_OK;
    return set_number(self, key, row,
                      json_number_value(self->file.values[key]) * find_taker(self, ROW(lr))->lr);
}

static sl_status take_rates(reading *self, unsigned scheduler)
{
    char text[SL_DEEPSPEED_NUMBER_BYTES];
    if (scheduler == FOR_COSINE) {
        SL_TRY(take_ratio(self, KEY(WARMUP_MIN_RATIO), ROW(warmup_lr)));
        return take_ratio(self, KEY(COS_MIN_RATIO), ROW(min_lr));
    }
    SL_TRY(take_number(self, KEY(WARMUP_MIN_LR), ROW(warmup_lr), 0));
    sl_deepspeed_file_format_number(sl_deepspeed_file_number(&self->file, KEY(WARMUP_MIN_LR), 0),
                                    text);
    SL_TRY(set_quietly(self, KEY(WARMUP_MIN_LR), ROW(min_lr), text, false));
    if (self->file.values[KEY(WARMUP_MAX_LR)] || scheduler == FOR_DECAY) {
        SL_TRY(take_number(self, KEY(WARMUP_MAX_LR), ROW(lr), 1e-3));
        if (!sl_deepspeed_file_is_auto(&self->file, KEY(WARMUP_MAX_LR)))
            sl_deepspeed_file_note_nothing(&self->file, KEY(LR),
                                           "scheduler.params.warmup_max_lr is the peak");
    }
    return SL_OK;
}

static sl_status take_scheduler(reading *self)
{
    const char *type = json_string_value(self->file.values[KEY(SCHEDULER_TYPE)]);
    unsigned scheduler = FOR_LR;
    if (!type) { /* what the optimizer has, always */
        SL_TRY(set(self, KEY(SCHEDULER_TYPE), ROW(lr_schedule), "constant"));
        SL_TRY(set_quietly(self, KEY(SCHEDULER_TYPE), ROW(warmup), "0", false));
        sl_deepspeed_file_note(&self->file, KEY(SCHEDULER_TYPE),
                               "--lr-schedule constant --warmup 0");
        return SL_OK;
    }
    SL_TRY(find_scheduler(self, type, &scheduler));
    SL_TRY(check_scheduler_keys(self, type, scheduler));
    SL_TRY(set(self, KEY(SCHEDULER_TYPE), ROW(lr_schedule), type));
    SL_TRY(take_number(self, KEY(WARMUP_STEPS), ROW(warmup), 1000));
    SL_TRY(set(self, KEY(WARMUP_TYPE), ROW(warmup_type),
               sl_deepspeed_file_text(&self->file, KEY(WARMUP_TYPE), "log")));
    if (scheduler != FOR_LR)
        SL_TRY(take_number(self, KEY(TOTAL_STEPS), ROW(lr_decay_steps), 0));
    sl_deepspeed_file_note_nothing(&self->file, KEY(LAST_ITERATION),
                                   "a schedule begins at its beginning always");
    return take_rates(self, scheduler);
}

/* ---- placement ---- */

typedef enum place { PLACE_NONE, PLACE_CPU, PLACE_NVME, PLACE_COUNT } place;

static sl_status read_place(const reading *self, uint32_t key, bool is_cpu_by_old_key,
                            place *out_place)
{
    static const char *const names[PLACE_COUNT] = {"none", "cpu", "nvme"};
    const char *name = sl_deepspeed_file_text(&self->file, key, is_cpu_by_old_key ? "cpu" : "none");
    for (int i = 0; i < PLACE_COUNT; i++)
        if (strcmp(name, names[i]) == 0) {
            *out_place = (place)i;
            return SL_OK;
        }
    return sl_deepspeed_file_refuse(&self->file, key, "it is none of none|cpu|nvme");
}

/* Where parameters and optimizer states live, of which the second a share. */
typedef struct offload {
    place params, states;
    double ratio;
    bool moves_activations;
} offload;

static sl_status read_offload(reading *self, offload *out_offload)
{
    const double stage = sl_deepspeed_file_number(&self->file, KEY(STAGE), 0);
    offload to = {.ratio = sl_deepspeed_file_number(&self->file, KEY(STATE_RATIO), 1),
                  .moves_activations = sl_deepspeed_file_is_on(&self->file, KEY(CPU_ACTIVATIONS))};
    if (!(stage >= 0 && stage <= 3))
        return sl_deepspeed_file_refuse(&self->file, KEY(STAGE), "it is 0, 1, 2 or 3");
    if (!(to.ratio >= 0 && to.ratio <= 1))
        return sl_deepspeed_file_refuse(&self->file, KEY(STATE_RATIO), "it is from 0 to 1");
    const bool is_old = sl_deepspeed_file_is_on(&self->file, KEY(CPU_OFFLOAD_PARAM)) ||
                        sl_deepspeed_file_is_on(&self->file, KEY(CPU_OFFLOAD_PARAMS));
    SL_TRY(read_place(self, KEY(PARAM_DEVICE), is_old, &to.params));
    SL_TRY(read_place(self, KEY(STATE_DEVICE),
                      sl_deepspeed_file_is_on(&self->file, KEY(CPU_OFFLOAD)), &to.states));
    if (self->file.values[KEY(STAGE)])
        SL_TRY(take_number(self, KEY(STAGE), ROW(zero), 0));
    if (stage < 3) {
        sl_deepspeed_file_note_nothing(&self->file, KEY(PARAM_DEVICE),
                                       "parameters are offloaded in stage 3 alone");
        to.params = PLACE_NONE;
    }
    if (stage < 1) {
        sl_deepspeed_file_note_nothing(&self->file, KEY(STATE_DEVICE),
                                       "states are offloaded from stage 1 on");
        to.states = PLACE_NONE;
    }
    *out_offload = to;
    return SL_OK;
}

/* One option of the placement, if it is not 0. */
static sl_status set_share(reading *self, uint32_t key, uint32_t row, double share)
{
    char text[SL_DEEPSPEED_NUMBER_BYTES], more[SL_DEEPSPEED_MEANING_BYTES];
    if (share <= 0)
        return SL_OK;
    SL_TRY(set_quietly(self, key, row, sl_deepspeed_file_format_number(share, text), true));
    snprintf(more, sizeof more, "%.100s --%s %s", self->file.meanings[key],
             sl_config_rows()[row].name, text);
    snprintf(self->file.meanings[key], SL_DEEPSPEED_MEANING_BYTES, "%s", more);
    return SL_OK;
}

static sl_status set_policy(reading *self, uint32_t key, const char *policy)
{
    SL_TRY(set_quietly(self, key, ROW(policy), policy, true));
    sl_deepspeed_file_note(&self->file, key, "--policy %s", policy);
    return SL_OK;
}

static sl_status take_homes(reading *self, const offload *to)
{
    const uint32_t key = to->states != PLACE_NONE ? KEY(STATE_DEVICE) : KEY(PARAM_DEVICE);
    const double on_host = to->states == PLACE_CPU ? to->ratio : 0;
    const double on_disk = to->states == PLACE_NVME ? 1 : 0;
    if (to->params != PLACE_NONE && key != KEY(PARAM_DEVICE))
        sl_deepspeed_file_note(&self->file, KEY(PARAM_DEVICE), "see offload_optimizer.device");
    if (to->params == PLACE_CPU && on_host == 1)
        return set_policy(self, key, "host");
    if (to->params != PLACE_NONE && to->states == PLACE_NVME) {
        SL_TRY(set_policy(self, key, "nvme"));
        return set_share(self, key, ROW(nvme_params), to->params == PLACE_NVME);
    }
    SL_TRY(set_policy(self, key, "static"));
    SL_TRY(set_share(self, key, ROW(offload_params), to->params == PLACE_CPU));
    SL_TRY(set_share(self, key, ROW(nvme_params), to->params == PLACE_NVME));
    SL_TRY(set_share(self, key, ROW(offload_optimizer), on_host));
    SL_TRY(set_share(self, key, ROW(nvme_optimizer), on_disk));
    return set_share(self, key, ROW(offload_grads), on_host + on_disk);
}

/* The directories of what goes to disk, each once. */
static sl_status take_directories(reading *self, const offload *to)
{
    const char *params = to->params == PLACE_NVME
                             ? sl_deepspeed_file_text(&self->file, KEY(PARAM_PATH), NULL)
                             : NULL;
    const char *states = to->states == PLACE_NVME
                             ? sl_deepspeed_file_text(&self->file, KEY(STATE_PATH), NULL)
                             : NULL;
    const struct {
        uint32_t key;
        const char *path;
    } places[] = {{KEY(STATE_PATH), states}, {KEY(PARAM_PATH), params}};
    sl_config *config = find_taker(self, ROW(disk_dir));
    sl_deepspeed_file_note_nothing(&self->file, KEY(PARAM_PATH), "parameters do not go to disk");
    sl_deepspeed_file_note_nothing(&self->file, KEY(STATE_PATH), "states do not go to disk");
    if (params || states)
        SL_TRY(sl_config_set(config, ROW(disk_dir), ""));
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        bool is_known = i == 1 && states && params && strcmp(states, params) == 0;
        if (!places[i].path)
            continue;
        if (!is_known)
            SL_TRY(sl_config_append(config, ROW(disk_dir), places[i].path));
        sl_deepspeed_file_note(&self->file, places[i].key,
                               "--disk-dir %.100s, unless that is given",
                               sl_files_show(places[i].path).text);
    }
    return SL_OK;
}

static sl_status take_placement(reading *self)
{
    offload to = {0};
    SL_TRY(read_offload(self, &to));
    sl_deepspeed_file_note_nothing(&self->file, KEY(CPU_OFFLOAD),
                                   "it is offload_optimizer.device cpu");
    sl_deepspeed_file_note_nothing(&self->file, KEY(CPU_OFFLOAD_PARAM),
                                   "it is offload_param.device cpu");
    sl_deepspeed_file_note_nothing(&self->file, KEY(CPU_OFFLOAD_PARAMS),
                                   "it is offload_param.device cpu");
    sl_deepspeed_file_note_nothing(&self->file, KEY(STATE_RATIO),
                                   "the host's share, where offload_optimizer.device is cpu");
    sl_deepspeed_file_note_nothing(&self->file, KEY(CPU_ACTIVATIONS),
                                   "the plan says where activations live");
    SL_TRY(take_directories(self, &to));
    if (to.params == PLACE_NONE && to.states == PLACE_NONE && !to.moves_activations) {
        sl_deepspeed_file_note(&self->file, KEY(ZERO),
                               "--policy auto: places never change the numbers");
        return SL_OK;
    }
    SL_TRY(take_homes(self, &to));
    if (!to.moves_activations)
        return SL_OK;
    sl_deepspeed_file_note(&self->file, KEY(CPU_ACTIVATIONS), "%s", "");
    return set_share(self, KEY(CPU_ACTIVATIONS), ROW(offload_activations), 1);
}

/* ---- what is watched, and what one rank cannot do ---- */

/* Where a monitor writes: output_path/job_name and an ending. */
static sl_status take_monitor(reading *self, const uint32_t monitor[3], uint32_t row,
                              const char *ending)
{
    const char *directory = sl_deepspeed_file_text(&self->file, monitor[1], "");
    const char *job = sl_deepspeed_file_text(&self->file, monitor[2], "DeepSpeedJobName");
    char *path = NULL;
    sl_deepspeed_file_note_nothing(&self->file, monitor[1], "a part of that path");
    sl_deepspeed_file_note_nothing(&self->file, monitor[2], "a part of that path");
    if (!sl_deepspeed_file_is_on(&self->file, monitor[0])) {
        sl_deepspeed_file_note_nothing(&self->file, monitor[0], "it is off");
        return SL_OK;
    }
    const size_t length = strlen(directory);
    const char *slash = length > 0 && directory[length - 1] != '/' ? "/" : "";
    if (asprintf(&path, "%s%s%s%s", directory, slash, job, ending) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a setting");
    sl_status status = set_quietly(self, monitor[0], row, path, true);
    sl_deepspeed_file_note(&self->file, monitor[0], "--%s %.100s", sl_config_rows()[row].name,
                           sl_files_show(path).text);
    free(path);
    return status;
}

static sl_status take_watching(reading *self)
{
    static const uint32_t board[] = {KEY(TENSORBOARD_ENABLED), KEY(TENSORBOARD_PATH),
                                     KEY(TENSORBOARD_JOB)};
    static const uint32_t csv[] = {KEY(CSV_ENABLED), KEY(CSV_PATH), KEY(CSV_JOB)};
    SL_TRY(take_monitor(self, board, ROW(tensorboard), ""));
    SL_TRY(take_monitor(self, csv, ROW(log_csv), ".csv"));
    return self->file.values[KEY(STEPS_PER_PRINT)]
               ? take_number(self, KEY(STEPS_PER_PRINT), ROW(log_every), 0)
               : SL_OK;
}

/* How gradients of ranks with other rows are joined: a mean here, however that is divided. */
static sl_status take_mean(reading *self)
{
    const char *how = sl_deepspeed_file_text(&self->file, KEY(ALLREDUCE_OP), "mean");
    if (strcmp(how, "mean") != 0)
        return sl_deepspeed_file_refuse_unequal(&self->file, KEY(ALLREDUCE_OP),
                                                "gradients of data-parallel ranks are averaged");
    sl_deepspeed_file_note_nothing(&self->file, KEY(ALLREDUCE_OP),
                                   "the mean over ranks is what is made");
    return SL_OK;
}

/* The number of tensor-parallel ranks is not known here. The option is set as one that the user did
 * not give, so sl_tensor_parallel_check takes it back if there is only one such rank. */
static sl_status take_partition(reading *self)
{
    const uint32_t key = KEY(PARTITION_ACTIVATIONS);
    sl_deepspeed_file_note_nothing(&self->file, key, "it is off");
    if (!sl_deepspeed_file_is_on(&self->file, key))
        return SL_OK;
    SL_TRY(set_quietly(self, key, ROW(partition_activations), "true", false));
    sl_deepspeed_file_note(&self->file, key, "--partition-activations, where --tp is above 1");
    return SL_OK;
}

static sl_status take_ranks(reading *self)
{
    SL_TRY(take_mean(self));
    SL_TRY(take_partition(self));
    if (sl_deepspeed_file_number(&self->file, KEY(SEQUENCE_PARALLEL), 1) > 1)
        return sl_deepspeed_file_refuse(
            &self->file, KEY(SEQUENCE_PARALLEL),
            "attention is not split along the sequence here: --tp N "
            "--sequence-parallel shares rows among the ranks of a tensor");
    sl_deepspeed_file_note_nothing(&self->file, KEY(SEQUENCE_PARALLEL), "each rank has whole rows");
    const double size = sl_deepspeed_file_number(&self->file, KEY(AUTOTP), 0);
    if (size > 0)
        return set_number(self, KEY(AUTOTP), ROW(tp), size);
    sl_deepspeed_file_note_nothing(&self->file, KEY(AUTOTP), "--tp says it");
    return SL_OK;
}

/* ---- all ---- */

static sl_status take_all(reading *self)
{
    SL_TRY(sl_deepspeed_file_pass_over(&self->file));
    SL_TRY(take_batch(self));
    SL_TRY(take_precision(self));
    SL_TRY(take_optimizer(self));
    SL_TRY(take_scheduler(self));
    SL_TRY(take_placement(self));
    SL_TRY(take_watching(self));
    return take_ranks(self);
}

/* Behind the tables of earlier files. */
static sl_status add_table(const reading *self, const char *path)
{
    char *text = NULL, **to = &self->config->explanation;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the meaning of a configuration");
    fputs(*to ? *to : "", stream);
    sl_deepspeed_file_print(&self->file, path, stream);
    if (fclose(stream) != 0) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the meaning of a configuration");
    }
    free(*to);
    *to = text;
    return SL_OK;
}

sl_status sl_deepspeed_read(sl_config *config, sl_config *others, sl_config_command command,
                            const char *path, const json_t *object)
{
    reading *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a configuration");
    self->config = config;
    self->others = others;
    self->command = command;
    sl_status status = sl_deepspeed_file_read(object, &self->file);
    if (status == SL_OK)
        status = take_all(self);
    if (status == SL_OK)
        status = add_table(self, path);
    free(self);
    return status;
}
