/* The streaming writer; see safetensors.h. Elements go front to back, so that one running checksum
 * covers the whole file and a disk sees one sequential stream. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "safetensors.h"

enum { PUSH_BYTES = 32 << 20 }; /* written back together */

struct sl_safetensors_writer {
    sl_file file;
    sl_hash_stream *hash;
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
    uint64_t bytes = sizeof(float);
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        SL_TRY(sl_bits_multiply(bytes, tensor->shape[i], "a tensor", &bytes));
    *out_bytes = bytes;
    return SL_OK;
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
    bool is_whole = json_array_size(shape) == tensor->dim_count;
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                              "data_offsets", (json_int_t)first, (json_int_t)*end);
    if (json_object_set_new(header, tensor->name, entry) < 0 || !is_whole)
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
    char *text = status == SL_OK ? json_dumps(header, JSON_COMPACT) : NULL;
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
    SL_TRY(sl_files_append(&writer->file, bytes, data));
    while (writer->file.bytes - writer->pushed_bytes >= PUSH_BYTES) {
        SL_TRY(sl_files_push(&writer->file, writer->pushed_bytes, PUSH_BYTES));
        writer->pushed_bytes += PUSH_BYTES;
    }
    return SL_OK;
}

static sl_status write_header(sl_safetensors_writer *writer, const char *text, uint64_t data_bytes)
{
    static const char spaces[] = "        ";
    uint64_t text_bytes = strlen(text);
    uint64_t header_bytes = sl_bits_round_up(text_bytes, 8);
    SL_TRY(sl_bits_add(8 + header_bytes, data_bytes, "a safetensors file", &writer->total_bytes));
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

sl_status sl_safetensors_writer_open(int directory, const char *directory_path, const char *name,
                                     const sl_safetensors_plan *tensors, uint32_t tensor_count,
                                     sl_safetensors_writer **out_writer)
{
    sl_safetensors_writer *writer = calloc(1, sizeof *writer);
    if (writer)
        writer->order = calloc((size_t)tensor_count + 1, sizeof *writer->order);
    if (!writer || !writer->order) {
        free(writer);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write a file");
    }
    sl_status status = sl_files_create(directory, directory_path, name, &writer->file);
    if (status == SL_OK)
        status = start_file(writer, tensors, tensor_count);
    if (status != SL_OK) {
        sl_safetensors_writer_close(writer);
        return status;
    }
    *out_writer = writer;
    return SL_OK;
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

void sl_safetensors_writer_close(sl_safetensors_writer *writer)
{
    if (!writer)
        return;
    sl_files_close(&writer->file);
    if (writer->hash)
        sl_hash_close(writer->hash);
    free(writer->order);
    free(writer);
}
