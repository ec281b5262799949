/* The strict reader and the streaming writer; see safetensors.h.
 *
 * Reading: the header is parsed by jansson, which rejects what JSON forbids; what the format
 * forbids beyond that is checked here, rule by rule, before anything of the data is read.
 *
 * Writing: elements go front to back, so that one running checksum covers the whole file and a disk
 * sees one sequential stream. */
#define _GNU_SOURCE
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "json_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors are little endian");

enum { LENGTH_BYTES = 8 }; /* the u64 in front of the header */

typedef struct dtype_info {
    const char *name;
    uint64_t bits;
} dtype_info;

static const dtype_info dtypes[] = {
#define DTYPE_ROW(name, bits) {#name, bits},
    SL_DTYPES(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *sl_safetensors_dtype_name(sl_dtype dtype)
{
    return dtypes[dtype].name;
}

/* ---- one entry of the header ---- */

/* Where a message belongs: the file and, inside it, the tensor. */
typedef struct place {
    sl_shown path, name;
} place;

#define FAIL_TENSOR(at, ...) return fail_tensor((at), sl_status_fail(SL_ERROR_DATA, __VA_ARGS__))

static sl_status fail_tensor(const place *at, sl_status status)
{
    return sl_status_prefix(status, "%s: tensor \"%s\"", at->path.text, at->name.text);
}

static sl_status parse_dtype(const place *at, const json_t *value, sl_dtype *out_dtype)
{
    const char *name = json_string_value(value);
    if (!name)
        FAIL_TENSOR(at, "dtype is not a string");
    for (int i = 0; i < SL_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out_dtype = (sl_dtype)i;
            return SL_OK;
        }
    }
    FAIL_TENSOR(at, "dtype \"%s\" is unknown", sl_files_show(name).text);
}

static sl_status parse_size(const place *at, const char *what, const json_t *value,
                            uint64_t *out_size)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        FAIL_TENSOR(at, "%s is not an integer from 0 on", what);
    *out_size = (uint64_t)json_integer_value(value);
    return SL_OK;
}

static sl_status parse_shape(const place *at, const json_t *value, sl_safetensors_tensor *tensor)
{
    if (!json_is_array(value))
        FAIL_TENSOR(at, "shape is not an array");
    size_t dim_count = json_array_size(value);
    if (dim_count > SL_SAFETENSORS_DIMS_MAX)
        FAIL_TENSOR(at, "shape has %zu dimensions, more than %d", dim_count,
                    SL_SAFETENSORS_DIMS_MAX);
    tensor->dim_count = (uint32_t)dim_count;
    tensor->element_count = 1;
    for (size_t i = 0; i < dim_count; i++) {
        SL_TRY(parse_size(at, "a dimension", json_array_get(value, i), &tensor->shape[i]));
        if (__builtin_mul_overflow(tensor->element_count, tensor->shape[i], &tensor->element_count))
            FAIL_TENSOR(at, "the product of its shape overflows 64 bits");
    }
    return SL_OK;
}

static sl_status parse_offsets(const place *at, const json_t *value, sl_safetensors_tensor *tensor)
{
    uint64_t end = 0;
    if (!json_is_array(value) || json_array_size(value) != 2)
        FAIL_TENSOR(at, "data_offsets is not an array of two");
    SL_TRY(parse_size(at, "data_offsets[0]", json_array_get(value, 0), &tensor->first_byte));
    SL_TRY(parse_size(at, "data_offsets[1]", json_array_get(value, 1), &end));
    if (end < tensor->first_byte)
        FAIL_TENSOR(at, "its data ends before it begins");
    tensor->byte_count = end - tensor->first_byte;
    return SL_OK;
}

static sl_status check_byte_count(const place *at, const sl_safetensors_tensor *tensor)
{
    uint64_t bits;
    if (__builtin_mul_overflow(tensor->element_count, dtypes[tensor->dtype].bits, &bits))
        FAIL_TENSOR(at, "its size in bits overflows 64 bits");
    if (bits % 8 != 0)
        FAIL_TENSOR(at, "its size of %llu bits is not whole bytes", (unsigned long long)bits);
    if (bits / 8 != tensor->byte_count)
        FAIL_TENSOR(at, "data_offsets span %llu bytes, but shape and dtype need %llu",
                    (unsigned long long)tensor->byte_count, (unsigned long long)(bits / 8));
    return SL_OK;
}

