/* What the readers of vocab.json with merges.txt and of tokenizer.json have in common: the tokens
 * of one object, then merges of two of them. */
#ifndef SL_TEXT_VOCABULARY_READER_H
#define SL_TEXT_VOCABULARY_READER_H

#include <jansson.h>

#include "byte_map.h"
#include "files/files.h"
#include "vocabulary.h"

enum { SL_VOCABULARY_TOKEN_BYTES_MAX = 1 << 20 };

typedef struct sl_vocabulary_reader {
    const char *path; /* for messages */
    sl_byte_map map;
    sl_token_bytes *tokens; /* [token_count] */
    uint32_t token_count;
    char *text; /* the bytes of all tokens */
    uint64_t text_used, text_room;
    sl_vocabulary *dictionary; /* the tokens, without merges */
    sl_merge *merges;          /* the caller makes room for them */
    uint32_t merge_count;
} sl_vocabulary_reader;

#define SL_VOCABULARY_REFUSE(self, format, ...)                                                    \
    SL_FAIL(SL_ERROR_DATA, "%s: " format, sl_files_show((self)->path).text, __VA_ARGS__)

/* Takes the tokens of an object, and of an array what it adds to them; NULL: nothing. */
sl_status sl_vocabulary_reader_take_tokens(sl_vocabulary_reader *self, const json_t *vocab,
                                           const json_t *added);

/* Takes the next merge: two tokens, or a line of two. `scratch` has room for the bytes of both. */
sl_status sl_vocabulary_reader_take_merge(sl_vocabulary_reader *self, sl_token_bytes left,
                                          sl_token_bytes right, char *scratch);
sl_status sl_vocabulary_reader_take_line(sl_vocabulary_reader *self, const char *line,
                                         uint64_t bytes, char *scratch);

/* Builds the vocabulary. `end_of_text`: an id, or SL_VOCABULARY_NONE. */
sl_status sl_vocabulary_reader_finish(sl_vocabulary_reader *self, int32_t end_of_text,
                                      sl_vocabulary **out_vocabulary);

void sl_vocabulary_reader_close(sl_vocabulary_reader *self);

#endif
