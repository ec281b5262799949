/* Lays windows of weights across and gives them to the program; see megatron_pieces.h.
 *
 * A row of [in, out] is a column of [out, in], so rows are made in windows: as many as fit the
 * memory, each read once. A window of all rows reads the pieces as they lie, one of some rows reads
 * a part of each row of the pieces. The program asks for elements by rising places. */
#include "megatron_pieces.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "files/files.h"
#include "tensors/elements.h"
#include "tensors/full_tensors.h"

/* Rows [first_row, first_row + row_count) of the linear tensor that is being read. */
typedef struct window {
    const sl_megatron_model *model;
    sl_foreign_tensor tensor;
    uint64_t first_row, row_count;
    float *data; /* [row_count, columns] */
    float *band; /* [columns of the band, row_count] */
    uint64_t data_elements, band_elements;
} window;

/* Elements of some columns, which are rows of the pieces: all of them, or a part of each. */
static sl_status read_band(const window *self, uint64_t first_column, uint64_t column_count)
{
    const uint64_t rows = self->tensor.rows, first = first_column * rows + self->first_row;
    if (self->row_count == rows)
        return sl_megatron_model_read(self->model, &self->tensor, first, column_count * rows,
                                      self->band);
    for (uint64_t i = 0; i < column_count; i++)
        SL_TRY(sl_megatron_model_read(self->model, &self->tensor, first + i * rows, self->row_count,
                                      self->band + i * self->row_count));
    return SL_OK;
}

static sl_status fill_window(window *self, uint64_t first_row)
{
    const uint64_t columns = self->tensor.columns;
    const uint64_t most = sl_bits_min(self->data_elements / columns, self->band_elements);
    if (most == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" has rows of %llu elements: at most %llu are read",
                sl_files_show(sl_megatron_model_path(self->model)).text,
                sl_model_tensors_name(&self->tensor).text, (unsigned long long)columns,
                (unsigned long long)self->data_elements);
    self->first_row = first_row;
    assert(first_row < self->tensor.rows);
    self->row_count = sl_bits_min(self->tensor.rows - first_row, most);
    for (uint64_t column = 0; column < columns;) {
        const uint64_t count = sl_bits_min(columns - column, self->band_elements / self->row_count);
        SL_TRY(read_band(self, column, count));
        sl_elements_lay_across(self->band, count, self->row_count, columns, self->data + column);
        column += count;
    }
    return SL_OK;
}

static sl_status read_across(window *self, uint64_t first, uint64_t count, float *data)
{
    const uint64_t columns = self->tensor.columns;
    while (count > 0) {
        const uint64_t row = first / columns;
        if (row < self->first_row || row >= self->first_row + self->row_count)
            SL_TRY(fill_window(self, row));
        const uint64_t at = first - self->first_row * columns;
        const uint64_t part = sl_bits_min(count, self->row_count * columns - at);
        memcpy(data, self->data + at, part * sizeof *data);
        first += part;
        count -= part;
        data += part;
    }
    return SL_OK;
}

static sl_status read_elements(void *user, uint64_t first, uint64_t count, float *data)
{
    window *self = user;
    return self->tensor.is_linear
               ? read_across(self, first, count, data)
               : sl_megatron_model_read(self->model, &self->tensor, first, count, data);
}

static int compare_name(const void *name, const void *full)
{
    return strcmp(name, ((const sl_full_tensor *)full)->name);
}

/* A stage of a pipeline has some of the tensors. */
static sl_status import_tensor(window *self, const sl_full_tensors *list, const sl_tensor_io *io,
                               uint32_t *found_count)
{
    const sl_foreign_tensor *tensor = &self->tensor;
    const sl_foreign_tensor_name name = sl_model_tensors_name(tensor);
    const sl_full_tensor *full =
        bsearch(name.text, list->items, list->count, sizeof list->items[0], compare_name);
    if (!full)
        return SL_OK;
    *found_count += 1;
    if (full->shape[0] != tensor->rows ||
        (full->dim_count > 1 && full->shape[1] != tensor->columns))
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" has another shape than the model's",
                sl_files_show(sl_megatron_model_path(self->model)).text, name.text);
    self->row_count = 0;
    const sl_full_reader reader = {read_elements, self};
    return sl_full_tensors_load_from(list, full, &reader, SL_GROUP_PARAM, io);
}

static sl_status import_tensors(window *self, const sl_full_tensors *list, const sl_tensor_io *io)
{
    const sl_model_shape shape = sl_megatron_model_shape(self->model);
    uint32_t found_count = 0;
    for (uint32_t i = 0; i < sl_model_tensors_count(&shape); i++) {
        self->tensor = sl_model_tensors_nth(&shape, i);
        SL_TRY(import_tensor(self, list, io, &found_count));
    }
    if (found_count != list->count)
        SL_FAIL(SL_ERROR_DATA, "%s: has %u of the %u tensors that the model needs",
                sl_files_show(sl_megatron_model_path(self->model)).text, found_count, list->count);
    return SL_OK;
}

/* A feed-forward weight is the largest that is laid across. */
static sl_status open_window(const sl_megatron_model *model, uint64_t window_elements,
                             window *out_window)
{
    const sl_model_shape shape = sl_megatron_model_shape(model);
    const uint64_t largest = shape.width * sl_model_names_of(&shape)->size(&shape, SL_SIZE_INNER);
    window self = {.model = model,
                   .data_elements = sl_bits_min(largest, window_elements),
                   .band_elements =
                       sl_bits_min(largest, 1 + window_elements / SL_MEGATRON_PIECES_BANDS)};
    self.data = malloc(self.data_elements * sizeof *self.data);
    self.band = malloc(self.band_elements * sizeof *self.band);
    *out_window = self;
    if (!self.data || !self.band)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu elements of a weight",
                (unsigned long long)self.data_elements);
    return SL_OK;
}

sl_status sl_megatron_pieces_import(const sl_megatron_model *model, const sl_tensor_spec *tensors,
                                    uint32_t tensor_count, uint64_t window_elements,
                                    const sl_tensor_io *io)
{
    sl_full_tensors *list;
    window self;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = open_window(model, window_elements, &self);
    if (status == SL_OK)
        status = import_tensors(&self, list, io);
    free(self.data);
    free(self.band);
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
