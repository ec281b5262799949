/* What tokens.c and token_documents.c share: the files of a run. */
#ifndef SL_FILES_TOKENS_INTERNAL_H
#define SL_FILES_TOKENS_INTERNAL_H

#include <time.h>

#include "megatron_index.h"
#include "token_description.h"
#include "tokens.h"

/* Fingerprints hold these numbers: new ones come last. */
typedef enum sl_token_kind {
    SL_TOKEN_TEXT,
    SL_TOKEN_NANOGPT,
    SL_TOKEN_LLMC16,
    SL_TOKEN_LLMC32,
    SL_TOKEN_MEGATRON16,
    SL_TOKEN_MEGATRON32,
    SL_TOKEN_KIND_COUNT
} sl_token_kind;

typedef struct sl_token_file {
    sl_file file;
    sl_megatron_index index; /* MEGATRON; else zeros */
    sl_token_kind kind;
    bool is_packed, is_json; /* of text: its bytes are not its tokens */
    bool may_be_array;       /* of JSON objects; before it is looked at */
    bool has_marks;          /* ids may be marked */
    bool is_described;       /* a file of tokens with a description beside it */
    sl_token_description description;
    struct timespec written; /* time of the last write before the file was opened */
    uint64_t data_offset;    /* bytes before the first token */
    uint64_t first_token;    /* in the run of all files */
    uint64_t token_count;    /* with the end-of-text token of a text file */
} sl_token_file;

struct sl_tokens {
    sl_token_file *files;
    uint32_t file_count;
    uint32_t vocab_limit; /* 0: none */
    bool takes_arrays;    /* opens arrays of JSON objects */
    uint64_t token_count;
};

#endif
