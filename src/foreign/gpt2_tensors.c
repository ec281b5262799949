/* The table of kinds, and walks over it; see gpt2_tensors.h. */
#include "gpt2_tensors.h"

#include <stdio.h>

static const uint32_t FIRST_OF_LAYER = SL_LLMC_LN_1_WEIGHT, LAST_OF_LAYER = SL_LLMC_MLP_OUT_BIAS;

enum { KINDS_OF_LAYER = SL_LLMC_MLP_OUT_BIAS - SL_LLMC_LN_1_WEIGHT + 1 };

/* Names behind "h.N." and "blk.N." where there is one of each layer. */
static const struct kind_names {
    const char *name, *gguf;
    bool is_linear;
} names[SL_LLMC_KIND_COUNT] = {
    [SL_LLMC_WTE] = {"wte.weight", "token_embd.weight"},
    [SL_LLMC_WPE] = {"wpe.weight", "position_embd.weight"},
    [SL_LLMC_LN_1_WEIGHT] = {"ln_1.weight", "attn_norm.weight"},
    [SL_LLMC_LN_1_BIAS] = {"ln_1.bias", "attn_norm.bias"},
    [SL_LLMC_QKV_WEIGHT] = {"attn.c_attn.weight", "attn_qkv.weight", true},
    [SL_LLMC_QKV_BIAS] = {"attn.c_attn.bias", "attn_qkv.bias"},
    [SL_LLMC_ATTENTION_OUT_WEIGHT] = {"attn.c_proj.weight", "attn_output.weight", true},
    [SL_LLMC_ATTENTION_OUT_BIAS] = {"attn.c_proj.bias", "attn_output.bias"},
    [SL_LLMC_LN_2_WEIGHT] = {"ln_2.weight", "ffn_norm.weight"},
    [SL_LLMC_LN_2_BIAS] = {"ln_2.bias", "ffn_norm.bias"},
    [SL_LLMC_MLP_IN_WEIGHT] = {"mlp.c_fc.weight", "ffn_up.weight", true},
    [SL_LLMC_MLP_IN_BIAS] = {"mlp.c_fc.bias", "ffn_up.bias"},
    [SL_LLMC_MLP_OUT_WEIGHT] = {"mlp.c_proj.weight", "ffn_down.weight", true},
    [SL_LLMC_MLP_OUT_BIAS] = {"mlp.c_proj.bias", "ffn_down.bias"},
    [SL_LLMC_LN_F_WEIGHT] = {"ln_f.weight", "output_norm.weight"},
    [SL_LLMC_LN_F_BIAS] = {"ln_f.bias", "output_norm.bias"},
};

static bool is_of_layer(sl_llmc_kind kind)
{
    return (uint32_t)kind >= FIRST_OF_LAYER && (uint32_t)kind <= LAST_OF_LAYER;
}

sl_llmc_shape sl_gpt2_tensors_llmc(const sl_model_shape *shape)
{
    uint32_t padding = SL_LLMC_PADDING;
    return (sl_llmc_shape){.context = shape->context,
                           .vocab = shape->vocab,
                           .layers = shape->layers,
                           .heads = shape->heads,
                           .width = shape->width,
                           .padded_vocab = (shape->vocab + padding - 1) / padding * padding};
}

/* From llm.c's sizes: the rows of wte are those that exist, linear weights lie across. */
static sl_gpt2_tensor make_tensor(const sl_model_shape *shape, sl_llmc_kind kind, uint32_t layer)
{
    const sl_llmc_shape llmc = sl_gpt2_tensors_llmc(shape);
    const sl_llmc_place place = sl_llmc_find(&llmc, kind, layer);
    bool is_matrix = kind == SL_LLMC_WTE || kind == SL_LLMC_WPE;
    sl_gpt2_tensor tensor = {.kind = kind, .layer = layer, .is_linear = names[kind].is_linear};
    tensor.dim_count = is_matrix || tensor.is_linear ? 2 : 1;
    tensor.rows = tensor.is_linear ? place.columns : place.rows;
    tensor.columns = tensor.is_linear ? place.rows : place.columns;
    if (kind == SL_LLMC_WTE)
        tensor.rows = shape->vocab;
    return tensor;
}

