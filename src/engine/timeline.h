/* What the lanes did in training steps, and when, as a file for trace viewers: a JSON array in the
 * Trace Event Format that Chrome and Perfetto read.
 *
 * One row per lane; an op is named after its kind and the value that it writes, a copy after its
 * chunk or value. One counter per tier shows the bytes that the plan has alive there, by kind, at
 * the start of each op of the compute lane, and between two such ops at the fullest tick of other
 * lanes: so its highest value is the peak. Of a loop the first two and the last two repetitions are
 * drawn, with a note of how many are left out.
 */
#ifndef SL_ENGINE_TIMELINE_H
#define SL_ENGINE_TIMELINE_H

#include <stdio.h>

#include "engine/engine.h"

/* The first bytes of each. */
#define SL_TIMELINE_START "[{\"name\":\"process_name\""

typedef struct sl_timeline sl_timeline;

/* Begins the file for the training step, plan 0 of an engine. `file`, and `path` for messages, are
 * borrowed. Allocates all memory that the timeline needs. SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_timeline_open(FILE *file, const char *path, const sl_engine_plan *step,
                           sl_timeline **out_timeline);

/* The observer to give to the engine; valid as long as the timeline. NULL gives NULL. */
const sl_engine_observer *sl_timeline_observer(const sl_timeline *timeline);

/* Writes the events recorded since the last call. `step` is the latest step; call it after each
 * step, with numbers from 1 or higher on; a repeated call is allowed. One thread calls it, while
 * the lanes may run. A file that has reached its size limit takes no more events; that is reported
 * once. NULL is fine. SL_ERROR_IO. */
sl_status sl_timeline_write(sl_timeline *timeline, uint64_t step);

/* Ends the file; nothing is written after it. SL_ERROR_IO. */
sl_status sl_timeline_finish(sl_timeline *timeline);

/* True if the timeline shows no step. */
bool sl_timeline_is_empty(const sl_timeline *timeline);

/* Frees the timeline; no lane may still record. NULL is fine. */
void sl_timeline_close(sl_timeline *timeline);

#endif
