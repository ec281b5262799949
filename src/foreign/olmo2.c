/* OLMo 2 in the words of Hugging Face and llama.cpp. */
#include "llama.h"

static const sl_tensor_kind kinds[] = {
    SL_KIND("embed_tokens.weight", "token_embd.weight", VOCAB, WIDTH),
    SL_LINEAR("self_attn.q_proj", "attn_q", WIDTH, QUERY),
    SL_VECTOR("self_attn.q_norm", "attn_q_norm", QUERY),
    SL_LINEAR("self_attn.k_proj", "attn_k", WIDTH, KEY),
    SL_VECTOR("self_attn.k_norm", "attn_k_norm", KEY),
    SL_LINEAR("self_attn.v_proj", "attn_v", WIDTH, KEY),
    SL_LINEAR("self_attn.o_proj", "attn_output", QUERY, WIDTH),
    SL_VECTOR("post_attention_layernorm", "post_attention_norm", WIDTH),
    SL_LINEAR("mlp.gate_proj", "ffn_gate", WIDTH, INNER),
    SL_LINEAR("mlp.up_proj", "ffn_up", WIDTH, INNER),
    SL_LINEAR("mlp.down_proj", "ffn_down", INNER, WIDTH),
    SL_VECTOR("post_feedforward_layernorm", "post_ffw_norm", WIDTH),
    SL_VECTOR("norm", "output_norm", WIDTH),
    SL_KIND("lm_head.weight", "output.weight", VOCAB, WIDTH),
};

static const sl_llama_keys keys = {.class_name = "Olmo2ForCausalLM",
                                   .activation = "silu",
                                   .activation_more = "swish",
                                   .false_keys = {"attention_bias"},
                                   .norm_epsilon = 1e-5};

const sl_model_names sl_olmo2_model_names = {
    .title = "OLMo 2",
    SL_LLAMA_NAMES(kinds),
    .read_config = sl_llama_read_config,
    .llama_keys = &keys,
    .model_type = "olmo2",
    .gguf_architecture = "olmo2",
};
