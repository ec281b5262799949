/* From the objects of .metadata to tensors in parts; see distributed.h. */
#include "distributed.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum { FILE_NAME_MAX = 255, NAME_BYTES_MAX = 1024 };

static const char metadata_module[] = "torch.distributed.checkpoint.metadata";
static const char file_ending[] = ".distcp";

/* Where a chunk lies: a pair of storage_data. */
typedef struct entry {
    const sl_pickle_value *name; /* of the tensor */
    sl_parts_shape offset;       /* of the chunk in it */
    uint32_t file;
    uint64_t first_byte, bytes;
    bool is_used;
} entry;

typedef struct reader {
    const char *directory;
    sl_parts *parts;
    const sl_pickle_value *metadata; /* attributes of the object Metadata */
    entry *entries;                  /* [entry_count], by name and offset */
    uint32_t entry_count;
    const sl_pickle_value **file_names; /* [parts->file_count] */
} reader;

bool sl_distributed_is_at(const char *directory)
{
    char *path = NULL;
    bool exists = false;
    if (sl_files_join_path(directory, SL_DISTRIBUTED_METADATA, &path) != SL_OK)
        return false;
    const bool is_known = sl_files_exists(AT_FDCWD, NULL, path, &exists) == SL_OK;
    free(path);
    return is_known && exists;
}

/* ---- objects ---- */

/* The attributes of an object of a class of torch.distributed.checkpoint; NULL: it is of another.
 */
static const sl_pickle_value *find_object(const sl_pickle_value *value, const char *module,
                                          const char *name)
{
    if (!sl_pickle_is_global(sl_pickle_item(value, SL_PICKLE_CALL, 0), module, name))
        return NULL;
    return sl_pickle_attributes(value);
}

/* torch.Size((2, 3)). SL_ERROR_DATA: it is none, or of too many dimensions. */
static bool read_sizes(const sl_pickle_value *value, sl_parts_shape *out_shape)
{
    const sl_pickle_value *arguments = sl_pickle_item(value, SL_PICKLE_CALL, 1);
    const sl_pickle_value *sizes = sl_pickle_item(arguments, SL_PICKLE_TUPLE, 0);
    *out_shape = (sl_parts_shape){0};
    if (!sl_pickle_is_global(sl_pickle_item(value, SL_PICKLE_CALL, 0), "torch", "Size") || !sizes ||
        sizes->kind != SL_PICKLE_TUPLE || sizes->count > SL_PARTS_DIMS_MAX)
        return false;
    out_shape->dim_count = sizes->count;
    for (uint32_t i = 0; i < sizes->count; i++)
        if (!sl_pickle_get_u64(sizes->items[i], 0, INT64_MAX, &out_shape->sizes[i]))
            return false;
    return true;
}

static bool is_large(const sl_pickle_value *size)
{
    const sl_pickle_value *sizes =
        sl_pickle_item(sl_pickle_item(size, SL_PICKLE_CALL, 1), SL_PICKLE_TUPLE, 0);
    return sizes && sizes->kind == SL_PICKLE_TUPLE && sizes->count > SL_PARTS_DIMS_MAX;
}

/* TensorProperties, whose state is a tuple with the type in front. */
static bool read_type(const sl_pickle_value *properties, sl_encoding *out_encoding)
{
    static const struct {
        const char *name;
        sl_encoding encoding;
    } types[] = {{"float32", SL_ENCODING_FP32},
                 {"bfloat16", SL_ENCODING_BF16},
                 {"float16", SL_ENCODING_FP16}};
    const sl_pickle_value *type =
        sl_pickle_item(sl_pickle_item(properties, SL_PICKLE_CALL, 2), SL_PICKLE_TUPLE, 0);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (sl_pickle_is_global(type, "torch", types[i].name)) {
            *out_encoding = types[i].encoding;
            return true;
        }
    return false;
}

static sl_shown show(const sl_pickle_value *text)
{
    char name[NAME_BYTES_MAX + 1] = "";
    const uint32_t bytes = text->count < NAME_BYTES_MAX ? text->count : NAME_BYTES_MAX;
    memcpy(name, text->text, bytes);
    return sl_files_show(name);
}

/* ---- where chunks lie ---- */

