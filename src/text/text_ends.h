/* Which ids end a text, as a directory of Hugging Face says: the "eos_token_id" of its
 * generation_config.json, or else of its config.json. Models that answer have several. */
#ifndef SL_TEXT_TEXT_ENDS_H
#define SL_TEXT_TEXT_ENDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define SL_TEXT_ENDS_KEY "eos_token_id"

enum { SL_TEXT_ENDS_MAX = 16 };

typedef struct sl_text_ends {
    uint32_t count;
    uint32_t ids[SL_TEXT_ENDS_MAX]; /* [count], each once */
} sl_text_ends;

/* Adds those of a directory, whose model has `vocab` ids. A directory that says nothing adds
 * nothing. SL_ERROR_DATA: something else than ids, or more than SL_TEXT_ENDS_MAX in all. */
sl_status sl_text_ends_read(const char *directory, uint32_t vocab, sl_text_ends *ends);

/* The same of the object of such a file; `path` is for messages. */
sl_status sl_text_ends_take(const char *path, const json_t *object, uint32_t vocab,
                            sl_text_ends *ends);

bool sl_text_ends_has(const sl_text_ends *ends, uint32_t id);

/* As a file has them: one id as a number, several as a list. NULL: no memory. */
json_t *sl_text_ends_pack(const sl_text_ends *ends);

#endif
