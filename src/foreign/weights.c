/* A Hugging Face GPT-2 directory: its config.json first, then its tensors; see weights.h. */
#define _GNU_SOURCE
#include "weights.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/fields.h"
#include "files/files.h"
#include "files/json_file.h"
#include "tensors/full_tensors.h"

/* ---- config.json: every key that changes the computation has the value that is computed ---- */

static const char CONFIG_NAME[] = "config.json";

enum { CONFIG_BYTES_MAX = 1 << 20, SIZE_MAX_VALUE = 1 << 30 };

typedef struct foreign_config {
    char model_type[SL_SHOWN_BYTES], activation[SL_SHOWN_BYTES];
    sl_model_shape shape;
    uint64_t inner;
    double epsilon;
    bool scales, scales_by_layer, upcasts, has_cross_attention, ties_head;
} foreign_config;

/* What absent keys mean to Hugging Face. */
static const foreign_config defaults = {
    .activation = "gelu_new",
    .shape = {.layers = 12, .width = 768, .heads = 12, .context = 1024, .vocab = 50257},
    .epsilon = 1e-5,
    .scales = true,
    .ties_head = true,
};

enum { MAY_MISS = SL_FIELD_OPTIONAL | SL_FIELD_NULLABLE };

#define SIZE(name, member)                                                                         \
    SL_FIELD(name, foreign_config, shape.member, .low = 1, .high = SIZE_MAX_VALUE,                 \
             .flags = MAY_MISS)
#define SWITCH(name, member) SL_FIELD(name, foreign_config, member, .flags = MAY_MISS)

static const sl_field config_fields[] = {
    SL_FIELD_AS(CHARS, "model_type", foreign_config, model_type),
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
    SL_FIELD_AS(CHARS, "activation_function", foreign_config, activation, .flags = MAY_MISS),
    SL_FIELD("n_inner", foreign_config, inner, .flags = MAY_MISS),
    SL_FIELD("layer_norm_epsilon", foreign_config, epsilon, .flags = MAY_MISS),
    {0},
};

static sl_status check_switches(const char *path, const foreign_config *config)
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

static sl_status check_config(const char *path, const foreign_config *config)
{
    const sl_model_shape *shape = &config->shape;
    const char *activation = config->activation;
    if (strcmp(config->model_type, "gpt2") != 0)
        SL_FAIL(SL_ERROR_DATA, "%s: model_type is \"%s\", but only \"gpt2\" is read", path,
                config->model_type);
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
    if (fabs(config->epsilon - 1e-5) > 1e-12) /* digits of the text */
        SL_FAIL(SL_ERROR_DATA, "%s: layer_norm_epsilon is not 1e-5", path);
    return SL_OK;
}

static sl_status read_config(const char *directory, const json_t *root, sl_model_shape *out_shape)
{
    char *path;
    foreign_config config = defaults;
    config.inner = UINT64_MAX;
    SL_TRY(sl_files_join_path(directory, CONFIG_NAME, &path));
    sl_status status = sl_fields_read(path, root, config_fields, &config);
    if (config.inner == UINT64_MAX)
        config.inner = 4 * (uint64_t)config.shape.width;
    if (status == SL_OK)
        status = check_config(sl_files_show(path).text, &config);
    free(path);
    if (status == SL_OK)
        *out_shape = config.shape;
    return status;
}

sl_status sl_weights_read_config(const char *directory, sl_model_shape *out_shape)
{
    int fd;
    json_t *root = NULL;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd));
    sl_status status = sl_json_file_read(fd, directory, CONFIG_NAME, CONFIG_BYTES_MAX, &root);
    if (status == SL_OK)
        status = read_config(directory, root, out_shape);
    json_decref(root);
    close(fd);
    return status;
}

/* No other program knows an own model: the sizes alone. */
static json_t *describe_own(const sl_model_shape *shape)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "model_type",
                     sl_architecture_name(shape->architecture), "vocab_size",
                     (json_int_t)shape->vocab, "n_positions", (json_int_t)shape->context, "n_embd",
                     (json_int_t)shape->width, "n_layer", (json_int_t)shape->layers);
}

static json_t *describe_gpt2(const sl_model_shape *shape, const char *dtype, uint32_t end_of_text)
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
        "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "scale_attn_weights", 1,
        "scale_attn_by_inverse_layer_idx", 0, "reorder_and_upcast_attn", 0, "tie_word_embeddings",
        1, "use_cache", 1, "bos_token_id", last_token, "eos_token_id", last_token);
}

