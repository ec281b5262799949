/* What options mean together: what this version refuses, and what follows from what. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/workers.h"
#include "config.h"
#include "config_device.h"
#include "files/tokens.h"
#include "units.h"

#define REFUSE_LATER(option, instead)                                                              \
    SL_FAIL(SL_ERROR_USAGE, "%s comes with a later version: %s", option, instead)

/* Options that are refused whenever they differ from the only value of this version. */
static sl_status refuse_later_compute(const sl_config *config)
{
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
    if (config->report)
        REFUSE_LATER("a report (--report)", "use --timeline and --log-json");
    return SL_OK;
}

/* A plan can be drawn for a device that is elsewhere; everything else starts by asking it. */
static sl_status check_device(sl_config *config, sl_config_command command)
{
    sl_device_info info;
    SL_TRY(sl_config_resolve_device(config));
    return command == SL_CONFIG_PLAN ? SL_OK : sl_config_query_device(config, &info);
}

/* cuda, cpu and const stand behind the names they are other names of. */
static void resolve_policy(sl_config *config)
{
    if (config->policy >= SL_CONFIG_POLICY_COUNT)
        config->policy -= SL_CONFIG_POLICY_COUNT;
}

/* A share of something away from the device, and the policies that let the user set it. */
typedef struct share {
    const char *name;
    size_t offset; /* of the field in sl_config */
    bool is_on_disk;
    unsigned policies; /* a set of 1 << sl_policy */
    const char *policy_names;
} share;

enum {
    FOR_STATIC = 1 << SL_POLICY_STATIC,
    FOR_DISK = FOR_STATIC | 1 << SL_POLICY_NVME,
    FOR_HOST = FOR_DISK | 1 << SL_POLICY_HOST
};

#define SHARE(name, field, ...)                                                                    \
    {                                                                                              \
        name, offsetof(sl_config, field), __VA_ARGS__                                              \
    }

/* Of each kind the host's share, then the disk's. */
static const share shares[][2] = {
    {SHARE("--offload-params", offload_params, false, FOR_STATIC, "static"),
     SHARE("--nvme-params", nvme_params, true, FOR_DISK, "static or nvme")},
    {SHARE("--offload-grads", offload_grads, false, FOR_STATIC, "static"),
     SHARE("--nvme-grads", nvme_grads, true, FOR_DISK, "static or nvme")},
    {SHARE("--offload-optimizer", offload_optimizer, false, FOR_STATIC, "static"),
     SHARE("--nvme-optimizer", nvme_optimizer, true, FOR_DISK, "static or nvme")},
    {SHARE("--offload-activations", offload_activations, false, FOR_HOST, "host, static or nvme"),
     SHARE("--nvme-activations", nvme_activations, true, FOR_DISK, "static or nvme")},
};

#undef SHARE

static double read_share(const sl_config *config, const share *of)
{
    return *(const double *)((const char *)config + of->offset);
}

static sl_status check_share(const sl_config *config, const share *of)
{
    double value = read_share(config, of);
    if (value > 0 && !(1u << config->policy & of->policies))
        SL_FAIL(SL_ERROR_USAGE, "%s is for --policy %s: add it", of->name, of->policy_names);
    if (value > 0 && of->is_on_disk && config->disk_dir.count == 0)
        SL_FAIL(SL_ERROR_USAGE, "%s needs a place on disk: add --disk-dir DIR", of->name);
    return SL_OK;
}

static sl_status check_shares(const sl_config *config)
{
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const share *host = &shares[i][0], *disk = &shares[i][1];
        SL_TRY(check_share(config, host));
        SL_TRY(check_share(config, disk));
        double host_share = read_share(config, host), disk_share = read_share(config, disk);
        if (host_share + disk_share > 1 + 1e-9) /* 0.7 and 0.3 are rounded */
            SL_FAIL(SL_ERROR_USAGE,
                    "%s %g and %s %g are more than all there is: at most 1 together", host->name,
                    host_share, disk->name, disk_share);
    }
    return SL_OK;
}

static sl_status check_placement(sl_config *config)
{
    SL_TRY(check_shares(config));
    if (config->adam == SL_ADAM_HOST && config->policy == SL_POLICY_DEVICE)
        SL_FAIL(SL_ERROR_USAGE,
                "--adam host needs states on the host: use --policy host or static");
    if (config->disk_dir.count)
        return SL_OK;
    if (config->policy == SL_POLICY_NVME)
        SL_FAIL(SL_ERROR_USAGE, "--policy nvme needs a place on disk: add --disk-dir DIR");
    if (config->disk_space != SL_CONFIG_UNSET && config->disk_space > 0)
        SL_FAIL(SL_ERROR_USAGE, "--disk-space needs a place on disk: add --disk-dir DIR");
    config->disk_space = 0;
    return SL_OK;
}

bool sl_config_scales_dynamically(const sl_config *config)
{
    return strcmp(config->loss_scale, "dynamic") == 0;
}

/* A dynamic scale finds its way by skipping steps; a fixed one in fp16 skips unless told otherwise.
 */
static sl_status resolve_loss_scale(sl_config *config)
{
    if (!config->loss_scale || strcmp(config->loss_scale, "auto") == 0)
        SL_TRY(sl_config_set(config, SL_CONFIG_ROW_loss_scale,
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

static sl_status check_loss_scale(const sl_config *config)
{
    double scale = 0;
    if (sl_config_scales_dynamically(config))
        return SL_OK;
    sl_status status = sl_units_parse_real(config->loss_scale, &scale);
    if (status != SL_OK || !(scale > 0 && scale <= 0x1p64))
        SL_FAIL(SL_ERROR_USAGE, "--loss-scale: \"%s\" is neither dynamic nor a number above 0",
                config->loss_scale);
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
    SL_TRY(resolve_loss_scale(config));
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
    if (config->threads == SL_CONFIG_UNSET)
        config->threads = sl_workers_usable_cpu_count();
    if (command & SL_CONFIG_DOCTOR)
        return SL_OK;
    if (command & SL_CONFIG_BENCH)
        return sl_config_resolve_device(config);
    resolve_policy(config);
    SL_TRY(refuse_later_files(config));
    SL_TRY(check_placement(config));
    SL_TRY(check_device(config, command));
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
