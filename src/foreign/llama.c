/* The tensors of Llama, Qwen 2 and Qwen 3, and llama.cpp's words for them. llm.c and Megatron-LM's
 * pieces are not read and written of these models. */
#include "llama.h"

#include <ctype.h>
#include <string.h>

#include "base/status.h"
#include "program/constant.h"

/* ---- tensors ---- */

static const sl_tensor_kind llama_kinds[] = {
    SL_LLAMA_FRONT,
    SL_LINEAR("self_attn.q_proj", "attn_q", WIDTH, QUERY, .is_interleaved = true),
    SL_LINEAR("self_attn.k_proj", "attn_k", WIDTH, KEY, .is_interleaved = true),
    SL_LINEAR("self_attn.v_proj", "attn_v", WIDTH, KEY),
    SL_LLAMA_BEHIND,
};

static const sl_tensor_kind qwen2_kinds[] = {
    SL_LLAMA_FRONT,
    SL_LINEAR("self_attn.q_proj", "attn_q", WIDTH, QUERY),
    SL_BIAS("self_attn.q_proj", "attn_q", QUERY),
    SL_LINEAR("self_attn.k_proj", "attn_k", WIDTH, KEY),
    SL_BIAS("self_attn.k_proj", "attn_k", KEY),
    SL_LINEAR("self_attn.v_proj", "attn_v", WIDTH, KEY),
    SL_BIAS("self_attn.v_proj", "attn_v", KEY),
    SL_LLAMA_BEHIND,
};

static const sl_tensor_kind qwen3_kinds[] = {
    SL_LLAMA_FRONT,
    SL_LINEAR("self_attn.q_proj", "attn_q", WIDTH, QUERY),
    SL_LINEAR("self_attn.k_proj", "attn_k", WIDTH, KEY),
    SL_LINEAR("self_attn.v_proj", "attn_v", WIDTH, KEY),
    SL_VECTOR("self_attn.q_norm", "attn_q_norm", HEAD),
    SL_VECTOR("self_attn.k_norm", "attn_k_norm", HEAD),
    SL_LLAMA_BEHIND,
};

uint64_t sl_llama_size(const sl_model_shape *shape, sl_model_size size)
{
    const uint64_t head = shape->head;
    switch (size) {
    case SL_SIZE_QUERY:
        return head * shape->heads;
    case SL_SIZE_KEY:
        return head * shape->kv_heads;
    case SL_SIZE_HEAD:
        return head;
    default:
        return shape->ffn;
    }
}

double sl_llama_epsilon(const sl_model_shape *shape)
{
    return shape->norm_epsilon;
}

/* A head that is tied to the table, and the rotary frequencies of older files. */
bool sl_llama_is_buffer(const char *name)
{
    if (strcmp(name, "lm_head.weight") == 0)
        return true;
    if (strncmp(name, "layers.", 7) != 0 || !isdigit((unsigned char)name[7]))
        return false;
    return strcmp(name + 7 + strspn(name + 7, "0123456789"), ".self_attn.rotary_emb.inv_freq") == 0;
}

/* ---- llama.cpp ---- */

static void add_key(const sl_model_shape *shape, sl_gguf *gguf, const char *key, uint32_t value)
{
    sl_gguf_add_u32(gguf, sl_model_names_gguf_key(shape, key).text, value);
}

void sl_llama_add_gguf(const sl_model_shape *shape, sl_gguf *gguf)
{
    add_key(shape, gguf, "attention.head_count_kv", shape->kv_heads);
    add_key(shape, gguf, "attention.key_length", shape->head);
    add_key(shape, gguf, "attention.value_length", shape->head);
    add_key(shape, gguf, "rope.dimension_count", shape->head);
    sl_gguf_add_f32(gguf, sl_model_names_gguf_key(shape, "rope.freq_base").text,
                    (float)shape->rope.base);
    if (shape->rope.scaling != SL_ROTARY_LINEAR)
        return;
    sl_gguf_add_text(gguf, sl_model_names_gguf_key(shape, "rope.scaling.type").text, "linear");
    sl_gguf_add_f32(gguf, sl_model_names_gguf_key(shape, "rope.scaling.factor").text,
                    (float)shape->rope.factor);
}

/* llama.cpp reads divisors of a Llama alone: it turns a Qwen as if there were none. */
sl_status sl_llama_rotary_divisors(const sl_model_shape *shape, float *out_divisors,
                                   uint64_t *out_count)
{
    const sl_model_rope *rope = &shape->rope;
    const sl_constant plain = {.base = rope->base, .width = shape->head};
    sl_constant scaled = plain;
    *out_count = 0;
    if (rope->scaling != SL_ROTARY_LLAMA3)
        return SL_OK;
    if (shape->architecture != SL_ARCHITECTURE_LLAMA)
        SL_FAIL(SL_ERROR_DATA,
                "llama.cpp has Llama 3's scaling of rotary positions for a Llama alone, and the "
                "model is a %s",
                sl_architecture_name(shape->architecture));
    scaled.scaling = SL_ANGLES_BANDS;
    scaled.factor = rope->factor;
    scaled.low_frequency_factor = rope->low_frequency_factor;
    scaled.high_frequency_factor = rope->high_frequency_factor;
    scaled.original_context = rope->original_context;
    *out_count = shape->head / 2;
    for (uint64_t i = 0; i < *out_count; i++)
        out_divisors[i] =
            (float)(sl_constant_frequency(&plain, i) / sl_constant_frequency(&scaled, i));
    return SL_OK;
}

/* ---- the rows ---- */

static const sl_llama_keys llama_keys = {.class_name = "LlamaForCausalLM",
                                         .activation = "silu",
                                         .activation_more = "swish",
                                         .false_keys = {"attention_bias", "mlp_bias"}};

const sl_model_names sl_llama_model_names = {
    .title = "Llama",
    SL_LLAMA_NAMES(llama_kinds),
    .read_config = sl_llama_read_config,
    .llama_keys = &llama_keys,
    .model_type = "llama",
    .other_type = "mistral",
    .gguf_architecture = "llama",
};

static const sl_llama_keys qwen2_keys = {.class_name = "Qwen2ForCausalLM",
                                         .activation = "silu",
                                         .activation_more = "swish",
                                         .has_qkv_bias = true,
                                         .false_keys = {"use_sliding_window"},
                                         .names_kv_heads = true};

const sl_model_names sl_qwen2_model_names = {
    .title = "Qwen 2",
    SL_LLAMA_NAMES(qwen2_kinds),
    .read_config = sl_llama_read_config,
    .llama_keys = &qwen2_keys,
    .model_type = "qwen2",
    .fixed_pattern = "qwen2",
    .gguf_architecture = "qwen2",
};

static const sl_llama_keys qwen3_keys = {.class_name = "Qwen3ForCausalLM",
                                         .activation = "silu",
                                         .activation_more = "swish",
                                         .false_keys = {"use_sliding_window", "attention_bias"},
                                         .head = 128,
                                         .names_kv_heads = true};

const sl_model_names sl_qwen3_model_names = {
    .title = "Qwen 3",
    SL_LLAMA_NAMES(qwen3_kinds),
    .read_config = sl_llama_read_config,
    .llama_keys = &qwen3_keys,
    .model_type = "qwen3",
    .gguf_architecture = "qwen3",
};
