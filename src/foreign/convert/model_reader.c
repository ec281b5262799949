/* Opens one of four kinds of models, and reads runs of elements; see model_reader.h. */
#include "model_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "foreign/pieces/model_pieces.h"
#include "foreign/weights.h"

/* ---- directories ---- */

static sl_status find_in_checkpoint(sl_model_reader *reader, const sl_tensor_spec *specs,
                                    uint32_t count)
{
    char name[SL_WEIGHTS_NAME_BYTES];
    const sl_safetensors *file;
    SL_TRY(sl_checkpoint_parameters(reader->source.checkpoint, specs, count, &file));
    for (uint32_t i = 0; i < count && !specs[i].is_adapter; i++) {
        snprintf(name, sizeof name, "%s%s", SL_WEIGHTS_PREFIX, specs[i].name);
        reader->found[i] = (sl_weights_tensor){file, sl_safetensors_find(file, name)};
    }
    return SL_OK;
}

static sl_status find_in_files(sl_model_reader *reader, const sl_tensor_spec *specs, uint32_t count)
{
    sl_weights_directory in = {sl_model_names_of(&reader->shape), reader->source.directory, NULL};
    SL_TRY(sl_weights_open(in.names, in.path, specs, count, &reader->files));
    in.files = reader->files;
    reader->is_out_in = in.names->is_out_in;
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(sl_weights_find(&in, specs[i].name, &reader->found[i]));
    return SL_OK;
}

static sl_status find_tensors(sl_model_reader *reader)
{
    uint32_t count = sl_model_tensors_count(&reader->shape);
    const uint32_t all = count + sl_layer_adapter_specify(&reader->shape, NULL);
    reader->found = calloc(count, sizeof *reader->found);
    sl_tensor_spec *specs = calloc(all, sizeof *specs);
    if (!reader->found || !specs) {
        free(specs);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", count);
    }
    sl_model_tensors_specify(&reader->shape, specs);
    sl_layer_adapter_specify(&reader->shape, specs + count);
    sl_status status = reader->source.checkpoint ? find_in_checkpoint(reader, specs, all)
                                                 : find_in_files(reader, specs, count);
    free(specs);
    return status;
}

/* A shape of someone else's configuration may be any. */
static sl_status check_shape(const sl_model_shape *shape, const char *path)
{
    if (sl_model_shape_check(shape, 1) == SL_OK)
        return SL_OK;
    return sl_status_prefix(SL_ERROR_DATA, "%s", sl_files_show(path).text);
}

static sl_status open_directory(const char *path, bool checks_all, uint32_t heads,
                                sl_model_reader *reader)
{
    SL_TRY(sl_model_directory_open(path, checks_all, heads, &reader->source));
    reader->shape = reader->source.shape;
    reader->path = reader->source.path;
    if (reader->source.pieces) {
        reader->kind = reader->source.pieces->kind;
        reader->is_out_in = reader->source.pieces->is_out_in;
        return SL_OK;
    }
    reader->kind = reader->source.checkpoint ? "a checkpoint" : "a Hugging Face model";
    reader->directory = reader->source.path;
    reader->tokenizer = reader->source.tokenizer;
    SL_TRY(check_shape(&reader->shape, path));
    return find_tensors(reader);
}

/* ---- llm.c ---- */

static sl_status open_file(const char *path, sl_model_reader *reader)
{
    SL_TRY(sl_llmc_model_open(AT_FDCWD, NULL, path, &reader->llmc));
    const sl_llmc_shape *shape = &reader->llmc->shape;
    reader->shape = (sl_model_shape){.architecture = sl_model_names_in_llmc(),
                                     .layers = shape->layers,
                                     .width = shape->width,
                                     .heads = shape->heads,
                                     .context = shape->context,
                                     .vocab = shape->vocab};
    reader->kind = "a model of llm.c";
    reader->path = reader->llmc->file.path;
    reader->is_out_in = true;
    return check_shape(&reader->shape, path);
}

/* ---- all ---- */

