/* The JSON log: one object a line, flushed at once. Lines of steps allocate nothing.
 *
 * Numbers are written so that they read back to the same value; non-finite ones as null. Each start
 * is recorded with the id of the run, by which a run that goes on recognises its log.
 */
#ifndef SL_TRAIN_LOG_JSON_H
#define SL_TRAIN_LOG_JSON_H

#include "files/log_file.h"
#include "sink.h"

/* Whether the file at `path` may be written: it is not there, it is empty, or it is such a log.
 * SL_ERROR_USAGE: it is not. */
sl_status sl_log_json_check(const char *path);

/* True if a log, and not a link to one, is at `path`, and a start of `run` is recorded in it. */
bool sl_log_json_is_own(const char *path, const char *run);

/* Opens a log and adds it to the sinks. SL_ERROR_IO; with SL_LOG_FILE_NEW SL_ERROR_USAGE. */
sl_status sl_log_json_open(const sl_log_target *target, sl_sinks *sinks);

#endif
