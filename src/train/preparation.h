/* Prepares a trainer: options are checked, files opened, and the shape of the model is found. The
 * table in preparation.c has the steps in their order, each with what it needs. */
#ifndef SL_TRAIN_PREPARATION_H
#define SL_TRAIN_PREPARATION_H

#include "trainer.h"

/* `trainer` is zero, or has met other ranks. Takes over the options of a checkpoint if the run goes
 * on from one, checks the configuration of train or plan, and fills in *trainer, without taking
 * memory for the model. On failure too the caller closes it. */
sl_status sl_preparation_run(sl_config *config, sl_config_command command, sl_trainer *trainer);

/* Makes *out_trainer what `trainer`, prepared for PLAN, would be with `config`, a changed copy of
 * its configuration: to search with, with the same files and model, which it borrows. It is not to
 * be closed. SL_ERROR_USAGE: the options do not go together. */
sl_status sl_preparation_vary(const sl_trainer *trainer, sl_config *config,
                              sl_trainer *out_trainer);

#endif
