/* The logs of a run, and its page (--report): where each one is written, and what may be there
 * already.
 *
 *   the path is named by          the log is
 *   an option of this start       written from the start; with --resume, behind what is there
 *   the checkpoint alone          continued at that path, if the file there carries the id of the
 *                                 run and the checkpoint is no copy of the one that was saved
 *   the checkpoint, and the log   a file with the same last name under --save, which is new or
 *     cannot be continued there   carries the id of the run; if something else is there, there is
 *                                 no log
 *
 * So nothing is made, emptied or added to at a path that only a checkpoint names, and a copy of a
 * run does not write into the logs of the original. A path of the last two rows whose last name is
 * a link is not followed.
 */
#ifndef SL_TRAIN_LOGS_H
#define SL_TRAIN_LOGS_H

#include "checkpoint/run_id.h"
#include "config/config.h"
#include "files/log_file.h"
#include "resume.h"
#include "train/watch/sink.h"

enum { SL_LOGS_KINDS = 4 };

typedef struct sl_logs {
    char run[SL_RUN_ID_BYTES];
    sl_log_file_mode modes[SL_LOGS_KINDS]; /* for the logs that the configuration names */
} sl_logs;

/* Decides where the logs are written. Sets the options of logs that only the checkpoint names, and
 * warns of each one that is not continued where it was. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_logs_settle(sl_config *config, const sl_resume *resume, sl_run_id run,
                         sl_logs *out_logs);

/* Opens the logs that the configuration names, for a run whose first step is `first_step`. */
sl_status sl_logs_open(const sl_logs *logs, const sl_config *config, uint64_t first_step,
                       sl_sinks *sinks);

#endif
