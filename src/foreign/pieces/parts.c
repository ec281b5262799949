/* Lists of files, archives, places and tensors; the cover of a tensor; reading across parts. See
 * parts.h. */
#include "parts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"

enum {
    ROOM_ELEMENTS = 1 << 18, /* 1 MiB */
    DESCRIPTORS_MAX = 256,   /* files beyond these are at rest */
    OVERLAPS_PARTS_MAX = 8192,
    NO_PLACE = -1
};

#define GROW(list, count, capacity)                                                                \
    SL_ARRAY_GROW(list, count, capacity, "a list of parts of a model")

/* ---- files and archives ---- */

sl_status sl_parts_add_file(sl_parts *parts, const char *directory, const char *name,
                            uint32_t *out_file)
{
    char *path = NULL;
    if (parts->file_count >= SL_PARTS_FILES_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: has more than %d files", sl_files_show(directory).text,
                SL_PARTS_FILES_MAX);
    SL_TRY(GROW(parts->files, parts->file_count, parts->file_capacity));
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_file *file = calloc(1, sizeof *file);
    sl_status status = file
                           ? sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_REFUSE, file)
                           : sl_status_fail(SL_ERROR_SYSTEM, "no memory to open a file of a model");
    free(path);
    if (status != SL_OK) {
        free(file);
        return status;
    }
    parts->files[parts->file_count] = file;
    *out_file = parts->file_count++;
    return *out_file >= DESCRIPTORS_MAX ? sl_files_rest(file) : SL_OK;
}

static sl_status add_archive(sl_parts *parts, const sl_parts_archive *archive, uint32_t *out_index)
{
    SL_TRY(GROW(parts->archives, parts->archive_count, parts->archive_capacity));
    parts->archives[parts->archive_count] = *archive;
    *out_index = parts->archive_count++;
    return SL_OK;
}

static sl_status add_place(sl_parts *parts, const sl_parts_place *place, uint32_t *out_index)
{
    SL_TRY(GROW(parts->places, parts->place_count, parts->place_capacity));
    parts->places[parts->place_count] = *place;
    *out_index = parts->place_count++;
    return SL_OK;
}

sl_status sl_parts_add_archive(sl_parts *parts, sl_parts_range range, const sl_parts_shape *shape,
                               sl_encoding encoding, uint32_t *out_place)
{
    sl_file part;
    const sl_parts_archive archive = {
        .file = range.file, .first_byte = range.first_byte, .bytes = range.bytes};
    sl_parts_place place = {.encoding = encoding, .has_shape = shape != NULL};
    if (shape)
        place.shape = *shape;
    SL_TRY(sl_files_take_part(parts->files[range.file], range.first_byte, range.bytes, &part));
    SL_TRY(add_archive(parts, &archive, &place.archive));
    SL_TRY(add_place(parts, &place, out_place));
    parts->archives[place.archive].place = *out_place;
    return SL_OK;
}

static sl_status read_archive(sl_parts *parts, sl_parts_archive *archive)
{
    archive->open = calloc(1, sizeof *archive->open);
    if (!archive->open)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a part of a model");
    const sl_status status = sl_torch_file_open_part(
        parts->files[archive->file], archive->first_byte, archive->bytes, archive->open);
    if (status != SL_OK) {
        free(archive->open);
        archive->open = NULL;
        return status;
    }
    parts->is_unchecked = parts->is_unchecked || archive->open->is_unchecked;
    return SL_OK;
}

static void close_archive(sl_parts_archive *archive)
{
    if (archive->open)
        sl_torch_file_close(archive->open);
    free(archive->open);
    archive->open = NULL;
}

sl_status sl_parts_open_archive(sl_parts *parts, uint32_t file, uint32_t *out_archive)
{
    const sl_parts_archive archive = {
        .file = file, .bytes = parts->files[file]->bytes, .place = (uint32_t)NO_PLACE};
    SL_TRY(add_archive(parts, &archive, out_archive));
    return read_archive(parts, &parts->archives[*out_archive]);
}

