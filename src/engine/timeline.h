/* What the lanes did in training steps, and when, as a file for trace viewers: a JSON array in the
 * Trace Event Format that Chrome and Perfetto read. One row a lane; an op is named after its kind
 * and what it writes, a copy after its chunk or value. A counter for each tier shows the bytes that
 * the plan has alive there as ops of the compute lane begin, by kind. Of a loop the first two and
 * the last two repetitions are drawn, with a note between them of how many are not. A file that a
 * killed run left open is read as far as it goes.
 */
#ifndef SL_ENGINE_TIMELINE_H
#define SL_ENGINE_TIMELINE_H

#include "sluice/engine.h"

typedef struct sl_timeline sl_timeline;

/* Opens a file for the training step, plan 0 of an engine (borrowed), from the start; a NULL path
 * gives NULL, on which every call below is fine. Takes all memory it will need. SL_ERROR_IO,
 * SL_ERROR_SYSTEM. */
sl_status sl_timeline_open(const char *path, const sl_engine_plan *step,
                           sl_timeline **out_timeline);

/* Records what the engine reports; valid as long as the timeline. */
const sl_engine_observer *sl_timeline_observer(const sl_timeline *timeline);

/* Writes what was recorded since the last call. `step` is the latest; it was called for each
 * before, from 1 on or later, and perhaps again. One thread calls it, beside the lanes. A file that
 * has grown to its limit takes no more; that is said once. SL_ERROR_IO. */
sl_status sl_timeline_write(sl_timeline *timeline, uint64_t step);

/* Ends the file. No lane may record any more. NULL is fine. */
void sl_timeline_close(sl_timeline *timeline);

#endif
