/* What a person sees of a run: one live line on a terminal, plain lines elsewhere. */
#ifndef SL_CLI_PROGRESS_H
#define SL_CLI_PROGRESS_H

#include "train/loop.h"

typedef struct sl_progress {
    bool is_quiet, is_live;
    uint64_t last_step;         /* of the run */
    double started, shown;      /* seconds */
    double begun, within_shown; /* the step that runs, and the last line from within it */
    uint64_t first_step;        /* before the first step of this run */
    uint64_t done_step;         /* the last one that is over */
    bool is_line_open;          /* a live line stands unfinished */
} sl_progress;

void sl_progress_start(sl_progress *progress, const sl_trainer *trainer);

/* The callbacks of a loop; `progress` must outlive it. */
sl_loop_events sl_progress_events(sl_progress *progress);

/* The callback of an engine within a step; `progress` must outlive it. */
sl_engine_progress sl_progress_within_step(sl_progress *progress);

/* Ends a live line, so that other text starts on a line of its own. */
void sl_progress_break(sl_progress *progress);

#endif
