/* From files of text to files of tokens, and back. */
#ifndef SL_TEXT_TOKENIZE_H
#define SL_TEXT_TOKENIZE_H

#include <stdbool.h>

#include "documents.h"
#include "token_writer.h"
#include "vocabulary.h"

enum { SL_TOKENIZE_CLEAN_IDS = 128 }; /* a shorter document is left out by `cleans` */

/* Called now and then with the bytes of the files that are read. Anything but SL_OK ends the walk
 * with that status. */
typedef sl_status (*sl_tokenize_progress)(void *user, uint64_t bytes, uint64_t file_bytes);

typedef struct sl_tokenize_args {
    sl_documents_args documents;
    uint32_t worker_count;
    int32_t end_of_text;           /* the id behind each document; -1: the vocabulary's */
    bool cleans;                   /* leave out short documents and exact repetitions */
    sl_tokenize_progress progress; /* or NULL */
    /* The same of learning, before each merge. */
    sl_status (*merging)(void *user, uint32_t tokens, uint32_t token_limit); /* or NULL */
    void *user;
} sl_tokenize_args;

typedef struct sl_tokenize_report {
    uint64_t file_bytes, text_bytes; /* as they lie on the disk; unpacked, what was left out too */
    uint64_t documents, ids;         /* written; the ends of text are among the ids */
    uint64_t kept_bytes;             /* of the written documents, unpacked */
    uint64_t short_documents, repeated_documents; /* left out */
    uint32_t files;
    bool failed_writing; /* it was the files of tokens that failed */
} sl_tokenize_report;

/* Writes the ids of all documents, an end of text behind each; of examples marked ids
 * (files/tokens.h) in place of those that do not count. `output` need not name the id of the
 * end of text. Equal files for any number of workers. SL_ERROR_USAGE: the vocabulary has no end of
 * text, or not the one that is asked for. */
sl_status sl_tokenize_run(const sl_tokenize_args *args, const sl_vocabulary *vocabulary,
                          const sl_token_writer_args *output, sl_tokenize_report *report);

/* Learns a vocabulary of at most `token_count` tokens from all documents: the bytes, what
 * sl_learn_merges finds, and end of text last. SL_ERROR_USAGE: token_count is below 257. */
sl_status sl_tokenize_learn(const sl_tokenize_args *args, uint32_t token_count,
                            sl_vocabulary **out_vocabulary);

/* Receives text; anything but SL_OK ends the decoding. */
typedef sl_status (*sl_tokenize_sink)(void *user, const char *text, uint64_t bytes);

typedef struct sl_tokenize_decode_args {
    const char *const *paths; /* [path_count] of token files */
    uint32_t path_count;
    const sl_vocabulary *vocabulary;
    int32_t end_of_text; /* what stands behind documents; -1: the vocabulary's */
} sl_tokenize_decode_args;

/* Gives the text of token files: between documents "<|endoftext|>", behind the last one nothing.
 * SL_ERROR_DATA: an id is not of the vocabulary, or a file is text. SL_ERROR_USAGE: the
 * description of a file names another tokenizer. */
sl_status sl_tokenize_decode(const sl_tokenize_decode_args *args, sl_tokenize_sink sink,
                             void *user);

#endif
