/* GPT-2 in the words of Hugging Face, llama.cpp, Megatron-LM and llm.c. */
#include "model_names.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "files/fields.h"
#include "files/files.h"
#include "llmc_model.h"

#define EPSILON 1e-5 /* of norms */

/* ---- tensors ---- */

#define KIND(kind, name, gguf, rows, columns, is_linear, split, ...)                               \
    [SL_LLMC_##kind] = {                                                                           \
        name,         gguf, SL_SIZE_##rows, SL_SIZE_##columns, is_linear, SL_MEGATRON_##split,     \
        {__VA_ARGS__}}

static const sl_tensor_kind kinds[SL_LLMC_KIND_COUNT] = {
    KIND(WTE, "wte.weight", "token_embd.weight", VOCAB, WIDTH, false, ROWS,
         "language_model.embedding.word_embeddings.weight", "word_embeddings.weight",
         "embedding.word_embeddings.weight"),
    KIND(WPE, "wpe.weight", "position_embd.weight", CONTEXT, WIDTH, false, WHOLE,
         "language_model.embedding.position_embeddings.weight", "position_embeddings.weight",
         "embedding.position_embeddings.weight"),
    KIND(LN_1_WEIGHT, "ln_1.weight", "attn_norm.weight", WIDTH, ONE, false, WHOLE,
         "input_layernorm.weight", "input_norm.weight",
         "self_attention.linear_qkv.layer_norm_weight"),
    KIND(LN_1_BIAS, "ln_1.bias", "attn_norm.bias", WIDTH, ONE, false, WHOLE, "input_layernorm.bias",
         "input_norm.bias", "self_attention.linear_qkv.layer_norm_bias"),
    KIND(QKV_WEIGHT, "attn.c_attn.weight", "attn_qkv.weight", WIDTH, QKV, true, HEADS,
         "self_attention.query_key_value.weight", "attention.query_key_value.weight",
         "self_attention.linear_qkv.weight"),
    KIND(QKV_BIAS, "attn.c_attn.bias", "attn_qkv.bias", QKV, ONE, false, HEADS,
         "self_attention.query_key_value.bias", "attention.query_key_value.bias",
         "self_attention.linear_qkv.bias"),
    KIND(ATTENTION_OUT_WEIGHT, "attn.c_proj.weight", "attn_output.weight", WIDTH, WIDTH, true,
         COLUMNS, "self_attention.dense.weight", "attention.dense.weight",
         "self_attention.linear_proj.weight"),
    KIND(ATTENTION_OUT_BIAS, "attn.c_proj.bias", "attn_output.bias", WIDTH, ONE, false, WHOLE,
         "self_attention.dense.bias", "attention.dense.bias", "self_attention.linear_proj.bias"),
    KIND(LN_2_WEIGHT, "ln_2.weight", "ffn_norm.weight", WIDTH, ONE, false, WHOLE,
         "post_attention_layernorm.weight", "post_attention_norm.weight",
         "pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"),
    KIND(LN_2_BIAS, "ln_2.bias", "ffn_norm.bias", WIDTH, ONE, false, WHOLE,
         "post_attention_layernorm.bias", "post_attention_norm.bias", "pre_mlp_layernorm.bias",
         "mlp.linear_fc1.layer_norm_bias"),
    KIND(MLP_IN_WEIGHT, "mlp.c_fc.weight", "ffn_up.weight", WIDTH, INNER, true, ROWS,
         "mlp.dense_h_to_4h.weight", "mlp.linear_fc1.weight"),
    KIND(MLP_IN_BIAS, "mlp.c_fc.bias", "ffn_up.bias", INNER, ONE, false, ROWS,
         "mlp.dense_h_to_4h.bias", "mlp.linear_fc1.bias"),
    KIND(MLP_OUT_WEIGHT, "mlp.c_proj.weight", "ffn_down.weight", INNER, WIDTH, true, COLUMNS,
         "mlp.dense_4h_to_h.weight", "mlp.linear_fc2.weight"),
    KIND(MLP_OUT_BIAS, "mlp.c_proj.bias", "ffn_down.bias", WIDTH, ONE, false, WHOLE,
         "mlp.dense_4h_to_h.bias", "mlp.linear_fc2.bias"),
    KIND(LN_F_WEIGHT, "ln_f.weight", "output_norm.weight", WIDTH, ONE, false, WHOLE,
         "final_norm.weight", "final_layernorm.weight"),
    KIND(LN_F_BIAS, "ln_f.bias", "output_norm.bias", WIDTH, ONE, false, WHOLE, "final_norm.bias",
         "final_layernorm.bias"),
};

