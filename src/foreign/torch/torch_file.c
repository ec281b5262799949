/* Storages are listed from the persistent ids of the tree, and placed by the members of an archive
 * or one after the other; see torch_file.h. */
#include "torch_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "crc32.h"
#include "zip.h"

enum {
    PREFIX_BYTES = 1 << 18, /* of an old file, read first: its data may be large */
    COUNT_BYTES = 8,        /* in front of a storage of an old file */
    SHOWN_TYPE_BYTES = 64,
    ARCHIVE_NAME_MAX = 1024,
    KEY_BYTES_MAX = 255, /* of a storage; PyTorch numbers them */
    STORAGE_ID_ITEMS = 5 /* "storage", type, key, device, element count */
};

/* 0x1950a86a20f9469cfc6c, as a pickle has it. */
static const unsigned char old_magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19};
static const uint64_t OLD_VERSION = 1001;

/* The types of storages, and what their elements are; of 0: none that is read. */
static const struct storage_type {
    const char *name;
    uint32_t bytes;
    bool is_read;
    sl_encoding encoding;
} types[] = {
    {"FloatStorage", 4, true, SL_ENCODING_FP32},
    {"BFloat16Storage", 2, true, SL_ENCODING_BF16},
    {"HalfStorage", 2, true, SL_ENCODING_FP16},
    {"DoubleStorage", 8, false, 0},
    {"LongStorage", 8, false, 0},
    {"IntStorage", 4, false, 0},
    {"ShortStorage", 2, false, 0},
    {"CharStorage", 1, false, 0},
    {"ByteStorage", 1, false, 0},
    {"BoolStorage", 1, false, 0},
    {"ComplexFloatStorage", 8, false, 0},
    {"ComplexDoubleStorage", 16, false, 0},
};

static const struct storage_type *find_type(const sl_torch_storage *storage)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strlen(types[i].name) == storage->type_bytes &&
            memcmp(types[i].name, storage->type, storage->type_bytes) == 0)
            return &types[i];
    return NULL;
}

typedef struct shown_type {
    char text[SHOWN_TYPE_BYTES];
} shown_type;

static shown_type show_text(const char *text, uint32_t bytes)
{
    shown_type shown = {""};
    uint32_t count = bytes < SHOWN_TYPE_BYTES - 1 ? bytes : SHOWN_TYPE_BYTES - 1;
    for (uint32_t i = 0; i < count; i++)
        shown.text[i] = (char)(text[i] > ' ' && text[i] < 0x7f ? text[i] : '?');
    return shown;
}

/* ---- storages ---- */

static int compare_keys(const void *a, const void *b)
{
    const sl_pickle_value *left = ((const sl_torch_storage *)a)->key,
                          *right = ((const sl_torch_storage *)b)->key;
    uint32_t bytes = left->count < right->count ? left->count : right->count;
    int order = memcmp(left->text, right->text, bytes);
    return order ? order : (left->count > right->count) - (left->count < right->count);
}

/* ('storage', torch.FloatStorage, '0', 'cpu', 12): a tuple. */
static sl_status read_storage(const sl_pickle_value *persistent, sl_torch_storage *out_storage)
{
    const sl_pickle_value *id = sl_pickle_item(persistent, SL_PICKLE_PERSISTENT, 0);
    const sl_pickle_value *type = sl_pickle_item(id, SL_PICKLE_TUPLE, 1);
    const sl_pickle_value *key = sl_pickle_item(id, SL_PICKLE_TUPLE, 2);
    const sl_pickle_value *view = sl_pickle_item(id, SL_PICKLE_TUPLE, STORAGE_ID_ITEMS);
    uint64_t count;
    if (!sl_pickle_is_text(sl_pickle_item(id, SL_PICKLE_TUPLE, 0), "storage") || !type ||
        type->kind != SL_PICKLE_GLOBAL || !key || key->kind != SL_PICKLE_TEXT ||
        key->count > KEY_BYTES_MAX ||
        !sl_pickle_get_u64(sl_pickle_item(id, SL_PICKLE_TUPLE, 4), 0, INT64_MAX / 16, &count))
        SL_FAIL(SL_ERROR_DATA, "names an object outside the pickle that is no storage");
    if (view && view->kind != SL_PICKLE_NONE)
        SL_FAIL(SL_ERROR_DATA, "has a storage that is a part of another: save it again with a "
                               "later PyTorch");
    const sl_pickle_value *name = sl_pickle_item(type, SL_PICKLE_GLOBAL, 1);
    *out_storage = (sl_torch_storage){
        .key = key, .type = name->text, .type_bytes = name->count, .element_count = count};
    return SL_OK;
}

