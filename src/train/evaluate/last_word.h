/* Whether a model knows the last word of documents (`eval --last-word`), as LAMBADA asks (Paperno
 * et al. 2016): each document is an object of JSON lines; what stands in front of its last word is
 * read, and every token of the word, with the space before it, must be the likeliest one. */
#ifndef SL_TRAIN_LAST_WORD_H
#define SL_TRAIN_LAST_WORD_H

#include "config/config.h"
#include "evaluate.h"

typedef struct sl_word_report {
    uint64_t step;                        /* of the checkpoint */
    uint64_t document_count, right_count; /* of those that were evaluated */
    bool is_partial;                      /* a signal ended it before all were */
    uint64_t tokens;                      /* of the words */
    double accuracy;                      /* right ones of all documents */
    double perplexity; /* exp of the mean loss of a word, which is the sum over its tokens */
} sl_word_report;

/* The words of --data by a model. SL_ERROR_DATA: a document without two words, one that is no JSON
 * line, none at all. SL_ERROR_FIT. */
sl_status sl_last_word_run(const sl_eval_model *model, sl_word_report *out_report);

#endif
