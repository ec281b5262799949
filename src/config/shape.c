/* The shape of the model: of --model or of a checkpoint, changed by the options that name sizes. */
#include "config.h"
#include "foreign/words.h"
#include "tensor_parallel.h"

static void take_size(uint64_t given, uint32_t *size)
{
    if (given != SL_CONFIG_UNSET)
        *size = (uint32_t)given; /* the list's ranges keep it in 32 bits */
}

static sl_status find_model(const char *name, sl_model_shape *out_shape)
{
    char meaning[SL_WORDS_TEXT_BYTES];
    const sl_status status = sl_architecture_named(name, out_shape);
    if (status == SL_ERROR_USAGE && sl_words_explain(SL_WORD_MODEL, NULL, name, meaning))
        SL_FAIL(SL_ERROR_USAGE, "--model: no model is called \"%.64s\"%s", name, meaning);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--model");
}

sl_status sl_config_shape(const sl_config *config, const sl_model_shape *base, uint32_t vocab,
                          sl_model_shape *out_shape)
{
    sl_model_shape shape = {.context = 1024, .vocab = vocab};
    if (config->model)
        SL_TRY(find_model(config->model, &shape));
    else if (base)
        shape = *base;
    else if (config->layers == SL_CONFIG_UNSET || config->width == SL_CONFIG_UNSET ||
             config->heads == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE,
                "--model is missing: give a name such as %s, or --layers, --width and --heads",
                sl_architecture_names()[0]);
    take_size(config->layers, &shape.layers);
    take_size(config->width, &shape.width);
    take_size(config->heads, &shape.heads);
    take_size(config->context, &shape.context);
    take_size(config->vocab, &shape.vocab);
    SL_TRY(sl_model_shape_check(&shape, 1));
    *out_shape = shape;
    return SL_OK;
}

sl_status sl_config_fit_model(sl_config *config, const sl_model_shape *shape)
{
    SL_TRY(sl_model_shape_check(shape, 1));
    if (config->seq == SL_CONFIG_UNSET && shape->context == 0)
        SL_FAIL(SL_ERROR_USAGE, "--seq is missing: the model has no longest row");
    if (config->seq == SL_CONFIG_UNSET)
        config->seq = shape->context;
    if (config->seq > shape->context && shape->context > 0)
        SL_FAIL(SL_ERROR_USAGE, "--seq %llu is beyond the model's context of %u tokens",
                (unsigned long long)config->seq, shape->context);
    return sl_tensor_parallel_check(config);
}
