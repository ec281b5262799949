/* Words of other programs for architectures like Llama's. */
#ifndef SL_FOREIGN_LLAMA_H
#define SL_FOREIGN_LLAMA_H

#include "model_names.h"

/* config.json, both ways: sl_model_names' read_config and format_config, with the llama_keys of the
 * row (llama_config.c). */
sl_status sl_llama_read_config(const char *path, const json_t *root, sl_model_shape *out_shape);
json_t *sl_llama_format_config(const sl_model_shape *shape, const char *dtype,
                               uint32_t end_of_text);

/* Sizes of tensors, the epsilon, and what is in files and no parameter. */
uint64_t sl_llama_size(const sl_model_shape *shape, sl_model_size size);
double sl_llama_epsilon(const sl_model_shape *shape);
bool sl_llama_is_buffer(const char *name);

/* llama.cpp's values. */
void sl_llama_add_gguf(const sl_model_shape *shape, sl_gguf *gguf);
sl_status sl_llama_rotary_divisors(const sl_model_shape *shape, float *out_divisors,
                                   uint64_t *out_count);

/* Kinds of tensors, by Hugging Face's and llama.cpp's names. */
#define SL_KIND(kind, gguf, rows, columns, ...)                                                    \
    {                                                                                              \
        kind, gguf, SL_SIZE_##rows, SL_SIZE_##columns, __VA_ARGS__                                 \
    }
#define SL_VECTOR(kind, gguf, rows) SL_KIND(kind ".weight", gguf ".weight", rows, ONE)
#define SL_BIAS(kind, gguf, rows) SL_KIND(kind ".bias", gguf ".bias", rows, ONE)
#define SL_LINEAR(kind, gguf, in, out, ...)                                                        \
    SL_KIND(kind ".weight", gguf ".weight", in, out, .is_linear = true, __VA_ARGS__)

/* In front of q, k and v, and behind them. */
#define SL_LLAMA_FRONT                                                                             \
    SL_KIND("embed_tokens.weight", "token_embd.weight", VOCAB, WIDTH),                             \
        SL_VECTOR("input_layernorm", "attn_norm", WIDTH)
#define SL_LLAMA_BEHIND                                                                            \
    SL_LINEAR("self_attn.o_proj", "attn_output", QUERY, WIDTH),                                    \
        SL_VECTOR("post_attention_layernorm", "ffn_norm", WIDTH),                                  \
        SL_LINEAR("mlp.gate_proj", "ffn_gate", WIDTH, INNER),                                      \
        SL_LINEAR("mlp.up_proj", "ffn_up", WIDTH, INNER),                                          \
        SL_LINEAR("mlp.down_proj", "ffn_down", INNER, WIDTH),                                      \
        SL_VECTOR("norm", "output_norm", WIDTH),                                                   \
        SL_KIND("lm_head.weight", "output.weight", VOCAB, WIDTH)

enum { SL_LLAMA_BEHIND_LAYERS = 2 }; /* the last norm and the head */

/* The part of a row that all of them share, with its list of kinds. */
#define SL_LLAMA_NAMES(list)                                                                       \
    .kinds = list, .kind_count = sizeof list / sizeof list[0], .first_of_layer = 1,                \
    .behind_layers = sizeof list / sizeof list[0] - SL_LLAMA_BEHIND_LAYERS, .has_head = true,      \
    .layer = "layers", .size = sl_llama_size, .epsilon = sl_llama_epsilon, .prefix = "model.",     \
    .bare = "lm_head.weight", .is_out_in = true, .format_config = sl_llama_format_config,          \
    .is_buffer = sl_llama_is_buffer, .gguf_epsilon = "attention.layer_norm_rms_epsilon",           \
    .gguf_tokenizer = "gpt2", .add_gguf = sl_llama_add_gguf,                                       \
    .rotary_divisors = sl_llama_rotary_divisors

#endif
