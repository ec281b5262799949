/* Recognises a directory by its files, and loads parameters from it. */
#include "model_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#include "files/json_file.h"
#include "foreign/adapter.h"
#include "foreign/pieces/model_pieces.h"
#include "foreign/weights.h"
#include "tensors/across.h"

static sl_status has_file(const char *directory, const char *name, bool *out_has_file)
{
    char *path = NULL;
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_status status = sl_files_exists(AT_FDCWD, NULL, path, out_has_file);
    free(path);
    return status;
}

static sl_status open_weights(const char *path, sl_model_directory *source)
{
    SL_TRY(sl_weights_read_config(path, &source->shape));
    source->directory = strdup(path);
    if (!source->directory)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    source->path = source->directory;
    const sl_status status = sl_model_texts_read(path, &source->texts);
    if (status != SL_OK)
        free(source->directory);
    return status;
}

/* The options of a run say "auto" where --end-of-text was not given. */
static sl_status find_end_of_text(sl_model_directory *source)
{
    const char *options = sl_checkpoint_describe(source->checkpoint)->config_json;
    json_t *run = NULL;
    SL_TRY(sl_json_file_parse(source->path, options, strlen(options), &run));
    const json_t *value = json_object_get(run, "end_of_text");
    const json_int_t id = json_integer_value(value);
    source->names_end = json_is_integer(value) && id >= 0 && id < (json_int_t)source->shape.vocab;
    source->end_of_text = source->names_end ? (uint32_t)id : 0;
    json_decref(run);
    return SL_OK;
}

static sl_status open_checkpoint(const char *path, bool has_manifest, bool checks_all,
                                 sl_model_directory *source)
{
    SL_TRY(sl_checkpoint_open_parameters(path, has_manifest, checks_all, &source->checkpoint));
    source->shape = sl_checkpoint_describe(source->checkpoint)->shape;
    source->tokenizer = sl_checkpoint_describe(source->checkpoint)->tokenizer;
    source->texts = sl_checkpoint_describe(source->checkpoint)->texts; /* borrowed */
    source->path = sl_checkpoint_describe(source->checkpoint)->path;
    const sl_status status = find_end_of_text(source);
    if (status != SL_OK)
        sl_checkpoint_close(source->checkpoint);
    return status;
}

static sl_status open_pieces(const char *path, uint32_t heads, sl_model_directory *source)
{
    const sl_model_pieces_args args = {.path = path, .heads = heads};
    SL_TRY(sl_model_pieces_open(&args, &source->pieces));
    source->shape = source->pieces->shape;
    source->path = source->pieces->path;
    return SL_OK;
}

sl_status sl_model_directory_open(const char *path, bool checks_all, uint32_t heads,
                                  sl_model_directory *out_source)
{
    sl_model_directory source = {0};
    bool is_there, has_config, has_manifest, is_adapter;
    SL_TRY(sl_files_exists(AT_FDCWD, NULL, path, &is_there));
    if (!is_there)
        SL_FAIL(SL_ERROR_MISSING, "%s: no such directory", path);
    SL_TRY(has_file(path, "config.json", &has_config));
    SL_TRY(has_file(path, "manifest.json", &has_manifest));
    SL_TRY(has_file(path, SL_ADAPTER_CONFIG, &is_adapter));
    if (is_adapter && !has_config && !has_manifest)
        SL_FAIL(SL_ERROR_MISSING,
                "%s has adapters of LoRA alone: name the model that they are for, and "
                "--adapter with this directory",
                sl_files_show(path).text);
    if (sl_model_pieces_are_at(path))
        SL_TRY(open_pieces(path, heads, &source));
    else if (has_config && !has_manifest)
        SL_TRY(open_weights(path, &source));
    else
        SL_TRY(open_checkpoint(path, has_manifest, checks_all, &source));
    *out_source = source;
    return SL_OK;
}

/* A checkpoint with adapters holds its model, too. */
static sl_status check_adapter(const char *path)
{
    bool has_config, is_checkpoint;
    uint64_t step;
    SL_TRY(has_file(path, SL_ADAPTER_CONFIG, &has_config));
    SL_TRY(sl_checkpoint_newest_step(path, &is_checkpoint, &step));
    if (!has_config && is_checkpoint)
        SL_FAIL(SL_ERROR_USAGE,
                "--adapter %s is a checkpoint, which holds its whole model: name it in the place "
                "of the model, or make adapters of it by sluice convert --format peft",
                sl_files_show(path).text);
    return SL_OK;
}