static int compare_texts(const sl_pickle_value *a, const sl_pickle_value *b)
{
    const uint32_t bytes = a->count < b->count ? a->count : b->count;
    const int order = memcmp(a->text, b->text, bytes);
    return order ? order : (a->count > b->count) - (a->count < b->count);
}

static int compare_entries(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    const int order = compare_texts(left->name, right->name);
    if (order)
        return order;
    if (left->offset.dim_count != right->offset.dim_count)
        return left->offset.dim_count < right->offset.dim_count ? -1 : 1;
    for (uint32_t i = 0; i < left->offset.dim_count; i++)
        if (left->offset.sizes[i] != right->offset.sizes[i])
            return left->offset.sizes[i] < right->offset.sizes[i] ? -1 : 1;
    return 0;
}

static bool is_file_name(const sl_pickle_value *name)
{
    const uint32_t ending = sizeof file_ending - 1;
    return name && name->kind == SL_PICKLE_TEXT && name->count > ending &&
           name->count <= FILE_NAME_MAX && !memchr(name->text, '/', name->count) &&
           !memchr(name->text, '\0', name->count) &&
           memcmp(name->text + name->count - ending, file_ending, ending) == 0;
}

/* Most chunks are in the file of the chunk before. */
static sl_status find_file(reader *self, const sl_pickle_value *name, uint32_t *out_file)
{
    char text[FILE_NAME_MAX + 1] = "";
    if (!is_file_name(name))
        SL_FAIL(SL_ERROR_DATA, "a chunk is in a file whose name is no plain name that ends in %s",
                file_ending);
    for (uint32_t i = self->parts->file_count; i-- > 0;)
        if (compare_texts(self->file_names[i], name) == 0) {
            *out_file = i;
            return SL_OK;
        }
    const sl_pickle_value **names =
        realloc(self->file_names, (self->parts->file_count + 1ull) * sizeof(sl_pickle_value *));
    if (!names)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    self->file_names = names;
    names[self->parts->file_count] = name;
    memcpy(text, name->text, name->count);
    return sl_parts_add_file(self->parts, self->directory, text, out_file);
}

static sl_status read_entry(reader *self, const sl_pickle_value *key, const sl_pickle_value *value,
                            entry *out_entry)
{
    const sl_pickle_value *index = find_object(key, metadata_module, "MetadataIndex");
    const sl_pickle_value *place =
        find_object(value, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    const sl_pickle_value *offset = sl_pickle_get(index, "offset");
    const sl_pickle_value *transforms = sl_pickle_get(place, "transform_descriptors");
    *out_entry = (entry){.name = sl_pickle_get(index, "fqn")};
    if (!out_entry->name || out_entry->name->kind != SL_PICKLE_TEXT || !place)
        SL_FAIL(SL_ERROR_DATA, "storage_data says of something else where it lies");
    if (!offset || offset->kind == SL_PICKLE_NONE || is_large(offset))
        return SL_OK; /* an object, or a tensor that is left out */
    if (transforms && transforms->kind != SL_PICKLE_NONE)
        SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": was packed by an extension of the writer",
                show(out_entry->name).text);
    if (!read_sizes(offset, &out_entry->offset) ||
        !sl_pickle_get_u64(sl_pickle_get(place, "offset"), 0, INT64_MAX, &out_entry->first_byte) ||
        !sl_pickle_get_u64(sl_pickle_get(place, "length"), 1, INT64_MAX, &out_entry->bytes))
        SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": where a chunk lies is not said in numbers",
                show(out_entry->name).text);
    return find_file(self, sl_pickle_get(place, "relative_path"), &out_entry->file);
}

static int compare_places(const void *a, const void *b)
{
    const entry *left = a, *right = b;
    if (left->file != right->file)
        return left->file < right->file ? -1 : 1;
    return (left->first_byte > right->first_byte) - (left->first_byte < right->first_byte);
}

/* One byte is of one chunk. */
static sl_status check_places(reader *self)
{
    entry *entries = self->entries;
    if (self->entry_count > 1)
        qsort(entries, self->entry_count, sizeof *entries, compare_places);
    for (uint32_t i = 1; i < self->entry_count; i++) {
        const entry *before = &entries[i - 1];
        if (before->file == entries[i].file &&
            entries[i].first_byte - before->first_byte < before->bytes)
            SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": a chunk of it lies over one of another",
                    show(entries[i].name).text);
    }
    return SL_OK;
}

