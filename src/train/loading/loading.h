/* Loads a model that is not trained: its weights into an engine of their own, and how text becomes
 * its ids. Starts what loads a checkpoint over if the checkpoint proves to be damaged. Several
 * ranks hold the model together, each a part of it, as they do in training. */
#ifndef SL_TRAIN_LOADING_H
#define SL_TRAIN_LOADING_H

#include "checkpoint/model_directory.h"
#include "common_inputs.h"
#include "config/config.h"
#include "search/search.h"
#include "session/ranks.h"
#include "session/runtime.h"
#include "text/vocabulary.h"

/* Calls `work`, which opens and loads a checkpoint by the configuration. If it returns
 * SL_ERROR_DAMAGED, warns and calls it once more with the configuration as it was at first, but
 * with checks_checkpoints set: each checkpoint is then read in full before it is taken, so that the
 * newest whole one is loaded. On several ranks `work` must return SL_ERROR_DAMAGED on all of them
 * or none. */
sl_status sl_loading_run(sl_config *config, sl_status (*work)(sl_config *config, void *user),
                         void *user);

/* Waits for the ranks that this process was started with, checks the options of `command`, and
 * forms the groups that the options ask for. A process that is alone has `out_ranks->world` NULL,
 * and holds the whole model whatever --tp, --pp and --dp say. On failure too the caller calls
 * sl_ranks_leave and sl_ranks_close. */
sl_status sl_loading_meet_ranks(sl_config *config, sl_config_command command,
                                const volatile sig_atomic_t *stop, sl_ranks *out_ranks);

/* Ends what sl_loading_meet_ranks began, also if that failed: tells the other ranks if `status` is
 * a failure, closes the world, and returns `status` with its message. */
sl_status sl_loading_leave_ranks(sl_ranks *ranks, sl_status status);

/* Refuses ranks that have other weights, data or tokenizers, naming what differs. */
sl_status sl_loading_compare(const sl_ranks *ranks, const sl_common_inputs_args *inputs);

/* Likewise of bytes that have no file, such as a prompt; `name` is what they are. */
sl_status sl_loading_compare_bytes(const sl_ranks *ranks, const char *name, const void *bytes,
                                   uint64_t count);

/* A plan that is to be opened. */
typedef struct sl_loading {
    sl_search search; /* the caller may change the task in between, alike on all ranks */
    const sl_config *config;
    sl_ranks *ranks;
    bool holds_free_memory;
} sl_loading;

/* Begins the search of a plan of `work`, of one process or of one rank; `config` and `ranks` are
 * borrowed. After SL_OK sl_loading_open has to be called next, by the same thread: until then no
 * other plan of this process is made with what memory is free. */
sl_status sl_loading_begin(const sl_config *config, sl_work work, const sl_model_shape *shape,
                           sl_ranks *ranks, sl_loading *out_loading);

/* Finds the plan, opens an engine and loads the weights. All ranks call it, and leave it together:
 * SL_ERROR_STOPPED on all of them if one was asked to stop. SL_ERROR_FIT, and what loading returns.
 */
sl_status sl_loading_open(sl_loading *loading, const sl_model_directory *source,
                          sl_runtime **out_runtime);

/* The vocabulary by which text becomes ids of the model, and ids text. SL_ERROR_USAGE: it is not
 * known. */
sl_status sl_loading_open_vocabulary(sl_config *config, const sl_model_directory *source,
                                     sl_vocabulary **out_vocabulary);

/* Where --end-of-text is not given, takes the id that the run of a checkpoint was given. */
void sl_loading_keep_end(sl_config *config, const sl_model_directory *source);

#endif