static sl_status parse_tensor(const char *path, const char *name, const json_t *entry,
                              sl_safetensors_tensor *tensor)
{
    place at = {sl_files_show(path), sl_files_show(name)};
    tensor->name = name;
    if (strlen(name) > SL_SAFETENSORS_NAME_MAX)
        FAIL_TENSOR(&at, "its name is longer than %d bytes", SL_SAFETENSORS_NAME_MAX);
    if (!json_is_object(entry))
        FAIL_TENSOR(&at, "its entry is not an object");
    const json_t *dtype = json_object_get(entry, "dtype");
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!dtype || !shape || !offsets || json_object_size(entry) != 3)
        FAIL_TENSOR(&at, "its entry has not exactly the keys dtype, shape and data_offsets");
    SL_TRY(parse_dtype(&at, dtype, &tensor->dtype));
    SL_TRY(parse_shape(&at, shape, tensor));
    SL_TRY(parse_offsets(&at, offsets, tensor));
    return check_byte_count(&at, tensor);
}

static sl_status check_metadata(const char *path, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        SL_FAIL(SL_ERROR_DATA, "%s: __metadata__ is not an object", sl_files_show(path).text);
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value))
            SL_FAIL(SL_ERROR_DATA, "%s: __metadata__ key \"%s\" is not a string",
                    sl_files_show(path).text, sl_files_show(key).text);
    }
    return SL_OK;
}

/* ---- the header ---- */

static sl_status read_bytes(const sl_safetensors *file, uint64_t offset, uint64_t bytes, void *data)
{
    return file->blocks ? sl_block_reader_read(file->blocks, &file->file, offset, bytes, data)
                        : sl_files_read_at(&file->file, offset, bytes, data);
}

static sl_status read_header(const sl_safetensors *from, char **out_text, uint64_t *out_bytes)
{
    const sl_file *file = &from->file;
    sl_shown path = sl_files_show(file->path);
    uint64_t bytes;
    if (file->bytes < LENGTH_BYTES)
        SL_FAIL(SL_ERROR_DATA, "%s: has %llu bytes, too few for a safetensors file", path.text,
                (unsigned long long)file->bytes);
    SL_TRY(read_bytes(from, 0, sizeof bytes, &bytes));
    if (bytes > file->bytes - LENGTH_BYTES)
        SL_FAIL(SL_ERROR_DATA, "%s: the header length %llu is beyond the end of the file",
                path.text, (unsigned long long)bytes);
    if (bytes > SL_SAFETENSORS_HEADER_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: the header length %llu is above the limit of %d", path.text,
                (unsigned long long)bytes, SL_SAFETENSORS_HEADER_MAX);
    char *text = malloc(bytes + 1);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the header of %s", path.text);
    sl_status status = read_bytes(from, LENGTH_BYTES, bytes, text);
    if (status != SL_OK) {
        free(text);
        return status;
    }
    *out_text = text;
    *out_bytes = bytes;
    return SL_OK;
}

/* JSON has the number -0, but a size has not; jansson reads it as the integer 0. */
static sl_status check_minus_zero(const char *path, const char *text, uint64_t bytes)
{
    bool in_string = false;
    for (uint64_t i = 0; i + 1 < bytes; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string && text[i] == '\\')
            i++; /* an escaped quote ends no string */
        else if (!in_string && text[i] == '-' && text[i + 1] == '0')
            SL_FAIL(SL_ERROR_DATA, "%s: the header holds the number -0", sl_files_show(path).text);
    }
    return SL_OK;
}

static sl_status parse_header(const char *path, const char *text, uint64_t bytes,
                              json_t **out_header)
{
    uint64_t last = bytes;
    if (bytes == 0 || text[0] != '{')
        SL_FAIL(SL_ERROR_DATA, "%s: the header does not start with '{'", sl_files_show(path).text);
    while (text[last - 1] == ' ')
        last--;
    if (text[last - 1] != '}')
        SL_FAIL(SL_ERROR_DATA, "%s: the header does not end with '}' and spaces",
                sl_files_show(path).text);
    SL_TRY(check_minus_zero(path, text, last));
    return sl_json_file_parse(path, text, last, out_header);
}

