/* What the lanes did in training steps, and when, as a file for trace viewers: a JSON array in the
 * Trace Event Format that Chrome and Perfetto read. One row a lane; an op is named after its kind
 * and what it writes, a copy after its chunk or value. A counter for each tier shows the bytes that
 * the plan has alive there as ops of the compute lane begin, by kind, and between two of them what
 * is fuller at ticks of other lanes: its highest value is the peak. Of a loop the first two and the
 * last two repetitions are drawn, with a note between them of how many are not.
 */
#ifndef SL_ENGINE_TIMELINE_H
#define SL_ENGINE_TIMELINE_H

#include <stdio.h>

#include "sluice/engine.h"

/* The first bytes of each. */
#define SL_TIMELINE_START "[{\"name\":\"process_name\""

typedef struct sl_timeline sl_timeline;

/* Begins the file of the training step, plan 0 of an engine; file and its `path`, for messages, are
 * borrowed. Takes all memory it will need. SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_timeline_open(FILE *file, const char *path, const sl_engine_plan *step,
                           sl_timeline **out_timeline);

/* Records what the engine reports; valid as long as the timeline. NULL gives NULL. */
const sl_engine_observer *sl_timeline_observer(const sl_timeline *timeline);

/* Writes what was recorded since the last call. `step` is the latest; it was called for each
 * before, from 1 on or later, and perhaps again. One thread calls it, beside the lanes. A file that
 * has grown to its limit takes no more; that is said once. NULL is fine. SL_ERROR_IO. */
sl_status sl_timeline_write(sl_timeline *timeline, uint64_t step);

/* Ends the file; nothing is written to it after. SL_ERROR_IO. */
sl_status sl_timeline_finish(sl_timeline *timeline);

/* True if it shows no step. */
bool sl_timeline_is_empty(const sl_timeline *timeline);

/* No lane may record any more. NULL is fine. */
void sl_timeline_close(sl_timeline *timeline);

#endif
