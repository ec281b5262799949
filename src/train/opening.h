/* From options to an opened trainer whose sinks know of the start. */
#ifndef SL_TRAIN_OPENING_H
#define SL_TRAIN_OPENING_H

#include "trainer.h"

/* Prepares and opens a trainer that is zero but for its inputs, or has met other ranks. If the
 * checkpoint that it loads is damaged, starts over with the newest whole one (loading.h). `within`
 * (or NULL) hears of the progress within a step; the engine copies it. On failure too the caller
 * closes the trainer. */
sl_status sl_opening_run(sl_config *config, sl_trainer *trainer, const sl_engine_progress *within);

/* Tells the sinks of the start: options, plan, and the steps that are to come. */
sl_status sl_opening_tell(sl_trainer *trainer);

#endif