static sl_status merge_storages(sl_torch_file *file)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < file->storage_count; i++) {
        const sl_torch_storage *next = &file->storages[i];
        if (kept == 0 || compare_keys(&file->storages[kept - 1], next) != 0) {
            file->storages[kept++] = *next;
            continue;
        }
        const sl_torch_storage *same = &file->storages[kept - 1];
        if (same->element_count != next->element_count || same->type_bytes != next->type_bytes ||
            memcmp(same->type, next->type, same->type_bytes) != 0)
            SL_FAIL(SL_ERROR_DATA, "has two storages of one key");
    }
    file->storage_count = kept;
    return SL_OK;
}

static sl_status list_storages(sl_torch_file *file)
{
    uint32_t count = file->pickle->persistent_count;
    file->root = file->pickle->root;
    file->storages = calloc(count + 1u, sizeof *file->storages);
    if (!file->storages)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u storages", count);
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(read_storage(file->pickle->persistents[i], &file->storages[i]));
    file->storage_count = count;
    if (count > 0)
        qsort(file->storages, count, sizeof *file->storages, compare_keys);
    return merge_storages(file);
}

static sl_torch_storage *find_storage(const sl_torch_file *file, const sl_pickle_value *key)
{
    const sl_torch_storage sought = {.key = key};
    if (!key || key->kind != SL_PICKLE_TEXT || file->storage_count == 0)
        return NULL;
    return bsearch(&sought, file->storages, file->storage_count, sizeof sought, compare_keys);
}

/* Bytes of a storage; of a type that nobody knows none, and no tensor of it is found. */
static uint64_t count_bytes(const sl_torch_storage *storage)
{
    const struct storage_type *type = find_type(storage);
    return type ? storage->element_count * type->bytes : 0;
}

/* ---- archives ---- */

/* The one member "NAME/data.pkl"; all others have NAME in front. */
static sl_status find_pickle(const sl_zip *zip, const sl_zip_member **out_member)
{
    static const char name[] = "/data.pkl";
    const uint32_t bytes = sizeof name - 1;
    *out_member = NULL;
    for (uint32_t i = 0; i < zip->count; i++) {
        const sl_zip_member *member = &zip->members[i];
        if (member->name_bytes <= bytes || member->name_bytes > ARCHIVE_NAME_MAX ||
            memcmp(member->name + member->name_bytes - bytes, name, bytes) != 0 ||
            memchr(member->name, '/', member->name_bytes - bytes))
            continue;
        if (*out_member)
            SL_FAIL(SL_ERROR_DATA, "has two members called data.pkl");
        *out_member = member;
    }
    if (!*out_member)
        SL_FAIL(SL_ERROR_DATA, "has no member data.pkl: it is an archive, but not of torch.save");
    return SL_OK;
}

/* A member's name of an archive's. */
typedef struct member_name {
    char text[2 * ARCHIVE_NAME_MAX];
    uint32_t bytes;
} member_name;

static member_name make_name(const sl_zip_member *pickle, const char *text, uint32_t bytes)
{
    member_name name;
    name.bytes = pickle->name_bytes - (uint32_t)strlen("data.pkl");
    memcpy(name.text, pickle->name, name.bytes);
    memcpy(name.text + name.bytes, text, bytes);
    name.bytes += bytes;
    return name;
}

/* All of a member that is no storage. */
static sl_status read_member(sl_torch_file *file, const sl_zip *zip, const sl_zip_member *member,
                             void *out_data)
{
    uint64_t at;
    SL_TRY(sl_zip_locate(zip, member, &at));
    SL_TRY(sl_files_read_at(&file->file, at, member->bytes, out_data));
    if (member->checksum == 0 && member->bytes > 0)
        file->is_unchecked = true;
    if (sl_zip_is_sound(member, out_data))
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "is damaged: its member %s is not of the archive's checksum %08" PRIx32,
            show_text(member->name, member->name_bytes).text, member->checksum);
}

static sl_status check_byte_order(sl_torch_file *file, const sl_zip *zip,
                                  const sl_zip_member *pickle)
{
    static const char little[] = "little";
    char order[sizeof little - 1];
    member_name name = make_name(pickle, "byteorder", 9);
    const sl_zip_member *member = sl_zip_find(zip, name.text, name.bytes);
    if (!member)
        return SL_OK;
    if (member->bytes == sizeof order) {
        SL_TRY(read_member(file, zip, member, order));
        if (memcmp(order, little, sizeof order) == 0)
            return SL_OK;
    }
    SL_FAIL(SL_ERROR_DATA, "was written by a big-endian machine, which is not read");
}

