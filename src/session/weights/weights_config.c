/* Hugging Face's config.json of GPT-2: the shape is read from it, and every key that changes the
 * computation must have the value that this program computes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "files/json_file.h"
#include "weights.h"

static const char CONFIG_NAME[] = "config.json";

enum { CONFIG_BYTES_MAX = 1 << 20, SIZE_MAX_VALUE = 1 << 30 };

/* The sizes, with Hugging Face's defaults for absent keys. */
typedef struct size_key {
    const char *key;
    uint32_t absent;
    size_t offset; /* in sl_gpt2_shape */
} size_key;

static const size_key size_keys[] = {
    {"n_layer", 12, offsetof(sl_gpt2_shape, layers)},
    {"n_embd", 768, offsetof(sl_gpt2_shape, width)},
    {"n_head", 12, offsetof(sl_gpt2_shape, heads)},
    {"n_positions", 1024, offsetof(sl_gpt2_shape, context)},
    {"vocab_size", 50257, offsetof(sl_gpt2_shape, vocab)},
};

/* Switches whose other position is another model; absent keys have the value that is needed. */
typedef struct switch_key {
    const char *key;
    bool needed;
} switch_key;

static const switch_key switch_keys[] = {
    {"scale_attn_weights", true},       {"scale_attn_by_inverse_layer_idx", false},
    {"reorder_and_upcast_attn", false}, {"add_cross_attention", false},
    {"tie_word_embeddings", true},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The value of a key, NULL if it is absent or null. */
static const json_t *find_value(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_is_null(value) ? NULL : value;
}

static sl_status check_model_type(const char *path, const json_t *root)
{
    const char *type;
    SL_TRY(sl_json_file_get_string(path, root, "model_type", &type));
    if (strcmp(type, "gpt2") != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: model_type is \"%s\", but only \"gpt2\" is read", path,
                sl_files_show(type).text);
    return SL_OK;
}

static sl_status read_sizes(const char *path, const json_t *root, sl_gpt2_shape *shape)
{
    static const sl_json_range range = {1, SIZE_MAX_VALUE};
    for (size_t i = 0; i < COUNT(size_keys); i++) {
        uint64_t value = size_keys[i].absent;
        if (find_value(root, size_keys[i].key))
            SL_TRY(sl_json_file_get_integer(path, root, size_keys[i].key, range, &value));
        *(uint32_t *)((char *)shape + size_keys[i].offset) = (uint32_t)value;
    }
    if (shape->width % shape->heads != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: n_embd %u is not a multiple of n_head %u", path, shape->width,
                shape->heads);
    return SL_OK;
}

static sl_status check_switches(const char *path, const json_t *root)
{
    for (size_t i = 0; i < COUNT(switch_keys); i++) {
        const json_t *value = find_value(root, switch_keys[i].key);
        if (value && !json_is_boolean(value))
            SL_FAIL(SL_ERROR_DATA, "%s: key \"%s\" is not true or false", path, switch_keys[i].key);
        if (value && json_is_true(value) != switch_keys[i].needed)
            SL_FAIL(SL_ERROR_DATA, "%s: %s is %s, which is a model that is not computed here", path,
                    switch_keys[i].key, switch_keys[i].needed ? "false" : "true");
    }
    return SL_OK;
}

static sl_status check_activation(const char *path, const json_t *root)
{
    const json_t *value = find_value(root, "activation_function");
    const char *name = value ? json_string_value(value) : "gelu_new";
    if (!name || (strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0))
        SL_FAIL(SL_ERROR_DATA,
                "%s: activation_function is \"%s\"; gelu_new and gelu_pytorch_tanh are computed",
                path, sl_files_show(name).text);
    return SL_OK;
}

static sl_status check_numbers(const char *path, const json_t *root, const sl_gpt2_shape *shape)
{
    const json_t *inner = find_value(root, "n_inner");
    const json_t *epsilon = find_value(root, "layer_norm_epsilon");
    if (inner &&
        (!json_is_integer(inner) || json_integer_value(inner) != 4 * (json_int_t)shape->width))
        SL_FAIL(SL_ERROR_DATA, "%s: n_inner is not 4 * n_embd = %llu", path,
                4 * (unsigned long long)shape->width);
    if (epsilon && fabs(json_number_value(epsilon) - 1e-5) > 1e-12) /* digits of the text */
        SL_FAIL(SL_ERROR_DATA, "%s: layer_norm_epsilon is not 1e-5", path);
    return SL_OK;
}

static sl_status read_shape(const char *path, const json_t *root, sl_gpt2_shape *shape)
{
    SL_TRY(check_model_type(path, root));
    SL_TRY(read_sizes(path, root, shape));
    SL_TRY(check_switches(path, root));
    SL_TRY(check_activation(path, root));
    return check_numbers(path, root, shape);
}

static sl_status parse_config(const char *directory_path, const json_t *root,
                              sl_gpt2_shape *out_shape)
{
    sl_gpt2_shape shape = {0};
    char *path;
    if (asprintf(&path, "%s/%s", sl_files_show(directory_path).text, CONFIG_NAME) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    sl_status status = read_shape(path, root, &shape);
    free(path);
    if (status == SL_OK)
        *out_shape = shape;
    return status;
}

sl_status sl_weights_read_config(const char *directory, sl_gpt2_shape *out_shape)
{
    int fd;
    json_t *root = NULL;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd));
    sl_status status = sl_json_file_read(fd, directory, CONFIG_NAME, CONFIG_BYTES_MAX, &root);
    if (status == SL_OK)
        status = parse_config(directory, root, out_shape);
    json_decref(root);
    close(fd);
    return status;
}

sl_status sl_weights_format_config(const sl_gpt2_shape *shape, char **out_text)
{
    json_int_t last_token = (json_int_t)shape->vocab - 1; /* end of text, as in GPT-2 */
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:n, s:s, s:f, s:f, s:f, s:f, s:f, s:b, "
        "s:b, s:b, s:b, s:b, s:I, s:I}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "torch_dtype", "float32",
        "vocab_size", (json_int_t)shape->vocab, "n_positions", (json_int_t)shape->context, "n_ctx",
        (json_int_t)shape->context, "n_embd", (json_int_t)shape->width, "n_layer",
        (json_int_t)shape->layers, "n_head", (json_int_t)shape->heads, "n_inner",
        "activation_function", "gelu_new", "resid_pdrop", 0.0, "embd_pdrop", 0.0, "attn_pdrop", 0.0,
        "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "scale_attn_weights", 1,
        "scale_attn_by_inverse_layer_idx", 0, "reorder_and_upcast_attn", 0, "tie_word_embeddings",
        1, "use_cache", 1, "bos_token_id", last_token, "eos_token_id", last_token);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a config.json");
    *out_text = text;
    return SL_OK;
}
