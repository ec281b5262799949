/* The files that a run writes for people, beside its checkpoints: that no two of them are one file,
 * and that none takes the place of something else; and the timeline's, which is whole or not there.
 */
#ifndef SL_TRAIN_OUTPUTS_H
#define SL_TRAIN_OUTPUTS_H

#include "config/config.h"
#include "engine/timeline.h"
#include "files/output_file.h"

/* The timeline of a run and the file that it is to be. All 0: none. */
typedef struct sl_drawing {
    sl_timeline *timeline;
    sl_output_file output;
} sl_drawing;

/* SL_ERROR_USAGE: two options name one file, or one a file that is no such log. */
sl_status sl_outputs_check(const sl_config *config, sl_config_command command);

/* Begins the timeline of plan 0 of an engine (borrowed); a NULL path leaves it empty. Statuses of
 * sl_output_file_open. */
sl_status sl_drawing_open(const char *path, const sl_engine_plan *step, sl_drawing *out_drawing);

/* Gives the file its name, if it shows a step; the timeline takes no more. One that is empty or
 * ended is fine. Reads the plan, which must be open still. Statuses of sl_output_file_publish. */
sl_status sl_drawing_end(sl_drawing *drawing);

/* Frees it; no lane may record any more. A file that was not ended is removed. */
void sl_drawing_close(sl_drawing *drawing);

#endif
