/* What any text of a model has in common: a prompt becomes ids, and an id that was drawn bytes. */
#ifndef SL_TRAIN_TOKEN_TEXT_H
#define SL_TRAIN_TOKEN_TEXT_H

#include "text/ids.h"
#include "text/vocabulary.h"

enum { SL_TOKEN_TEXT_BYTES = 16 };

/* Sets `ids` to those of a prompt; an empty one is the end of a text before. SL_ERROR_USAGE: a
 * token is beyond the model's `vocab` ids, or the prompt is empty and the vocabulary has no end of
 * text. `option` is what messages call the prompt. */
sl_status sl_prompt_encode(const sl_vocabulary *vocabulary, uint32_t vocab, const char *option,
                           const char *text, uint64_t bytes, sl_ids *ids);

/* The bytes of an id; of one that the vocabulary does not know "<id>", in `room`. */
sl_token_bytes sl_token_text(const sl_vocabulary *vocabulary, uint32_t id,
                             char room[SL_TOKEN_TEXT_BYTES]);

#endif