sl_status sl_model_directory_add_adapter(sl_model_directory *source, const char *path)
{
    if (path == NULL)
        return SL_OK;
    if (source->shape.lora.rank > 0)
        SL_FAIL(SL_ERROR_USAGE, "--adapter %s: the model at %s has adapters already",
                sl_files_show(path).text, sl_files_show(source->path).text);
    SL_TRY(check_adapter(path));
    SL_TRY(sl_adapter_open(path, &source->shape, &source->adapter));
    source->shape.lora = *sl_adapter_lora(source->adapter);
    return SL_OK;
}

void sl_model_directory_close(sl_model_directory *source)
{
    if (source->directory)
        sl_model_texts_free(&source->texts);
    free(source->directory);
    sl_checkpoint_close(source->checkpoint);
    sl_model_pieces_close(source->pieces);
    sl_adapter_close(source->adapter);
    *source = (sl_model_directory){0};
}

static sl_status copy_open(const sl_model_directory *source, const sl_tensor_spec *tensors,
                           uint32_t tensor_count, const sl_tensor_io *io)
{
    sl_full_tensors *to = NULL;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &to));
    const sl_full_tensors_copy_args args = {.from = source->open_tensors,
                                            .from_io = source->open_io,
                                            .to = to,
                                            .to_io = io,
                                            .ranks = source->open_ranks};
    const sl_status status = sl_full_tensors_copy(&args);
    sl_full_tensors_close(to);
    return status;
}

static sl_status load_all(const sl_model_directory *source, const sl_tensor_spec *tensors,
                          uint32_t tensor_count, const sl_tensor_io *io)
{
    static const bool only_parameters[SL_GROUP_COUNT] = {[SL_GROUP_PARAM] = true};
    if (source->open_io)
        return copy_open(source, tensors, tensor_count, io);
    if (source->checkpoint)
        return sl_checkpoint_load(source->checkpoint, tensors, tensor_count, only_parameters, io);
    if (source->pieces)
        return sl_model_pieces_import(source->pieces, tensors, tensor_count,
                                      SL_ACROSS_WINDOW_ELEMENTS, io);
    return sl_weights_import(&source->shape, source->directory, tensors, tensor_count, io);
}

/* ---- a model and its adapters from two places ---- */

/* Some of the tensors, as a list of their own. */
typedef struct selection {
    const sl_tensor_io *io; /* of all tensors */
    sl_tensor_spec *tensors;
    uint32_t *places; /* among all */
    uint32_t count;
} selection;

static sl_status write_selected(void *user, sl_group group, uint32_t tensor_index,
                                uint64_t first_element, uint64_t element_count, const float *data)
{
    const selection *self = user;
    return self->io->write(self->io->user, group, self->places[tensor_index], first_element,
                           element_count, data);
}

static sl_status select_tensors(const sl_tensor_spec *tensors, uint32_t tensor_count,
                                bool are_adapters, selection *out)
{
    out->tensors = calloc((size_t)tensor_count + 1, sizeof *out->tensors);
    out->places = calloc((size_t)tensor_count + 1, sizeof *out->places);
    if (!out->tensors || !out->places)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", tensor_count);
    for (uint32_t t = 0; t < tensor_count; t++)
        if (tensors[t].is_adapter == are_adapters) {
            out->tensors[out->count] = tensors[t];
            out->places[out->count++] = t;
        }
    return SL_OK;
}

/* The adapters from where these are, or all other tensors. */
static sl_status load_selected(const sl_model_directory *source, const sl_tensor_spec *tensors,
                               uint32_t tensor_count, bool are_adapters, const sl_tensor_io *io)
{
    selection self = {.io = io};
    const sl_tensor_io selected = {.write = write_selected, .user = &self};
    sl_status status = select_tensors(tensors, tensor_count, are_adapters, &self);
    if (status == SL_OK)
        status = are_adapters
                     ? sl_adapter_import(source->adapter, self.tensors, self.count, &selected)
                     : load_all(source, self.tensors, self.count, &selected);
    if (status == SL_OK && !are_adapters && source->adapter)
        status = sl_adapter_import_saved(source->adapter, self.tensors, self.count, &selected);
    free(self.tensors);
    free(self.places);
    return status;
}

sl_status sl_model_directory_load(const sl_model_directory *source, const sl_tensor_spec *tensors,
                                  uint32_t tensor_count, const sl_tensor_io *io)
{
    const bool has_own = source->shape.lora.rank > 0 && !source->adapter;
    if (has_own || source->open_io)
        return load_all(source, tensors, tensor_count, io);
    SL_TRY(load_selected(source, tensors, tensor_count, false, io));
    return source->adapter ? load_selected(source, tensors, tensor_count, true, io) : SL_OK;
}
