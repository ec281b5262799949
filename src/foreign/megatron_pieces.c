/* Lays weights across and gives them to the program; see megatron_pieces.h. */
#include "megatron_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "files/files.h"
#include "tensors/across.h"
#include "tensors/full_tensors.h"

/* The tensor that is being read. */
typedef struct source {
    const sl_megatron_model *model;
    sl_foreign_tensor tensor;
} source;

static sl_status read_pieces(void *user, uint64_t first, uint64_t count, float *data)
{
    const source *self = user;
    return sl_megatron_model_read(self->model, &self->tensor, first, count, data);
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
    if (tensor->is_linear) {
        const sl_across_source matrix = {.from = reader,
                                         .rows = tensor->rows,
                                         .columns = tensor->columns,
                                         .path = sl_megatron_model_path(from->model),
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
                sl_files_show(sl_megatron_model_path(from->model)).text, name.text);
    return load_tensor(from, across, list, full, io);
}

static sl_status import_tensors(const sl_megatron_model *model, sl_across *across,
                                const sl_full_tensors *list, const sl_tensor_io *io)
{
    const sl_model_shape shape = sl_megatron_model_shape(model);
    source from = {.model = model};
    uint32_t found_count = 0;
    for (uint32_t i = 0; i < sl_model_tensors_count(&shape); i++) {
        from.tensor = sl_model_tensors_nth(&shape, i);
        SL_TRY(import_tensor(&from, across, list, io, &found_count));
    }
    if (found_count != list->count)
        SL_FAIL(SL_ERROR_DATA, "%s: has %u of the %u tensors that the model needs",
                sl_files_show(sl_megatron_model_path(model)).text, found_count, list->count);
    return SL_OK;
}

sl_status sl_megatron_pieces_import(const sl_megatron_model *model, const sl_tensor_spec *tensors,
                                    uint32_t tensor_count, uint64_t window_elements,
                                    const sl_tensor_io *io)
{
    sl_full_tensors *list;
    sl_across across = {0};
    const sl_model_shape shape = sl_megatron_model_shape(model);
    const uint64_t largest = sl_model_tensors_largest_linear(&shape);
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = sl_across_open(largest, window_elements, &across);
    if (status == SL_OK)
        status = import_tensors(model, &across, list, io);
    sl_across_close(&across);
    sl_full_tensors_close(list);
    return status;
}

enum { HASHED_ELEMENTS = 1 << 20 };

static sl_status hash_tensor(const sl_megatron_model *model, const sl_foreign_tensor *tensor,
                             float *data, sl_hash_stream *stream)
{
    const uint64_t element_count = tensor->rows * tensor->columns;
    for (uint64_t done = 0; done < element_count;) {
        const uint64_t part = sl_bits_min(element_count - done, HASHED_ELEMENTS);
        SL_TRY(sl_megatron_model_read(model, tensor, done, part, data));
        sl_hash_update(stream, data, part * sizeof *data);
        done += part;
    }
    return SL_OK;
}

sl_status sl_megatron_pieces_hash(const sl_megatron_model *model, sl_hash_value *out_hash)
{
    const sl_model_shape shape = sl_megatron_model_shape(model);
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    float *data = malloc(HASHED_ELEMENTS * sizeof *data);
    sl_status status =
        data ? SL_OK : sl_status_fail(SL_ERROR_SYSTEM, "no memory to compare weights");
    for (uint32_t i = 0; status == SL_OK && i < sl_model_tensors_count(&shape); i++) {
        const sl_foreign_tensor tensor = sl_model_tensors_nth(&shape, i);
        status = hash_tensor(model, &tensor, data, stream);
    }
    *out_hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    free(data);
    return status;
}
