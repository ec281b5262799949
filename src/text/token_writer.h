/* Files of tokens, written in order: llm.c's, nanoGPT's, and Megatron's with its index.
 *
 *   llmc      256 int32 words in front, then uint16 ids (20240520), or uint32 where the vocabulary
 *             needs them (20240801); beyond 2^31 - 1 ids come further files, NAME_000001 and so on
 *   nanogpt   uint16 ids; a vocabulary of at most 65,536
 *   megatron  NAME.bin, ids of uint16 (int32 from a vocabulary of 65,500 on), and NAME.idx
 *
 * If the caller names the tokenizer, FILE.json beside each file says which tokenizer made it
 * (files/token_description.h).
 *
 * No file gets its name before all files are written and synced; until then files have no name at
 * all where the file system allows that (sl_files_create_unseen). Megatron's index and the
 * descriptions get their names last, and those of an earlier run are removed first: an index or
 * description that exists fits its file.
 */
#ifndef SL_TEXT_TOKEN_WRITER_H
#define SL_TEXT_TOKEN_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files/files.h"

typedef enum sl_token_format {
    SL_TOKEN_FORMAT_LLMC,
    SL_TOKEN_FORMAT_NANOGPT,
    SL_TOKEN_FORMAT_MEGATRON
} sl_token_format;

typedef struct sl_token_writer_args {
    const char *path; /* borrowed */
    sl_token_format format;
    uint32_t vocab;        /* ids are below */
    uint64_t ids_per_file; /* of llmc at most; 0: 2^31 - 1 */
    const char *tokenizer; /* its name; borrowed; NULL: no descriptions are written */
    uint32_t end_of_text;  /* the id behind each document; for the descriptions */
    bool has_marks;        /* ids may be marked (files/tokens.h): megatron with ids of 32 bits */
} sl_token_writer_args;

typedef struct sl_token_writer sl_token_writer;

/* SL_ERROR_USAGE: the format does not go with the name or the vocabulary. SL_ERROR_IO. */
sl_status sl_token_writer_open(const sl_token_writer_args *args, sl_token_writer **out_writer);

/* Appends ids to the document that is being written. */
sl_status sl_token_writer_add(sl_token_writer *writer, const uint32_t *ids, uint64_t count);

/* Ends the document, or takes back all of it. */
sl_status sl_token_writer_end(sl_token_writer *writer);
sl_status sl_token_writer_drop(sl_token_writer *writer);

/* Syncs all files, then gives them their names. A failure before the first name leaves the files of
 * before. */
sl_status sl_token_writer_finish(sl_token_writer *writer);

uint32_t sl_token_writer_file_count(const sl_token_writer *writer);

/* Closes; what is not finished is removed. NULL is fine. */
void sl_token_writer_close(sl_token_writer *writer);

#endif