sl_status sl_weights_format_config(const sl_model_shape *shape, const char *dtype,
                                   uint32_t end_of_text, char **out_text)
{
    json_t *root = shape->architecture == SL_ARCHITECTURE_OWN
                       ? describe_own(shape)
                       : describe_gpt2(shape, dtype, end_of_text);
    char *text = root ? sl_json_file_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a config.json");
    *out_text = text;
    return SL_OK;
}

/* ---- tensors ---- */

static const char *strip_prefix(const char *name)
{
    size_t length = sizeof SL_WEIGHTS_PREFIX - 1;
    return strncmp(name, SL_WEIGHTS_PREFIX, length) == 0 ? name + length : name;
}

/* Buffers that are no parameters: causal masks, and the head that is tied to wte. */
static bool is_skipped(const char *name)
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

static int compare_name(const void *name, const void *full)
{
    return strcmp(name, ((const sl_full_tensor *)full)->name);
}

/* Every tensor of the files is a parameter of the model or known to be none. */
static sl_status check_known(const sl_safetensors *file, const sl_full_tensors *list)
{
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const char *name = strip_prefix(file->tensors[i].name);
        if (is_skipped(name) ||
            bsearch(name, list->items, list->count, sizeof list->items[0], compare_name))
            continue;
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is not one of a GPT-2 of this shape",
                sl_files_show(file->file.path).text, sl_files_show(file->tensors[i].name).text);
    }
    return SL_OK;
}

sl_status sl_weights_find(const char *directory, const sl_model_files *files, const char *name,
                          const sl_safetensors **out_file, const sl_safetensors_tensor **out_tensor)
{
    char prefixed[SL_WEIGHTS_NAME_BYTES];
    const sl_safetensors *other_file = NULL;
    snprintf(prefixed, sizeof prefixed, "%s%s", SL_WEIGHTS_PREFIX, name);
    const sl_safetensors_tensor *plain = sl_model_files_find(files, name, out_file);
    const sl_safetensors_tensor *other = sl_model_files_find(files, prefixed, &other_file);
    if (plain && other)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is there twice, with and without \"%s\"",
                sl_files_show(directory).text, name, SL_WEIGHTS_PREFIX);
    if (!plain && !other)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing", sl_files_show(directory).text, name);
    *out_tensor = plain ? plain : other;
    *out_file = plain ? *out_file : other_file;
    return SL_OK;
}

static sl_status check_all(const char *directory, const sl_model_files *files,
                           const sl_full_tensors *list)
{
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
    for (uint32_t i = 0; i < files->file_count; i++)
        SL_TRY(check_known(files->files[i], list));
    for (uint32_t i = 0; i < list->count; i++) {
        SL_TRY(sl_weights_find(directory, files, list->items[i].name, &file, &tensor));
        SL_TRY(sl_full_tensors_check(&list->items[i], file, tensor));
    }
    return SL_OK;
}

static sl_status load_all(const char *directory, const sl_model_files *files,
                          const sl_full_tensors *list, const sl_tensor_io *io)
{
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        SL_TRY(sl_weights_find(directory, files, full->name, &file, &tensor));
        SL_TRY(sl_full_tensors_load(list, full, file, tensor, SL_GROUP_PARAM, io));
    }
    return SL_OK;
}

static sl_status open_checked(const char *directory, const sl_full_tensors *list,
                              sl_model_files **out_files)
{
    sl_model_files *files = NULL;
    SL_TRY(sl_model_files_open(directory, &files));
    sl_status status = check_all(directory, files, list);
    if (status != SL_OK)
        sl_model_files_close(files);
    else
        *out_files = files;
    return status;
}

sl_status sl_weights_open(const char *directory, const sl_tensor_spec *tensors,
                          uint32_t tensor_count, sl_model_files **out_files)
{
    sl_full_tensors *list;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = open_checked(directory, list, out_files);
    sl_full_tensors_close(list);
    return status;
}

sl_status sl_weights_import(const char *directory, const sl_tensor_spec *tensors,
                            uint32_t tensor_count, const sl_tensor_io *io)
{
    sl_full_tensors *list;
    sl_model_files *files = NULL;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = open_checked(directory, list, &files);
    if (status == SL_OK)
        status = load_all(directory, files, list, io);
    sl_model_files_close(files);
    sl_full_tensors_close(list);
    return status;
}
