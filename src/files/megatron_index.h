/* The index beside Megatron's tokens: NAME.idx of NAME.bin, little endian.
 *
 *   bytes 0 .. 8     "MMIDIDX", NUL, NUL
 *   u64 version      1
 *   u8 type          of an id: 8 uint16, 4 int32; others are refused
 *   u64 sequences S, u64 bounds D
 *   int32 [S]        ids of each sequence
 *   int64 [S]        the byte in NAME.bin at which each starts, without gaps
 *   int64 [D]        the sequence at which each document starts, and S last
 *
 * All of it is read and checked when it is opened, in blocks: an index that does not fit the bytes
 * beside it to the last one is torn, or another file's. What is open is only read.
 */
#ifndef SL_FILES_MEGATRON_INDEX_H
#define SL_FILES_MEGATRON_INDEX_H

#include <stdbool.h>

#include "files.h"

enum { SL_MEGATRON_START_BYTES = 9 };

typedef struct sl_megatron_index {
    sl_file file;
    uint32_t id_bytes; /* 2 or 4 */
    uint64_t sequence_count, bound_count, token_count;
} sl_megatron_index;

/* True if a file begins as an index does. */
bool sl_megatron_index_starts(const void *start, uint64_t bytes);

/* Opens and checks the index beside a file whose name ends in ".bin"; *out_is_there is false where
 * no file has its name. SL_ERROR_DATA names the file and the rule. Statuses of sl_files_open. */
sl_status sl_megatron_index_open(const sl_file *bin, sl_megatron_index *out_index,
                                 bool *out_is_there);

/* Zeros are fine. */
void sl_megatron_index_close(sl_megatron_index *index);

/* Documents, those without ids too. */
uint64_t sl_megatron_index_document_count(const sl_megatron_index *index);

/* The token at which document `document` <= count starts; of the count, the end. */
sl_status sl_megatron_index_document_start(const sl_megatron_index *index, uint64_t document,
                                           uint64_t *out_token);

#endif
