/* config.json of architectures with Llama's keys, both ways, by the row's sl_llama_keys: every key
 * that changes the computation has a value that is computed. Sizes must be there; what other absent
 * keys mean is what they mean to transformers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "files/fields.h"
#include "files/files.h"
#include "llama.h"

enum { SIZE_MAX_VALUE = 1 << 30, WINDOW = 4096, MISTRAL_KEY_HEADS = 8 };

typedef struct hf_config {
    char model_type[SL_SHOWN_BYTES], activation[SL_SHOWN_BYTES];
    sl_model_shape shape;
    uint64_t window; /* tokens that a token attends to; UINT64_MAX: all */
    double rotary_share;
    bool uses_window, attention_bias, mlp_bias;
} hf_config;

enum { MAY_MISS = SL_FIELD_OPTIONAL | SL_FIELD_NULLABLE };

#define SIZE(name, member, needs)                                                                  \
    SL_FIELD(name, hf_config, shape.member, .low = 1, .high = SIZE_MAX_VALUE, .flags = needs)

static const sl_field config_fields[] = {
    SL_FIELD_AS(CHARS, "model_type", hf_config, model_type),
    SL_FIELD_AS(CHARS, "hidden_act", hf_config, activation, .flags = MAY_MISS),
    SIZE("vocab_size", vocab, 0),
    SIZE("hidden_size", width, 0),
    SIZE("intermediate_size", ffn, 0),
    SIZE("num_hidden_layers", layers, 0),
    SIZE("num_attention_heads", heads, 0),
    SIZE("num_key_value_heads", kv_heads, MAY_MISS),
    SIZE("head_dim", head, MAY_MISS),
    SIZE("max_position_embeddings", context, 0),
    SL_FIELD("rms_norm_eps", hf_config, shape.norm_epsilon, .flags = MAY_MISS),
    SL_FIELD("tie_word_embeddings", hf_config, shape.is_untied, .flags = MAY_MISS), /* turned */
    SL_FIELD("rope_theta", hf_config, shape.rope.base, .flags = MAY_MISS),
    SL_FIELD("attention_bias", hf_config, attention_bias, .flags = MAY_MISS),
    SL_FIELD("mlp_bias", hf_config, mlp_bias, .flags = MAY_MISS),
    SL_FIELD("partial_rotary_factor", hf_config, rotary_share, .flags = MAY_MISS),
    SL_FIELD("use_sliding_window", hf_config, uses_window, .flags = MAY_MISS),
    SL_FIELD("sliding_window", hf_config, window, .low = 1, .flags = MAY_MISS),
    {0},
};

/* ---- rotary positions ---- */

typedef struct hf_rope {
    char kind[SL_SHOWN_BYTES], old_kind[SL_SHOWN_BYTES];
    sl_model_rope rope;
    double rotary_share;
} hf_rope;

static const sl_field rope_fields[] = {
    SL_FIELD_AS(CHARS, "rope_type", hf_rope, kind, .flags = MAY_MISS),
    SL_FIELD_AS(CHARS, "type", hf_rope, old_kind, .flags = MAY_MISS),
    SL_FIELD("rope_theta", hf_rope, rope.base, .flags = MAY_MISS),
    SL_FIELD("partial_rotary_factor", hf_rope, rotary_share, .flags = MAY_MISS),
    SL_FIELD("factor", hf_rope, rope.factor, .low = 0, .flags = MAY_MISS),
    SL_FIELD("low_freq_factor", hf_rope, rope.low_frequency_factor, .low = 0, .flags = MAY_MISS),
    SL_FIELD("high_freq_factor", hf_rope, rope.high_frequency_factor, .low = 0, .flags = MAY_MISS),
    SL_FIELD("original_max_position_embeddings", hf_rope, rope.original_context, .low = 1,
             .high = SIZE_MAX_VALUE, .flags = MAY_MISS),
    {0},
};

static const char *const rope_kinds[] = {
    [SL_ROTARY_PLAIN] = "default", [SL_ROTARY_LINEAR] = "linear", [SL_ROTARY_LLAMA3] = "llama3"};

