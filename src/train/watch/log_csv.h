/* The records of steps as CSV: a line of names, then a line a step, flushed at once. Numbers read
 * back to the same value; those that are not finite are nan, inf and -inf, a switch is 0 or 1. The
 * last column is the id of the run, by which a run that goes on recognises its table. */
#ifndef SL_TRAIN_LOG_CSV_H
#define SL_TRAIN_LOG_CSV_H

#include "files/log_file.h"
#include "sink.h"

/* Whether the file at `path` may be written: it is not there, it is empty, or it is such a table;
 * to go behind what is there its columns are these. SL_ERROR_USAGE: it is not. SL_ERROR_IO. */
sl_status sl_log_csv_check(const char *path, bool append);

/* True if such a table, and not a link to one, is at `path`, and its last row is of `run`. */
bool sl_log_csv_is_own(const char *path, const char *run);

/* Opens a file and adds it to the sinks. A table that is continued is checked first.
 * SL_ERROR_USAGE, SL_ERROR_IO. */
sl_status sl_log_csv_open(const sl_log_target *target, sl_sinks *sinks);

#endif