static sl_status read_archive_pickle(sl_torch_file *file, const sl_zip *zip,
                                     const sl_zip_member *pickle)
{
    if (pickle->bytes > SL_PICKLE_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "has a data.pkl of %" PRIu64 " bytes; at most %d are read",
                pickle->bytes, SL_PICKLE_BYTES_MAX);
    file->text = malloc(pickle->bytes + 1);
    if (!file->text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pickle of %" PRIu64 " bytes", pickle->bytes);
    SL_TRY(read_member(file, zip, pickle, file->text));
    return sl_pickle_open(file->text, pickle->bytes, &file->pickle, NULL);
}

static sl_status place_storage(sl_torch_file *file, const sl_zip *zip, const sl_zip_member *pickle,
                               uint32_t index)
{
    sl_torch_storage *storage = &file->storages[index];
    char key[5 + KEY_BYTES_MAX] = "data/";
    const uint32_t key_bytes = 5 + storage->key->count;
    memcpy(key + 5, storage->key->text, storage->key->count);
    const member_name name = make_name(pickle, key, key_bytes);
    const sl_zip_member *member = sl_zip_find(zip, name.text, name.bytes);
    if (!member || member->bytes < count_bytes(storage))
        SL_FAIL(SL_ERROR_DATA, "has no data of %" PRIu64 " bytes for storage \"%s\"",
                count_bytes(storage), show_text(storage->key->text, storage->key->count).text);
    SL_TRY(sl_zip_locate(zip, member, &storage->first_byte));
    file->members[index] = (sl_torch_member){.name = strndup(key, key_bytes),
                                             .first_byte = storage->first_byte,
                                             .bytes = member->bytes,
                                             .checksum = member->checksum};
    if (!file->members[index].name)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the name of a storage");
    if (member->checksum == 0 && member->bytes > 0)
        file->is_unchecked = true;
    return SL_OK;
}

static sl_status place_in_archive(sl_torch_file *file, const sl_zip *zip,
                                  const sl_zip_member *pickle)
{
    file->members = calloc(file->storage_count + 1u, sizeof *file->members);
    if (!file->members)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u storages", file->storage_count);
    file->member_count = file->storage_count;
    for (uint32_t i = 0; i < file->storage_count; i++)
        SL_TRY(place_storage(file, zip, pickle, i));
    return SL_OK;
}

static sl_status read_archive(sl_torch_file *file)
{
    sl_zip zip;
    const sl_zip_member *pickle;
    SL_TRY(sl_zip_open(&file->file, &zip));
    sl_status status = find_pickle(&zip, &pickle);
    if (status == SL_OK)
        status = check_byte_order(file, &zip, pickle);
    if (status == SL_OK)
        status = read_archive_pickle(file, &zip, pickle);
    if (status == SL_OK)
        status = list_storages(file);
    if (status == SL_OK)
        status = place_in_archive(file, &zip, pickle);
    sl_zip_close(&zip);
    return status;
}

/* ---- before archives ---- */

/* Pickles one after the other at the start of a file. */
typedef struct pickle_row {
    sl_torch_file *file;
    uint64_t text_bytes; /* of file->text, read so far */
    uint64_t at;         /* where the next starts */
} pickle_row;

static sl_status read_more(pickle_row *self)
{
    sl_torch_file *file = self->file;
    uint64_t bytes = self->text_bytes ? 4 * self->text_bytes : PREFIX_BYTES;
    bytes = bytes < file->file.bytes ? bytes : file->file.bytes;
    if (bytes == self->text_bytes || bytes > SL_PICKLE_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "has pickles that do not end in its first %" PRIu64 " bytes",
                self->text_bytes);
    void *text = malloc(bytes);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %" PRIu64 " bytes of a file", bytes);
    free(file->text);
    file->text = text;
    self->text_bytes = bytes;
    return sl_files_read_at(&file->file, 0, bytes, text);
}

/* The next pickle, of as much of the file as it needs. */
static sl_status read_next(pickle_row *self, sl_pickle **out_pickle)
{
    for (;;) {
        bool is_cut;
        const char *text = self->file->text;
        sl_status status =
            sl_pickle_open(text + self->at, self->text_bytes - self->at, out_pickle, &is_cut);
        if (status == SL_OK)
            self->at += (*out_pickle)->bytes;
        if (status == SL_OK || !is_cut)
            return status;
        SL_TRY(read_more(self));
    }
}

/* Passes over one of the three in front; `has` says whether it is as it should be. */
static sl_status pass_pickle(pickle_row *self, bool (*has)(const sl_pickle_value *))
{
    sl_pickle *pickle;
    SL_TRY(read_next(self, &pickle));
    bool is_right = has(pickle->root);
    sl_pickle_close(pickle);
    if (!is_right)
        SL_FAIL(SL_ERROR_DATA, "is no file of torch.save: what stands in front is something else");
    return SL_OK;
}

static bool has_magic(const sl_pickle_value *value)
{
    return value->kind == SL_PICKLE_LONG && value->count == sizeof old_magic &&
           memcmp(value->text, old_magic, sizeof old_magic) == 0;
}

static bool has_version(const sl_pickle_value *value)
{
    return value->kind == SL_PICKLE_INTEGER && value->integer == (int64_t)OLD_VERSION;
}

/* {"protocol_version": 1001, "little_endian": True, ...} */
static bool has_byte_order(const sl_pickle_value *value)
{
    const sl_pickle_value *is_little = sl_pickle_get(value, "little_endian");
    return is_little && is_little->kind == SL_PICKLE_BOOL && is_little->integer == 1;
}

static sl_status place_one_by_one(sl_torch_file *file, const sl_pickle_value *keys, uint64_t at)
{
    for (uint32_t i = 0; keys->kind == SL_PICKLE_LIST && i < keys->count; i++) {
        uint64_t count, end;
        sl_torch_storage *storage = find_storage(file, keys->items[i]);
        if (!storage || !find_type(storage) || storage->first_byte != 0)
            SL_FAIL(SL_ERROR_DATA, "lists a storage that is unknown, or twice");
        SL_TRY(sl_files_read_at(&file->file, at, COUNT_BYTES, &count));
        if (count != storage->element_count)
            SL_FAIL(SL_ERROR_DATA, "has %" PRIu64 " elements in a storage of %" PRIu64, count,
                    storage->element_count);
        storage->first_byte = at + COUNT_BYTES;
        SL_TRY(sl_bits_add(storage->first_byte, count_bytes(storage), "a storage", &end));
        if (end > file->file.bytes)
            SL_FAIL(SL_ERROR_DATA, "ends at byte %" PRIu64 ", inside of a storage: it is cut",
                    file->file.bytes);
        at = end;
    }
    for (uint32_t i = 0; i < file->storage_count; i++)
        if (file->storages[i].first_byte == 0)
            SL_FAIL(SL_ERROR_DATA, "does not list all of its storages");
    return SL_OK;
}

/* The pickle that is kept points into the text, which must not move after it: the text is read
 * anew where the keys behind it need more. */
static sl_status read_tree_and_keys(pickle_row *row, sl_pickle **out_keys)
{
    sl_torch_file *file = row->file;
    const uint64_t tree_at = row->at;
    for (;;) {
        uint64_t text_bytes;
        row->at = tree_at;
        SL_TRY(read_next(row, &file->pickle));
        text_bytes = row->text_bytes;
        SL_TRY(read_next(row, out_keys));
        if (row->text_bytes == text_bytes)
            return SL_OK;
        sl_pickle_close(*out_keys);
        sl_pickle_close(file->pickle);
        file->pickle = NULL;
    }
}

static sl_status read_before_archives(sl_torch_file *file)
{
    pickle_row row = {.file = file};
    sl_pickle *keys;
    file->is_unchecked = true;
    SL_TRY(read_more(&row));
    SL_TRY(pass_pickle(&row, has_magic));
    SL_TRY(pass_pickle(&row, has_version));
    SL_TRY(pass_pickle(&row, has_byte_order));
    SL_TRY(read_tree_and_keys(&row, &keys));
    sl_status status = list_storages(file);
    if (status == SL_OK)
        status = place_one_by_one(file, keys->root, row.at);
    sl_pickle_close(keys);
    return status;
}

/* ---- both ---- */

static sl_status read_tree(sl_torch_file *file)
{
    unsigned char start[4];
    if (file->file.bytes < sizeof start)
        SL_FAIL(SL_ERROR_DATA, "has %" PRIu64 " bytes: it is no file of torch.save",
                file->file.bytes);
    SL_TRY(sl_files_read_at(&file->file, 0, sizeof start, start));
    return sl_zip_starts(start, sizeof start) ? read_archive(file) : read_before_archives(file);
}

/* Takes the file over. */
static sl_status open_tree(sl_torch_file *file, sl_torch_file *out_file)
{
    sl_status status = read_tree(file);
    if (status == SL_OK) {
        *out_file = *file;
        return SL_OK;
    }
    if (status == SL_ERROR_DATA)
        status = sl_status_prefix(status, "%s", sl_files_show(file->file.path).text);
    sl_torch_file_close(file);
    return status;
}

sl_status sl_torch_file_open(const char *path, sl_torch_file *out_file)
{
    sl_torch_file file = {.file = {.fd = -1}};
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file.file));
    return open_tree(&file, out_file);
}

