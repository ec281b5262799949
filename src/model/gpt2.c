/* GPT-2, by the layers of model.h. */
#include "gpt2.h"

#include <math.h>

#include "base/status.h"

static const float weight_deviation = 0.02f;

/* ---- the model ---- */

/* x + attention(norm(x)), then x + mlp(norm(x)). 2 * layers branches are added to the hidden
 * states, so each starts that much smaller (Radford et al. 2019). */
static sl_tensor build_block(sl_model *model, const sl_model_shape *shape, sl_tensor x)
{
    const bool is_colossal = sl_model_options_of(model)->split_layout == SL_SPLIT_COLOSSAL;
    const float branch_deviation = (float)(0.02 / sqrt(2.0 * shape->layers));
    const uint64_t width = shape->width, heads = shape->heads;
    const sl_linear_spec qkv = {3 * width, SL_QKV, heads, weight_deviation};
    const sl_linear_spec mixed = {width, is_colossal ? SL_GATHERED : SL_ROWS, 0, branch_deviation};
    const sl_linear_spec wide = {4 * width, SL_COLUMNS, 0, weight_deviation};
    const sl_linear_spec narrow = {width, SL_ROWS, 0, branch_deviation};
    sl_tensor y = sl_norm(model, "ln_1", x);
    y = sl_linear(model, "attn.c_attn", y, &qkv);
    y = sl_attention(model, "attn", y, heads);
    y = sl_linear(model, "attn.c_proj", y, &mixed);
    x = sl_drop_add(model, "attn.dropout", y, x);
    y = sl_norm(model, "ln_2", x);
    y = sl_linear(model, "mlp.c_fc", y, &wide);
    y = sl_gelu(model, "mlp.gelu", y);
    y = sl_linear(model, "mlp.c_proj", y, &narrow);
    return sl_drop_add(model, "mlp.dropout", y, x);
}

sl_status sl_gpt2_build(sl_model *model, const void *user)
{
    const sl_model_shape *shape = user;
    const sl_embedding embedding = {"wte", shape->vocab,   shape->width,
                                    "wpe", shape->context, weight_deviation};
    sl_tensor x = sl_drop(model, "embedding.dropout", sl_embed(model, &embedding));
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        sl_block(model, "h", layer);
        x = build_block(model, shape, x);
        sl_block_end(model);
    }
    sl_head(model, "wte", sl_norm(model, "ln_f", x));
    return SL_OK;
}

/* ---- what GPT-2's shape asks of the options ---- */

static sl_status check_stages(const sl_model_shape *shape, const sl_model_options *options)
{
    if (options->stage_count <= 1)
        return SL_OK;
    if (options->stage_count > shape->layers)
        SL_FAIL(SL_ERROR_USAGE, "%u layers are too few for %u stages (--pp): each takes one",
                shape->layers, options->stage_count);
    if (options->layer_end > 0 &&
        (options->layer_end > shape->layers || options->first_layer >= options->layer_end))
        SL_FAIL(SL_ERROR_INTERNAL, "layers %u to %u of %u on a stage", options->first_layer,
                options->layer_end, shape->layers);
    return SL_OK;
}

sl_status sl_gpt2_check_options(const sl_model_shape *shape, const sl_model_options *options)
{
    SL_TRY(sl_gpt2_check(shape, options->tp_size));
    if (options->batch == 0 || options->seq == 0 || options->seq > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "%u rows of %u tokens: rows must be positive, tokens 1 to %u",
                options->batch, options->seq, shape->context);
    const uint32_t cache_rows = options->cache_rows ? options->cache_rows : shape->context;
    if (cache_rows < options->seq || cache_rows > shape->context)
        SL_FAIL(SL_ERROR_USAGE, "a cache of %u tokens: %u to %u", cache_rows, options->seq,
                shape->context);
    return check_stages(shape, options);
}
