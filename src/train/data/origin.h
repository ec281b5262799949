/* Which tokenizer made the ids in files of tokens, as far as the files say it
 * (files/token_description.h), and whether a model has all of the ids. */
#ifndef SL_TRAIN_ORIGIN_H
#define SL_TRAIN_ORIGIN_H

#include <stdbool.h>

#include "files/tokens.h"

typedef struct sl_origin {
    bool is_described; /* a file has a description: this one, and all others the same tokenizer */
    bool has_unknown;  /* a file of tokens has none */
    sl_token_description description;
    sl_shown path; /* of the first file that is described */
} sl_origin;

/* Adds what the files say; NULL tokens are fine. SL_ERROR_USAGE: two of them were made with
 * different tokenizers. */
sl_status sl_origin_look(const sl_tokens *tokens, sl_origin *origin);

/* True if every file of tokens says the same tokenizer, and there is one. */
bool sl_origin_is_known(const sl_origin *origin);

/* Refuses ids that a model of `vocab` ids does not have, before hours of work. Where a file says a
 * vocabulary that is no larger, nothing is read; of the other files together at most 4 Mi tokens
 * (sl_tokens_find_largest). With `tells`, a vocabulary of which more than a tenth lies above all
 * ids that were seen is a warning. NULL tokens are fine. SL_ERROR_DATA names file, token and id;
 * SL_ERROR_IO. */
sl_status sl_origin_check(const sl_tokens *tokens, uint32_t vocab, bool tells);

#endif
