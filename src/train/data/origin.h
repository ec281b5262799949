/* Which tokenizer made the ids in files of tokens, as far as the files are described
 * (files/token_description.h), and whether all their ids are below the vocabulary of a model. */
#ifndef SL_TRAIN_ORIGIN_H
#define SL_TRAIN_ORIGIN_H

#include <stdbool.h>

#include "files/tokens.h"

enum { SL_ORIGIN_IDLE_TOLD = 10 }; /* more than a tenth of a vocabulary that idles is told */

typedef struct sl_origin {
    bool is_described;                /* at least one file has a description */
    bool has_unknown;                 /* at least one file of tokens has none */
    sl_token_description description; /* of the first described file; the others name the same
                                         tokenizer */
    sl_shown path;                    /* of that file */
} sl_origin;

/* Adds what the descriptions of the files say; NULL tokens are fine. SL_ERROR_USAGE: two files were
 * made with different tokenizers. */
sl_status sl_origin_look(const sl_tokens *tokens, sl_origin *origin);

/* True if there are files of tokens and all of them have a description. */
bool sl_origin_is_known(const sl_origin *origin);

/* Refuses ids that are not below `vocab`, before hours of work. A file whose description has a
 * vocabulary of at most `vocab` is not read; of the other files at most 4 Mi tokens are read in all
 * (sl_tokens_find_largest). With `tells`, warns if more than a tenth of the vocabulary lies above
 * all ids that were seen. NULL tokens are fine. SL_ERROR_DATA names file, token and id;
 * SL_ERROR_IO. */
sl_status sl_origin_check(const sl_tokens *tokens, uint32_t vocab, bool tells);

#endif
