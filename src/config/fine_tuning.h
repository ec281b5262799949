/* Options of examples to fine-tune on, and how long a run is: what they mean together. */
#ifndef SL_CONFIG_FINE_TUNING_H
#define SL_CONFIG_FINE_TUNING_H

#include "config.h"

/* Checks the options of examples, and fills in what follows from them: documents apart where
 * examples share rows, and in a new run rows in the order shuffle. SL_ERROR_USAGE. */
sl_status sl_fine_tuning_check(sl_config *config);

/* At most one of --steps, --epochs and --tokens is given; with epochs rows come in an order that
 * has epochs, which a new run chooses and a run that goes on has. SL_ERROR_USAGE. */
sl_status sl_run_length_check(sl_config *config);

/* True if --epochs or --tokens says how long the run is, so that --steps is not known before
 * sl_run_length_settle. */
bool sl_run_length_is_open(const sl_config *config);

/* What the length of a run is counted in. */
typedef struct sl_run_rows {
    uint64_t of_step;               /* from now on */
    uint64_t of_epoch;              /* 0: not known */
    uint64_t done_steps, done_rows; /* before a run that goes on; their rows may be other ones */
} sl_run_rows;

/* Replaces --steps by what --epochs or --tokens come to: the steps that are done, and those that
 * read the rows that are left. Then the schedule is checked, which waits for it; the learning rate
 * falls until the last step unless --lr-decay-steps is given. SL_ERROR_USAGE. */
sl_status sl_run_length_settle(sl_config *config, const sl_run_rows *rows);

#endif
