/* Tokens that are found in a text as they stand, before the text is cut into words: the
 * "added_tokens" of a tokenizer.json. Of those that start first, the longest is found. */
#ifndef SL_TEXT_ADDED_TOKENS_H
#define SL_TEXT_ADDED_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

typedef struct sl_added_token {
    const char *text; /* NUL-terminated, not empty */
    uint32_t id;
} sl_added_token;

/* A set of tokens, for any number of threads. */
typedef struct sl_added_tokens sl_added_tokens;

/* Copies the tokens. SL_ERROR_DATA: two are the same. */
sl_status sl_added_tokens_open(const sl_added_token *tokens, uint32_t count,
                               sl_added_tokens **out_set);

/* Adds the tokens to a hash. NULL is fine: there are none. */
void sl_added_tokens_hash(const sl_added_tokens *set, sl_hash_stream *stream);

/* NULL is fine. */
void sl_added_tokens_close(sl_added_tokens *set);

/* A walk over a text: parts without a token, and the tokens between. */
typedef struct sl_added_walk {
    const char *text;
    uint64_t bytes, at;
    uint64_t token_end; /* of a token that starts at `at`; 0: none is found yet */
    uint32_t token;
} sl_added_walk;

typedef struct sl_added_part {
    const char *text; /* NULL: it is a token */
    uint64_t bytes;
    uint32_t id;
} sl_added_part;

/* Gives the next part or token; false at the end. `set` NULL: the text is one part. */
bool sl_added_tokens_next(const sl_added_tokens *set, sl_added_walk *walk, sl_added_part *out_part);

#endif
