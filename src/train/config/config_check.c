/* What options mean together: what this version refuses, and what follows from what. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/workers.h"
#include "config.h"
#include "train/data/tokens.h"
#include "units.h"

#define REFUSE_LATER(option, instead)                                                              \
    SL_FAIL(SL_ERROR_USAGE, "%s comes with a later version: %s", option, instead)

/* Options that are refused whenever they differ from the only value of this version. */
static sl_status refuse_later_memory(const sl_config *config)
{
    if (config->policy == SL_CONFIG_POLICY_NVME)
        REFUSE_LATER("--policy nvme", "use --policy host or static");
    if (config->nvme_params > 0 || config->nvme_grads > 0 || config->nvme_optimizer > 0 ||
        config->nvme_activations > 0)
        REFUSE_LATER("placing a share on disk (--nvme-...)", "use the --offload-... fractions");
    if (config->disk_space != SL_CONFIG_UNSET && config->disk_space > 0)
        REFUSE_LATER("the disk tier (--disk-space)", "leave it out or give 0");
    if (config->disk_dir.count)
        REFUSE_LATER("the disk tier (--disk-dir)", "leave it out");
    if (config->offload_activations > 0)
        REFUSE_LATER("--offload-activations", "use --recompute full");
    return SL_OK;
}

static sl_status refuse_later_compute(const sl_config *config)
{
    if (config->precision != SL_CONFIG_FP32)
        REFUSE_LATER("half precision (--precision bf16, fp16)", "use --precision fp32");
    if (config->loss_scale && strcmp(config->loss_scale, "dynamic") == 0)
        REFUSE_LATER("--loss-scale dynamic", "use a fixed one; fp32 needs none");
    if (config->dropout > 0)
        REFUSE_LATER("--dropout", "use --dropout 0");
    if (config->tp > 1 || config->pp > 1)
        REFUSE_LATER("more than one rank (--tp, --pp)", "use one rank");
    if (config->zero > 1)
        REFUSE_LATER("ZeRO beyond stage 1 (--zero)", "use one rank and --policy host or static");
    if (config->sequence_parallel)
        REFUSE_LATER("--sequence-parallel", "leave it out");
    return SL_OK;
}

static sl_status refuse_later_files(const sl_config *config)
{
    if (config->tokenizer && strcmp(config->tokenizer, "byte") != 0)
        REFUSE_LATER("--tokenizer DIR", "use --tokenizer byte, or files of tokens");
    if (config->machine)
        REFUSE_LATER("--machine", "leave it out; rates are then a plain guess");
    if (config->timeline || config->report)
        REFUSE_LATER("a timeline or report (--timeline, --report)", "use --log-json");
    return SL_OK;
}

static sl_status check_device(sl_config *config)
{
    const char *device = config->device ? config->device : "auto";
    if (strncmp(device, "cuda", 4) == 0 && (device[4] == '\0' || device[4] == ':'))
        REFUSE_LATER("--device cuda", "use --device cpu");
    if (strcmp(device, "auto") != 0 && strcmp(device, "cpu") != 0)
        SL_FAIL(SL_ERROR_USAGE, "--device: \"%s\" is none of cpu|cuda[:N]", device);
    return sl_config_set(config, SL_CONFIG_ROW_device, "cpu");
}

/* cuda, cpu and const stand behind the names they are other names of. */
static void resolve_policy(sl_config *config)
{
    if (config->policy >= SL_CONFIG_POLICY_COUNT)
        config->policy -= SL_CONFIG_POLICY_COUNT;
}

static sl_status check_fractions(const sl_config *config)
{
    bool is_any =
        config->offload_params > 0 || config->offload_grads > 0 || config->offload_optimizer > 0;
    if (is_any && config->policy != SL_POLICY_STATIC)
        SL_FAIL(SL_ERROR_USAGE, "the --offload-... fractions are for --policy static: add it");
    if (config->adam == SL_ADAM_HOST && config->policy == SL_POLICY_DEVICE)
        SL_FAIL(SL_ERROR_USAGE,
                "--adam host needs states on the host: use --policy host or static");
    return SL_OK;
}

