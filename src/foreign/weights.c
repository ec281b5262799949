/* A directory of Hugging Face: its config.json first, then its tensors; see weights.h. */
#define _GNU_SOURCE
#include "weights.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/fields.h"
#include "files/files.h"
#include "files/json_file.h"
#include "tensors/full_tensors.h"

/* ---- config.json ---- */

static const char CONFIG_NAME[] = "config.json";

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* What is read first: it says who reads the rest. */
typedef struct config_type {
    char model_type[SL_SHOWN_BYTES];
} config_type;

static const sl_field type_fields[] = {
    SL_FIELD_AS(CHARS, "model_type", config_type, model_type),
    {0},
};

static sl_status read_named(const char *path, const json_t *root, sl_model_shape *out_shape)
{
    config_type type;
    char known[SL_SHOWN_BYTES];
    SL_TRY(sl_fields_read(path, root, type_fields, &type));
    const sl_architecture_kind architecture = sl_model_names_find(type.model_type);
    if (architecture == SL_ARCHITECTURE_COUNT) {
        sl_model_names_list(sizeof known, known);
        SL_FAIL(SL_ERROR_DATA, "%s: model_type is \"%s\", but only %s is read",
                sl_files_show(path).text, type.model_type, known);
    }
    sl_model_shape shape = {.architecture = architecture};
    SL_TRY(sl_model_names_of(&shape)->read_config(path, root, &shape));
    *out_shape = shape;
    out_shape->architecture = architecture;
    return SL_OK;
}

static sl_status read_config(const char *directory, const json_t *root, sl_model_shape *out_shape)
{
    char *path;
    SL_TRY(sl_files_join_path(directory, CONFIG_NAME, &path));
    sl_status status = read_named(path, root, out_shape);
    free(path);
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

sl_status sl_weights_format_config(const sl_model_shape *shape, const char *dtype,
                                   uint32_t end_of_text, char **out_text)
{
    const sl_model_names *names = sl_model_names_of(shape);
    json_t *root = names ? names->format_config(shape, dtype, end_of_text) : describe_own(shape);
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

static int compare_name(const void *name, const void *full)
{
    return strcmp(name, ((const sl_full_tensor *)full)->name);
}

/* Every tensor of the files is a parameter of the model or known to be none. */
static sl_status check_known(const sl_model_names *names, const sl_safetensors *file,
                             const sl_full_tensors *list)
{
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const char *name = strip_prefix(file->tensors[i].name);
        if (names->is_buffer(name) ||
            bsearch(name, list->items, list->count, sizeof list->items[0], compare_name))
            continue;
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is not one of a %s of this shape",
                sl_files_show(file->file.path).text, sl_files_show(file->tensors[i].name).text,
                names->title);
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

static sl_status check_all(const sl_model_names *names, const char *directory,
                           const sl_model_files *files, const sl_full_tensors *list)
{
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
    for (uint32_t i = 0; i < files->file_count; i++)
        SL_TRY(check_known(names, files->files[i], list));
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

static sl_status open_checked(const sl_model_names *names, const char *directory,
                              const sl_full_tensors *list, sl_model_files **out_files)
{
    sl_model_files *files = NULL;
    SL_TRY(sl_model_files_open(directory, &files));
    sl_status status = check_all(names, directory, files, list);
    if (status != SL_OK)
        sl_model_files_close(files);
    else
        *out_files = files;
    return status;
}

sl_status sl_weights_open(const sl_model_names *names, const char *directory,
                          const sl_tensor_spec *tensors, uint32_t tensor_count,
                          sl_model_files **out_files)
{
    sl_full_tensors *list;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = open_checked(names, directory, list, out_files);
    sl_full_tensors_close(list);
    return status;
}

sl_status sl_weights_import(const sl_model_names *names, const char *directory,
                            const sl_tensor_spec *tensors, uint32_t tensor_count,
                            const sl_tensor_io *io)
{
    sl_full_tensors *list;
    sl_model_files *files = NULL;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = open_checked(names, directory, list, &files);
    if (status == SL_OK)
        status = load_all(directory, files, list, io);
    sl_model_files_close(files);
    sl_full_tensors_close(list);
    return status;
}
