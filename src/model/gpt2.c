/* GPT-2, by the layers of model.h. */
#include "gpt2.h"

#include <math.h>

#include "row.h"

static const float weight_deviation = 0.02f;

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

static sl_status build(sl_model *model, const void *user)
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

const sl_architecture sl_gpt2_architecture = {.check = sl_gpt2_check,
                                              .parameters = sl_gpt2_parameters,
                                              .attention_width = sl_gpt2_attention_width,
                                              .build = build,
                                              .attention_linears = "c_attn,attn.c_proj"};