sl_status sl_model_reader_open(const char *path, bool checks_all, uint32_t heads,
                               sl_model_reader *out_reader)
{
    struct stat info;
    sl_model_reader reader = {0};
    bool is_there = stat(path, &info) == 0;
    if (!is_there && errno != ENOENT && errno != ENOTDIR)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be looked at: %s", sl_files_show(path).text,
                strerror(errno));
    bool is_directory = is_there && S_ISDIR(info.st_mode);
    sl_status status =
        is_directory ? open_directory(path, checks_all, heads, &reader) : open_file(path, &reader);
    if (status != SL_OK) {
        sl_model_reader_close(&reader);
        return status;
    }
    *out_reader = reader;
    return SL_OK;
}

void sl_model_reader_close(sl_model_reader *reader)
{
    if (reader->adapter)
        sl_layer_adapter_close(reader->adapter);
    free(reader->adapter);
    sl_llmc_model_close(reader->llmc);
    sl_model_files_close(reader->files);
    sl_model_directory_close(&reader->source);
    free(reader->found);
    *reader = (sl_model_reader){0};
}

/* ---- adapters ---- */

sl_layer_adapter sl_model_reader_adapter(const sl_model_reader *reader)
{
    return (sl_layer_adapter){.shape = &reader->shape,
                              .adapter = reader->source.adapter,
                              .checkpoint = reader->found ? reader->found[0].file : NULL};
}

/* What was trained whole beside adapters stands in the place of the base's. */
static sl_status find_saved(sl_model_reader *reader)
{
    const uint32_t count = sl_model_tensors_count(&reader->shape);
    for (uint32_t i = 0; i < count; i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&reader->shape, i);
        const sl_foreign_tensor_name name = sl_model_tensors_name(&tensor);
        sl_weights_tensor saved;
        if (!sl_adapter_find_saved(reader->source.adapter, name.text, &saved))
            continue;
        const sl_full_tensor wanted = {.name = name.text,
                                       .dim_count = tensor.dim_count,
                                       .shape = {tensor.rows, tensor.columns}};
        if (!reader->found)
            SL_FAIL(SL_ERROR_USAGE,
                    "--adapter: adapters of pieces are read if nothing else was trained: make a "
                    "Hugging Face directory of the pieces first");
        SL_TRY(sl_full_tensors_check(&wanted, saved.file, saved.tensor));
        reader->found[i] = saved;
    }
    return SL_OK;
}

sl_status sl_model_reader_add_adapter(sl_model_reader *reader, const char *path)
{
    if (path != NULL && reader->llmc)
        SL_FAIL(SL_ERROR_USAGE, "--adapter: adapters of a model of llm.c are not read");
    if (path != NULL)
        SL_TRY(sl_model_directory_add_adapter(&reader->source, path));
    reader->shape.lora = reader->source.shape.lora;
    if (path != NULL)
        SL_TRY(find_saved(reader));
    if (reader->shape.lora.rank == 0)
        return SL_OK;
    reader->adapter = calloc(1, sizeof *reader->adapter);
    if (!reader->adapter)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for adapters");
    return SL_OK;
}

/* ---- reading ---- */

static sl_status read_weights(const sl_model_reader *reader, const sl_foreign_tensor *tensor,
                              uint64_t first_element, uint64_t element_count, float *out_data)
{
    if (reader->llmc) {
        sl_llmc_place place =
            sl_llmc_find(&reader->llmc->shape, (sl_llmc_kind)tensor->kind, tensor->layer);
        return sl_llmc_model_read(reader->llmc, place.first_element + first_element, element_count,
                                  out_data);
    }
    if (reader->source.pieces)
        return sl_model_pieces_read(reader->source.pieces, SL_GROUP_PARAM, tensor, first_element,
                                    element_count, out_data);
    const sl_weights_tensor *found = &reader->found[sl_model_tensors_index(&reader->shape, tensor)];
    return sl_safetensors_read(found->file, found->tensor, first_element, element_count, out_data);
}

sl_status sl_model_reader_read(const sl_model_reader *reader, const sl_foreign_tensor *tensor,
                               uint64_t first_element, uint64_t element_count, float *out_data)
{
    SL_TRY(read_weights(reader, tensor, first_element, element_count, out_data));
    if (!reader->merges || !reader->adapter)
        return SL_OK;
    if (!reader->adapter->shape)
        *reader->adapter = sl_model_reader_adapter(reader);
    if (!sl_layer_adapter_has(reader->adapter, tensor))
        return SL_OK;
    return sl_layer_adapter_merge(reader->adapter, tensor, reader->is_out_in, first_element,
                                  element_count, out_data);
}
