/* plan --compare: several policies, budgets or settings in one table. */
#ifndef SL_CLI_COMPARE_H
#define SL_CLI_COMPARE_H

#include "train/trainer.h"

/* Plans each item of --compare beside the other options of a prepared trainer and prints a table,
 * or with --json an array of objects. SL_ERROR_USAGE names an item that means nothing. */
sl_status sl_compare_print(const sl_trainer *trainer);

#endif