sl_status sl_torch_file_open_part(const sl_file *whole, uint64_t first_byte, uint64_t bytes,
                                  sl_torch_file *out_file)
{
    sl_torch_file file = {.file = {.fd = -1}};
    SL_TRY(sl_files_take_part(whole, first_byte, bytes, &file.file));
    return open_tree(&file, out_file);
}

void sl_torch_file_drop_tree(sl_torch_file *file)
{
    sl_pickle_close(file->pickle);
    free(file->storages);
    free(file->text);
    file->pickle = NULL;
    file->root = NULL;
    file->storages = NULL;
    file->storage_count = 0;
    file->text = NULL;
}

void sl_torch_file_close(sl_torch_file *file)
{
    sl_torch_file_drop_tree(file);
    for (uint32_t i = 0; i < file->member_count; i++)
        free(file->members[i].name);
    free(file->members);
    sl_block_reader_close(file->blocks);
    sl_files_close(&file->file);
    *file = (sl_torch_file){.file = {.fd = -1}};
}

/* ---- tensors ---- */

/* What _rebuild_tensor_v2 was called with, behind any _rebuild_parameter; NULL: neither. */
static const sl_pickle_value *find_arguments(const sl_pickle_value *value)
{
    for (int depth = 0; depth < 2; depth++) {
        const sl_pickle_value *name = sl_pickle_item(value, SL_PICKLE_CALL, 0);
        const sl_pickle_value *arguments = sl_pickle_item(value, SL_PICKLE_CALL, 1);
        if (sl_pickle_is_global(name, "torch._utils", "_rebuild_tensor_v2"))
            return arguments;
        if (!sl_pickle_is_global(name, "torch._utils", "_rebuild_parameter"))
            return NULL;
        value = sl_pickle_item(arguments, SL_PICKLE_TUPLE, 0);
    }
    return NULL;
}

