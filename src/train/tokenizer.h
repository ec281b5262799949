/* How text becomes ids, and whether that is known of a model: bytes given to a model that was
 * trained on another vocabulary train, print and measure garbage without any other sign. */
#ifndef SL_TRAIN_TOKENIZER_H
#define SL_TRAIN_TOKENIZER_H

#include "files/tokens.h"
#include "session/config/config.h"

typedef struct sl_tokenizer_question {
    const char *model;    /* the directory that the weights are of; NULL: a new model */
    const char *recorded; /* what its checkpoint says; NULL: nothing */
    const sl_gpt2_shape *shape;
    bool has_text; /* text is read or written */
    bool has_ids;  /* files of tokens are read, which do not say whose they are */
} sl_tokenizer_question;

/* Notes what files hold; NULL is fine. */
void sl_tokenizer_look(const sl_tokens *tokens, sl_tokenizer_question *question);

/* Writes the tokenizer into the configuration: the one that was given, else the checkpoint's, else
 * byte for a new model that reads text alone; where none of these says one it stays "auto". Warns
 * of ids that bytes leave idle. SL_ERROR_USAGE: text, and the tokenizer is not known, is another
 * one than the checkpoint's, or cannot be used by this version. */
sl_status sl_tokenizer_resolve(sl_config *config, const sl_tokenizer_question *question);

#endif