static sl_status parse_entries(sl_safetensors *file)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            SL_TRY(check_metadata(file->file.path, entry));
            continue;
        }
        sl_safetensors_tensor *tensor = &file->tensors[file->tensor_count];
        SL_TRY(parse_tensor(file->file.path, name, entry, tensor));
        file->tensor_count++;
    }
    return SL_OK;
}

static int compare_data(const void *a, const void *b)
{
    const sl_safetensors_tensor *x = a, *y = b;
    if (x->first_byte != y->first_byte)
        return x->first_byte < y->first_byte ? -1 : 1;
    if (x->byte_count != y->byte_count)
        return x->byte_count < y->byte_count ? -1 : 1;
    return strcmp(x->name, y->name); /* empty tensors may share a place */
}

/* Sorts by place and checks that tensors cover the data exactly; places become file offsets. */
static sl_status check_cover(sl_safetensors *file, uint64_t header_bytes)
{
    uint64_t data_start = LENGTH_BYTES + header_bytes, end = 0;
    sl_shown path = sl_files_show(file->file.path);
    if (file->tensor_count > 0)
        qsort(file->tensors, file->tensor_count, sizeof file->tensors[0], compare_data);
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        sl_safetensors_tensor *tensor = &file->tensors[i];
        if (tensor->first_byte != end)
            SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\": its data starts at %llu, %s at %llu",
                    path.text, sl_files_show(tensor->name).text,
                    (unsigned long long)tensor->first_byte,
                    tensor->first_byte < end ? "overlapping data that ends"
                                             : "leaving a hole after data that ends",
                    (unsigned long long)end);
        end += tensor->byte_count; /* below 2^63: it is the integer data_offsets[1] */
        tensor->first_byte += data_start;
    }
    if (end != file->file.bytes - data_start)
        SL_FAIL(SL_ERROR_DATA, "%s: the tensors need %llu bytes of data, but the file has %llu",
                path.text, (unsigned long long)end,
                (unsigned long long)(file->file.bytes - data_start));
    return SL_OK;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
    const sl_safetensors_tensor *all = tensors;
    return strcmp(all[*(const uint32_t *)a].name, all[*(const uint32_t *)b].name);
}

static void index_names(sl_safetensors *file)
{
    for (uint32_t i = 0; i < file->tensor_count; i++)
        file->by_name[i] = i;
    if (file->tensor_count > 0)
        qsort_r(file->by_name, file->tensor_count, sizeof file->by_name[0], compare_names,
                file->tensors);
}

static sl_status load_header(sl_safetensors *file)
{
    char *text = NULL;
    uint64_t bytes = 0;
    json_t *header = NULL;
    SL_TRY(read_header(file, &text, &bytes));
    sl_status status = parse_header(file->file.path, text, bytes, &header);
    free(text);
    SL_TRY(status);
    file->header = header;
    size_t count = json_object_size(header) + 1; /* calloc(0) may be NULL */
    file->tensors = calloc(count, sizeof file->tensors[0]);
    file->by_name = calloc(count, sizeof file->by_name[0]);
    if (!file->tensors || !file->by_name)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the tensors of %s",
                sl_files_show(file->file.path).text);
    SL_TRY(parse_entries(file));
    SL_TRY(check_cover(file, bytes));
    index_names(file);
    return SL_OK;
}

/* Checksums of a file of another size cannot be compared. */
static sl_status check_size(const sl_safetensors *file)
{
    if (!file->blocks || file->file.bytes == file->blocks->sums.file_bytes)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "%s: has %llu bytes, but the manifest says %llu",
            sl_files_show(file->file.path).text, (unsigned long long)file->file.bytes,
            (unsigned long long)file->blocks->sums.file_bytes);
}

