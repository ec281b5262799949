/* Loss over the rows of token files, one after the other. */
#ifndef SL_TRAIN_EVALUATE_H
#define SL_TRAIN_EVALUATE_H

#include <signal.h>

#include "data_loader.h"
#include "log_json.h"
#include "session/config/config.h"
#include "session/search/search.h"
#include "session/session.h"

/* Micro-batches of rows that follow each other. */
typedef struct sl_evaluate_range {
    uint32_t plan_index; /* of a loss program with `rows_per_batch` rows */
    uint32_t rows_per_batch;
    uint64_t first_row, micro_batch_count;
    const volatile sig_atomic_t *stop; /* not 0: the rest is left out; or NULL */
} sl_evaluate_range;

/* Adds the summed loss of a range of rows to *loss_sum. */
sl_status sl_evaluate_rows(sl_session *session, const sl_data_loader *loader,
                           const sl_evaluate_range *range, double *loss_sum);

/* Fills in loss, perplexity and tokens. */
void sl_evaluate_report(double loss_sum, uint64_t tokens, sl_eval_report *report);

/* The `eval` command: the weights of --checkpoint over every whole row of --data. `config` was
 * checked; its row length is filled in. SL_ERROR_FIT fills *out_refusal. */
sl_status sl_evaluate_run(sl_config *config, sl_eval_report *out_report, sl_refusal *out_refusal);

#endif
