/* A writer of GGUF files, version 3, little endian (ggml's gguf.md).
 *
 * Layout: "GGUF", the version, the counts of tensors and of values; the values, each a key, a kind
 * and the value; for each tensor its name, its sizes, the fastest one first, its type and where its
 * data start; the data, every tensor of it on a multiple of 32 bytes.
 *
 * Values and tensors are kept in memory until the file is started; the data are streamed. Knows
 * nothing of models.
 */
#ifndef SL_FOREIGN_GGUF_H
#define SL_FOREIGN_GGUF_H

#include <stdint.h>

#include "files/encoding.h"
#include "files/files.h"

enum { SL_GGUF_NAME_MAX = 63 }; /* bytes of a tensor's name: ggml keeps 64 with the NUL */

/* What a list holds, by GGUF's numbers. */
typedef enum sl_gguf_kind { SL_GGUF_INT32 = 5, SL_GGUF_TEXT = 8 } sl_gguf_kind;

typedef struct sl_gguf_tensor {
    char name[SL_GGUF_NAME_MAX + 1];
    uint32_t dim_count; /* 1 or 2 */
    uint64_t shape[2];  /* [rows, columns]: columns stand together; a vector has shape {n, 1} */
    sl_encoding encoding;
} sl_gguf_tensor;

typedef struct sl_gguf sl_gguf;

/* SL_ERROR_SYSTEM: no memory. */
sl_status sl_gguf_open(sl_gguf **out_gguf);

/* NULL is fine; also closes the file, whole or not. */
void sl_gguf_close(sl_gguf *gguf);

/* Values, in the order in which they will stand. A lack of memory shows in sl_gguf_set_tensors. */
void sl_gguf_add_text(sl_gguf *gguf, const char *key, const char *text);
void sl_gguf_add_u32(sl_gguf *gguf, const char *key, uint32_t value);
void sl_gguf_add_f32(sl_gguf *gguf, const char *key, float value);
void sl_gguf_add_bool(sl_gguf *gguf, const char *key, bool value);

/* A list of so many items, which are added next, one by one. */
void sl_gguf_add_list(sl_gguf *gguf, const char *key, sl_gguf_kind kind, uint64_t count);
void sl_gguf_add_item_i32(sl_gguf *gguf, int32_t value);
void sl_gguf_add_item_text(sl_gguf *gguf, const char *text, uint64_t bytes);

/* Ends the values; writes how many bytes the file will have. SL_ERROR_USAGE: sizes overflow.
 * SL_ERROR_SYSTEM: no memory, now or before. */
sl_status sl_gguf_set_tensors(sl_gguf *gguf, const sl_gguf_tensor *tensors, uint32_t tensor_count,
                              uint64_t *out_bytes);

/* Takes over a file that was just made, and writes all that stands before the data. */
sl_status sl_gguf_start(sl_gguf *gguf, sl_file *file);

/* Appends stored elements: the tensors in their order, each in pieces of any size that end where it
 * does. SL_ERROR_INTERNAL: they do not. SL_ERROR_IO. */
sl_status sl_gguf_append(sl_gguf *gguf, const void *stored, uint64_t bytes);

/* Syncs. SL_ERROR_INTERNAL: data are missing. SL_ERROR_IO. */
sl_status sl_gguf_finish(sl_gguf *gguf);

#endif
