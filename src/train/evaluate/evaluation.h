/* What `sluice eval` does: the loss of a checkpoint over files, or how many last words it knows. */
#ifndef SL_TRAIN_EVALUATION_H
#define SL_TRAIN_EVALUATION_H

#include "evaluate.h"
#include "last_word.h"

typedef struct sl_evaluation {
    bool of_words; /* --last-word */
    sl_eval_report rows;
    sl_text_count text; /* what the tokens of `rows` are, of data that are text alone */
    sl_word_report words;
} sl_evaluation;

/* Evaluates --checkpoint on --data, together with the other ranks, who get the same figures; a
 * checkpoint that is damaged gives way to an older one (sl_loading_run). `config` was checked.
 * SL_ERROR_FIT, and what reading model and data returns. */
sl_status sl_evaluation_run(sl_config *config, sl_ranks *ranks, const sl_eval_watch *watch,
                            sl_evaluation *out_evaluation);

/* The figures as a JSON object in one line, without a line end; a number that is not finite is
 * null. The caller frees the text. SL_ERROR_SYSTEM: no memory. */
sl_status sl_evaluation_format(const sl_evaluation *evaluation, char **out_text);

/* The loss of a token spread over `count` things that the tokens stand for; 0 where count is 0. */
double sl_evaluation_spread(const sl_eval_report *report, uint64_t count);

#endif
