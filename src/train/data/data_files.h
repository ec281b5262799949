/* The files of --data or --eval-data: opened as they are, then all of them as ids, then cut into
 * the parts of the run from which rows come. */
#ifndef SL_TRAIN_DATA_FILES_H
#define SL_TRAIN_DATA_FILES_H

#include "config/config.h"
#include "files/file_list.h"
#include "files/tokens.h"
#include "text/example.h"
#include "text/vocabulary.h"

/* What the items of a list stand for. Zeros: closed. */
typedef struct sl_data_files {
    const sl_config_list *given; /* borrowed */
    const sl_example_form *form; /* what the files' objects hold; NULL: they are no examples */
    sl_file_list paths;
    uint32_t *items;          /* [paths.count]: the index of the item that a file is of */
    const sl_file_list *made; /* what sl_data_files_encode gave another rank for the same files, to
                                 be taken by this one; borrowed. NULL: ids are made or found here */
} sl_data_files;

/* Opens the files of a list, those below its directories too (file_list.h); an empty list gives
 * NULL tokens. `form`: all files hold examples; borrowed, or NULL. On failure too the caller closes
 * *out_files. SL_ERROR_USAGE: files of tokens where examples are asked for. */
sl_status sl_data_files_open(const sl_config_list *given, const sl_example_form *form,
                             sl_data_files *out_files, sl_tokens **out_tokens);
void sl_data_files_close(sl_data_files *files);

/* True if sl_data_files_encode has something to do. NULL tokens are fine. */
bool sl_data_files_need_ids(const sl_config *config, const sl_vocabulary *vocabulary,
                            const sl_tokens *tokens);

/* Puts ids in the place of text, of examples with marks (files/tokens.h): with a vocabulary of all
 * text; else bytes, of text that is packed, JSON lines, has documents in its lines or another end
 * of text than the bytes have. They are made with --threads and kept under --cache-dir
 * (token_cache.h); neighbours of text become one file, with weights those of one item. Where it
 * fails, *tokens may be NULL. */
sl_status sl_data_files_encode(const sl_config *config, const sl_vocabulary *vocabulary,
                               sl_data_files *files, sl_tokens **tokens);

/* Tokens of a run that belong together: of all files, or with weights of one item, and of these the
 * documents of one share of --split. */
typedef struct sl_data_part {
    uint64_t first_token, token_count;
    uint64_t share; /* 2^-32 of the rows that no part before has; the last part has them all */
} sl_data_part;

typedef struct sl_data_parts {
    sl_data_part *items; /* released by free() */
    uint32_t count;
} sl_data_parts;

typedef struct sl_data_cut {
    const sl_tokens *tokens;         /* after sl_data_files_encode */
    const sl_data_files *files;      /* of which they are */
    double shares[SL_CONFIG_SHARES]; /* of the documents; together 1 */
    int32_t end_of_text;             /* -1: not known */
} sl_data_cut;

/* "training", "validation" or "test". */
const char *sl_data_files_name(int share);

/* Cuts the documents of each part by the shares, at the nearest whole ones; a share of 0 has no
 * parts. The files are searched for documents only where more than one share is above 0.
 * SL_ERROR_DATA: no document is in a share. Statuses of sl_token_documents_open. */
sl_status sl_data_files_cut(const sl_data_cut *cut, sl_data_parts out_parts[SL_CONFIG_SHARES]);

#endif
