/* The JSON log: one object a line, flushed at once. Lines of steps allocate nothing.
 *
 * Numbers are written so that they read back to the same value; non-finite ones as null.
 */
#ifndef SL_TRAIN_LOG_JSON_H
#define SL_TRAIN_LOG_JSON_H

#include "sink.h"

/* Whether the file at `path` may be written: it is not there, it is empty, or it is such a log.
 * SL_ERROR_USAGE: it is not. */
sl_status sl_log_json_check(const char *path);

/* Opens a log at `path`, behind what is there or from the start, and adds it. SL_ERROR_IO. */
sl_status sl_log_json_open(const char *path, bool append, sl_sinks *sinks);

#endif
