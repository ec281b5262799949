/* Collects what stands before the data, then streams them; see gguf.h. */
#define _GNU_SOURCE
#include "gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum {
    VERSION = 3,
    ALIGNMENT = 32,
    KIND_UINT32 = 4,
    KIND_FLOAT32 = 6,
    KIND_BOOL = 7,
    KIND_LIST = 9
};

struct sl_gguf {
    FILE *stream; /* into `front`: values, then tensors */
    char *front;
    size_t front_bytes;
    uint64_t value_count;
    uint64_t *tensor_bytes; /* [tensor_count] */
    uint32_t tensor_count;
    uint64_t total_bytes;
    sl_file file;
    uint64_t pushed_bytes;
    uint32_t current;    /* the tensor whose data come next */
    uint64_t done_bytes; /* of it */
};

sl_status sl_gguf_open(sl_gguf **out_gguf)
{
    sl_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf) {
        gguf->file.fd = -1;
        gguf->stream = open_memstream(&gguf->front, &gguf->front_bytes);
    }
    if (!gguf || !gguf->stream) {
        free(gguf);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write a GGUF file");
    }
    *out_gguf = gguf;
    return SL_OK;
}

void sl_gguf_close(sl_gguf *gguf)
{
    if (!gguf)
        return;
    if (gguf->stream)
        fclose(gguf->stream);
    sl_files_close(&gguf->file);
    free(gguf->front);
    free(gguf->tensor_bytes);
    free(gguf);
}

/* ---- what stands before the data ---- */

static void put(sl_gguf *gguf, const void *data, uint64_t bytes)
{
    if (bytes > 0) /* a lack of memory stays as the stream's error */
        fwrite(data, 1, bytes, gguf->stream);
}

static void put_u32(sl_gguf *gguf, uint32_t value)
{
    put(gguf, &value, sizeof value);
}

static void put_u64(sl_gguf *gguf, uint64_t value)
{
    put(gguf, &value, sizeof value);
}

static void put_text(sl_gguf *gguf, const char *text, uint64_t bytes)
{
    put_u64(gguf, bytes);
    put(gguf, text, bytes);
}

static void put_key(sl_gguf *gguf, const char *key, uint32_t kind)
{
    put_text(gguf, key, strlen(key));
    put_u32(gguf, kind);
    gguf->value_count++;
}

void sl_gguf_add_text(sl_gguf *gguf, const char *key, const char *text)
{
    put_key(gguf, key, SL_GGUF_TEXT);
    put_text(gguf, text, strlen(text));
}

void sl_gguf_add_u32(sl_gguf *gguf, const char *key, uint32_t value)
{
    put_key(gguf, key, KIND_UINT32);
    put_u32(gguf, value);
}

void sl_gguf_add_f32(sl_gguf *gguf, const char *key, float value)
{
    put_key(gguf, key, KIND_FLOAT32);
    put(gguf, &value, sizeof value);
}

void sl_gguf_add_bool(sl_gguf *gguf, const char *key, bool value)
{
    unsigned char byte = value;
    put_key(gguf, key, KIND_BOOL);
    put(gguf, &byte, sizeof byte);
}

void sl_gguf_add_list(sl_gguf *gguf, const char *key, sl_gguf_kind kind, uint64_t count)
{
    put_key(gguf, key, KIND_LIST);
    put_u32(gguf, kind);
    put_u64(gguf, count);
}

void sl_gguf_add_item_i32(sl_gguf *gguf, int32_t value)
{
    put(gguf, &value, sizeof value);
}

void sl_gguf_add_item_text(sl_gguf *gguf, const char *text, uint64_t bytes)
{
    put_text(gguf, text, bytes);
}

static uint32_t number_of(sl_encoding encoding)
{
    static const uint32_t numbers[] = {0, 30, 1, 8}; /* F32, BF16, F16, Q8_0 */
    return numbers[encoding];
}