static uint64_t find_size(const sl_model_shape *shape, sl_model_size size)
{
    return (size == SL_SIZE_QKV ? 3ull : 4ull) * shape->width;
}

static double find_epsilon(const sl_model_shape *shape)
{
    (void)shape;
    return EPSILON;
}

/* ---- config.json: every key that changes the computation has the value that is computed ---- */

enum { SIZE_MAX_VALUE = 1 << 30 };

typedef struct hf_config {
    char activation[SL_SHOWN_BYTES];
    sl_model_shape shape;
    uint64_t inner;
    double epsilon;
    bool scales, scales_by_layer, upcasts, has_cross_attention, ties_head;
} hf_config;

/* What absent keys mean to Hugging Face. */
static const hf_config defaults = {
    .activation = "gelu_new",
    .shape = {.layers = 12, .width = 768, .heads = 12, .context = 1024, .vocab = 50257},
    .epsilon = EPSILON,
    .scales = true,
    .ties_head = true,
};

enum { MAY_MISS = SL_FIELD_OPTIONAL | SL_FIELD_NULLABLE };

#define SIZE(name, member)                                                                         \
    SL_FIELD(name, hf_config, shape.member, .low = 1, .high = SIZE_MAX_VALUE, .flags = MAY_MISS)
#define SWITCH(name, member) SL_FIELD(name, hf_config, member, .flags = MAY_MISS)

static const sl_field config_fields[] = {
    SIZE("n_layer", layers),
    SIZE("n_embd", width),
    SIZE("n_head", heads),
    SIZE("n_positions", context),
    SIZE("vocab_size", vocab),
    SWITCH("scale_attn_weights", scales),
    SWITCH("scale_attn_by_inverse_layer_idx", scales_by_layer),
    SWITCH("reorder_and_upcast_attn", upcasts),
    SWITCH("add_cross_attention", has_cross_attention),
    SWITCH("tie_word_embeddings", ties_head),
    SL_FIELD_AS(CHARS, "activation_function", hf_config, activation, .flags = MAY_MISS),
    SL_FIELD("n_inner", hf_config, inner, .flags = MAY_MISS),
    SL_FIELD("layer_norm_epsilon", hf_config, epsilon, .flags = MAY_MISS),
    {0},
};

static sl_status check_switches(const char *path, const hf_config *config)
{
    for (const sl_field *field = config_fields; field->key; field++) {
        const void *value = (const char *)config + field->offset;
        const void *needed = (const char *)&defaults + field->offset;
        if (field->kind == SL_FIELD_BOOL && *(const bool *)value != *(const bool *)needed)
            SL_FAIL(SL_ERROR_DATA, "%s: %s is %s, which is a model that is not computed here", path,
                    field->key, *(const bool *)value ? "true" : "false");
    }
    return SL_OK;
}

static sl_status check_config(const char *path, const hf_config *config)
{
    const sl_model_shape *shape = &config->shape;
    const char *activation = config->activation;
    if (shape->width % shape->heads != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: n_embd %u is not a multiple of n_head %u", path, shape->width,
                shape->heads);
    SL_TRY(check_switches(path, config));
    if (strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0)
        SL_FAIL(SL_ERROR_DATA,
                "%s: activation_function is \"%s\"; gelu_new and gelu_pytorch_tanh are computed",
                path, activation);
    if (config->inner != 4 * (uint64_t)shape->width)
        SL_FAIL(SL_ERROR_DATA, "%s: n_inner is not 4 * n_embd = %llu", path,
                4 * (unsigned long long)shape->width);
    if (fabs(config->epsilon - EPSILON) > 1e-12) /* digits of the text */
        SL_FAIL(SL_ERROR_DATA, "%s: layer_norm_epsilon is not 1e-5", path);
    return SL_OK;
}