static sl_status open_with(int directory, const char *directory_path, const char *name,
                           sl_links links, sl_safetensors *file)
{
    SL_TRY(sl_files_open(directory, directory_path, name, links, &file->file));
    SL_TRY(check_size(file));
    return load_header(file);
}

/* Takes ownership of the reader, also on failure. */
static sl_status open_through(int directory, const char *directory_path, const char *name,
                              sl_links links, sl_block_reader *blocks, sl_safetensors **out_file)
{
    sl_safetensors *file = calloc(1, sizeof *file);
    if (!file) {
        sl_block_reader_close(blocks);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a file");
    }
    file->blocks = blocks;
    sl_status status = open_with(directory, directory_path, name, links, file);
    if (status != SL_OK) {
        sl_safetensors_close(file);
        return status;
    }
    *out_file = file;
    return SL_OK;
}

sl_status sl_safetensors_open(int directory, const char *directory_path, const char *name,
                              sl_links links, sl_safetensors **out_file)
{
    return open_through(directory, directory_path, name, links, NULL, out_file);
}

sl_status sl_safetensors_open_checked(int directory, const char *directory_path, const char *name,
                                      sl_block_sums *sums, sl_safetensors **out_file)
{
    sl_block_reader *blocks;
    SL_TRY(sl_block_reader_open(sums, &blocks));
    return open_through(directory, directory_path, name, SL_LINKS_REFUSE, blocks, out_file);
}

void sl_safetensors_close(sl_safetensors *file)
{
    if (!file)
        return;
    sl_files_close(&file->file);
    sl_block_reader_close(file->blocks);
    json_decref(file->header);
    free(file->tensors);
    free(file->by_name);
    free(file);
}

const sl_safetensors_tensor *sl_safetensors_find(const sl_safetensors *file, const char *name)
{
    uint32_t low = 0, high = file->tensor_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const sl_safetensors_tensor *tensor = &file->tensors[file->by_name[middle]];
        int order = strcmp(tensor->name, name);
        if (order == 0)
            return tensor;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- data ---- */

sl_status sl_safetensors_read(const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                              uint64_t first_element, uint64_t element_count, float *out_data)
{
    if (first_element > tensor->element_count ||
        element_count > tensor->element_count - first_element)
        SL_FAIL(SL_ERROR_USAGE, "elements beyond the end of tensor \"%s\" are asked",
                sl_files_show(tensor->name).text);
    if (tensor->dtype == SL_DTYPE_F32)
        return read_bytes(file, tensor->first_byte + 4 * first_element, 4 * element_count,
                          out_data);
    if (tensor->dtype != SL_DTYPE_F16 && tensor->dtype != SL_DTYPE_BF16)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is %s; only F32, F16 and BF16 are read",
                sl_files_show(file->file.path).text, sl_files_show(tensor->name).text,
                dtypes[tensor->dtype].name);
    SL_TRY(read_bytes(file, tensor->first_byte + 2 * first_element, 2 * element_count,
                      (char *)out_data + 2 * element_count));
    sl_encoding_widen(tensor->dtype == SL_DTYPE_BF16 ? SL_ENCODING_BF16 : SL_ENCODING_FP16,
                      element_count, out_data);
    return SL_OK;
}

/* ---- writing ---- */

struct sl_safetensors_writer {
    sl_file file;
    sl_hash_stream *hash;
    sl_block_sums sums;
    sl_block_maker maker; /* of the sums */
    uint32_t *order;      /* [tensor_count], indices of the caller's tensors in file order */
    uint64_t total_bytes; /* of the finished file */
    uint64_t pushed_bytes;
};

static int compare_plans(const void *a, const void *b, void *tensors)
{
    const sl_safetensors_plan *all = tensors;
    return strcmp(all[*(const uint32_t *)a].name, all[*(const uint32_t *)b].name);
}

static sl_status sort_plans(const sl_safetensors_plan *tensors, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    if (count > 0)
        qsort_r(order, count, sizeof *order, compare_plans, (void *)tensors);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(tensors[order[i - 1]].name, tensors[order[i]].name) == 0)
            SL_FAIL(SL_ERROR_USAGE, "two tensors are called \"%s\"",
                    sl_files_show(tensors[order[i]].name).text);
    return SL_OK;
}