static sl_status list_entries(reader *self)
{
    const sl_pickle_value *list = sl_pickle_get(self->metadata, "storage_data");
    if (!list || list->kind != SL_PICKLE_DICT)
        SL_FAIL(SL_ERROR_DATA, "has no storage_data that says where chunks lie");
    self->entries = calloc(list->count / 2 + 1u, sizeof *self->entries);
    if (!self->entries)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u chunks", list->count / 2);
    for (uint32_t i = 0; i + 1 < list->count; i += 2) {
        entry *next = &self->entries[self->entry_count];
        SL_TRY(read_entry(self, list->items[i], list->items[i + 1], next));
        self->entry_count += next->bytes > 0;
    }
    SL_TRY(check_places(self));
    if (self->entry_count > 1)
        qsort(self->entries, self->entry_count, sizeof *self->entries, compare_entries);
    for (uint32_t i = 1; i < self->entry_count; i++)
        if (compare_entries(&self->entries[i - 1], &self->entries[i]) == 0)
            SL_FAIL(SL_ERROR_DATA, "tensor \"%s\": a chunk of it lies in two places",
                    show(self->entries[i].name).text);
    return SL_OK;
}

/* ---- tensors ---- */

typedef struct chunk {
    sl_parts_shape offset, size;
} chunk;

static sl_status read_chunk(const sl_pickle_value *value, const sl_parts_shape *tensor,
                            chunk *out_chunk)
{
    const sl_pickle_value *object = find_object(value, metadata_module, "ChunkStorageMetadata");
    if (!object || !read_sizes(sl_pickle_get(object, "offsets"), &out_chunk->offset) ||
        !read_sizes(sl_pickle_get(object, "sizes"), &out_chunk->size) ||
        out_chunk->offset.dim_count != tensor->dim_count ||
        out_chunk->size.dim_count != tensor->dim_count)
        SL_FAIL(SL_ERROR_DATA, "a chunk of it has no offsets and sizes of its %u dimensions",
                tensor->dim_count);
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        if (out_chunk->offset.sizes[i] > tensor->sizes[i] ||
            out_chunk->size.sizes[i] > tensor->sizes[i] - out_chunk->offset.sizes[i])
            SL_FAIL(SL_ERROR_DATA, "a chunk of it is not within the tensor");
    return SL_OK;
}

static bool is_empty(const sl_parts_shape *shape)
{
    for (uint32_t i = 0; i < shape->dim_count; i++)
        if (shape->sizes[i] == 0)
            return true;
    return false;
}

/* A chunk of a tensor of three dimensions is a rectangle in each of some matrices. */
static sl_status add_rectangles(reader *self, uint32_t tensor, const chunk *of, uint32_t place)
{
    const sl_parts_shape *whole = &self->parts->tensors[tensor].shape;
    const uint32_t dims = whole->dim_count;
    const uint64_t *offset = of->offset.sizes, *size = of->size.sizes;
    const uint64_t matrices = dims == 3 ? size[0] : 1;
    const uint32_t row = dims == 3 ? 1 : 0;
    for (uint64_t i = 0; i < matrices; i++) {
        const sl_part part = {
            .first_row =
                (dims == 3 ? (offset[0] + i) * whole->sizes[1] : 0) + (dims > 0 ? offset[row] : 0),
            .row_count = dims > 0 ? size[row] : 1,
            .first_column = dims > 1 ? offset[dims - 1] : 0,
            .column_count = dims > 1 ? size[dims - 1] : 1,
            .place = place,
            .first_element = dims == 3 ? i * size[1] * size[2] : 0,
        };
        SL_TRY(sl_parts_add_part(self->parts, tensor, &part));
    }
    return SL_OK;
}

static sl_status add_chunk(reader *self, const sl_pickle_value *name, uint32_t tensor,
                           sl_encoding encoding, const chunk *of)
{
    uint32_t place;
    const entry sought = {.name = name, .offset = of->offset};
    entry *found = self->entry_count > 0 ? bsearch(&sought, self->entries, self->entry_count,
                                                   sizeof sought, compare_entries)
                                         : NULL;
    if (is_empty(&of->size))
        return SL_OK;
    if (!found || found->is_used)
        SL_FAIL(SL_ERROR_DATA, found ? "a chunk of it is listed twice"
                                     : "of a chunk of it is not said where it lies");
    found->is_used = true;
    const sl_parts_range range = {found->file, found->first_byte, found->bytes};
    SL_TRY(sl_parts_add_archive(self->parts, range, &of->size, encoding, &place));
    return add_rectangles(self, tensor, of, place);
}

