/* The table of names, see megatron_tensors.h. */
#include "megatron_tensors.h"

#include <stdio.h>

const sl_megatron_kind sl_megatron_kinds[SL_LLMC_KIND_COUNT] = {
    [SL_LLMC_WTE] = {{"language_model.embedding.word_embeddings.weight",
                      "embedding.word_embeddings.weight"},
                     SL_MEGATRON_ROWS},
    [SL_LLMC_WPE] = {{"language_model.embedding.position_embeddings.weight",
                      "embedding.position_embeddings.weight"},
                     SL_MEGATRON_WHOLE},
    [SL_LLMC_LN_1_WEIGHT] = {{"input_layernorm.weight", "input_norm.weight",
                              "self_attention.linear_qkv.layer_norm_weight"},
                             SL_MEGATRON_WHOLE},
    [SL_LLMC_LN_1_BIAS] = {{"input_layernorm.bias", "input_norm.bias",
                            "self_attention.linear_qkv.layer_norm_bias"},
                           SL_MEGATRON_WHOLE},
    [SL_LLMC_QKV_WEIGHT] = {{"self_attention.query_key_value.weight",
                             "attention.query_key_value.weight",
                             "self_attention.linear_qkv.weight"},
                            SL_MEGATRON_HEADS},
    [SL_LLMC_QKV_BIAS] = {{"self_attention.query_key_value.bias", "attention.query_key_value.bias",
                           "self_attention.linear_qkv.bias"},
                          SL_MEGATRON_HEADS},
    [SL_LLMC_ATTENTION_OUT_WEIGHT] = {{"self_attention.dense.weight", "attention.dense.weight",
                                       "self_attention.linear_proj.weight"},
                                      SL_MEGATRON_COLUMNS},
    [SL_LLMC_ATTENTION_OUT_BIAS] = {{"self_attention.dense.bias", "attention.dense.bias",
                                     "self_attention.linear_proj.bias"},
                                    SL_MEGATRON_WHOLE},
    [SL_LLMC_LN_2_WEIGHT] = {{"post_attention_layernorm.weight", "post_attention_norm.weight",
                              "pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"},
                             SL_MEGATRON_WHOLE},
    [SL_LLMC_LN_2_BIAS] = {{"post_attention_layernorm.bias", "post_attention_norm.bias",
                            "pre_mlp_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"},
                           SL_MEGATRON_WHOLE},
    [SL_LLMC_MLP_IN_WEIGHT] = {{"mlp.dense_h_to_4h.weight", "mlp.linear_fc1.weight"},
                               SL_MEGATRON_ROWS},
    [SL_LLMC_MLP_IN_BIAS] = {{"mlp.dense_h_to_4h.bias", "mlp.linear_fc1.bias"}, SL_MEGATRON_ROWS},
    [SL_LLMC_MLP_OUT_WEIGHT] = {{"mlp.dense_4h_to_h.weight", "mlp.linear_fc2.weight"},
                                SL_MEGATRON_COLUMNS},
    [SL_LLMC_MLP_OUT_BIAS] = {{"mlp.dense_4h_to_h.bias", "mlp.linear_fc2.bias"}, SL_MEGATRON_WHOLE},
    [SL_LLMC_LN_F_WEIGHT] = {{"final_norm.weight", "final_layernorm.weight"}, SL_MEGATRON_WHOLE},
    [SL_LLMC_LN_F_BIAS] = {{"final_norm.bias", "final_layernorm.bias"}, SL_MEGATRON_WHOLE},
};

bool sl_megatron_tensors_has_front(sl_llmc_kind kind)
{
    return kind != SL_LLMC_WTE && kind != SL_LLMC_WPE;
}

sl_megatron_name sl_megatron_tensors_name(const sl_gpt2_tensor *tensor, const char *front,
                                          const char *name)
{
    sl_megatron_name made;
    if (!sl_megatron_tensors_has_front(tensor->kind))
        snprintf(made.text, sizeof made.text, "%s", name);
    else if (tensor->kind >= SL_LLMC_LN_F_WEIGHT)
        snprintf(made.text, sizeof made.text, "%s.%s", front, name);
    else
        snprintf(made.text, sizeof made.text, "%s.layers.%u.%s", front, tensor->layer, name);
    return made;
}

sl_megatron_name sl_megatron_tensors_core_name(const sl_gpt2_tensor *tensor)
{
    const sl_megatron_kind *kind = &sl_megatron_kinds[tensor->kind];
    uint32_t last = 0;
    while (last + 1 < SL_MEGATRON_NAMES_MAX && kind->names[last + 1])
        last++;
    return sl_megatron_tensors_name(tensor, SL_MEGATRON_CORE_FRONT, kind->names[last]);
}

sl_megatron_name sl_megatron_tensors_piece(uint32_t tp_rank, uint32_t pp_rank, bool has_stages)
{
    sl_megatron_name name;
    if (has_stages)
        snprintf(name.text, sizeof name.text, "mp_rank_%02u_%03u", tp_rank, pp_rank);
    else
        snprintf(name.text, sizeof name.text, "mp_rank_%02u", tp_rank);
    return name;
}