uint32_t sl_gpt2_tensors_count(const sl_model_shape *shape)
{
    return SL_LLMC_KIND_COUNT + (shape->layers - 1) * KINDS_OF_LAYER;
}

sl_gpt2_tensor sl_gpt2_tensors_nth(const sl_model_shape *shape, uint32_t index)
{
    if (index < FIRST_OF_LAYER)
        return make_tensor(shape, (sl_llmc_kind)index, 0);
    uint32_t within = index - FIRST_OF_LAYER, layer = within / KINDS_OF_LAYER;
    if (layer < shape->layers)
        return make_tensor(shape, (sl_llmc_kind)(FIRST_OF_LAYER + within % KINDS_OF_LAYER), layer);
    uint32_t behind = within - shape->layers * KINDS_OF_LAYER;
    return make_tensor(shape, (sl_llmc_kind)(LAST_OF_LAYER + 1 + behind), 0);
}

sl_gpt2_tensor sl_gpt2_tensors_nth_by_kind(const sl_model_shape *shape, uint32_t index)
{
    if (index < FIRST_OF_LAYER)
        return make_tensor(shape, (sl_llmc_kind)index, 0);
    uint32_t within = index - FIRST_OF_LAYER, kind = within / shape->layers;
    if (kind < KINDS_OF_LAYER)
        return make_tensor(shape, (sl_llmc_kind)(FIRST_OF_LAYER + kind), within % shape->layers);
    uint32_t behind = within - shape->layers * KINDS_OF_LAYER;
    return make_tensor(shape, (sl_llmc_kind)(LAST_OF_LAYER + 1 + behind), 0);
}

uint32_t sl_gpt2_tensors_index(const sl_model_shape *shape, const sl_gpt2_tensor *tensor)
{
    if (is_of_layer(tensor->kind))
        return tensor->layer * KINDS_OF_LAYER + (uint32_t)tensor->kind;
    return (uint32_t)tensor->kind +
           ((uint32_t)tensor->kind > LAST_OF_LAYER ? (shape->layers - 1) * KINDS_OF_LAYER : 0);
}

static sl_gpt2_tensor_name make_name(const sl_gpt2_tensor *tensor, const char *front,
                                     const char *name)
{
    sl_gpt2_tensor_name made;
    if (is_of_layer(tensor->kind))
        snprintf(made.text, sizeof made.text, "%s.%u.%s", front, tensor->layer, name);
    else
        snprintf(made.text, sizeof made.text, "%s", name);
    return made;
}

sl_gpt2_tensor_name sl_gpt2_tensors_name(const sl_gpt2_tensor *tensor)
{
    return make_name(tensor, "h", names[tensor->kind].name);
}

sl_gpt2_tensor_name sl_gpt2_tensors_gguf_name(const sl_gpt2_tensor *tensor)
{
    return make_name(tensor, "blk", names[tensor->kind].gguf);
}

void sl_gpt2_tensors_specify(const sl_model_shape *shape, sl_tensor_spec *out_specs)
{
    for (uint32_t i = 0; i < sl_gpt2_tensors_count(shape); i++) {
        const sl_gpt2_tensor tensor = sl_gpt2_tensors_nth(shape, i);
        out_specs[i] = (sl_tensor_spec){.dim_count = tensor.dim_count,
                                        .shape = {tensor.rows, tensor.columns},
                                        .valid_rows = tensor.rows,
                                        .whole_shape = {tensor.rows, tensor.columns},
                                        .element_count = tensor.rows * tensor.columns};
        snprintf(out_specs[i].name, sizeof out_specs[i].name, "%.47s",
                 sl_gpt2_tensors_name(&tensor).text);
    }
}
