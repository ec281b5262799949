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
#include "model_tensors.h"
#include "tensors/across.h"

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

/* The sizes alone, under a type that no other program takes for its own: of an own model, of one
 * whose linear weights a checkpoint has the other way round, and of one with adapters, which that
 * program would leave out. */
static json_t *describe_sizes(const sl_model_shape *shape, bool has_names)
{
    char type[SL_SHOWN_BYTES];
    snprintf(type, sizeof type, "%s%s", has_names ? "sluice-" : "",
             sl_architecture_name(shape->architecture));
    return json_pack("{s:s, s:I, s:I, s:I, s:I}", "model_type", type, "vocab_size",
                     (json_int_t)shape->vocab, "n_positions", (json_int_t)shape->context, "n_embd",
                     (json_int_t)shape->width, "n_layer", (json_int_t)shape->layers);
}

/* With as few digits as bring each number back: 1e-05 stays short. NULL: no memory. */
static char *dump_exactly(const json_t *root)
{
    enum { DIGITS_MIN = 15, DIGITS_EXACT = 17 };
    for (size_t digits = DIGITS_MIN; digits <= DIGITS_EXACT; digits++) {
        json_t *again = NULL;
        char *text = sl_json_file_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        if (text && sl_json_file_parse(CONFIG_NAME, text, strlen(text), &again) == SL_OK &&
            (digits == DIGITS_EXACT || json_equal(root, again))) {
            json_decref(again);
            return text;
        }
        json_decref(again);
        free(text);
    }
    return NULL;
}

static sl_status dump_config(json_t *root, char **out_text)
{
    char *text = root ? dump_exactly(root) : NULL;
    json_decref(root);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a config.json");
    *out_text = text;
    return SL_OK;
}

sl_status sl_weights_format_config(const sl_model_shape *shape, const char *dtype,
                                   uint32_t end_of_text, char **out_text)
{
    return dump_config(sl_model_names_of(shape)->format_config(shape, dtype, end_of_text),
                       out_text);
}

sl_status sl_weights_describe_checkpoint(const sl_model_shape *shape, char **out_text)
{
    const sl_model_names *names = sl_model_names_of(shape);
    return dump_config(names && !names->is_out_in && shape->lora.rank == 0
                           ? names->format_config(shape, "float32", shape->vocab - 1)
                           : describe_sizes(shape, names),
                       out_text);
}

/* ---- names ---- */

static const char *find_prefix(const sl_model_names *names, const char *name)
{
    return names->bare && strcmp(names->bare, name) == 0 ? "" : names->prefix;
}

sl_weights_name sl_weights_whole_name(const sl_model_names *names, const char *name)
{
    sl_weights_name made;
    snprintf(made.text, sizeof made.text, "%s%.47s", find_prefix(names, name), name);
    return made;
}

static const char *strip_prefix(const sl_model_names *names, const char *name)
{
    const size_t length = strlen(names->prefix);
    return strncmp(name, names->prefix, length) == 0 ? name + length : name;
}

/* ---- tensors ---- */

bool sl_weights_is_across(const sl_model_names *names, const char *name)
{
    const sl_tensor_kind *kind = names->is_out_in ? sl_model_tensors_named(names, name) : NULL;
    return kind && kind->is_linear;
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
        const char *name = strip_prefix(names, file->tensors[i].name);
        if (names->is_buffer(name) ||
            bsearch(name, list->items, list->count, sizeof list->items[0], compare_name))
            continue;
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is not one of a %s of this shape",
                sl_files_show(file->file.path).text, sl_files_show(file->tensors[i].name).text,
                names->title);
    }
    return SL_OK;
}

