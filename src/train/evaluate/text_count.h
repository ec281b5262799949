/* How much text stands behind tokens: losses per byte and per character compare models whose
 * vocabularies differ. */
#ifndef SL_TRAIN_TEXT_COUNT_H
#define SL_TRAIN_TEXT_COUNT_H

#include "files/tokens.h"
#include "text/vocabulary.h"

typedef struct sl_text_count {
    uint64_t bytes;      /* 0: it is not known what text the tokens are */
    uint64_t characters; /* bytes that begin one in UTF-8 */
} sl_text_count;

/* Counts tokens [first, first + count). An end of text is no byte. */
sl_status sl_text_count_tokens(const sl_tokens *tokens, uint64_t first, uint64_t count,
                               const sl_vocabulary *vocabulary, sl_text_count *out_count);

#endif
