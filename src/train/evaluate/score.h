/* The loss of each token, for measures that do not count all tokens alike: windows that overlap,
 * last words. Rows of tokens come from the caller, and what each token cost goes back to it. */
#ifndef SL_TRAIN_SCORE_H
#define SL_TRAIN_SCORE_H

#include "checkpoint/model_directory.h"
#include "config/config.h"
#include "evaluate.h"

typedef struct sl_token_score {
    double loss;       /* -log of the target's probability */
    bool is_likeliest; /* no other id has a larger logit */
} sl_token_score;

typedef struct sl_score_rows {
    uint64_t count; /* at least 1 */
    uint32_t seq;   /* T: tokens of a row, 1 to the context */
    /* Writes the tokens of a row and for each the one behind it, [T] both. */
    sl_status (*fill)(void *user, uint64_t row, int32_t *tokens, int32_t *targets);
    /* Takes the scores of a row, [T], on every rank; rows come in order. */
    void (*take)(void *user, uint64_t row, const sl_token_score *scores);
    /* After the rows of a micro-batch were taken, and once before the first. */
    void (*passed)(void *user, uint64_t row_count);
    void *user;
} sl_score_rows;

/* Rows that --micro-batch and --eval-iters leave of `count`. */
uint64_t sl_score_count_rows(const sl_config *config, uint64_t count);

/* Plans, opens an engine with the model's weights, and scores every row, --micro-batch of them at a
 * time. Of ranks those with rows of their own share the micro-batches out, and all take the scores
 * of every row. If the watch ends it, the rows that are left are not taken. SL_ERROR_FIT. */
sl_status sl_score_run(const sl_eval_model *model, const sl_score_rows *rows);

#endif
