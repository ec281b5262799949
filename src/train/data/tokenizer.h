/* How text becomes ids, and whether that is known of a model: text given to a model that was
 * trained on another vocabulary trains, prints and measures garbage without any other sign. */
#ifndef SL_TRAIN_TOKENIZER_H
#define SL_TRAIN_TOKENIZER_H

#include "config/config.h"
#include "files/tokens.h"
#include "origin.h"
#include "text/vocabulary.h"

typedef struct sl_tokenizer_question {
    const char *model;     /* the directory that the weights are of; NULL: a new model */
    const char *recorded;  /* what its checkpoint says; NULL: nothing */
    const char *directory; /* where a vocabulary of the model may lie; NULL: nowhere */
    const sl_model_shape *shape;
    bool has_text;    /* text is read or written */
    bool has_ids;     /* files of tokens are read */
    sl_origin origin; /* what the descriptions of these files say */
} sl_tokenizer_question;

/* Notes whether files hold text or tokens, and which tokenizer made them; NULL is fine. Statuses of
 * sl_origin_look. */
sl_status sl_tokenizer_look(const sl_tokens *tokens, sl_tokenizer_question *question);

/* Opens the vocabulary: of the directory that was given, else the model's own. NULL where it is
 * bytes, or not known. Needs no shape. SL_ERROR_MISSING, SL_ERROR_DATA: it cannot be read. */
sl_status sl_tokenizer_open(const sl_config *config, const sl_tokenizer_question *question,
                            sl_vocabulary **out_vocabulary);

/* Writes the tokenizer into the configuration: the one that was given, else the model's, else
 * "byte" if the files of tokens name it, else "byte" for a new model that reads text alone;
 * otherwise it stays "auto". Warns of ids that bytes leave idle. *vocabulary is what
 * sl_tokenizer_open gave; one that was merely found, has more tokens than the model has ids and is
 * not needed is dropped with a warning. SL_ERROR_USAGE: text, and the tokenizer is not known, is
 * another one than the checkpoint's, has more tokens than the model has ids, or cannot be used by
 * this version; files of tokens were made with another one than was given or the checkpoint has. */
sl_status sl_tokenizer_resolve(sl_config *config, const sl_tokenizer_question *question,
                               sl_vocabulary **vocabulary);

/* The id between documents: that of --end-of-text, else the tokenizer's, else what the files of
 * tokens say; -1: not known. */
int32_t sl_tokenizer_end_of_text(const sl_config *config, const sl_origin *origin,
                                 const sl_vocabulary *vocabulary);

#endif