static sl_status count_bytes(const sl_safetensors_plan *tensor, uint64_t *out_bytes)
{
    uint64_t elements = 1; /* multiplied as the reader does: an empty tensor may be long */
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        SL_TRY(sl_bits_multiply(elements, tensor->shape[i], "a tensor", &elements));
    uint64_t element_bytes = sl_encoding_bytes(tensor->encoding, 1);
    if (element_bytes == 0)
        SL_FAIL(SL_ERROR_USAGE, "tensor \"%s\": safetensors files hold no %s",
                sl_files_show(tensor->name).text, sl_encoding_name(tensor->encoding));
    return sl_bits_multiply(elements, element_bytes, "a tensor", out_bytes);
}

static const char *name_encoding(sl_encoding encoding)
{
    return encoding == SL_ENCODING_FP32 ? "F32" : encoding == SL_ENCODING_BF16 ? "BF16" : "F16";
}

/* Adds the entry of one tensor; a failure of jansson is a lack of memory. */
static sl_status add_entry(json_t *header, const sl_safetensors_plan *tensor, uint64_t *end)
{
    uint64_t bytes, first = *end;
    SL_TRY(count_bytes(tensor, &bytes));
    SL_TRY(sl_bits_add(first, bytes, "a safetensors file", end));
    if (*end > INT64_MAX)
        SL_FAIL(SL_ERROR_USAGE, "a safetensors file overflows 63 bits");
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    bool is_complete = json_array_size(shape) == tensor->dim_count;
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", name_encoding(tensor->encoding),
                              "shape", shape, "data_offsets", (json_int_t)first, (json_int_t)*end);
    if (json_object_set_new(header, tensor->name, entry) < 0 || !is_complete)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a safetensors header");
    return SL_OK;
}

/* Writes the header's JSON and the bytes of data behind it. */
static sl_status format_header(const sl_safetensors_plan *tensors, const uint32_t *order,
                               uint32_t count, char **out_text, uint64_t *out_data_bytes)
{
    uint64_t end = 0;
    sl_status status = SL_OK;
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!header)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a safetensors header");
    for (uint32_t i = 0; i < count && status == SL_OK; i++)
        status = add_entry(header, &tensors[order[i]], &end);
    char *text = status == SL_OK ? sl_json_file_dump(header, JSON_COMPACT) : NULL;
    json_decref(header);
    SL_TRY(status);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a safetensors header");
    *out_text = text;
    *out_data_bytes = end;
    return SL_OK;
}

static sl_status append(sl_safetensors_writer *writer, uint64_t bytes, const void *data)
{
    sl_hash_update(writer->hash, data, bytes);
    sl_block_maker_note(&writer->maker, data, bytes);
    return sl_files_append_pushed(&writer->file, &writer->pushed_bytes, bytes, data);
}

/* A length, the header's text with spaces up to whole 8 bytes, the data. */
static sl_status add_header(uint64_t text_bytes, uint64_t data_bytes, uint64_t *out_total_bytes)
{
    uint64_t header_bytes = sl_bits_round_up(text_bytes, 8);
    return sl_bits_add(8 + header_bytes, data_bytes, "a safetensors file", out_total_bytes);
}

sl_status sl_safetensors_count_bytes(const sl_safetensors_plan *tensors, uint32_t tensor_count,
                                     uint64_t *out_bytes)
{
    char *text = NULL;
    uint64_t data_bytes = 0;
    uint32_t *order = calloc((size_t)tensor_count + 1, sizeof *order);
    if (!order)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", tensor_count);
    sl_status status = sort_plans(tensors, tensor_count, order);
    if (status == SL_OK)
        status = format_header(tensors, order, tensor_count, &text, &data_bytes);
    if (status == SL_OK)
        status = add_header(strlen(text), data_bytes, out_bytes);
    free(text);
    free(order);
    return status;
}