static sl_status put_tensor(sl_gguf *gguf, const sl_gguf_tensor *tensor, uint32_t index,
                            uint64_t *data_end)
{
    uint64_t elements, bytes;
    SL_TRY(sl_bits_multiply(tensor->shape[0], tensor->shape[1], "a tensor", &elements));
    SL_TRY(sl_bits_multiply(elements, sizeof(float), "a tensor", &bytes)); /* the widest */
    gguf->tensor_bytes[index] = sl_encoding_bytes(tensor->encoding, elements);
    put_text(gguf, tensor->name, strlen(tensor->name));
    put_u32(gguf, tensor->dim_count);
    for (uint32_t i = tensor->dim_count; i > 0; i--)
        put_u64(gguf, tensor->shape[i - 1]);
    put_u32(gguf, number_of(tensor->encoding));
    put_u64(gguf, *data_end);
    SL_TRY(sl_bits_add(*data_end, gguf->tensor_bytes[index], "a GGUF file", data_end));
    SL_TRY(sl_bits_add(*data_end, ALIGNMENT - 1, "a GGUF file", data_end));
    *data_end -= *data_end % ALIGNMENT;
    return SL_OK;
}

static sl_status put_tensors(sl_gguf *gguf, const sl_gguf_tensor *tensors, uint32_t tensor_count,
                             uint64_t *out_data_bytes)
{
    *out_data_bytes = 0;
    gguf->tensor_count = tensor_count;
    gguf->tensor_bytes = calloc((size_t)tensor_count + 1, sizeof *gguf->tensor_bytes);
    if (!gguf->tensor_bytes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", tensor_count);
    for (uint32_t i = 0; i < tensor_count; i++)
        SL_TRY(put_tensor(gguf, &tensors[i], i, out_data_bytes));
    return SL_OK;
}

enum { COUNTS_BYTES = 4 + 4 + 8 + 8 }; /* magic, version, tensors, values */

sl_status sl_gguf_set_tensors(sl_gguf *gguf, const sl_gguf_tensor *tensors, uint32_t tensor_count,
                              uint64_t *out_bytes)
{
    uint64_t data_bytes;
    sl_status status = put_tensors(gguf, tensors, tensor_count, &data_bytes);
    bool is_whole = !ferror(gguf->stream);
    is_whole = fclose(gguf->stream) == 0 && is_whole;
    gguf->stream = NULL;
    SL_TRY(status);
    if (!is_whole)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the values of a GGUF file");
    uint64_t front_bytes = sl_bits_round_up(COUNTS_BYTES + gguf->front_bytes, ALIGNMENT);
    SL_TRY(sl_bits_add(front_bytes, data_bytes, "a GGUF file", &gguf->total_bytes));
    *out_bytes = gguf->total_bytes;
    return SL_OK;
}

/* ---- the file ---- */

static sl_status append(sl_gguf *gguf, const void *data, uint64_t bytes)
{
    return sl_files_append_pushed(&gguf->file, &gguf->pushed_bytes, bytes, data);
}

static sl_status pad(sl_gguf *gguf)
{
    static const unsigned char zeros[ALIGNMENT];
    return append(gguf, zeros, sl_bits_round_up(gguf->file.bytes, ALIGNMENT) - gguf->file.bytes);
}

sl_status sl_gguf_start(sl_gguf *gguf, sl_file *file)
{
    unsigned char counts[COUNTS_BYTES] = "GGUF";
    const uint32_t version = VERSION;
    const uint64_t tensor_count = gguf->tensor_count;
    gguf->file = *file;
    *file = (sl_file){.fd = -1};
    memcpy(counts + 4, &version, sizeof version);
    memcpy(counts + 8, &tensor_count, sizeof tensor_count);
    memcpy(counts + 16, &gguf->value_count, sizeof gguf->value_count);
    SL_TRY(sl_files_reserve(&gguf->file, gguf->total_bytes));
    SL_TRY(append(gguf, counts, sizeof counts));
    SL_TRY(append(gguf, gguf->front, gguf->front_bytes));
    return pad(gguf);
}

sl_status sl_gguf_append(sl_gguf *gguf, const void *stored, uint64_t bytes)
{
    if (gguf->current == gguf->tensor_count ||
        bytes > gguf->tensor_bytes[gguf->current] - gguf->done_bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: more data than its tensors have",
                sl_files_show(gguf->file.path).text);
    SL_TRY(append(gguf, stored, bytes));
    gguf->done_bytes += bytes;
    if (gguf->done_bytes < gguf->tensor_bytes[gguf->current])
        return SL_OK;
    gguf->current++;
    gguf->done_bytes = 0;
    return pad(gguf);
}

sl_status sl_gguf_finish(sl_gguf *gguf)
{
    if (gguf->current < gguf->tensor_count || gguf->file.bytes != gguf->total_bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: data are missing", sl_files_show(gguf->file.path).text);
    return sl_files_sync(&gguf->file);
}