sl_status sl_parts_add_place(sl_parts *parts, uint32_t archive, const sl_torch_tensor *tensor,
                             uint32_t *out_place)
{
    const sl_parts_place place = {.archive = archive, .is_found = true, .tensor = *tensor};
    return add_place(parts, &place, out_place);
}

/* ---- tensors and their parts ---- */

static sl_status count_sizes(sl_parted *tensor)
{
    const sl_parts_shape *shape = &tensor->shape;
    tensor->rows = tensor->columns = 1;
    for (uint32_t i = 0; i < shape->dim_count; i++) {
        uint64_t *size = i > 0 && i + 1 == shape->dim_count ? &tensor->columns : &tensor->rows;
        SL_TRY(sl_bits_multiply(*size, shape->sizes[i], "a tensor", size));
    }
    uint64_t count;
    SL_TRY(sl_bits_multiply(tensor->rows, tensor->columns, "a tensor", &count));
    return sl_bits_multiply(count, sizeof(double), "a tensor", &count);
}

sl_status sl_parts_add_tensor(sl_parts *parts, const char *name, uint32_t name_bytes,
                              const sl_parts_shape *shape, uint32_t *out_tensor)
{
    sl_parted tensor = {.shape = *shape};
    if (memchr(name, '\0', name_bytes))
        SL_FAIL(SL_ERROR_DATA, "a tensor's name has a NUL in it");
    SL_TRY(GROW(parts->tensors, parts->tensor_count, parts->tensor_capacity));
    tensor.name = strndup(name, name_bytes);
    if (!tensor.name)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the name of a tensor");
    parts->tensors[parts->tensor_count] = tensor;
    *out_tensor = parts->tensor_count++;
    if (count_sizes(&parts->tensors[*out_tensor]) != SL_OK)
        return sl_status_prefix(SL_ERROR_DATA, "tensor \"%s\"", sl_files_show(tensor.name).text);
    return SL_OK;
}

static bool is_within(uint64_t first, uint64_t count, uint64_t size)
{
    return count > 0 && first < size && count <= size - first;
}

sl_status sl_parts_add_part(sl_parts *parts, uint32_t tensor_index, const sl_part *part)
{
    sl_parted *tensor = &parts->tensors[tensor_index];
    if (!is_within(part->first_row, part->row_count, tensor->rows) ||
        !is_within(part->first_column, part->column_count, tensor->columns))
        SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": a part of it is not within the tensor",
                sl_files_show(tensor->name).text);
    SL_TRY(GROW(tensor->parts, tensor->part_count, tensor->part_capacity));
    tensor->parts[tensor->part_count++] = *part;
    return SL_OK;
}

/* ---- the cover ---- */

static int compare_parts(const void *a, const void *b)
{
    const sl_part *left = a, *right = b;
    if (left->first_row != right->first_row)
        return left->first_row < right->first_row ? -1 : 1;
    return (left->first_column > right->first_column) - (left->first_column < right->first_column);
}

static bool do_overlap(const sl_part *a, const sl_part *b)
{
    return a->first_row < b->first_row + b->row_count &&
           b->first_row < a->first_row + a->row_count &&
           a->first_column < b->first_column + b->column_count &&
           b->first_column < a->first_column + a->column_count;
}

/* Those that start in later rows than one ends come after it. */
static bool has_overlap(const sl_parted *tensor)
{
    for (uint32_t i = 0; i < tensor->part_count; i++) {
        const sl_part *part = &tensor->parts[i];
        for (uint32_t j = i + 1; j < tensor->part_count; j++) {
            if (tensor->parts[j].first_row >= part->first_row + part->row_count)
                break;
            if (do_overlap(part, &tensor->parts[j]))
                return true;
        }
    }
    return false;
}

