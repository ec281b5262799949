/* Loads a model that is not trained: its weights into an engine of their own, and how text becomes
 * its ids. Starts what loads a checkpoint over if the checkpoint proves to be damaged. */
#ifndef SL_TRAIN_LOADING_H
#define SL_TRAIN_LOADING_H

#include "checkpoint/model_directory.h"
#include "config/config.h"
#include "search/search.h"
#include "session/runtime.h"
#include "text/vocabulary.h"

/* Calls `work`, which opens and loads a checkpoint by the configuration. If it returns
 * SL_ERROR_DAMAGED, warns and calls it once more with the configuration as it was at first, but
 * with checks_checkpoints set: each checkpoint is then read in full before it is taken, so that the
 * newest whole one is loaded. On several ranks `work` must return SL_ERROR_DAMAGED on all of them
 * or none. */
sl_status sl_loading_run(sl_config *config, sl_status (*work)(sl_config *config, void *user),
                         void *user);

/* A plan that is to be opened. */
typedef struct sl_loading {
    sl_search search; /* the caller may change the task in between */
    bool holds_free_memory;
} sl_loading;

/* Begins the search of a plan of `work`. After SL_OK sl_loading_open has to be called next, by the
 * same thread: until then no other plan of this process is made with what memory is free. */
sl_status sl_loading_begin(const sl_config *config, sl_work work, const sl_model_shape *shape,
                           sl_loading *out_loading);

/* Finds the plan, opens an engine and loads the weights. SL_ERROR_FIT, and what loading returns. */
sl_status sl_loading_open(sl_loading *loading, const sl_model_directory *source,
                          sl_runtime **out_runtime);

/* The vocabulary by which text becomes ids of the model, and ids text. SL_ERROR_USAGE: it is not
 * known. */
sl_status sl_loading_open_vocabulary(sl_config *config, const sl_model_directory *source,
                                     sl_vocabulary **out_vocabulary);

#endif
