/* The logs of a run: at which paths, and what may be there.
 *
 *   named by an option now        from the start; behind what is there, if the run goes on
 *   named by the checkpoint       that log, if it is there, carries the id of the run, and the
 *                                 checkpoint is where it was saved, and not a copy of it
 *   else                          a file of the same name under --save, which is new or carries the
 *                                 id; where that is not so, there is no log
 *
 * So nothing is made, emptied or added to at a path that a checkpoint alone names, and a copy of a
 * run does not write into the logs of the run. Links as last names are not followed there.
 */
#ifndef SL_TRAIN_LOGS_H
#define SL_TRAIN_LOGS_H

#include "files/log_file.h"
#include "resume.h"
#include "session/checkpoint/run_id.h"
#include "session/config/config.h"
#include "train/watch/sink.h"

enum { SL_LOGS_KINDS = 3 };

typedef struct sl_logs {
    char run[SL_RUN_ID_BYTES];
    sl_log_file_mode modes[SL_LOGS_KINDS]; /* of the logs that the configuration names */
} sl_logs;

/* Fills in the logs of a checkpoint that the run goes on from, and says where a log goes that is
 * not continued. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_logs_settle(sl_config *config, const sl_resume *resume, sl_run_id run,
                         sl_logs *out_logs);

/* Opens all of them for a run whose first step is `first_step`. */
sl_status sl_logs_open(const sl_logs *logs, const sl_config *config, uint64_t first_step,
                       sl_sinks *sinks);

#endif