static sl_status check_cover(sl_parted *tensor)
{
    uint64_t covered = 0;
    const uint64_t all = tensor->rows * tensor->columns;
    const sl_shown name = sl_files_show(tensor->name);
    if (tensor->part_count > 1)
        qsort(tensor->parts, tensor->part_count, sizeof *tensor->parts, compare_parts);
    tensor->are_bands = true;
    for (uint32_t i = 0; i < tensor->part_count; i++) {
        const sl_part *part = &tensor->parts[i];
        covered += part->row_count * part->column_count; /* each at most all, and at most 2^32 */
        tensor->are_bands = tensor->are_bands && part->column_count == tensor->columns;
        if (covered > all)
            break;
    }
    if (!tensor->are_bands && tensor->part_count > OVERLAPS_PARTS_MAX)
        SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": is in %u parts; at most %d are read", name.text,
                tensor->part_count, OVERLAPS_PARTS_MAX);
    if (covered > all || has_overlap(tensor))
        SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": parts of it overlap", name.text);
    if (covered < all)
        SL_FAIL(SL_ERROR_DATA,
                "tensor \"%s\": its parts have %" PRIu64 " of its %" PRIu64 " elements", name.text,
                covered, all);
    return SL_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const sl_parted *)a)->name, ((const sl_parted *)b)->name);
}

sl_status sl_parts_finish(sl_parts *parts)
{
    parts->room = malloc(ROOM_ELEMENTS * sizeof *parts->room);
    if (!parts->room)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for parts of a model");
    if (parts->tensor_count > 1)
        qsort(parts->tensors, parts->tensor_count, sizeof *parts->tensors, compare_tensors);
    for (uint32_t i = 0; i < parts->tensor_count; i++) {
        if (i > 0 && compare_tensors(&parts->tensors[i - 1], &parts->tensors[i]) == 0)
            SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": is there twice",
                    sl_files_show(parts->tensors[i].name).text);
        SL_TRY(check_cover(&parts->tensors[i]));
    }
    return SL_OK;
}

const sl_parted *sl_parts_find(const sl_parts *parts, const char *name)
{
    const sl_parted sought = {.name = (char *)name};
    if (parts->tensor_count == 0)
        return NULL;
    return bsearch(&sought, parts->tensors, parts->tensor_count, sizeof sought, compare_tensors);
}

void sl_parts_close(sl_parts *parts)
{
    for (uint32_t i = 0; i < parts->archive_count; i++)
        close_archive(&parts->archives[i]);
    for (uint32_t i = 0; i < parts->file_count; i++) {
        sl_files_close(parts->files[i]);
        free(parts->files[i]);
    }
    for (uint32_t i = 0; i < parts->tensor_count; i++) {
        free(parts->tensors[i].name);
        free(parts->tensors[i].parts);
    }
    free(parts->archives);
    free(parts->files);
    free(parts->places);
    free(parts->tensors);
    free(parts->room);
    *parts = (sl_parts){0};
}

/* ---- what an archive holds ---- */

static bool has_shape(const sl_torch_tensor *tensor, const sl_parts_shape *shape)
{
    if (tensor->dim_count != shape->dim_count)
        return false;
    for (uint32_t i = 0; i < shape->dim_count; i++)
        if (tensor->shape[i] != shape->sizes[i])
            return false;
    return true;
}

static sl_status take_shape(const sl_torch_tensor *tensor, const char *path, sl_parts_place *place)
{
    if (tensor->dim_count > SL_PARTS_DIMS_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: has %u dimensions; at most %d are read", path,
                tensor->dim_count, SL_PARTS_DIMS_MAX);
    place->shape.dim_count = tensor->dim_count;
    memcpy(place->shape.sizes, tensor->shape, tensor->dim_count * sizeof tensor->shape[0]);
    place->encoding = tensor->encoding;
    place->has_shape = true;
    return SL_OK;
}

