/* What a tokenizer.json does with a text before tokens are merged, where that is more than GPT-2
 * does:
 *
 *   text --> added tokens that are found as they stand      --> ids
 *        \-> the rest, normalized if it asks for that
 *              --> added tokens of normalized text          --> ids
 *              \-> the rest, cut by each pattern in turn    --> words
 */
#ifndef SL_TEXT_PRETOKENIZER_H
#define SL_TEXT_PRETOKENIZER_H

#include "added_tokens.h"
#include "base/hash.h"
#include "pattern.h"

enum { SL_PRETOKENIZER_PATTERNS_MAX = 8 };

/* Filled by the reader of tokenizer.json; then any number of threads may share one. */
typedef struct sl_pretokenizer {
    sl_pattern *patterns[SL_PRETOKENIZER_PATTERNS_MAX];
    uint32_t pattern_count;
    bool ignores_merges; /* a word that is a token is that token, whatever merges say */
    bool is_nfc;
    bool allows_cuts;               /* of texts by sl_words_last_cut */
    sl_added_tokens *added;         /* or NULL */
    sl_added_tokens *added_to_form; /* to normalized text, or NULL */
    /* The texts of tokenizer.json and, or NULL, of tokenizer_config.json, as they were read. */
    char *json, *config;
} sl_pretokenizer;

/* Adds all that changes ids to a hash. */
void sl_pretokenizer_hash(const sl_pretokenizer *pretokenizer, sl_hash_stream *stream);

/* Closes and frees all of it. NULL is fine. */
void sl_pretokenizer_close(sl_pretokenizer *pretokenizer);

/* The pieces of one text after the other, for one thread. */
typedef struct sl_pieces sl_pieces;

/* A token, or a word to be merged. */
typedef struct sl_text_piece {
    const char *text; /* NULL: it is the token `id` */
    uint64_t bytes;
    uint32_t id;
} sl_text_piece;

/* Borrows the pretokenizer. */
sl_status sl_pieces_open(const sl_pretokenizer *pretokenizer, sl_pieces **out_pieces);

/* NULL is fine. */
void sl_pieces_close(sl_pieces *pieces);

/* Begins with a text, which is borrowed until its last piece. */
void sl_pieces_start(sl_pieces *pieces, const char *text, uint64_t bytes);

/* Gives the next piece, whose text lives until the next call; false at the end. SL_ERROR_DATA: a
 * pattern takes too many steps. */
sl_status sl_pieces_next(sl_pieces *pieces, sl_text_piece *out_piece, bool *out_is_there);

#endif
