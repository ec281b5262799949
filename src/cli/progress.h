/* What a person sees of a run: one live line on a terminal, as wide as that is, plain lines
 * elsewhere. A sink (train/watch/sink.h) that prints to standard output. */
#ifndef SL_CLI_PROGRESS_H
#define SL_CLI_PROGRESS_H

#include "base/heartbeat.h"
#include "config/config.h"
#include "engine/engine.h"
#include "train/watch/sink.h"

typedef struct sl_progress {
    bool is_quiet, is_live;
    uint64_t log_every;             /* steps from one plain line to the next; SL_CONFIG_UNSET */
    uint64_t first_step, last_step; /* of this run */
    uint64_t done_step;             /* the last one that is over */
    uint64_t skipped;               /* of this run */
    double started, shown;          /* seconds */
    double begun, within_shown;     /* the step or the evaluation that runs, and its last line */
    double ms, tokens;              /* of the steps since the last line */
    uint64_t steps;                 /* so many */
    double save_begun;              /* seconds; of the save that runs */
    bool saves, is_save_shown;      /* a save runs; its line was printed */
    sl_heartbeat before_save;       /* the listener that is called too while a save runs */
} sl_progress;

/* Adds it to the sinks of a run; `progress` must outlive them. */
void sl_progress_listen(sl_progress *progress, const sl_config *config, sl_sinks *sinks);

/* The callback of an engine within a step; `progress` must outlive it. */
sl_engine_progress sl_progress_within_step(sl_progress *progress);

#endif