static sl_status find_tensor(const sl_torch_file *file, sl_parts_place *place)
{
    sl_torch_tensor tensor;
    const sl_shown path = sl_files_show(file->file.path);
    const sl_pickle_value *value = sl_pickle_get(file->root, "param");
    if (sl_torch_file_find(file, value ? value : file->root, &tensor) != SL_OK)
        return sl_status_prefix(SL_ERROR_DATA, "%s: a part at byte %" PRIu64, path.text,
                                file->file.first_byte);
    if (!place->has_shape)
        SL_TRY(take_shape(&tensor, path.text, place));
    if (tensor.encoding != place->encoding)
        SL_FAIL(SL_ERROR_DATA, "%s: a part at byte %" PRIu64 " is of %s, and %s is said", path.text,
                file->file.first_byte, sl_encoding_name(tensor.encoding),
                sl_encoding_name(place->encoding));
    if (!has_shape(&tensor, &place->shape))
        SL_FAIL(SL_ERROR_DATA,
                "%s: a part at byte %" PRIu64 " has %u dimensions, the first of %" PRIu64
                ", and %u, the first of %" PRIu64 ", are needed",
                path.text, file->file.first_byte, tensor.dim_count,
                tensor.dim_count ? tensor.shape[0] : 0, place->shape.dim_count,
                place->shape.dim_count ? place->shape.sizes[0] : 0);
    place->tensor = tensor;
    place->is_found = true;
    return SL_OK;
}

static void make_way(sl_parts *parts)
{
    sl_parts_archive *oldest = NULL;
    for (uint32_t i = 0; i < parts->archive_count; i++) {
        sl_parts_archive *archive = &parts->archives[i];
        if (archive->open && archive->place != (uint32_t)NO_PLACE &&
            (!oldest || archive->turn < oldest->turn))
            oldest = archive;
    }
    if (oldest) {
        close_archive(oldest);
        parts->open_count--;
    }
}

static sl_status need_open(sl_parts *parts, sl_parts_archive *archive)
{
    archive->turn = ++parts->turn;
    if (archive->open)
        return SL_OK;
    if (parts->open_count >= SL_PARTS_OPEN_MAX)
        make_way(parts);
    SL_TRY(read_archive(parts, archive));
    const sl_status status = find_tensor(archive->open, &parts->places[archive->place]);
    sl_torch_file_drop_tree(archive->open);
    if (status != SL_OK)
        close_archive(archive);
    else
        parts->open_count++;
    return status;
}

sl_status sl_parts_add_whole(sl_parts *parts, const char *directory, const char *file_name,
                             const char *name)
{
    uint32_t file, place, tensor;
    SL_TRY(sl_parts_add_file(parts, directory, file_name, &file));
    const sl_parts_range whole = {.file = file, .bytes = parts->files[file]->bytes};
    SL_TRY(sl_parts_add_archive(parts, whole, NULL, SL_ENCODING_FP32, &place));
    SL_TRY(need_open(parts, &parts->archives[parts->places[place].archive]));
    SL_TRY(sl_parts_add_tensor(parts, name, (uint32_t)strlen(name), &parts->places[place].shape,
                               &tensor));
    const sl_part part = {.row_count = parts->tensors[tensor].rows,
                          .column_count = parts->tensors[tensor].columns,
                          .place = place};
    return sl_parts_add_part(parts, tensor, &part);
}

static sl_status name_failure(sl_status status, const sl_parted *tensor)
{
    return status == SL_ERROR_DATA
               ? sl_status_prefix(status, "tensor \"%s\"", sl_files_show(tensor->name).text)
               : status;
}

sl_status sl_parts_check(sl_parts *parts, const sl_parted *tensor)
{
    for (uint32_t i = 0; i < tensor->part_count; i++) {
        const sl_parts_place *place = &parts->places[tensor->parts[i].place];
        const sl_status status = need_open(parts, &parts->archives[place->archive]);
        if (status != SL_OK)
            return name_failure(status, tensor);
    }
    return SL_OK;
}

/* ---- reading ---- */

static sl_status read_place(sl_parts *parts, const sl_part *part, uint64_t first_element,
                            uint64_t element_count, float *out_data)
{
    sl_parts_place *place = &parts->places[part->place];
    sl_parts_archive *archive = &parts->archives[place->archive];
    SL_TRY(need_open(parts, archive));
    return sl_torch_file_read(archive->open, &place->tensor, part->first_element + first_element,
                              element_count, out_data);
}