static sl_status check_loss_scale(const sl_config *config)
{
    double scale = 0;
    sl_status status =
        config->loss_scale ? sl_units_parse_real(config->loss_scale, &scale) : SL_ERROR_USAGE;
    if (status != SL_OK || !(scale > 0 && scale <= 0x1p64))
        SL_FAIL(SL_ERROR_USAGE, "--loss-scale: \"%s\" is not a number above 0",
                config->loss_scale ? config->loss_scale : "");
    return SL_OK;
}

static sl_status check_saving(const sl_config *config)
{
    if (config->save)
        return SL_OK;
    if (config->resume)
        SL_FAIL(SL_ERROR_USAGE, "--resume needs --save DIR: the directory to go on from");
    if (config->save_every)
        SL_FAIL(SL_ERROR_USAGE, "--save-every needs --save DIR");
    if (config->keep)
        SL_FAIL(SL_ERROR_USAGE, "--keep needs --save DIR");
    return SL_OK;
}

static sl_status check_training(sl_config *config, sl_config_command command)
{
    SL_TRY(refuse_later_compute(config));
    SL_TRY(check_loss_scale(config));
    SL_TRY(check_saving(config));
    if (command == SL_CONFIG_TRAIN && config->data.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "--data is missing: give the text or token files to train on");
    if (config->eval_every && config->eval_data.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "--eval-every needs --eval-data");
    if (config->warmup == SL_CONFIG_UNSET)
        config->warmup = config->steps / 100;
    if (isnan(config->min_lr))
        config->min_lr = 0.1 * config->lr;
    if (config->min_lr > config->lr)
        SL_FAIL(SL_ERROR_USAGE, "--min-lr %g is above --lr %g", config->min_lr, config->lr);
    return SL_OK;
}

static sl_status check_reading(const sl_config *config, sl_config_command command)
{
    if (!config->checkpoint)
        SL_FAIL(SL_ERROR_USAGE, "--checkpoint is missing: give a directory that train saved, or a "
                                "Hugging Face GPT-2 directory");
    if (command == SL_CONFIG_EVAL && config->data.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "--data is missing: give the files to evaluate on");
    return SL_OK;
}

sl_status sl_config_check(sl_config *config, sl_config_command command)
{
    if (command == SL_CONFIG_DOCTOR)
        return SL_OK;
    SL_TRY(check_device(config));
    resolve_policy(config);
    SL_TRY(refuse_later_memory(config));
    SL_TRY(refuse_later_files(config));
    SL_TRY(check_fractions(config));
    if (config->threads == SL_CONFIG_UNSET)
        config->threads = sl_workers_usable_cpu_count();
    if (command & (SL_CONFIG_TRAIN | SL_CONFIG_PLAN))
        return check_training(config, command);
    return check_reading(config, command);
}

static void take_size(uint64_t given, uint32_t *size)
{
    if (given != SL_CONFIG_UNSET)
        *size = (uint32_t)given; /* the list's ranges keep it in 32 bits */
}

sl_status sl_config_shape(const sl_config *config, const sl_gpt2_shape *base, uint32_t vocab,
                          sl_gpt2_shape *out_shape)
{
    sl_gpt2_shape shape = {.context = 1024, .vocab = vocab};
    if (config->model)
        SL_TRY(sl_gpt2_named(config->model, &shape));
    else if (base)
        shape = *base;
    else if (config->layers == SL_CONFIG_UNSET || config->width == SL_CONFIG_UNSET ||
             config->heads == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE, "--model is missing: give a name such as gpt2, or --layers, "
                                "--width and --heads");
    take_size(config->layers, &shape.layers);
    take_size(config->width, &shape.width);
    take_size(config->heads, &shape.heads);
    take_size(config->context, &shape.context);
    take_size(config->vocab, &shape.vocab);
    SL_TRY(sl_gpt2_check(&shape, 1));
    *out_shape = shape;
    return SL_OK;
}

sl_status sl_config_fit_model(sl_config *config, const sl_gpt2_shape *shape)
{
    if (config->seq == SL_CONFIG_UNSET)
        config->seq = shape->context;
    if (config->seq > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "--seq %llu is beyond the model's context of %u tokens",
                (unsigned long long)config->seq, shape->context);
    return SL_OK;
}
