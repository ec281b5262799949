/* Loss over the rows of token files, one after the other. */
#ifndef SL_TRAIN_EVALUATE_H
#define SL_TRAIN_EVALUATE_H

#include <signal.h>

#include "checkpoint/model_directory.h"
#include "config/config.h"
#include "session/ranks.h"
#include "session/runtime.h"
#include "text_count.h"
#include "train/data/data_loader.h"
#include "train/watch/report.h"

/* The rows of a data set that an evaluation reads: micro-batches from the first row on, then the
 * rows that are left, which have a program of their own. */
typedef struct sl_evaluate_range {
    uint32_t rows_per_batch, tail_rows;
    uint64_t micro_batch_count; /* the rows that are left not counted */
} sl_evaluate_range;

/* All `row_count` rows, or the first `limit` micro-batches (SL_CONFIG_UNSET: all). */
sl_evaluate_range sl_evaluate_cover(uint64_t row_count, uint32_t rows_per_batch, uint64_t limit);

/* Who watches an evaluation, and may end it. Of several ranks all have a `stop`, or none. */
typedef struct sl_eval_watch {
    const volatile sig_atomic_t *stop; /* not 0: it ends after a micro-batch; NULL: it never does */
    /* Called when the model is loaded and nothing is done yet, then after each micro-batch. */
    void (*passed)(void *user, const sl_eval_progress *progress); /* or NULL */
    void *user;
} sl_eval_watch;

/* For what evaluates. */
void sl_eval_watch_pass(const sl_eval_watch *watch, const sl_eval_progress *progress);

/* Whether the evaluation ends here: of all ranks as soon as one of them is asked to stop. All ranks
 * call it. */
sl_status sl_eval_watch_vote(const sl_eval_watch *watch, const sl_ranks *ranks, bool *out_stops);

/* What is evaluated. */
typedef struct sl_eval_data {
    const sl_tokens *tokens;
    sl_data_part part;   /* of them */
    int32_t end_of_text; /* -1: not known */
} sl_eval_data;

/* A pass over a range. */
typedef struct sl_evaluate_args {
    sl_runtime *runtime;
    uint32_t plan_index, tail_plan_index; /* the loss of a micro-batch; of the rows that are left */
    const sl_data_loader *loader;
    sl_evaluate_range range;
    sl_eval_watch watch;
    const sl_ranks
        *ranks; /* of the run: those with rows of their own share out the micro-batches */
} sl_evaluate_args;

/* Fills in loss and perplexity of what was covered; if it was stopped, that is a part. */
sl_status sl_evaluate_pass(const sl_evaluate_args *args, sl_eval_report *report);

/* A model that is evaluated without being trained, by one process or by ranks; borrowed. */
typedef struct sl_eval_model {
    sl_config *config;                /* checked; the row length is filled in */
    const sl_model_directory *source; /* of the weights */
    sl_ranks *ranks;                  /* that hold the model; its world is NULL: this process */
    sl_eval_watch watch;
} sl_eval_model;

/* Rows of a model that is not trained. */
typedef struct sl_evaluate_rows {
    uint64_t count, limit; /* rows; micro-batches at most (SL_CONFIG_UNSET: all) */
    uint32_t seq;          /* tokens of a row */
    bool by_token;         /* the loss of each token, and not their sum */
} sl_evaluate_rows;

/* Plans for these rows and opens an engine with the model's weights; program 0 is of a
 * micro-batch, 1 of the rows that are left. SL_ERROR_FIT. */
sl_status sl_evaluate_open(const sl_eval_model *model, const sl_evaluate_rows *rows,
                           sl_runtime **out_runtime);

/* The model over every whole row of --data, or of the --share of --split; with --overlap over
 * windows; with --eval-iters over the first micro-batches of these. All ranks get the same report.
 * *out_text: what text the counted tokens are, of data that are text alone, else it stays.
 * SL_ERROR_FIT. */
sl_status sl_evaluate_run(const sl_eval_model *model, sl_eval_report *out_report,
                          sl_text_count *out_text);

#endif