/* Keeps the numbers that the scaling reads, so that equal models have equal shapes. */
static sl_status take_rope(const char *path, const char *key, const hf_rope *read,
                           hf_config *config)
{
    const char *kind = *read->kind ? read->kind : *read->old_kind ? read->old_kind : "default";
    sl_model_rope rope = {.base = read->rope.base};
    while (rope.scaling <= SL_ROTARY_LLAMA3 && strcmp(kind, rope_kinds[rope.scaling]) != 0)
        rope.scaling++;
    if (rope.scaling > SL_ROTARY_LLAMA3)
        SL_FAIL(SL_ERROR_DATA, "%s: %s is of type \"%s\"; default, linear and llama3 are computed",
                path, key, kind);
    if (rope.scaling != SL_ROTARY_PLAIN)
        rope.factor = read->rope.factor;
    if (rope.scaling == SL_ROTARY_LLAMA3) {
        rope.low_frequency_factor = read->rope.low_frequency_factor;
        rope.high_frequency_factor = read->rope.high_frequency_factor;
        rope.original_context = read->rope.original_context;
    }
    if (rope.scaling != SL_ROTARY_PLAIN && rope.factor == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: %s lacks a positive factor", path, key);
    config->shape.rope = rope;
    config->rotary_share = read->rotary_share;
    return SL_OK;
}

/* transformers wrote rope_scaling beside rope_theta, and writes rope_parameters with both since
 * version 5. */
static sl_status read_rope(const char *path, const json_t *root, hf_config *config)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    const char *shown = sl_files_show(path).text;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *object = json_object_get(root, keys[i]);
        hf_rope rope = {.rope.base = config->shape.rope.base, .rotary_share = config->rotary_share};
        if (!object || json_is_null(object))
            continue;
        if (!json_is_object(object))
            SL_FAIL(SL_ERROR_DATA, "%s: %s is not an object", shown, keys[i]);
        SL_TRY(sl_fields_read(path, object, rope_fields, &rope));
        return take_rope(shown, keys[i], &rope, config);
    }
    return SL_OK;
}

/* ---- what is computed ---- */

/* A window that no row is longer than changes nothing. */
static sl_status check_window(const char *path, const json_t *root, const hf_config *config)
{
    const json_t *types = json_object_get(root, "layer_types");
    const bool is_mistral = strcmp(config->model_type, "mistral") == 0;
    size_t index;
    json_t *type;
    if ((is_mistral || config->uses_window) && config->window < config->shape.context)
        SL_FAIL(SL_ERROR_DATA,
                "%s: attention has a sliding window of %llu of %u positions, which is not computed "
                "here: with max_position_embeddings of at most that it does not act",
                path, (unsigned long long)config->window, config->shape.context);
    json_array_foreach(types, index, type)
    {
        const char *name = json_string_value(type);
        if (!name || strcmp(name, "full_attention") != 0)
            SL_FAIL(SL_ERROR_DATA, "%s: layer_types names \"%s\"; full_attention is computed", path,
                    name ? sl_files_show(name).text : "no string");
    }
    return SL_OK;
}

static sl_status check_config(const char *path, const json_t *root, const hf_config *config)
{
    const sl_model_shape *shape = &config->shape;
    const sl_llama_keys *keys = sl_model_names_of(shape)->llama_keys;
    if (strcmp(config->activation, keys->activation) != 0 &&
        strcmp(config->activation, keys->activation_more) != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: hidden_act is \"%s\"; %s is computed", path, config->activation,
                keys->activation);
    if (config->attention_bias && !keys->has_qkv_bias)
        SL_FAIL(SL_ERROR_DATA,
                "%s: attention_bias is true, which is a model that is not computed "
                "here",
                path);
    if (config->mlp_bias)
        SL_FAIL(SL_ERROR_DATA, "%s: mlp_bias is true, which is a model that is not computed here",
                path);
    if (config->rotary_share != 1)
        SL_FAIL(SL_ERROR_DATA, "%s: partial_rotary_factor is %g; 1 is computed", path,
                config->rotary_share);
    if (json_is_object(json_object_get(root, "quantization_config")))
        SL_FAIL(SL_ERROR_DATA, "%s: the weights are quantised; F32, F16 and BF16 are read", path);
    SL_TRY(check_window(path, root, config));
    if (sl_model_shape_check(shape, 1) != SL_OK)
        return sl_status_prefix(SL_ERROR_DATA, "%s", path);
    return SL_OK;
}

