/* Reads the JSON log of a run, as --log-json writes it and while it grows.
 *
 * The log is read from its end to its start: a record counts if its step is below every step that
 * was read before. So, where a run went on from an earlier step, the later records replace the
 * earlier ones, in one pass and without a list of steps. A line that is no record is counted and
 * left out.
 */
#ifndef SL_REPORT_HISTORY_LOG_H
#define SL_REPORT_HISTORY_LOG_H

#include "history.h"

/* Adds the records of steps below `step_end` to an open run (and the evaluations made before
 * that step), and the options of the latest start where the run has none. SL_ERROR_MISSING,
 * SL_ERROR_DATA: it is no such log; SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_history_log_read(const char *path, uint64_t step_end, sl_history *run);

#endif
