/* The records of steps as CSV: a line of names, then a line a step, flushed at once. Numbers read
 * back to the same value; those that are not finite are nan, inf and -inf, a switch is 0 or 1. */
#ifndef SL_TRAIN_LOG_CSV_H
#define SL_TRAIN_LOG_CSV_H

#include "sink.h"

/* Whether the file at `path` may be written: it is not there, it is empty, or it is such a table;
 * to go behind what is there its columns are these. SL_ERROR_USAGE: it is not. SL_ERROR_IO. */
sl_status sl_log_csv_check(const char *path, bool append);

/* Opens a file, behind what is there (which is checked) or from the start, and adds it.
 * SL_ERROR_USAGE, SL_ERROR_IO. */
sl_status sl_log_csv_open(const char *path, bool append, sl_sinks *sinks);

#endif