static sl_status add_tensor(reader *self, const sl_pickle_value *name,
                            const sl_pickle_value *object)
{
    sl_parts_shape shape;
    sl_encoding encoding;
    uint32_t tensor;
    const sl_pickle_value *size = sl_pickle_get(object, "size");
    const sl_pickle_value *chunks = sl_pickle_get(object, "chunks");
    if (is_large(size) || !read_type(sl_pickle_get(object, "properties"), &encoding))
        return SL_OK;
    if (!read_sizes(size, &shape) || !chunks || chunks->kind != SL_PICKLE_LIST)
        SL_FAIL(SL_ERROR_DATA, "has no size and list of chunks");
    if (is_empty(&shape))
        return SL_OK;
    SL_TRY(sl_parts_add_tensor(self->parts, name->text, name->count, &shape, &tensor));
    for (uint32_t i = 0; i < chunks->count; i++) {
        chunk next;
        SL_TRY(read_chunk(chunks->items[i], &shape, &next));
        SL_TRY(add_chunk(self, name, tensor, encoding, &next));
    }
    return SL_OK;
}

static sl_status list_tensors(reader *self)
{
    const sl_pickle_value *list = sl_pickle_get(self->metadata, "state_dict_metadata");
    if (!list || list->kind != SL_PICKLE_DICT)
        SL_FAIL(SL_ERROR_DATA, "has no state_dict_metadata that lists tensors");
    for (uint32_t i = 0; i + 1 < list->count; i += 2) {
        const sl_pickle_value *name = list->items[i];
        const sl_pickle_value *object =
            find_object(list->items[i + 1], metadata_module, "TensorStorageMetadata");
        if (!object)
            continue; /* an object that is no tensor */
        if (name->kind != SL_PICKLE_TEXT || name->count > NAME_BYTES_MAX)
            SL_FAIL(SL_ERROR_DATA, "has a tensor without a name of up to %d bytes", NAME_BYTES_MAX);
        const sl_status status = add_tensor(self, name, object);
        if (status == SL_ERROR_DATA)
            return sl_status_prefix(status, "tensor \"%s\"", show(name).text);
        SL_TRY(status);
    }
    return SL_OK;
}

/* ---- all ---- */

static sl_status read_metadata(reader *self, const sl_pickle *pickle)
{
    self->metadata = find_object(pickle->root, metadata_module, "Metadata");
    if (!self->metadata)
        SL_FAIL(SL_ERROR_DATA, "holds no Metadata of torch.distributed.checkpoint");
    SL_TRY(list_entries(self));
    SL_TRY(list_tensors(self));
    return sl_parts_finish(self->parts);
}

static sl_status read_pickle(reader *self, const sl_file *file)
{
    sl_pickle *pickle = NULL;
    if (file->bytes > SL_PICKLE_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "has %" PRIu64 " bytes; at most %d are read", file->bytes,
                SL_PICKLE_BYTES_MAX);
    void *text = malloc(file->bytes + 1);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pickle of %" PRIu64 " bytes", file->bytes);
    sl_status status = sl_files_read_at(file, 0, file->bytes, text);
    if (status == SL_OK)
        status = sl_pickle_open(text, file->bytes, &pickle, NULL);
    if (status == SL_OK)
        status = read_metadata(self, pickle);
    sl_pickle_close(pickle);
    free(text);
    return status;
}

sl_status sl_distributed_open(const char *directory, sl_parts *out_parts)
{
    sl_file file;
    char *path = NULL;
    sl_parts parts = {0};
    reader self = {.directory = directory, .parts = &parts};
    SL_TRY(sl_files_join_path(directory, SL_DISTRIBUTED_METADATA, &path));
    sl_status status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file);
    if (status == SL_OK) {
        status = read_pickle(&self, &file);
        sl_files_close(&file);
        if (status == SL_ERROR_DATA)
            status = sl_status_prefix(status, "%s", sl_files_show(path).text);
    }
    free(path);
    free(self.entries);
    free(self.file_names);
    if (status != SL_OK) {
        sl_parts_close(&parts);
        return status;
    }
    *out_parts = parts;
    return SL_OK;
}
