/* Puts panels together and moves their rows; see full_tensors.h. */
#define _GNU_SOURCE
#include "full_tensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- finding the panels ---- */

static int compare_panels(const void *a, const void *b, void *tensors)
{
    const sl_tensor_spec *all = tensors;
    const sl_tensor_spec *x = &all[*(const uint32_t *)a], *y = &all[*(const uint32_t *)b];
    int order = strcmp(x->name, y->name);
    if (order != 0)
        return order;
    if (x->first_row != y->first_row)
        return x->first_row < y->first_row ? -1 : 1;
    return x->valid_rows < y->valid_rows ? -1 : x->valid_rows > y->valid_rows;
}

/* One panel on its own: it continues at row `next_row` of its tensor and is as wide as that. */
static sl_status check_panel(const sl_full_tensor *full, const sl_tensor_spec *spec,
                             uint64_t next_row)
{
    bool fits = spec->dim_count == full->dim_count && spec->whole_shape[0] == full->shape[0] &&
                spec->whole_shape[1] == full->shape[1] && spec->shape[1] == full->shape[1] &&
                spec->valid_rows <= spec->shape[0] && spec->valid_rows <= full->shape[0] - next_row;
    /* A panel of padding alone has no row outside; where it says it starts does not matter. */
    if (!fits || (spec->valid_rows > 0 && spec->first_row != next_row))
        SL_FAIL(SL_ERROR_USAGE,
                "tensor \"%s\": its panels do not make up the tensor; tensors split over "
                "ranks are not read or written yet",
                sl_files_show(full->name).text);
    return SL_OK;
}

static sl_status check_panels(const sl_full_tensor *full, const sl_tensor_spec *tensors)
{
    uint64_t next_row = 0;
    for (uint32_t i = 0; i < full->panel_count; i++) {
        const sl_tensor_spec *spec = &tensors[full->panels[i]];
        SL_TRY(check_panel(full, spec, next_row));
        next_row += spec->valid_rows;
    }
    if (next_row != full->shape[0])
        SL_FAIL(SL_ERROR_USAGE,
                "tensor \"%s\": its panels hold %llu of %llu rows; tensors split over ranks are "
                "not read or written yet",
                sl_files_show(full->name).text, (unsigned long long)next_row,
                (unsigned long long)full->shape[0]);
    return SL_OK;
}

static sl_status group_panels(sl_full_tensors *list, uint32_t tensor_count)
{
    const sl_tensor_spec *tensors = list->tensors;
    assert(list->order && list->items);
    for (uint32_t i = 0; i < tensor_count; i++)
        list->order[i] = i;
    if (tensor_count > 0)
        qsort_r(list->order, tensor_count, sizeof list->order[0], compare_panels, (void *)tensors);
    for (uint32_t i = 0; i < tensor_count; i++) {
        const sl_tensor_spec *spec = &tensors[list->order[i]];
        if (i == 0 || strcmp(spec->name, list->items[list->count - 1].name) != 0)
            list->items[list->count++] = (sl_full_tensor){
                .name = spec->name,
                .dim_count = spec->dim_count,
                .shape = {spec->whole_shape[0], spec->whole_shape[1]},
                .panels = list->order + i,
            };
        list->items[list->count - 1].panel_count++;
    }
    for (uint32_t i = 0; i < list->count; i++)
        SL_TRY(check_panels(&list->items[i], tensors));
    return SL_OK;
}

static uint64_t count_buffer_elements(const sl_tensor_spec *tensors, uint32_t tensor_count)
{
    uint64_t largest = 1;
    for (uint32_t i = 0; i < tensor_count; i++)
        if (tensors[i].element_count > largest)
            largest = tensors[i].element_count;
    return smaller(largest, SL_FULL_TENSORS_BUFFER_ELEMENTS);
}