/* Sizes that a file may lack. */
static void complete(hf_config *config, bool is_mistral)
{
    sl_model_shape *shape = &config->shape;
    if (shape->kv_heads == 0 && is_mistral)
        shape->kv_heads = MISTRAL_KEY_HEADS;
    if (shape->head == 0)
        shape->head = sl_model_names_of(shape)->llama_keys->head;
    shape->is_untied = !shape->is_untied; /* the key says tied */
    sl_model_shape_complete(shape);
}

sl_status sl_llama_read_config(const char *path, const json_t *root, sl_model_shape *out_shape)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const bool is_mistral = type && strcmp(type, "mistral") == 0;
    const sl_llama_keys *keys = sl_model_names_of(out_shape)->llama_keys;
    hf_config config = {.shape = {.architecture = out_shape->architecture,
                                  .is_untied = keys->is_tied, /* the key says tied */
                                  .norm_epsilon = 1e-6,
                                  .rope.base = 10000},
                        .window = UINT64_MAX,
                        .rotary_share = 1};
    if (keys->norm_epsilon > 0)
        config.shape.norm_epsilon = keys->norm_epsilon;
    snprintf(config.activation, sizeof config.activation, "%s", keys->activation);
    if (!json_object_get(root, "sliding_window")) /* null: attention has none */
        config.window = WINDOW;
    SL_TRY(sl_fields_read(path, root, config_fields, &config));
    SL_TRY(read_rope(path, root, &config));
    if (config.shape.kv_heads == 0 && keys->names_kv_heads)
        SL_FAIL(SL_ERROR_DATA, "%s: num_key_value_heads is missing", sl_files_show(path).text);
    complete(&config, is_mistral);
    SL_TRY(check_config(sl_files_show(path).text, root, &config));
    *out_shape = config.shape;
    return SL_OK;
}

/* ---- writing ---- */

static json_t *pack_scaling(const sl_model_rope *rope)
{
    if (rope->scaling == SL_ROTARY_PLAIN)
        return json_null();
    if (rope->scaling == SL_ROTARY_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", rope_kinds[rope->scaling], "factor",
                         rope->factor);
    return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", rope_kinds[rope->scaling], "factor",
                     rope->factor, "low_freq_factor", rope->low_frequency_factor,
                     "high_freq_factor", rope->high_frequency_factor,
                     "original_max_position_embeddings", (json_int_t)rope->original_context);
}

/* The keys of one architecture alone. */
static int add_false_keys(const sl_llama_keys *keys, json_t *root)
{
    for (int i = 0; i < SL_FALSE_KEYS_MAX && keys->false_keys[i]; i++)
        if (json_object_set_new(root, keys->false_keys[i], json_false()) != 0)
            return -1;
    return 0;
}

json_t *sl_llama_format_config(const sl_model_shape *shape, const char *dtype, uint32_t end_of_text)
{
    const sl_llama_keys *keys = sl_model_names_of(shape)->llama_keys;
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:b, s:f, s:o, s:f, "
        "s:b, s:n, s:I, s:n}",
        "architectures", keys->class_name, "model_type", sl_architecture_name(shape->architecture),
        "torch_dtype", dtype, "vocab_size", (json_int_t)shape->vocab, "hidden_size",
        (json_int_t)shape->width, "intermediate_size", (json_int_t)shape->ffn, "num_hidden_layers",
        (json_int_t)shape->layers, "num_attention_heads", (json_int_t)shape->heads,
        "num_key_value_heads", (json_int_t)shape->kv_heads, "head_dim", (json_int_t)shape->head,
        "max_position_embeddings", (json_int_t)shape->context, "hidden_act", keys->activation,
        "rms_norm_eps", shape->norm_epsilon, "tie_word_embeddings", !shape->is_untied, "rope_theta",
        shape->rope.base, "rope_scaling", pack_scaling(&shape->rope), "initializer_range", 0.02,
        "use_cache", 1, "bos_token_id", "eos_token_id", (json_int_t)end_of_text,
        "pad_token_id"); /* a number would take the gradient from a row of the table */
    if (root && add_false_keys(keys, root) == 0)
        return root;
    json_decref(root);
    return NULL;
}
