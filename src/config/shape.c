/* The shape of the model: of --model or of a checkpoint, changed by the options that name sizes. */
#include <math.h>

#include "config.h"
#include "foreign/words.h"

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

/* --arch, but of a model that has a name or a checkpoint it is only compared. */
static sl_status take_architecture(const sl_config *config, bool is_known, sl_model_shape *shape)
{
    const sl_architecture_kind given = (sl_architecture_kind)(config->arch - SL_CONFIG_ARCH_FIRST);
    if (config->arch == SL_CONFIG_ARCH_AUTO)
        return SL_OK;
    if (is_known && given != shape->architecture)
        SL_FAIL(SL_ERROR_USAGE, "--arch %s: the model is a %s", sl_architecture_name(given),
                sl_architecture_name(shape->architecture));
    shape->architecture = given;
    return SL_OK;
}

/* An option that was given for a model that has nothing of the kind; NULL: there is none. */
static const char *find_llama_option(const sl_config *config)
{
    const struct {
        const char *name;
        bool is_given;
    } options[] = {{"kv-heads", config->kv_heads != SL_CONFIG_UNSET},
                   {"head-size", config->head_size != SL_CONFIG_UNSET},
                   {"ffn", config->ffn != SL_CONFIG_UNSET},
                   {"norm-epsilon", !isnan(config->norm_epsilon)},
                   {"rope-base", !isnan(config->rope_base)},
                   {"untied", config->untied}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (options[i].is_given)
            return options[i].name;
    return NULL;
}

static sl_status take_llama_sizes(const sl_config *config, sl_model_shape *shape)
{
    const char *option = find_llama_option(config);
    if (!sl_model_shape_is_llama(shape) && option)
        SL_FAIL(SL_ERROR_USAGE,
                "--%s is no option of a %s: give --arch llama, or one like it (sluice help models)",
                option, sl_architecture_name(shape->architecture));
    take_size(config->kv_heads, &shape->kv_heads);
    take_size(config->head_size, &shape->head);
    take_size(config->ffn, &shape->ffn);
    if (!isnan(config->norm_epsilon))
        shape->norm_epsilon = config->norm_epsilon;
    if (!isnan(config->rope_base))
        shape->rope.base = config->rope_base;
    if (config->given[SL_CONFIG_ROW_untied])
        shape->is_untied = config->untied;
    sl_model_shape_complete(shape);
    return SL_OK;
}

/* A model without a name needs all three; the message names the first that is missing. */
static sl_status check_sizes(const sl_config *config)
{
    const bool has_some = config->layers != SL_CONFIG_UNSET || config->width != SL_CONFIG_UNSET ||
                          config->heads != SL_CONFIG_UNSET;
    const char *missing = !has_some                           ? "model"
                          : config->layers == SL_CONFIG_UNSET ? "layers"
                          : config->width == SL_CONFIG_UNSET  ? "width"
                          : config->heads == SL_CONFIG_UNSET  ? "heads"
                                                              : NULL;
    if (!missing)
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE,
            "--%s is missing: give --model NAME, such as %s, or --layers, --width and --heads",
            missing, sl_architecture_names()[0]);
}

sl_status sl_config_shape(const sl_config *config, const sl_model_shape *base, uint32_t vocab,
                          sl_model_shape *out_shape)
{
    sl_model_shape shape = {.context = 1024, .vocab = vocab};
    if (config->model)
        SL_TRY(find_model(config->model, &shape));
    else if (base)
        shape = *base;
    else
        SL_TRY(check_sizes(config));
    SL_TRY(take_architecture(config, config->model || base, &shape));
    take_size(config->layers, &shape.layers);
    take_size(config->width, &shape.width);
    take_size(config->heads, &shape.heads);
    take_size(config->context, &shape.context);
    take_size(config->vocab, &shape.vocab);
    SL_TRY(take_llama_sizes(config, &shape));
    SL_TRY(sl_model_shape_check(&shape, 1));
    *out_shape = shape;
    return SL_OK;
}

void sl_config_record_shape(sl_config *config, const sl_model_shape *shape)
{
    if (shape->architecture == SL_ARCHITECTURE_OWN)
        return;
    config->layers = shape->layers;
    config->width = shape->width;
    config->heads = shape->heads;
    config->context = shape->context;
    config->vocab = shape->vocab;
    if (!sl_model_shape_is_llama(shape))
        return;
    config->arch = SL_CONFIG_ARCH_FIRST + shape->architecture;
    config->kv_heads = shape->kv_heads;
    config->head_size = shape->head;
    config->ffn = shape->ffn;
    config->norm_epsilon = shape->norm_epsilon;
    config->rope_base = shape->rope.base;
    config->untied = shape->is_untied;
}

bool sl_config_is_of_shape(uint32_t row)
{
    static const uint32_t rows[] = {
        SL_CONFIG_ROW_model,     SL_CONFIG_ROW_arch,   SL_CONFIG_ROW_layers,
        SL_CONFIG_ROW_width,     SL_CONFIG_ROW_heads,  SL_CONFIG_ROW_kv_heads,
        SL_CONFIG_ROW_head_size, SL_CONFIG_ROW_ffn,    SL_CONFIG_ROW_norm_epsilon,
        SL_CONFIG_ROW_rope_base, SL_CONFIG_ROW_untied, SL_CONFIG_ROW_context,
        SL_CONFIG_ROW_vocab};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i] == row)
            return true;
    return false;
}

const char *sl_config_shape_option(const sl_config *config)
{
    for (uint32_t row = 0; row < SL_CONFIG_ROW_COUNT; row++)
        if (config->given[row] && sl_config_is_of_shape(row))
            return sl_config_rows()[row].name;
    return config->model ? "model" : NULL;
}

uint64_t sl_config_default_seq(const sl_model_shape *shape)
{
    enum { ROTARY_SEQ = 4096 };
    return sl_model_shape_is_llama(shape) && shape->context > ROTARY_SEQ ? ROTARY_SEQ
                                                                         : shape->context;
}

sl_status sl_config_fit_model(sl_config *config, const sl_model_shape *shape)
{
    SL_TRY(sl_model_shape_check(shape, 1));
    if (config->seq == SL_CONFIG_UNSET && shape->context == 0)
        SL_FAIL(SL_ERROR_USAGE, "--seq is missing: the model has no longest row");
    if (config->seq == SL_CONFIG_UNSET)
        config->seq = sl_config_default_seq(shape);
    if (config->seq > shape->context && shape->context > 0)
        SL_FAIL(SL_ERROR_USAGE, "--seq %llu is beyond the model's context of %u tokens",
                (unsigned long long)config->seq, shape->context);
    return SL_OK;
}