sl_status sl_full_tensors_open(const sl_tensor_spec *tensors, uint32_t tensor_count,
                               sl_full_tensors **out_list)
{
    sl_full_tensors *list = calloc(1, sizeof *list);
    if (!list)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of tensors");
    size_t room = (size_t)tensor_count + 1; /* calloc(0) may be NULL */
    list->tensors = tensors;
    list->items = calloc(room, sizeof list->items[0]);
    list->order = calloc(room, sizeof list->order[0]);
    list->buffer_elements = count_buffer_elements(tensors, tensor_count);
    list->buffer = malloc(list->buffer_elements * sizeof list->buffer[0]);
    sl_status status = SL_OK;
    if (!list->items || !list->order || !list->buffer)
        status =
            sl_status_fail(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", tensor_count);
    if (status == SL_OK)
        status = group_panels(list, tensor_count);
    if (status != SL_OK) {
        sl_full_tensors_close(list);
        return status;
    }
    *out_list = list;
    return SL_OK;
}

void sl_full_tensors_close(sl_full_tensors *list)
{
    if (!list)
        return;
    free(list->items);
    free(list->order);
    free(list->buffer);
    free(list);
}

/* ---- carrying ---- */

sl_status sl_full_tensors_check(const sl_full_tensor *full, const sl_safetensors *file,
                                const sl_safetensors_tensor *tensor)
{
    sl_shown path = sl_files_show(file->file.path), name = sl_files_show(tensor->name);
    bool same = tensor->dim_count == full->dim_count && tensor->shape[0] == full->shape[0] &&
                (full->dim_count < 2 || tensor->shape[1] == full->shape[1]);
    if (!same)
        SL_FAIL(SL_ERROR_DATA,
                "%s: tensor \"%s\" has %u dimensions and shape [%llu, %llu], but the model needs "
                "%u dimensions and shape [%llu, %llu]",
                path.text, name.text, tensor->dim_count, (unsigned long long)tensor->shape[0],
                (unsigned long long)tensor->shape[1], full->dim_count,
                (unsigned long long)full->shape[0],
                (unsigned long long)(full->dim_count < 2 ? 0 : full->shape[1]));
    if (tensor->dtype != SL_DTYPE_F32 && tensor->dtype != SL_DTYPE_F16 &&
        tensor->dtype != SL_DTYPE_BF16)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is %s; only F32, F16 and BF16 are read",
                path.text, name.text, sl_safetensors_dtype_name(tensor->dtype));
    return SL_OK;
}

static sl_status clear_padding(const sl_full_tensors *list, uint32_t tensor_index, sl_group group,
                               const sl_tensor_io *io)
{
    const sl_tensor_spec *spec = &list->tensors[tensor_index];
    uint64_t first = spec->valid_rows * spec->shape[1];
    uint64_t left = spec->shape[0] * spec->shape[1] - first;
    if (left > 0)
        memset(list->buffer, 0, smaller(left, list->buffer_elements) * sizeof(float));
    while (left > 0) {
        uint64_t part = smaller(left, list->buffer_elements);
        SL_TRY(io->write(io->user, group, tensor_index, first, part, list->buffer));
        first += part;
        left -= part;
    }
    return SL_OK;
}

/* Rows of one panel; `start` is its first element in the file's tensor. */
static sl_status load_panel(const sl_full_tensors *list, uint32_t tensor_index,
                            const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                            sl_group group, const sl_tensor_io *io)
{
    const sl_tensor_spec *spec = &list->tensors[tensor_index];
    uint64_t start = spec->first_row * spec->shape[1];
    uint64_t count = spec->valid_rows * spec->shape[1];
    for (uint64_t done = 0; done < count; done += list->buffer_elements) {
        uint64_t part = smaller(count - done, list->buffer_elements);
        SL_TRY(sl_safetensors_read(file, tensor, start + done, part, list->buffer));
        SL_TRY(io->write(io->user, group, tensor_index, done, part, list->buffer));
    }
    return clear_padding(list, tensor_index, group, io);
}

sl_status sl_full_tensors_load(const sl_full_tensors *list, const sl_full_tensor *full,
                               const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                               sl_group group, const sl_tensor_io *io)
{
    for (uint32_t i = 0; i < full->panel_count; i++)
        SL_TRY(load_panel(list, full->panels[i], file, tensor, group, io));
    return SL_OK;
}

static sl_status save_panel(const sl_full_tensors *list, uint32_t tensor_index, sl_group group,
                            const sl_tensor_io *io, sl_safetensors_writer *writer)
{
    const sl_tensor_spec *spec = &list->tensors[tensor_index];
    uint64_t count = spec->valid_rows * spec->shape[1];
    for (uint64_t done = 0; done < count; done += list->buffer_elements) {
        uint64_t part = smaller(count - done, list->buffer_elements);
        SL_TRY(io->read(io->user, group, tensor_index, done, part, list->buffer));
        SL_TRY(sl_safetensors_writer_append(writer, list->buffer, part));
    }
    return SL_OK;
}

sl_status sl_full_tensors_save(const sl_full_tensors *list, const sl_full_tensor *full,
                               sl_group group, const sl_tensor_io *io,
                               sl_safetensors_writer *writer)
{
    for (uint32_t i = 0; i < full->panel_count; i++)
        SL_TRY(save_panel(list, full->panels[i], group, io, writer));
    return SL_OK;
}