static sl_status write_header(sl_safetensors_writer *writer, const char *text, uint64_t data_bytes)
{
    static const char spaces[] = "        ";
    uint64_t text_bytes = strlen(text);
    uint64_t header_bytes = sl_bits_round_up(text_bytes, 8);
    SL_TRY(add_header(text_bytes, data_bytes, &writer->total_bytes));
    SL_TRY(sl_block_sums_open(writer->total_bytes, &writer->sums));
    SL_TRY(sl_block_maker_open(&writer->sums, &writer->maker));
    SL_TRY(sl_files_reserve(&writer->file, writer->total_bytes));
    SL_TRY(append(writer, sizeof header_bytes, &header_bytes));
    SL_TRY(append(writer, text_bytes, text));
    return append(writer, header_bytes - text_bytes, spaces);
}

static sl_status start_file(sl_safetensors_writer *writer, const sl_safetensors_plan *tensors,
                            uint32_t tensor_count)
{
    char *text = NULL;
    uint64_t data_bytes = 0;
    SL_TRY(sl_hash_open(&writer->hash));
    SL_TRY(sort_plans(tensors, tensor_count, writer->order));
    SL_TRY(format_header(tensors, writer->order, tensor_count, &text, &data_bytes));
    sl_status status = write_header(writer, text, data_bytes);
    free(text);
    return status;
}

sl_status sl_safetensors_writer_start(sl_file *file, const sl_safetensors_plan *tensors,
                                      uint32_t tensor_count, sl_safetensors_writer **out_writer)
{
    sl_safetensors_writer *writer = calloc(1, sizeof *writer);
    if (writer)
        writer->order = calloc((size_t)tensor_count + 1, sizeof *writer->order);
    if (!writer || !writer->order) {
        free(writer);
        sl_files_close(file);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write a file");
    }
    writer->file = *file;
    *file = (sl_file){.fd = -1};
    sl_status status = start_file(writer, tensors, tensor_count);
    if (status != SL_OK) {
        sl_safetensors_writer_close(writer);
        return status;
    }
    *out_writer = writer;
    return SL_OK;
}

sl_status sl_safetensors_writer_open(int directory, const char *directory_path, const char *name,
                                     const sl_safetensors_plan *tensors, uint32_t tensor_count,
                                     sl_safetensors_writer **out_writer)
{
    sl_file file;
    SL_TRY(sl_files_create(directory, directory_path, name, &file));
    return sl_safetensors_writer_start(&file, tensors, tensor_count, out_writer);
}

uint32_t sl_safetensors_writer_order(const sl_safetensors_writer *writer, uint32_t i)
{
    return writer->order[i];
}

sl_status sl_safetensors_writer_append(sl_safetensors_writer *writer, const float *data,
                                       uint64_t element_count)
{
    if (element_count > (writer->total_bytes - writer->file.bytes) / sizeof *data)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: more elements than were declared",
                sl_files_show(writer->file.path).text);
    return append(writer, element_count * sizeof *data, data);
}

sl_status sl_safetensors_writer_append_stored(sl_safetensors_writer *writer, const void *stored,
                                              uint64_t bytes)
{
    if (bytes > writer->total_bytes - writer->file.bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: more bytes than were declared",
                sl_files_show(writer->file.path).text);
    return append(writer, bytes, stored);
}

sl_status sl_safetensors_writer_finish(sl_safetensors_writer *writer, uint64_t *out_bytes,
                                       sl_hash_value *out_hash)
{
    if (writer->file.bytes != writer->total_bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: %llu bytes are missing",
                sl_files_show(writer->file.path).text,
                (unsigned long long)(writer->total_bytes - writer->file.bytes));
    SL_TRY(sl_files_sync(&writer->file));
    *out_bytes = writer->total_bytes;
    *out_hash = sl_hash_digest(writer->hash);
    return SL_OK;
}

const sl_block_sums *sl_safetensors_writer_sums(const sl_safetensors_writer *writer)
{
    return &writer->sums;
}

void sl_safetensors_writer_close(sl_safetensors_writer *writer)
{
    if (!writer)
        return;
    sl_files_close(&writer->file);
    if (writer->hash)
        sl_hash_close(writer->hash);
    sl_block_maker_close(&writer->maker);
    sl_block_sums_close(&writer->sums);
    free(writer->order);
    free(writer);
}