/* Index of the first part that ends behind a row; of bands by bisection. */
static uint32_t find_first(const sl_parted *tensor, uint64_t row)
{
    uint32_t low = 0, high = tensor->part_count;
    while (tensor->are_bands && low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (tensor->parts[middle].first_row + tensor->parts[middle].row_count <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Rows of a part that has some columns of each: by bands that fit the room. */
static sl_status deal_rows(sl_parts *parts, const sl_part *part, uint64_t first_row,
                           uint64_t row_count, uint64_t columns, float *out_data)
{
    const uint64_t most = sl_bits_max(1, ROOM_ELEMENTS / part->column_count);
    for (uint64_t done = 0, count; done < row_count; done += count) {
        count = sl_bits_min(row_count - done, most);
        const uint64_t first = (first_row - part->first_row + done) * part->column_count;
        if (part->column_count > ROOM_ELEMENTS) { /* then it is one row */
            SL_TRY(read_place(parts, part, first, part->column_count,
                              out_data + done * columns + part->first_column));
            continue;
        }
        SL_TRY(read_place(parts, part, first, count * part->column_count, parts->room));
        for (uint64_t row = 0; row < count; row++)
            memcpy(out_data + (done + row) * columns + part->first_column,
                   parts->room + row * part->column_count, part->column_count * sizeof *out_data);
    }
    return SL_OK;
}

static sl_status read_rows(sl_parts *parts, const sl_parted *tensor, uint64_t first_row,
                           uint64_t row_count, float *out_data)
{
    const uint64_t end = first_row + row_count;
    for (uint32_t i = find_first(tensor, first_row); i < tensor->part_count; i++) {
        const sl_part *part = &tensor->parts[i];
        const uint64_t from = sl_bits_max(first_row, part->first_row);
        const uint64_t to = sl_bits_min(end, part->first_row + part->row_count);
        if (part->first_row >= end)
            break;
        if (from >= to)
            continue;
        float *data = out_data + (from - first_row) * tensor->columns;
        const uint64_t first = (from - part->first_row) * part->column_count;
        if (part->column_count == tensor->columns)
            SL_TRY(read_place(parts, part, first, (to - from) * part->column_count, data));
        else
            SL_TRY(deal_rows(parts, part, from, to - from, tensor->columns, data));
    }
    return SL_OK;
}

/* Some elements of a row. */
static sl_status read_in_row(sl_parts *parts, const sl_parted *tensor, uint64_t row,
                             uint64_t first_column, uint64_t column_count, float *out_data)
{
    const uint64_t end = first_column + column_count;
    for (uint32_t i = find_first(tensor, row); i < tensor->part_count; i++) {
        const sl_part *part = &tensor->parts[i];
        const uint64_t from = sl_bits_max(first_column, part->first_column);
        const uint64_t to = sl_bits_min(end, part->first_column + part->column_count);
        if (part->first_row > row)
            break;
        if (from >= to || row >= part->first_row + part->row_count)
            continue;
        const uint64_t first =
            (row - part->first_row) * part->column_count + (from - part->first_column);
        SL_TRY(read_place(parts, part, first, to - from, out_data + (from - first_column)));
    }
    return SL_OK;
}

static sl_status read_elements(sl_parts *parts, const sl_parted *tensor, uint64_t first_element,
                               uint64_t element_count, float *out_data)
{
    for (uint64_t done = 0, count; done < element_count; done += count) {
        const uint64_t left = element_count - done, first = first_element + done;
        const uint64_t row = first / tensor->columns, column = first % tensor->columns;
        if (column == 0 && left >= tensor->columns) {
            count = left - left % tensor->columns;
            SL_TRY(read_rows(parts, tensor, row, count / tensor->columns, out_data + done));
        } else {
            count = sl_bits_min(left, tensor->columns - column);
            SL_TRY(read_in_row(parts, tensor, row, column, count, out_data + done));
        }
    }
    return SL_OK;
}

sl_status sl_parts_read(sl_parts *parts, const sl_parted *tensor, uint64_t first_element,
                        uint64_t element_count, float *out_data)
{
    const uint64_t all = tensor->rows * tensor->columns;
    if (first_element > all || element_count > all - first_element)
        SL_FAIL(SL_ERROR_USAGE, "tensor \"%s\": elements beyond its end are asked",
                sl_files_show(tensor->name).text);
    return name_failure(read_elements(parts, tensor, first_element, element_count, out_data),
                        tensor);
}