static sl_status read_config(const char *path, const json_t *root, sl_model_shape *out_shape)
{
    hf_config config = defaults;
    config.inner = UINT64_MAX;
    SL_TRY(sl_fields_read(path, root, config_fields, &config));
    if (config.inner == UINT64_MAX)
        config.inner = 4 * (uint64_t)config.shape.width;
    SL_TRY(check_config(sl_files_show(path).text, &config));
    *out_shape = config.shape;
    return SL_OK;
}

static json_t *format_config(const sl_model_shape *shape, const char *dtype, uint32_t end_of_text)
{
    const json_int_t last_token = (json_int_t)end_of_text;
    return json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:n, s:s, s:f, s:f, s:f, s:f, s:f, s:b, "
        "s:b, s:b, s:b, s:b, s:I, s:I}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "torch_dtype", dtype,
        "vocab_size", (json_int_t)shape->vocab, "n_positions", (json_int_t)shape->context, "n_ctx",
        (json_int_t)shape->context, "n_embd", (json_int_t)shape->width, "n_layer",
        (json_int_t)shape->layers, "n_head", (json_int_t)shape->heads, "n_inner",
        "activation_function", "gelu_new", "resid_pdrop", 0.0, "embd_pdrop", 0.0, "attn_pdrop", 0.0,
        "layer_norm_epsilon", EPSILON, "initializer_range", 0.02, "scale_attn_weights", 1,
        "scale_attn_by_inverse_layer_idx", 0, "reorder_and_upcast_attn", 0, "tie_word_embeddings",
        1, "use_cache", 1, "bos_token_id", last_token, "eos_token_id", last_token);
}

/* Buffers that are no parameters: causal masks, and the head that is tied to wte. */
static bool is_buffer(const char *name)
{
    if (strcmp(name, "lm_head.weight") == 0)
        return true;
    if (strncmp(name, "h.", 2) != 0 || !isdigit((unsigned char)name[2]))
        return false;
    const char *rest = name + 2;
    while (isdigit((unsigned char)*rest))
        rest++;
    return strcmp(rest, ".attn.bias") == 0 || strcmp(rest, ".attn.masked_bias") == 0;
}

/* ---- Megatron-LM's arguments, in the order in which they are written ---- */

static const sl_megatron_argument arguments[] = {
    {"normalization", .text = "LayerNorm", .is_written = true},
    {"position_embedding_type", .text = "learned_absolute", .is_written = true},
    {"add_position_embedding", .flag = true, .is_written = true},
    {"add_bias_linear", .flag = true, .is_written = true},
    {"bias_gelu_fusion", .flag = true, .is_written = true, .is_near = true}, /* the tanh form */
    {"swiglu", .is_written = true},
    {"untie_embeddings_and_output_weights", .is_written = true},
    {"group_query_attention", .is_written = true},
    {"squared_relu"},
    {"multi_latent_attention"},
    {"apply_residual_connection_post_layernorm"},
    {"apply_layernorm_1p"},
    {"use_rotary_position_embeddings"},
    {"qk_layernorm"},
    {NULL},
};

const sl_model_names sl_gpt2_model_names = {
    .title = "GPT-2",
    .kinds = kinds,
    .kind_count = SL_LLMC_KIND_COUNT,
    .first_of_layer = SL_LLMC_LN_1_WEIGHT,
    .behind_layers = SL_LLMC_LN_F_WEIGHT,
    .layer = "h",
    .size = find_size,
    .epsilon = find_epsilon,
    .epsilon_text = "1e-5",
    .model_type = "gpt2",
    .prefix = "transformer.",
    .read_config = read_config,
    .format_config = format_config,
    .has_start = true,
    .is_buffer = is_buffer,
    .gguf_architecture = "gpt2",
    .gguf_epsilon = "attention.layer_norm_epsilon",
    .gguf_tokenizer = "gpt2",
    .megatron_arguments = arguments,
    .megatron_head_width = 64,
    .is_in_llmc = true,
};
