/* Recognises pieces, lays their weights across and gives them to the program; see model_pieces.h.
 */
#include "model_pieces.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "files/files.h"
#include "formats.h"
#include "tensors/across.h"
#include "tensors/full_tensors.h"

/* In the order in which they are looked for. */
static const sl_model_pieces_format *const formats[] = {
    &sl_model_pieces_core,
    &sl_model_pieces_torch,
    &sl_model_pieces_megatron,
    &sl_model_pieces_universal,
};

enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

bool sl_model_pieces_has(const char *directory, const char *name)
{
    char *path = NULL;
    bool exists = false;
    if (sl_files_join_path(directory, name, &path) != SL_OK)
        return false;
    const bool is_known = sl_files_exists(AT_FDCWD, NULL, path, &exists) == SL_OK;
    free(path);
    return is_known && exists;
}

static const sl_model_pieces_format *find_format(const char *path)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (formats[i]->is_at(path))
            return formats[i];
    return NULL;
}

bool sl_model_pieces_are_at(const char *path)
{
    return find_format(path) != NULL;
}

sl_status sl_model_pieces_open(const sl_model_pieces_args *args, sl_model_pieces **out_pieces)
{
    const sl_model_pieces_format *format = find_format(args->path);
    if (!format)
        SL_FAIL(SL_ERROR_MISSING, "%s: no pieces of a model are in it",
                sl_files_show(args->path).text);
    sl_model_pieces *pieces = calloc(1, sizeof *pieces);
    if (!pieces)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a model");
    sl_status status = sl_files_join_path(NULL, args->path, &pieces->path);
    if (status == SL_OK)
        status = format->open(args, pieces);
    if (status != SL_OK) {
        free(pieces->path);
        free(pieces);
        return status;
    }
    *out_pieces = pieces;
    return SL_OK;
}

void sl_model_pieces_close(sl_model_pieces *pieces)
{
    if (!pieces)
        return;
    pieces->ops->close(pieces->self);
    free(pieces->path);
    free(pieces);
}

sl_status sl_model_pieces_read(const sl_model_pieces *pieces, sl_group group,
                               const sl_foreign_tensor *tensor, uint64_t first_element,
                               uint64_t element_count, float *out_data)
{
    return pieces->ops->read(pieces->self, group, tensor, first_element, element_count, out_data);
}

/* The tensor that is being read. */
typedef struct source {
    const sl_model_pieces *pieces;
    sl_foreign_tensor tensor;
} source;

static sl_status read_pieces(void *user, uint64_t first, uint64_t count, float *data)
{
    const source *self = user;
    return sl_model_pieces_read(self->pieces, SL_GROUP_PARAM, &self->tensor, first, count, data);
}

static int compare_name(const void *name, const void *full)
{
    return strcmp(name, ((const sl_full_tensor *)full)->name);
}

static sl_status load_tensor(source *from, sl_across *across, const sl_full_tensors *list,
                             const sl_full_tensor *full, const sl_tensor_io *io)
{
    const sl_foreign_tensor *tensor = &from->tensor;
    sl_full_reader reader = {read_pieces, from};
    if (tensor->is_linear && from->pieces->is_out_in) {
        const sl_across_source matrix = {.from = reader,
                                         .rows = tensor->rows,
                                         .columns = tensor->columns,
                                         .path = from->pieces->path,
                                         .name = full->name};
        sl_across_set(across, &matrix);
        reader = (sl_full_reader){sl_across_read, across};
    }
    return sl_full_tensors_load_from(list, full, &reader, SL_GROUP_PARAM, io);
}

/* A stage of a pipeline has some of the tensors. */
static sl_status import_tensor(source *from, sl_across *across, const sl_full_tensors *list,
                               const sl_tensor_io *io, uint32_t *found_count)
{
    const sl_foreign_tensor *tensor = &from->tensor;
    const sl_foreign_tensor_name name = sl_model_tensors_name(tensor);
    const sl_full_tensor *full =
        bsearch(name.text, list->items, list->count, sizeof list->items[0], compare_name);
    if (!full)
        return SL_OK;
    *found_count += 1;
    if (full->shape[0] != tensor->rows ||
        (full->dim_count > 1 && full->shape[1] != tensor->columns))
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" has another shape than the model's",
                sl_files_show(from->pieces->path).text, name.text);
    return load_tensor(from, across, list, full, io);
}

static sl_status import_tensors(const sl_model_pieces *pieces, sl_across *across,
                                const sl_full_tensors *list, const sl_tensor_io *io)
{
    const sl_model_shape shape = pieces->shape;
    source from = {.pieces = pieces};
    uint32_t found_count = 0;
    for (uint32_t i = 0; i < sl_model_tensors_count(&shape); i++) {
        from.tensor = sl_model_tensors_nth(&shape, i);
        SL_TRY(import_tensor(&from, across, list, io, &found_count));
    }
    if (found_count != list->count)
        SL_FAIL(SL_ERROR_DATA, "%s: has %u of the %u tensors that the model needs",
                sl_files_show(pieces->path).text, found_count, list->count);
    return SL_OK;
}

sl_status sl_model_pieces_import(const sl_model_pieces *pieces, const sl_tensor_spec *tensors,
                                 uint32_t tensor_count, uint64_t window_elements,
                                 const sl_tensor_io *io)
{
    sl_full_tensors *list;
    sl_across across = {0};
    const uint64_t largest = sl_model_tensors_largest_linear(&pieces->shape);
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = SL_OK;
    if (pieces->is_out_in)
        status = sl_across_open(largest, window_elements, &across);
    if (status == SL_OK)
        status = import_tensors(pieces, &across, list, io);
    sl_across_close(&across);
    sl_full_tensors_close(list);
    return status;
}

enum { HASHED_ELEMENTS = 1 << 20 };

static sl_status hash_tensor(const sl_model_pieces *pieces, const sl_foreign_tensor *tensor,
                             float *data, sl_hash_stream *stream)
{
    const uint64_t element_count = tensor->rows * tensor->columns;
    for (uint64_t done = 0; done < element_count;) {
        const uint64_t part = sl_bits_min(element_count - done, HASHED_ELEMENTS);
        SL_TRY(sl_model_pieces_read(pieces, SL_GROUP_PARAM, tensor, done, part, data));
        sl_hash_update(stream, data, part * sizeof *data);
        done += part;
    }
    return SL_OK;
}

sl_status sl_model_pieces_hash(const sl_model_pieces *pieces, sl_hash_value *out_hash)
{
    const sl_model_shape shape = pieces->shape;
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    float *data = malloc(HASHED_ELEMENTS * sizeof *data);
    sl_status status =
        data ? SL_OK : sl_status_fail(SL_ERROR_SYSTEM, "no memory to compare weights");
    for (uint32_t i = 0; status == SL_OK && i < sl_model_tensors_count(&shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&shape, i);
        status = hash_tensor(pieces, &tensor, data, stream);
    }
    *out_hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    free(data);
    return status;
}