static sl_status read_shape(const sl_pickle_value *arguments, sl_torch_tensor *tensor)
{
    const sl_pickle_value *sizes = sl_pickle_item(arguments, SL_PICKLE_TUPLE, 2);
    const sl_pickle_value *strides = sl_pickle_item(arguments, SL_PICKLE_TUPLE, 3);
    uint64_t stride;
    if (!sizes || !strides || sizes->kind != SL_PICKLE_TUPLE || strides->kind != SL_PICKLE_TUPLE ||
        sizes->count != strides->count || sizes->count > SL_TORCH_DIMS_MAX)
        SL_FAIL(SL_ERROR_DATA, "has no shape of at most %d dimensions", SL_TORCH_DIMS_MAX);
    tensor->dim_count = sizes->count;
    tensor->element_count = 1;
    for (uint32_t i = sizes->count; i-- > 0;) {
        if (!sl_pickle_get_u64(sizes->items[i], 1, INT64_MAX, &tensor->shape[i]) ||
            !sl_pickle_get_u64(strides->items[i], 0, INT64_MAX, &stride))
            SL_FAIL(SL_ERROR_DATA, "has a size or stride that is no positive integer");
        if (tensor->shape[i] > 1 && stride != tensor->element_count)
            SL_FAIL(SL_ERROR_DATA, "is not contiguous: save it so");
        SL_TRY(sl_bits_multiply(tensor->element_count, tensor->shape[i], "a tensor",
                                &tensor->element_count));
    }
    return SL_OK;
}

