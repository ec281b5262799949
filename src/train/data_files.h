/* The files of --data or --eval-data: opened as they are, then all of them as ids, then cut into
 * the parts of the run from which rows come. */
#ifndef SL_TRAIN_DATA_FILES_H
#define SL_TRAIN_DATA_FILES_H

#include "files/tokens.h"
#include "session/config/config.h"
#include "text/vocabulary.h"

/* Opens the items of a list, without their weights; an empty list gives NULL. */
sl_status sl_data_files_open(const sl_config_list *items, sl_tokens **out_tokens);

/* True if sl_data_files_encode has something to do. NULL tokens are fine. */
bool sl_data_files_need_ids(const sl_config *config, const sl_vocabulary *vocabulary,
                            const sl_tokens *tokens);

/* Puts ids in the place of text: with a vocabulary of all text; else bytes, of text that is packed,
 * JSON lines, has documents in its lines or another end of text than the bytes have. They are made
 * with --threads and kept under --cache-dir (token_cache.h); without weights neighbours of text
 * become one file. Where it fails, *tokens may be NULL. */
sl_status sl_data_files_encode(const sl_config *config, const sl_config_list *items,
                               const sl_vocabulary *vocabulary, sl_tokens **tokens);

/* Tokens of a run that belong together: of all files, or with weights of one, and of these the
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
    const sl_tokens *tokens;     /* after sl_data_files_encode */
    const sl_config_list *items; /* of which they are */
    double from, to;             /* of the documents, shares of 1 */
    const char *what;            /* "training", for messages */
    int32_t end_of_text;         /* -1: not known */
} sl_data_cut;

/* Cuts; of n documents of a part those from round(from n) to round(to n). SL_ERROR_DATA: no
 * document is in the share. Statuses of sl_token_documents_open. */
sl_status sl_data_files_cut(const sl_data_cut *cut, sl_data_parts *out_parts);

#endif
