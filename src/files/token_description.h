/* The description of a file of tokens, in FILE.json beside FILE: which tokenizer made the tokens,
 * and how many there are. The formats of tokens themselves do not say it.
 *
 *   {"sluice_tokens": 1, "tokenizer": "bpe-HASH" or "byte", "vocab": N, "end_of_text": ID,
 *    "documents": N, "tokens": N, "bytes": N}
 *
 * `bytes` and `tokens` must be those of FILE: another program may have replaced FILE and left the
 * description of the old file. JSON without the first key was not written by sluice and counts as
 * no description.
 */
#ifndef SL_FILES_TOKEN_DESCRIPTION_H
#define SL_FILES_TOKEN_DESCRIPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files.h"

enum { SL_TOKENIZER_NAME_BYTES = 40 }; /* of a name as sl_vocabulary_name gives it, with its NUL */

typedef struct sl_token_description {
    uint32_t version;
    char tokenizer[SL_TOKENIZER_NAME_BYTES];
    uint32_t vocab;       /* all ids are below it */
    uint32_t end_of_text; /* the id behind each document */
    uint64_t documents;   /* that end in this file */
    uint64_t tokens, bytes;
} sl_token_description;

/* "FILE.json" of "FILE"; release with free(). */
sl_status sl_token_description_path(const char *tokens_path, char **out_path);

/* Writes a description into a new file; the version that is written is this build's. */
sl_status sl_token_description_write(const sl_token_description *description, sl_file *file);

/* Reads the description at `path`; *out_is_there is false if there is none. SL_ERROR_DATA: it is of
 * a later version, or a key is missing or wrong. */
sl_status sl_token_description_read(const char *path, sl_token_description *out_description,
                                    bool *out_is_there);

#endif