sl_status sl_torch_file_find(const sl_torch_file *file, const sl_pickle_value *value,
                             sl_torch_tensor *out_tensor)
{
    const sl_pickle_value *arguments = find_arguments(value);
    const sl_pickle_value *persistent = sl_pickle_item(arguments, SL_PICKLE_TUPLE, 0);
    const sl_pickle_value *id = sl_pickle_item(persistent, SL_PICKLE_PERSISTENT, 0);
    const sl_torch_storage *storage = find_storage(file, sl_pickle_item(id, SL_PICKLE_TUPLE, 2));
    sl_torch_tensor tensor = {0};
    uint64_t offset;
    if (!storage ||
        !sl_pickle_get_u64(sl_pickle_item(arguments, SL_PICKLE_TUPLE, 1), 0, INT64_MAX, &offset))
        SL_FAIL(SL_ERROR_DATA, "is no tensor");
    const struct storage_type *type = find_type(storage);
    if (!type || !type->is_read)
        SL_FAIL(SL_ERROR_DATA, "is of %s; fp32, bf16 and fp16 are read",
                show_text(storage->type, storage->type_bytes).text);
    if (read_shape(arguments, &tensor) != SL_OK)
        return SL_ERROR_DATA;
    if (offset > storage->element_count || tensor.element_count > storage->element_count - offset)
        SL_FAIL(SL_ERROR_DATA, "lies beyond its storage of %" PRIu64 " elements",
                storage->element_count);
    tensor.encoding = type->encoding;
    tensor.first_byte = storage->first_byte + offset * type->bytes;
    tensor.storage_index = (uint32_t)(storage - file->storages);
    *out_tensor = tensor;
    return SL_OK;
}

/* ---- bytes ---- */

static sl_status open_blocks(sl_torch_file *file)
{
    sl_block_sums sums;
    if (file->blocks)
        return SL_OK;
    SL_TRY(sl_block_sums_open(file->file.bytes, &sums));
    return sl_block_reader_open(&sums, &file->blocks);
}

static sl_status add_blocks(sl_torch_file *file, const sl_torch_member *member, sl_crc32 *crc)
{
    const uint64_t block_bytes = file->blocks->sums.block_bytes;
    for (uint64_t done = 0, part; done < member->bytes; done += part) {
        const unsigned char *block;
        const uint64_t at = member->first_byte + done, within = at % block_bytes;
        part = member->bytes - done;
        part = part < block_bytes - within ? part : block_bytes - within;
        SL_TRY(sl_block_reader_learn(file->blocks, &file->file, at / block_bytes, &block));
        sl_crc32_add(crc, block + within, part);
    }
    return SL_OK;
}

/* Reads all of a storage, the first time that some of it is asked. */
static sl_status check_member(sl_torch_file *file, sl_torch_member *member)
{
    sl_crc32 crc;
    if (member->is_checked)
        return SL_OK;
    SL_TRY(open_blocks(file));
    sl_crc32_init(&crc);
    SL_TRY(add_blocks(file, member, &crc));
    if (crc.value != member->checksum)
        SL_FAIL(SL_ERROR_DATA,
                "%s: is damaged: checksum is %08" PRIx32 " of its member %s, but the archive says "
                "%08" PRIx32,
                sl_files_show(file->file.path).text, crc.value, sl_files_show(member->name).text,
                member->checksum);
    member->is_checked = true;
    return SL_OK;
}

static sl_status read_bytes(sl_torch_file *file, const sl_torch_tensor *tensor, uint64_t offset,
                            uint64_t bytes, void *data)
{
    sl_torch_member *member = file->members ? &file->members[tensor->storage_index] : NULL;
    if (!member || member->checksum == 0)
        return sl_files_read_at(&file->file, offset, bytes, data);
    sl_status status = check_member(file, member);
    if (status == SL_OK)
        status = sl_block_reader_read(file->blocks, &file->file, offset, bytes, data);
    return status == SL_ERROR_DAMAGED ? SL_ERROR_DATA : status; /* there is no older file */
}

sl_status sl_torch_file_read(sl_torch_file *file, const sl_torch_tensor *tensor,
                             uint64_t first_element, uint64_t element_count, float *out_data)
{
    uint64_t bytes = sl_encoding_bytes(tensor->encoding, 1);
    if (first_element > tensor->element_count ||
        element_count > tensor->element_count - first_element)
        SL_FAIL(SL_ERROR_USAGE, "%s: elements beyond the end of a tensor are asked",
                sl_files_show(file->file.path).text);
    SL_TRY(read_bytes(file, tensor, tensor->first_byte + bytes * first_element,
                      bytes * element_count,
                      (char *)out_data + (sizeof *out_data - bytes) * element_count));
    sl_encoding_widen(tensor->encoding, element_count, out_data);
    return SL_OK;
}
