/* safetensors files: a strict reader and a streaming writer.
 *
 * Layout: u64 little-endian N; N bytes of JSON; data. The reader enforces, as one rule each: the
 * sizes agree with the file; the header starts with `{` and ends in spaces at most; strict JSON
 * without duplicate keys; known types, checked products; the data is covered exactly, without
 * holes, overlaps or trailing bytes. It is stricter than the reference reader and never laxer.
 *
 * Knows nothing of models. Files are read and written, never mapped: a file that changes underneath
 * gives an error, not a signal.
 */
#ifndef SL_FILES_SAFETENSORS_H
#define SL_FILES_SAFETENSORS_H

#include <stdint.h>

#include "base/hash.h"
#include "block_sums.h"
#include "encoding.h"
#include "files.h"

/* Every element type that a file may declare: X(name, bits of an element). */
#define SL_DTYPES(X)                                                                               \
    X(BOOL, 8)                                                                                     \
    X(F4, 4)                                                                                       \
    X(F6_E2M3, 6)                                                                                  \
    X(F6_E3M2, 6)                                                                                  \
    X(U8, 8)                                                                                       \
    X(I8, 8)                                                                                       \
    X(F8_E5M2, 8)                                                                                  \
    X(F8_E4M3, 8)                                                                                  \
    X(F8_E8M0, 8)                                                                                  \
    X(F8_E4M3FNUZ, 8)                                                                              \
    X(F8_E5M2FNUZ, 8)                                                                              \
    X(I16, 16)                                                                                     \
    X(U16, 16)                                                                                     \
    X(F16, 16)                                                                                     \
    X(BF16, 16)                                                                                    \
    X(I32, 32)                                                                                     \
    X(U32, 32)                                                                                     \
    X(F32, 32)                                                                                     \
    X(C64, 64)                                                                                     \
    X(F64, 64)                                                                                     \
    X(I64, 64)                                                                                     \
    X(U64, 64)

typedef enum sl_dtype {
#define SL_DTYPE_ENUM(name, bits) SL_DTYPE_##name,
    SL_DTYPES(SL_DTYPE_ENUM)
#undef SL_DTYPE_ENUM
        SL_DTYPE_COUNT
} sl_dtype;

const char *sl_safetensors_dtype_name(sl_dtype dtype);

enum {
    SL_SAFETENSORS_DIMS_MAX = 8,
    SL_SAFETENSORS_NAME_MAX = 1024,
    SL_SAFETENSORS_HEADER_MAX = 16 << 20 /* bytes; jansson needs about nine times as many */
};

typedef struct sl_safetensors_tensor {
    const char *name; /* owned by the file */
    sl_dtype dtype;
    uint32_t dim_count;
    uint64_t shape[SL_SAFETENSORS_DIMS_MAX];
    uint64_t element_count;
    uint64_t first_byte; /* in the file */
    uint64_t byte_count;
} sl_safetensors_tensor;

/* An open file. Read only; threads may share it if `blocks` is NULL. */
typedef struct sl_safetensors {
    sl_file file;
    sl_block_reader *blocks;        /* compares what is read; NULL: there are no checksums */
    sl_safetensors_tensor *tensors; /* [tensor_count], in the order of the data */
    uint32_t tensor_count;
    uint32_t *by_name; /* [tensor_count], indices in the order of names */
    void *header;      /* keeps the names */
} sl_safetensors;

/* Opens and checks; see sl_files_open for the arguments and the statuses of opening. Reads the
 * header only. SL_ERROR_DATA names the file and the rule that it breaks. */
sl_status sl_safetensors_open(int directory, const char *directory_path, const char *name,
                              sl_links links, sl_safetensors **out_file);

/* The same with the checksums of the file's blocks, whose ownership is taken, also on failure: each
 * block, those of the header too, is compared before it is used. SL_ERROR_DAMAGED, here and from
 * sl_safetensors_read: a checksum differs. */
sl_status sl_safetensors_open_checked(int directory, const char *directory_path, const char *name,
                                      sl_block_sums *sums, sl_safetensors **out_file);

/* NULL is fine. */
void sl_safetensors_close(sl_safetensors *file);

/* The tensor of this name, or NULL. */
const sl_safetensors_tensor *sl_safetensors_find(const sl_safetensors *file, const char *name);

/* Reads elements [first_element, first_element + element_count) as fp32: F32 as they are, F16 and
 * BF16 widened exactly. SL_ERROR_DATA: another type, or the file was cut. SL_ERROR_USAGE: beyond
 * the tensor. SL_ERROR_IO. */
sl_status sl_safetensors_read(const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                              uint64_t first_element, uint64_t element_count, float *out_data);

/* ---- writing ---- */

/* A tensor to be written; the name is borrowed until the writer is closed. */
typedef struct sl_safetensors_plan {
    const char *name;
    uint32_t dim_count; /* 0 .. 2 */
    uint64_t shape[2];
    sl_encoding encoding; /* FP32, BF16 or FP16 */
} sl_safetensors_plan;

/* Writes a file front to back: the checksum of the whole is then known without reading again. */
typedef struct sl_safetensors_writer sl_safetensors_writer;

/* Makes the file and writes its header: metadata {"format":"pt"}, tensors in strcmp order of their
 * names, padded to 8 bytes. Reserves the file's final size. SL_ERROR_USAGE: sizes overflow, or two
 * tensors have one name; SL_ERROR_IO. On failure an unfinished file may be left. */
sl_status sl_safetensors_writer_open(int directory, const char *directory_path, const char *name,
                                     const sl_safetensors_plan *tensors, uint32_t tensor_count,
                                     sl_safetensors_writer **out_writer);

/* The same with a file that was just made; it is the writer's from the call on. */
sl_status sl_safetensors_writer_start(sl_file *file, const sl_safetensors_plan *tensors,
                                      uint32_t tensor_count, sl_safetensors_writer **out_writer);

/* The size of the file that a writer of these tensors makes. SL_ERROR_USAGE: sizes overflow, or two
 * tensors have one name. */
sl_status sl_safetensors_count_bytes(const sl_safetensors_plan *tensors, uint32_t tensor_count,
                                     uint64_t *out_bytes);

/* Index into `tensors` of the tensor whose elements come i-th in the file. */
uint32_t sl_safetensors_writer_order(const sl_safetensors_writer *writer, uint32_t i);

/* Appends the next elements of the file, of one tensor or of several, all FP32. SL_ERROR_INTERNAL:
 * more than were declared. SL_ERROR_IO. */
sl_status sl_safetensors_writer_append(sl_safetensors_writer *writer, const float *data,
                                       uint64_t element_count);

/* The same of elements as they are stored. */
sl_status sl_safetensors_writer_append_stored(sl_safetensors_writer *writer, const void *stored,
                                              uint64_t bytes);

/* Syncs; writes the size and the checksum of the whole file. SL_ERROR_INTERNAL: elements are
 * missing. SL_ERROR_IO. */
sl_status sl_safetensors_writer_finish(sl_safetensors_writer *writer, uint64_t *out_bytes,
                                       sl_hash_value *out_hash);

/* The checksums of the blocks of a finished file; owned by the writer. */
const sl_block_sums *sl_safetensors_writer_sums(const sl_safetensors_writer *writer);

/* NULL is fine. */
void sl_safetensors_writer_close(sl_safetensors_writer *writer);

#endif