sl_status sl_weights_find(const sl_weights_directory *in, const char *name,
                          sl_weights_tensor *out_tensor)
{
    const char *prefix = find_prefix(in->names, name);
    const sl_weights_name whole = sl_weights_whole_name(in->names, name);
    sl_weights_tensor plain = {0}, other = {0};
    plain.tensor = sl_model_files_find(in->files, name, &plain.file);
    if (*prefix)
        other.tensor = sl_model_files_find(in->files, whole.text, &other.file);
    if (plain.tensor && other.tensor)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is there twice, with and without \"%s\"",
                sl_files_show(in->path).text, name, prefix);
    if (!plain.tensor && !other.tensor)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing", sl_files_show(in->path).text, name);
    *out_tensor = plain.tensor ? plain : other;
    return SL_OK;
}

/* The tensor as the file has it. */
static sl_full_tensor turn(const sl_model_names *names, const sl_full_tensor *full)
{
    sl_full_tensor turned = *full;
    if (sl_weights_is_across(names, full->name)) {
        turned.shape[0] = full->shape[1];
        turned.shape[1] = full->shape[0];
    }
    return turned;
}

static sl_status check_all(const sl_weights_directory *in, const sl_full_tensors *list)
{
    sl_weights_tensor found;
    for (uint32_t i = 0; i < in->files->file_count; i++)
        SL_TRY(check_known(in->names, in->files->files[i], list));
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor turned = turn(in->names, &list->items[i]);
        SL_TRY(sl_weights_find(in, list->items[i].name, &found));
        SL_TRY(sl_full_tensors_check(&turned, found.file, found.tensor));
    }
    return SL_OK;
}

static sl_status read_tensor(void *user, uint64_t first_element, uint64_t element_count,
                             float *out_data)
{
    const sl_weights_tensor *self = user;
    return sl_safetensors_read(self->file, self->tensor, first_element, element_count, out_data);
}

static sl_status load_tensor(const sl_weights_directory *in, const sl_full_tensors *list,
                             const sl_full_tensor *full, sl_across *across, const sl_tensor_io *io)
{
    sl_weights_tensor found;
    SL_TRY(sl_weights_find(in, full->name, &found));
    sl_full_reader reader = {read_tensor, &found};
    if (sl_weights_is_across(in->names, full->name)) {
        const sl_across_source matrix = {.from = reader,
                                         .rows = full->shape[0],
                                         .columns = full->shape[1],
                                         .path = found.file->file.path,
                                         .name = full->name};
        sl_across_set(across, &matrix);
        reader = (sl_full_reader){sl_across_read, across};
    }
    return sl_full_tensors_load_from(list, full, &reader, SL_GROUP_PARAM, io);
}

static sl_status load_all(const sl_weights_directory *in, const sl_model_shape *shape,
                          const sl_full_tensors *list, const sl_tensor_io *io)
{
    sl_across across = {0};
    if (in->names->is_out_in)
        SL_TRY(sl_across_open(sl_model_tensors_largest_linear(shape), SL_ACROSS_WINDOW_ELEMENTS,
                              &across));
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < list->count && status == SL_OK; i++)
        status = load_tensor(in, list, &list->items[i], &across, io);
    sl_across_close(&across);
    return status;
}

static sl_status open_checked(const sl_model_names *names, const char *directory,
                              const sl_full_tensors *list, sl_model_files **out_files)
{
    sl_weights_directory in = {names, directory, NULL};
    SL_TRY(sl_model_files_open(directory, out_files));
    in.files = *out_files;
    const sl_status status = check_all(&in, list);
    if (status == SL_OK)
        return SL_OK;
    sl_model_files_close(*out_files);
    *out_files = NULL;
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

sl_status sl_weights_import(const sl_model_shape *shape, const char *directory,
                            const sl_tensor_spec *tensors, uint32_t tensor_count,
                            const sl_tensor_io *io)
{
    const sl_model_names *names = sl_model_names_of(shape);
    sl_full_tensors *list;
    sl_model_files *files = NULL;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = open_checked(names, directory, list, &files);
    const sl_weights_directory in = {names, directory, files};
    if (status == SL_OK)
        status = load_all(&in, shape, list, io);
    sl_model_files_close(files);
    sl_full_tensors_close(list);
    return status;
}
