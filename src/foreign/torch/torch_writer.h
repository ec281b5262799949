/* Files that torch.load reads: a tree of Python values as a pickle, and a storage for each tensor,
 * in an archive as torch.save makes it (torch_file.h). The pickle is made with the calls below, by
 * someone who knows what is to be in it; the elements are appended in the order of the storages.
 */
#ifndef SL_FOREIGN_TORCH_TORCH_WRITER_H
#define SL_FOREIGN_TORCH_TORCH_WRITER_H

#include <stdbool.h>
#include <stdio.h>

#include "files/encoding.h"
#include "files/files.h"

/* ---- the pickle, value by value, into a stream of memory ---- */

void sl_torch_put_start(FILE *stream);
void sl_torch_put_end(FILE *stream);
void sl_torch_put_none(FILE *stream);
void sl_torch_put_bool(FILE *stream, bool value);
void sl_torch_put_integer(FILE *stream, uint64_t value); /* below 2^63 */
void sl_torch_put_real(FILE *stream, double value);
void sl_torch_put_text(FILE *stream, const char *text); /* UTF-8 */

/* A dict: between the two stand keys and values in turn. */
void sl_torch_put_dict(FILE *stream);
void sl_torch_put_dict_end(FILE *stream);

/* An object of a class whose attributes stand between the two, as those of a dict. */
void sl_torch_put_object(FILE *stream, const char *module, const char *name);
void sl_torch_put_object_end(FILE *stream);

/* A contiguous tensor that fills storage `index`. */
typedef struct sl_torch_plan {
    sl_encoding encoding; /* FP32, BF16 or FP16 */
    uint32_t dim_count;   /* 1 or 2 */
    uint64_t shape[2];
} sl_torch_plan;
void sl_torch_put_tensor(FILE *stream, uint32_t index, const sl_torch_plan *plan);
uint64_t sl_torch_count_bytes(const sl_torch_plan *plan);

/* ---- the archive ---- */

typedef struct sl_torch_writer sl_torch_writer;

/* Writes the pickle; takes `file`, also when it fails. `plans` [count] are the tensors by their
 * storages, and have to outlive the writer. SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_torch_writer_open(sl_file *file, const void *pickle, uint64_t pickle_bytes,
                               const sl_torch_plan *plans, uint32_t count,
                               sl_torch_writer **out_writer);

/* Appends the next elements as they are stored, of one tensor. SL_ERROR_INTERNAL: beyond its end.
 */
sl_status sl_torch_writer_append(sl_torch_writer *writer, const void *stored, uint64_t bytes);

/* Whether all elements of all tensors are there. */
bool sl_torch_writer_is_full(const sl_torch_writer *writer);

/* Writes the directory and syncs. SL_ERROR_INTERNAL: elements are missing. SL_ERROR_IO. */
sl_status sl_torch_writer_finish(sl_torch_writer *writer);

/* NULL is fine. */
void sl_torch_writer_close(sl_torch_writer *writer);

#endif
